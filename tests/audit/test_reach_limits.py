"""Surveys where nothing can be said, rails that are joined by half, delays near their limits."""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from tests.audit.fabrics import Port, Wiring
from tests.audit.paper import DENIED, PaperHost, Text, port, readings, verdicts, worst
from tests.audit.test_fabric import cabling
from tests.audit.test_reach import made, nics
from tests.audit.test_routing import PLAN, TOPOLOGY, tables

from syntony.audit.checks.counters import pfc_priorities
from syntony.audit.checks.gpus import dcgm_tests
from syntony.audit.checks.hierarchy import _place, _reported, _same
from syntony.audit.fabric_check import audit_fabric
from syntony.audit.nccl.plan import Case, NcclJob, command, flat_order, hostfile_text
from syntony.audit.pairs import limit_of
from syntony.audit.parse.routes import KernelRoute, RoutingTable
from syntony.audit.rdma import is_spare, parse_ibstat, rdma_ports
from syntony.audit.reach import DirectionResult, LoadedRoundTrip, RouteTrace, Survey
from syntony.audit.reach_judge import judge
from syntony.audit.reach_latency import LOADED_TIMES, SLOW_SHARE, DirectionDelay
from syntony.audit.result import Result, Status
from syntony.audit.routing import _circles, judge_routes
from syntony.errors import UsageError
from syntony.links.ports import PortState

# --- connectivity ---


def reported(results: Sequence[Result], check: str) -> list[tuple[str, str, str]]:
    return [(r.status.value, r.subject, r.got) for r in results if r.check == check]


@pytest.mark.parametrize(
    ("survey", "why"),
    [
        (Survey((), (), silent={"h1": "no ssh", "h2": "no ssh"}), "none of 2 hosts"),
        (Survey((), ()), "no host has such NICs"),
        (Survey(nics(2, 1), ()), "no two hosts have NICs of one name"),
        (Survey(nics(2, 1), (DirectionResult("h0/rail0", "h1/rail0", 0),)), "no two hosts"),
    ],
)
def test_a_survey_of_nothing_is_unknown_in_every_check(survey: Survey, why: str) -> None:
    results = judge(survey)
    assert {r.status for r in results} == {Status.UNKNOWN}
    assert len({r.check for r in results}) == 9
    assert all(why in r.evidence for r in results if r.subject == "fleet")
    assert {r.subject for r in results} - {"fleet"} == set(survey.silent)


def test_where_nobody_answers_one_cause_is_told_for_all() -> None:
    results = judge(made(lambda _: True))
    assert [(s, at) for s, at, _ in reported(results, "be.conn.rail")] == [("fail", "fleet")]
    assert [s for s, _, _ in reported(results, "be.conn.mtu")] == ["unknown"]
    assert [s for s, _, _ in reported(results, "be.lat.pair")] == ["unknown"]


CROSS = [(f"h{a}/rail{r}", f"h{b}/rail{1 - r}")
         for a in range(4) for b in range(4) if a != b for r in (0, 1)]  # fmt: skip


def crossed(dead: set[tuple[str, str]]) -> Survey:
    rails = [DirectionResult(f"h{a}/rail{r}", f"h{b}/rail{r}", 16, hops=1)
             for a in range(4) for b in range(4) if a != b for r in (0, 1)]  # fmt: skip
    requested = [
        DirectionResult(a, b, 1, (49_152,) if (a, b) in dead else (), hops=3) for a, b in CROSS
    ]
    return Survey(nics(4, 2), (*rails, *requested), rounds=3)


@pytest.mark.parametrize(
    ("dead", "told_"),
    [
        (set(), [("pass", "fleet")]), (set(CROSS), [("pass", "fleet")]),
        (set(CROSS[:1]), [("fail", "fleet")]),
        ({p for p in CROSS if "h2/rail1" in p}, [("fail", "h2/rail1")]),
        ({p for p in CROSS if "h2/rail1" not in p}, [("fail", "h2/rail1")]),
        ({p for p in CROSS if int(p[0][1]) % 2}, [("unknown", "fleet")]),
    ],
)  # fmt: skip
def test_rails_are_joined_or_separate_and_exceptions_are_named(
    dead: set[tuple[str, str]], told_: list[tuple[str, str]]
) -> None:
    found = reported(judge(crossed(dead)), "be.conn.cross")
    assert [(status, at) for status, at, _ in found] == told_
    if found[0][0] == "fail":  # an exception to rails that are joined, or to separate ones
        assert found[0][2].endswith("are dead" if len(dead) < len(CROSS) / 2 else "pass")


