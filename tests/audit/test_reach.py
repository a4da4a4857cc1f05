"""Connectivity: surveys with known faults, hosts that cannot take part, delays that do not fit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest
from tests.live import LiveLab, live

from syntony.audit.latency import misplaced_nics
from syntony.audit.reach import (
    DirectionResult,
    HostNic,
    LoadedRoundTrip,
    ReachFlow,
    RouteTrace,
    Survey,
    bad_nics,
    culprits,
)
from syntony.audit.reach_judge import judge
from syntony.audit.reach_latency import DirectionDelay
from syntony.audit.reach_plan import SurveyPlan
from syntony.audit.report.ports import port_rows
from syntony.audit.result import Result, Status
from syntony.cli import run
from syntony.fabric.graph import Topology
from syntony.io.audit.survey import boot_argv, survey
from syntony.lab.plan import FabricSpec, make_plan
from syntony.lab.topology import topology as lab_topology

LEAF_HOPS, SPINE_HOPS = 1, 3


def nics(hosts: int = 8, rails: int = 2, odd: dict[str, int] | None = None) -> tuple[HostNic, ...]:
    return tuple(
        HostNic(f"h{h}", f"rail{r}", f"10.{r}.0.{h}", (odd or {}).get(f"h{h}/rail{r}", 9000))
        for h in range(hosts)
        for r in range(rails)
    )


def made(
    lost: Callable[[ReachFlow], bool] = lambda _: False,
    *,
    place: Callable[[str], tuple[int, int]] | None = None,
    odd: dict[str, int] | None = None,
    traces: Sequence[RouteTrace] = (),
    slow: frozenset[str] = frozenset(),
) -> Survey:
    """A survey of eight hosts with two rails, four hosts under each leaf."""
    everybody = nics(odd=odd)

    def at(nic: str) -> tuple[int, int]:
        host, _, rail = nic.partition("/")
        return place(nic) if place else (int(host[1:]) // 4, int(rail[4:]))

    course = SurveyPlan(everybody)
    seen, quiet = [], {}
    for leg in (leg for host in course.next_turn() for leg in course.legs(host)):
        hops = LEAF_HOPS if at(leg.src) == at(leg.dst) else SPINE_HOPS
        gone = tuple(flow.sport for flow in leg.flows() if not flow.size and lost(flow))
        big = not any(flow.size and lost(flow) for flow in leg.flows()) if leg.size else None
        reported = DirectionResult(leg.src, leg.dst, leg.ports, gone, (), hops, big)
        seen.append(reported if reported.answered else reported._replace(hops=0))
        if reported.answered:
            quiet[reported.pair] = 900_000 if {leg.src, leg.dst} & slow else 10_000 * hops
    course.report(seen)
    return Survey(everybody, tuple(seen), tuple(traces), {}, quiet, rounds=course.rounds)


def bad(results: Sequence[Result]) -> set[tuple[str, str]]:
    return {(r.check, r.subject) for r in results if r.status in {Status.FAIL, Status.WARN}}


def test_a_good_fleet_has_no_findings() -> None:
    results = judge(made())
    assert bad(results) == set()
    assert {r.check for r in results if r.status is Status.PASS} == {
        "be.conn.rail", "be.conn.paths", "be.conn.mtu", "be.conn.cross", "be.conn.hops",
        "be.lat.pair",
    }  # fmt: skip


def test_a_dead_nic_is_named_and_its_partners_are_not() -> None:
    results = judge(made(lambda flow: "h5/rail1" in {flow.src, flow.dst}))
    assert bad(results) == {("be.conn.rail", "h5/rail1")}


def test_the_table_of_ports_tells_connectivity() -> None:
    seen = made(lambda flow: "h5/rail1" in {flow.src, flow.dst})
    named = tuple(nic._replace(rdma=f"mlx5_{nic.name[-1]}:1") for nic in seen.nics)
    rows = {(r.host, r.nic): r.connectivity for r in port_rows(judge(seen._replace(nics=named)))}
    assert rows["h5", "mlx5_1:1"] is Status.FAIL
    assert rows["h5", "mlx5_0:1"] is Status.PASS
    assert ("h0", "mlx5_0:1") in rows


def test_one_dead_pair_is_a_pair() -> None:
    results = judge(made(lambda flow: (flow.src, flow.dst) == ("h1/rail0", "h6/rail0")))
    assert bad(results) == {("be.conn.rail", "h1/rail0 -> h6/rail0")}


def test_a_small_mtu_is_named_by_its_nic_and_by_what_is_lost() -> None:
    def lost(flow: ReachFlow) -> bool:
        return flow.size > 0 and "h3/rail0" in {flow.src, flow.dst}

    assert bad(judge(made(lost, odd={"h3/rail0": 1500}))) == {("be.conn.mtu", "h3/rail0")}
    # The NIC is right: its switch port is not.
    reported = [r for r in judge(made(lost)) if r.status is Status.FAIL]
    assert [(r.check, r.subject, r.suspect.value) for r in reported] == [
        ("be.conn.mtu", "h3/rail0", "port")
    ]


def test_swapped_rails_show_in_hop_counts() -> None:
    def place(nic: str) -> tuple[int, int]:
        host, _, rail = nic.partition("/")
        swap = host == "h6"
        return int(host[1:]) // 4, int(rail[4:]) ^ swap

    assert bad(judge(made(place=place))) == {("be.conn.hops", "h6/rail0+rail1")}


def fabric() -> Topology:
    return lab_topology(make_plan(FabricSpec(hosts=8)))


def test_a_dead_member_is_named_by_what_living_flows_do() -> None:
    names = {address: name for name, address in _addresses(fabric()).items()}
    leaf, dead, alive = (_addresses(fabric())[n] for n in ("leaf0-0", "spine0", "spine1"))
    assert names[leaf] == "leaf0-0"
    lost_flow = ReachFlow("h0/rail0", "h4/rail0", 49152, 0)
    good_flow = lost_flow._replace(sport=49153)
    back = ReachFlow("h4/rail0", "h0/rail0", 49152, 0)
    traces = [
        RouteTrace(lost_flow, (leaf,)),
        RouteTrace(good_flow, (leaf, alive, "10.9.9.9", "*")),
        RouteTrace(back, (_addresses(fabric())["leaf0-1"], dead)),
    ]
    seen = made(lambda flow: flow in {lost_flow, back}, traces=traces)
    results = judge(seen, fabric())
    assert bad(results) == {("be.conn.paths", "leaf0-0--spine0")}
    # Without names of hops it is reported where flows end.
    assert ("be.conn.paths", f"behind {leaf}") in bad(judge(seen))


def test_flows_that_nobody_answered_end_at_their_sender() -> None:
    lost = [ReachFlow("h0/rail0", f"h{n}/rail0", 49152, 0) for n in (4, 5)]
    traces = [
        RouteTrace(lost[0], ()),
        RouteTrace(lost[1], ()),
        RouteTrace(lost[0]._replace(sport=1), ("a", "*")),
    ]
    (reported,) = culprits(made(traces=traces))
    assert (reported.after, reported.flows, set(reported.alive)) == ("", tuple(lost), {"a"})


def _addresses(topology: Topology) -> dict[str, str]:
    return {device.name: device.addresses[0] for device in topology.devices if device.addresses}


def test_a_slow_nic_stands_out_of_its_class() -> None:
    results = judge(made(slow=frozenset({"h2/rail0"})))
    assert bad(results) == {("be.lat.pair", "h2/rail0")}
    reported = next(r for r in results if r.check == "be.lat.pair" and r.subject == "h2/rail0")
    slow, usual = (float(said.removesuffix(" µs")) for said in (reported.got, reported.expected))
    assert 1 < usual < slow < 1_000


def test_one_direction_that_is_slower_is_named() -> None:
    pairs = [(a, b) for a in range(8) for b in range(8) if a != b]
    delays = {(f"h{a}/rail0", f"h{b}/rail0"): DirectionDelay(9e3, 8e3, 100.0) for a, b in pairs}
    delays["h1/rail0", "h6/rail0"] = DirectionDelay(30e3, 8e3, 100.0)
    assert bad(judge(made(), delays=delays)) == {("be.lat.owd", "h1/rail0 -> h6/rail0")}


def test_a_direction_that_suffers_more_under_load_is_named() -> None:
    good = made()
    loaded = {pair: LoadedRoundTrip(ns, ns + 2_000_000, 1e8) for pair, ns in good.quiet_ns.items()}
    assert bad(judge(good._replace(loaded=loaded))) == set()
    # A class of its own, where all wait longer, is usual there: only the odd one out is reported.
    slow = "h1/rail0", "h6/rail0"
    loaded[slow] = LoadedRoundTrip(30_000, 40_000_000, 8e7)
    reported = judge(good._replace(loaded=loaded))
    assert bad(reported) == {("be.lat.loaded", "h1/rail0 -> h6/rail0")}
    (said,) = [r for r in reported if r.check == "be.lat.loaded"]
    assert (said.got, said.expected) == ("39970 µs more under load", "2000 µs more")
    assert "80 Mb/s filled it" in said.evidence
    loaded[slow] = loaded[slow]._replace(loaded_ns=2_030_000, rate_bps=1e7)
    (said,) = [r for r in judge(good._replace(loaded=loaded)) if r.check == "be.lat.loaded"]
    assert (said.got, said.expected) == ("10 Mb/s fill it", "100 Mb/s")
    few = good._replace(loaded={slow: loaded[slow]})
    assert [r.status for r in judge(few) if r.check == "be.lat.loaded"] == [Status.UNKNOWN]


def test_delays_that_do_not_fit_the_plan_name_the_nic() -> None:
    """h3's cable ends in the other group: near NICs look far, far ones near."""
    group = {f"h{n}": n // 8 for n in range(16)}
    real = {**group, "h3": 1}
    pairs = [(a, b) for a in group for b in group if a != b]
    hops = {(a, b): LEAF_HOPS if group[a] == group[b] else SPINE_HOPS for a, b in pairs}
    floor = {
        (a, b): 2_000.0 + 700 * (LEAF_HOPS if real[a] == real[b] else SPINE_HOPS)
        + 7 * (int(a[1:]) + int(b[1:]))
        for a, b in pairs
    }  # fmt: skip
    assert [off.nic for off in misplaced_nics(hops, floor)] == ["h3"]
    longer = {pair: 2_000.0 + 700 * count + 900 * ("h5" in pair) for pair, count in hops.items()}
    assert [(off.nic, off.hops > 1) for off in misplaced_nics(hops, longer)] == [("h5", True)]
    with pytest.raises(ValueError, match="two classes"):
        misplaced_nics({("a", "b"): 1}, {("a", "b"): 1.0})


def test_bad_nics_are_few() -> None:
    pairs = [(f"h{a}", f"h{b}") for a in range(6) for b in range(a + 1, 6)]
    assert bad_nics([p for p in pairs if "h2" in p], pairs) == ["h2"]
    assert bad_nics([pairs[0]], pairs) == []
    assert set(bad_nics(pairs, pairs)) == {f"h{n}" for n in range(6)}


def test_hosts_that_cannot_take_part_are_unknown() -> None:
    def argv(host: str) -> Sequence[str]:
        words = {"a": ("nonexistent-program",), "b": ("sh", "-c", "echo no route >&2; exit 255")}
        return words.get(host, boot_argv(sys.executable))

    seen = survey(("a", "b", "c"), argv, ["no-such-nic*"])
    assert "No such file" in seen.silent["a"]
    assert "no route" in seen.silent["b"]
    results = judge(seen)
    assert {r.status for r in results} == {Status.UNKNOWN}
    assert {"a", "b"} <= {r.subject for r in results}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--lab", "x", "--hosts", "a"],
        ["--lab", "x", "--controller", "c:1"],
        ["--hosts", "a", "--controller", "c:1"],
        ["--hosts", "a", "--topology", "/no/such"],
        ["--hosts", "a", "--ssh-config", "/no/such"],
        ["--hosts", "a[1-"],
    ],
)
def test_wrong_orders_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "network", *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def lab() -> Iterator[LiveLab]:
    with live("audit") as running:
        yield running