def test_without_pairs_across_rails_nothing_is_said_of_them() -> None:
    alone = crossed(set())
    rails = alone._replace(seen=tuple(s for s in alone.seen if s.same_rail))
    assert reported(judge(rails), "be.conn.cross") == [("skip", "fleet", "")]


def test_flows_that_are_lost_and_not_traced_are_told_with_the_worst_direction() -> None:
    seen = [DirectionResult("h0/rail0", "h1/rail0", 16, (1, 2), (3,), 1),
            DirectionResult("h1/rail0", "h0/rail0", 16),
            DirectionResult("h0/rail0", "h2/rail0", 16, (1,), (), 1)]  # fmt: skip
    survey = Survey(nics(3, 1), tuple(seen))
    (result,) = [r for r in judge(survey) if r.check == "be.conn.paths"]
    assert (result.status, result.subject) == (Status.FAIL, "fleet")
    assert result.got == "2 directions: of 32 flows 3 lost, 1 replies lost"
    assert "worst h0/rail0 to h1/rail0: 2 lost, 1 replies lost of 16" in result.evidence


@pytest.mark.parametrize(("skew_ns", "named"), [(-1.0, False), (1.0, True)])
def test_one_direction_beyond_its_limit_and_three_clock_errors(skew_ns: float, named: bool) -> None:
    pairs = [(a, b) for a in range(8) for b in range(8) if a != b]
    delays = {(f"h{a}/rail0", f"h{b}/rail0"): DirectionDelay(9e3, 8e3, 100.0) for a, b in pairs}
    odd = "h1/rail0", "h6/rail0"
    limit, _ = limit_of([0.0] * 100)
    delays[odd] = DirectionDelay(9e3 + limit + 3 * 200.0 + skew_ns, 8e3, 100.0)
    found = [(at, s) for s, at, _ in reported(judge(made(), delays=delays), "be.lat.owd")]
    assert (("h1/rail0 -> h6/rail0", "warn") in found) is named
    one_way = {odd: delays[odd]}
    assert [s for s, _, _ in reported(judge(made(), delays=one_way), "be.lat.owd")] == ["unknown"]
    assert [s for s, _, _ in reported(judge(made()), "be.lat.owd")] == ["skip"]


@pytest.mark.parametrize(
    ("part", "slow"), [(SLOW_SHARE, False), (SLOW_SHARE * 0.99, True)]
)  # fmt: skip
def test_a_path_that_little_fills_is_slow(part: float, slow: bool) -> None:
    good = made()
    loaded = {pair: LoadedRoundTrip(ns, ns + 2_000_000, 1e8) for pair, ns in good.quiet_ns.items()}
    pair = "h1/rail0", "h6/rail0"
    loaded[pair] = loaded[pair]._replace(rate_bps=part * 1e8)
    found = reported(judge(good._replace(loaded=loaded)), "be.lat.loaded")
    assert (found[0][0] == "warn") is slow
    assert LOADED_TIMES > 3, "alike queues were seen to differ by three times"


def test_too_few_delays_beside_a_plan_are_unknown() -> None:
    assert [s for s, _, _ in reported(judge(made(), TOPOLOGY), "be.lat.floor")] == ["pass"]
    few = made()._replace(quiet_ns=dict(list(made().quiet_ns.items())[:7]))
    assert [s for s, _, _ in reported(judge(few, TOPOLOGY), "be.lat.floor")] == ["unknown"]
    assert [s for s, _, _ in reported(judge(made()), "be.lat.floor")] == ["skip"]


def test_delays_of_nics_that_are_not_of_the_plan_are_left_out() -> None:
    survey = made()
    quiet = {**survey.quiet_ns, ("x1/rail0", "x2/rail0"): 9_000_000}
    found = reported(judge(survey._replace(quiet_ns=quiet), TOPOLOGY), "be.lat.floor")
    assert [s for s, _, _ in found] == ["pass"]


def test_a_trace_arrives_when_its_last_hop_is_the_far_end() -> None:
    for hops, arrived in ((("a", "*"), True), (("*", "a"), False), ((), False), (("*",), True)):
        assert RouteTrace(None, hops).arrived is arrived  # type: ignore[arg-type]


# --- routes ---


def route(prefix: str, *hops: str, table: str = "main", thrown: str = "") -> KernelRoute:
    return KernelRoute(table, ipaddress.ip_network(prefix), hops, thrown)


def test_a_destination_goes_by_the_longest_prefix_of_the_main_table() -> None:
    """Two switches that send it to each other by different prefixes."""
    one = RoutingTable("s1", frozenset({"10.0.0.1"}), (
        route("10.7.0.0/16", "10.0.0.2"), route("0.0.0.0/0", "10.0.0.9")))  # fmt: skip
    for theirs, goes_round in (
        ((route("10.0.0.0/8", "10.0.0.1"),), True),
        ((route("10.0.0.0/8", "10.0.0.1"), route("10.7.0.0/17", "10.0.0.9")), True),
        ((route("10.0.0.0/8", "10.0.0.1"), route("10.7.0.0/16", "10.0.0.9")), False),
        ((route("10.0.0.0/8", "10.0.0.1", table="7"),), False),
        ((route("0.0.0.0/0", "10.0.0.9"), route("10.0.0.0/8", "10.0.0.1")), True),
        ((route("0.0.0.0/0", "10.0.0.1"), route("10.0.0.0/8", "10.0.0.9")), False),
    ):  # fmt: skip
        other = RoutingTable("s2", frozenset({"10.0.0.2"}), theirs)
        circles = [r for r in judge_routes([one, other]) if "10.7.0.0/16 goes round" in r.got]
        assert bool(circles) is goes_round, theirs