def _one_member_of_two(lab: LiveLab, leaf: str) -> tuple[str, list[str]]:
    """Take spine0 out of a route of a leaf, as a session that is down on a link that is up; how to
    put it back.
    """
    reported = json.loads(lab.run(leaf, "ip", "-j", "route", "show"))
    route = next(each for each in reported if len(each.get("nexthops", ())) == 2)
    hops = {hop["dev"]: hop["gateway"] for hop in route["nexthops"]}
    lab.run(leaf, "ip", "route", "replace", route["dst"], "via", hops["spine1"], "dev", "spine1")
    back = [word for dev, via in hops.items() for word in ("nexthop", "via", via, "dev", dev)]
    return route["dst"], [route["dst"], *back]


@pytest.mark.lab
def test_three_planted_faults_are_each_named_in_a_real_fabric(
    lab: LiveLab, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "network", "--lab", lab.name, "--json"]
    assert run(words) in {0, 1}
    good = json.loads(capsys.readouterr().out)
    assert [r for r in good if r["status"] in {"fail", "unknown"}] == []
    prefix, narrow = _one_member_of_two(lab, "leaf1-1")
    lab.inject("mtu", "h3/rail0")
    lab.inject("rail-swap", "h6")
    lab.inject("blackhole", "leaf0-0/spine0")
    assert run(words) == 2
    reported = json.loads(capsys.readouterr().out)
    assert {(r["check"], r["subject"]) for r in reported if r["status"] == "fail"} == {
        ("be.conn.mtu", "h3/rail0"),
        ("be.conn.hops", "h6/rail0+rail1"),
        ("be.conn.paths", "leaf0-0--spine0"),
        ("be.topo.routes", "leaf1-1--spine0"),
    }
    (routes,) = [r for r in reported if r["check"] == "be.topo.routes" and r["status"] == "fail"]
    assert f"leaf1-1 to {prefix}" in routes["evidence"]
    lab.clear()
    lab.run("leaf1-1", "ip", "route", "replace", *narrow)
    assert run(words) in {0, 1}
    after = json.loads(capsys.readouterr().out)
    assert [r for r in after if r["status"] in {"fail", "unknown"}] == []