def test_circles_are_found_once_whoever_comes_first() -> None:
    assert list(_circles({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == [("a", "b", "c")]
    assert list(_circles({"x": {"a"}, "a": {"b"}, "b": {"a"}})) == [("a", "b")]
    assert list(_circles({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()})) == []
    assert list(_circles({"a": {"gone"}})) == []
    assert [set(c) for c in _circles({"a": {"a"}})] == [{"a"}]


def test_a_plan_with_a_leaf_that_lost_all_ways_to_one_destination() -> None:
    made_ = tables()
    leaf = made_[PLAN.leaves[0]]
    far = next(r for r in leaf.routes if len(r.hops) > 1)
    made_[PLAN.leaves[0]] = leaf._replace(routes=tuple(r for r in leaf.routes if r != far))
    results = judge_routes(list(made_.values()), TOPOLOGY)
    used = [r for r in results if r.status is Status.FAIL and "not used for" in r.got]
    assert len(used) == len(far.hops)
    assert all(PLAN.leaves[0] in r.subject for r in used)


# --- an expected file ---


def compared(change: Callable[[Wiring], None]) -> dict[str, tuple[str, str, str]]:
    """What differs from the plan: subject to status, what was found and what was planned."""
    found = Wiring()
    change(found)
    results = audit_fabric(cabling(found.text(0)), cabling(Wiring().text(0)))
    return {r.subject: (r.status.value, r.got, r.expected) for r in results
            if r.check == "be.topo.links"}  # fmt: skip


def test_what_differs_from_the_plan_is_named_with_both() -> None:
    assert {s for s, _, _ in compared(lambda _: None).values()} == {"pass"}

    def dark(wiring: Wiring) -> None:
        wiring.cut(Port("leaf-01-01", 2))

    assert compared(dark) == {"gpu0001/mlx5_0": ("fail", "absent", "leaf-01-01 port 2")}

    def swapped(wiring: Wiring) -> None:
        wiring.swap(Port("leaf-01-01", 2), Port("leaf-02-01", 2))

    assert compared(swapped) == {
        "gpu0001/mlx5_0 <-> gpu0001/mlx5_1": (
            "fail", "leaf-02-01 port 2, leaf-01-01 port 2", "leaf-01-01 port 2, leaf-02-01 port 2"
        )
    }  # fmt: skip

    def moved(wiring: Wiring) -> None:
        far = wiring.far[Port("leaf-01-01", 2)]
        wiring.cut(Port("leaf-01-01", 2))
        wiring.join(Port("leaf-01-01", 30), far)

    assert compared(moved) == {
        "gpu0001/mlx5_0": ("fail", "leaf-01-01 port 30", "leaf-01-01 port 2")
    }

    def shorter(wiring: Wiring) -> None:
        wiring.cut(Port("leaf-01-01", 5))

    assert compared(shorter) == {"leaf-01-01--spine0": ("fail", "1 links", "2 links")}

    def longer(wiring: Wiring) -> None:
        wiring.join(Port("leaf-01-01", 30), Port("spine0", 60))

    assert compared(longer) == {"leaf-01-01--spine0": ("warn", "3 links", "2 links")}

    def more(wiring: Wiring) -> None:
        wiring.join(Port("leaf-01-01", 30), Port("gpu9999 mlx5_0", 1))

    assert compared(more) == {"gpu9999/mlx5_0": ("warn", "leaf-01-01 port 30", "absent")}


def test_places_and_ports() -> None:
    assert _same("1", "1")
    assert _same("", "1")
    assert _same("1", "")
    assert not _same("1", "2")
    assert _place(None) == "absent"
    assert _reported("missing", Counter()) == ""
    assert _reported("extra", Counter({("1", "2"): 1})) == "1 extra: port 1 to port 2"
    assert _reported("extra", Counter({("", ""): 2})) == "2 extra"
    assert Port("leaf", 1).node == "leaf"


# --- hosts ---

CARD = "/sys/class/infiniband"


@pytest.mark.parametrize(
    ("state", "beside", "files", "spare"),
    [
        (PortState.NO_PEER, PortState.ACTIVE, {}, True),
        (PortState.DISABLED, PortState.ACTIVE, {}, True),
        (PortState.ACTIVE, PortState.ACTIVE, {}, False),
        (PortState.NO_PEER, PortState.NO_PEER, {}, False),
    ],
)
def test_a_dark_port_beside_an_active_one_is_spare(
    state: PortState, beside: PortState, files: dict[str, Text], spare: bool
) -> None:
    ports = (port("mlx5_0:1", state=state), port("mlx5_0:2", state=beside))
    host = PaperHost({**files, f"{CARD}/mlx5_0/board_id": "X"}, {}, ports)
    assert is_spare(host, rdma_ports(host)[0]) is spare


@pytest.mark.parametrize(
    ("address", "master", "spare"),
    [(None, False, True), ("10.0.0.1", False, False), ("fe80::1", False, True),
     (None, True, False), ("denied", False, False)],
)  # fmt: skip
def test_a_dark_port_with_an_address_or_in_a_bond_is_meant_to_be_used(
    address: str | None, master: bool, spare: bool
) -> None:
    info = [{"local": address, "prefixlen": 24}] if address else []
    listing: Text = json.dumps([{"ifname": "eth0", "addr_info": info}])
    files: dict[str, Text] = {f"{CARD}/mlx5_0/board_id": "X"}
    if master:
        files["/sys/class/net/eth0/master/x"] = ""
    command_ = "ip -j address show"
    ports = (port("mlx5_0:1", netdev="eth0", state=PortState.NO_PEER), port("mlx5_0:2"))
    host = PaperHost(files, {command_: DENIED if address == "denied" else listing}, ports)
    assert is_spare(host, rdma_ports(host)[0]) is spare


IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tBase lid: 7
\t\tSM lid: 1
\t\tLink layer: IB
\tPort 2:
\t\tState: Down
\t\tPhysical state: Polling
\t\tLink layer: Ethernet
CA 'mlx5_1'
\tPort 1:
\t\tState: Nonsense
"""


def test_ports_of_ibstat() -> None:
    first, second, third = parse_ibstat(IBSTAT)
    assert (first.device, first.number, first.layer, first.lid) == (
        "mlx5_0",
        "1",
        "InfiniBand",
        "7",
    )
    assert (first.state, first.rate_text) == (PortState.ACTIVE, "400 Gb/sec")
    assert (second.number, second.layer, second.rate) == ("2", "Ethernet", None)
    assert second.state is not PortState.ACTIVE
    assert (third.device, third.layer) == ("mlx5_1", "unknown")
    assert third.state is PortState.UNKNOWN


@pytest.mark.parametrize(
    ("text", "bad"),
    [("Raw Physical BER : 1E-9", set()), (DENIED, {"unknown mlx5_0:1"}), (None, {"skip"}),
     ("nothing", {"unknown mlx5_0:1"})],
)  # fmt: skip
def test_bit_errors_where_mlxlink_does_not_tell(text: Text | None, bad: set[str]) -> None:
    commands = {} if text is None else {"mlxlink -d mlx5_0 -p 1 -c -e -m": text}
    assert worst("be.act.ber", PaperHost({}, commands, (port(),))) == bad
    assert worst("be.act.ber", PaperHost({}, commands, (port("bnxt_0:1"),))) == {"skip bnxt_0:1"}


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ({"prio-pfc": [False, False, False, True]}, [3]), ({"prio-pfc": {"3": "off", "x": 1}}, []),
        ({"prio_pfc": {"0": "on", "3": 1}}, [0, 3]), ({"prio-pfc": 5}, None), ({}, None),
        ([], None),
    ],
)  # fmt: skip
def test_priorities_with_flow_control(text: Any, on: list[int] | None) -> None:
    assert pfc_priorities(text) == on


def test_lossless_queues_of_a_port_without_an_interface_are_unknown() -> None:
    bare = port("mlx5_0:1", "Ethernet")
    assert "unknown mlx5_0:1" in worst("be.act.qos", PaperHost({}, {}, (bare,)))
    assert worst("be.act.qos", PaperHost({}, {}, (port(),))) == {"skip"}
    eth = port("mlx5_0:1", "Ethernet", netdev="eth0")
    shown = {"dcb -j pfc show dev eth0": '{"prio-pfc": {"3": true}}',
             "dcb -j app show dev eth0": '{"dscp_prio": [[26, 3]]}'}  # fmt: skip
    assert readings("be.act.qos", PaperHost({}, shown, (eth,))) == {
        ("be.qos.pfc", ""): "3", ("be.qos.trust", ""): "dscp"
    }  # fmt: skip
    shown["dcb -j app show dev eth0"] = "{}"
    assert readings("be.act.qos", PaperHost({}, shown, (eth,)))["be.qos.trust", ""] == "pcp"


def test_tests_of_dcgm_at_any_depth() -> None:
    document = {"DCGM": {"categories": [{"tests": [
        {"name": "Memory", "results": [{"status": "PASS"}, {"x": 1}, 5,
                                       {"status": "Fail", "warnings": "w" * 200}]},
        {"name": 5, "results": [{"status": "Pass"}]}]}]}}  # fmt: skip
    assert list(dcgm_tests(document)) == [("Memory", "pass", ""), ("Memory", "fail", "w" * 120)]
    shown = {"dcgmi diag -r 1 -j": json.dumps(document)}
    gpu: dict[str, Text] = {"/sys/bus/pci/devices/0000:03:00.0/vendor": "0x10de",
                            "/sys/bus/pci/devices/0000:03:00.0/class": "0x030200"}  # fmt: skip
    found = verdicts("node.dcgm", PaperHost(gpu, shown))
    assert [status for status, _, _ in found] == ["pass", "fail"]


# --- command lines ---

JOB = NcclJob(
    binary="all_reduce_perf", launcher="none", gpus=8, iterations=7, environment={"A": "b"}
)


def test_how_each_launcher_is_told_its_ranks() -> None:
    case = Case(4, ordered=True)
    assert case.check == "nccl.4qp-hier"
    assert Case(1, ordered=False).check == "nccl.1qp"
    words = command(case, JOB, ["h1"], "out.json")
    assert words[words.index("-g") + 1] == "8"
    assert words[words.index("-n") + 1] == "7"
    assert words[-2:] == ("-J", "out.json")
    by_mpi = command(case, job(launcher="mpirun"), ["h1", "h2"], "out.json")
    assert by_mpi[by_mpi.index("--host") + 1] == "h1:8,h2:8"
    assert by_mpi[by_mpi.index("-np") + 1] == "16"
    assert "NCCL_IB_QPS_PER_CONNECTION=4" in by_mpi
    assert "A=b" in by_mpi
    assert by_mpi[by_mpi.index("-g") + 1] == "1"
    by_srun = command(case, job(launcher="srun"), ["h1", "h2"], "out.json", "file")
    assert by_srun[1:5] == ("--nodes", "2", "--ntasks", "16")
    assert "--nodelist=file" in by_srun
    for told_, hosts in ((JOB, ["h1", "h2"]), (job(launcher="ssh"), ["h1"])):
        with pytest.raises(UsageError):
            command(case, told_, hosts, "out.json")
    assert hostfile_text(["a", "b"], 2) == "a\na\nb\nb\n"


def job(**changes: Any) -> NcclJob:
    return msgspec.structs.replace(JOB, **changes)


@pytest.mark.parametrize(
    ("hosts", "groups", "order"),
    [
        ("abcd", {"a": "1", "b": "1", "c": "2", "d": "2"}, "acbd"),
        ("acbd", {"a": "1", "b": "1", "c": "2", "d": "2"}, "acbd"),
        ("abc", {"a": "1", "b": "1", "c": "1"}, "abc"), ("abc", {}, "abc"),
        ("abc", {"a": "1", "b": "1", "c": "2"}, "acb"),
    ],
)  # fmt: skip
def test_a_flat_order_is_not_the_hierarchys(hosts: str, groups: dict[str, str], order: str) -> None:
    assert "".join(flat_order(tuple(hosts), groups)) == order
