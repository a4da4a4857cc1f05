"""Other jobs' traffic beside late ranks, and flows that wait for themselves (docs/decisions/0487
and 0488): each with a neighbour in which nothing is to be named."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from tests.workload.made import MS, T0, bundle
from tests.workload.test_busy_jobs import SEED, UP, adds, bursts, busy, utilised
from tests.workload.test_exceptions import MESH, NICS, WINDOWS, finding, star
from tests.workload.test_rules import AFTER, US, mesh, of_flow

from syntony.model.names import host_of
from syntony.workload import FaultClass
from syntony.workload.changed_links import ChangedLink
from syntony.workload.classes import (
    _changed_link,
    class_mismatch,
    contention,
    incast,
    slow_flow,
)
from syntony.workload.diagnose import _causes, _exceptions, _ties
from syntony.workload.facts import BundleFacts
from syntony.workload.verdict import Alternative, RuleFinding

F = FaultClass


@pytest.fixture(autouse=True)
def _seed() -> None:
    print(f"seed {SEED}")


def excluding(found: RuleFinding, fault: FaultClass) -> RuleFinding:
    why = Alternative(fault, excluded=True, reason="")
    return msgspec.structs.replace(found, alternatives=(why,))


def test_a_link_that_strangers_fill_need_not_stand_out_by_delays() -> None:
    alike = [finding(F.CONTENTION, f"link{each}", delay=9e4) for each in range(4)]
    full = msgspec.structs.replace(finding(F.CONTENTION, "up", delay=2e4), direct=True)
    assert _exceptions([full, *alike], early_ns=50)[0] == [full]


@pytest.mark.parametrize(("more", "named"), [(1.6, False), (6.0, True)])
def test_a_full_link_harms_if_its_queue_is_as_long_as_the_path(more: float, named: bool) -> None:
    """Of 4 µs; no flow waits otherwise."""
    made = mesh()
    flows = made["flows"]
    flows["hops"] = [(path[0], "up", path[1]) if place % len(MESH) in UP else path
                     for place, path in enumerate(flows["hops"])]  # fmt: skip
    utilised(made, "up", 0.95)
    adds(made, UP, more * US)
    assert [each.links for each in BundleFacts(bundle(made)).full_links] == [("up",)] * named


@pytest.mark.parametrize(
    ("fault", "host", "named"),
    [
        (F.STRAGGLER, "elsewhere", True),
        (F.STRAGGLER, "h0", True),  # one of three senders across the link
        (F.STRAGGLER, "h0 h1 h2", True),  # whose flows across other links do not wait
        (F.SLOW_FLOW, "elsewhere", True),
        (F.PCIE, "elsewhere", False),  # a slot delays packets
    ],
)
def test_a_changed_link_is_named_beside_a_rank_that_only_comes_late(
    fault: FaultClass, host: str, named: bool
) -> None:
    facts = BundleFacts(bundle(bursts(8.0, UP)))
    cause = msgspec.structs.replace(finding(fault, "rank 9"), hosts=frozenset(host.split()))
    found = _changed_link.find(facts, [cause]) if _changed_link.beside([cause]) else []
    assert [each.subjects for each in found] == ([("up",)] if named else [])


def test_delays_of_a_flow_that_waits_for_itself_show_nothing_of_its_links() -> None:
    made = mesh()
    flows = made["flows"]
    flows["hops"] = [(path[0], "up", path[1]) if place % len(MESH) in UP else path
                     for place, path in enumerate(flows["hops"])]  # fmt: skip
    adds(made, UP, 30 * US)
    facts = BundleFacts(bundle(made))
    slow = [finding(F.SLOW_FLOW, f"qp{flow}", flows=(flow,)) for flow in UP]
    assert [each.subjects for each in _changed_link.find(facts, slow[:2])] == [("up",)]
    assert _changed_link.find(facts, slow[1:]) == []


@pytest.mark.parametrize(
    ("delay", "flow", "own", "named"),
    [
        (9e4, 1, False, False),
        (2.1e5, 1, False, True),  # twice as long as all at the link
        (9e4, 7, False, True),  # across others
        (9e4, 1, True, True),
    ],
)
def test_a_changed_link_replaces_a_slow_flow_that_waits_there_as_others(
    delay: float, flow: int, own: bool, named: bool
) -> None:
    link = finding(F.CONTENTION, "up", delay=1e5, flows=(1, 2, 3))
    slow = finding(F.SLOW_FLOW, "qp", delay=delay, flows=(flow,))
    slow = msgspec.structs.replace(slow, direct=own)
    assert _changed_link.replaces(link, slow) is not named
    assert not _changed_link.replaces(link, finding(F.STRAGGLER, "rank 1", flows=(1,)))


@pytest.mark.parametrize(("longest", "beyond"), [(80.0, False), (20.0, True)])
def test_the_longest_of_few_waits_bounds_a_queue(longest: float, beyond: bool) -> None:
    """Of six flows between two NICs one waits for 100 µs since it began; the others sent in seven
    windows each, and waited so long in one of them."""
    made = star([("a/n", "b/n")] * 6 + [("c/n", "d/n")] * 6)
    delay = made["flows"]["owd_p50_ns"] = np.full(WINDOWS * 12, 4.0 * US)
    at = delay.reshape(WINDOWS, 12)
    at[AFTER:, 0] = 100 * US
    at[:, 1:6] = np.nan
    at[4::6, 1:6] = 4 * US
    at[28, 1:6] = longest * US
    assert [*BundleFacts(bundle(made)).beyond_queues] == [0] * beyond


@pytest.mark.parametrize(("silent", "late"), [(True, False), (False, True)])
def test_flows_that_began_late_and_wait_since_then_did_not_come_to_wait(
    silent: bool, late: bool
) -> None:
    made = mesh()
    delays = made["flows"]["owd_p50_ns"].reshape(WINDOWS, len(MESH))
    delays[:AFTER, UP[1:]] = np.nan if silent else 4 * US
    delays[AFTER:, UP] += 100 * US
    assert BundleFacts(bundle(made)).always_late(UP) is not late


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_late_rank_whose_flows_wait_at_all_links_explains_a_changed_one(elsewhere: bool) -> None:
    hosts = frozenset({"h0", "h1", "h2"})
    theirs = [flow for flow, pair in enumerate(MESH)
              if not hosts.isdisjoint(host_of(each) for each in pair)]  # fmt: skip
    facts = BundleFacts(bundle(bursts(8.0, theirs if elsewhere else UP)))
    begin_ns, last_ns = T0 + AFTER * 100 * MS, T0 + WINDOWS * 100 * MS
    up = ChangedLink(("up",), frozenset(UP), begin_ns, last_ns, 9.0, 1.0, 8.0, 9e4, 9e3, 0, 9,
                     longer=True)  # fmt: skip
    cause = msgspec.structs.replace(finding(F.STRAGGLER, "rank 0"), hosts=hosts)
    assert _changed_link._apart(facts, up, [cause]) is not elsewhere


def test_beside_a_late_rank_flows_must_wait_longer_than_before() -> None:
    """All other flows wait for less since the rank is late; those across the link nearly as
    before."""
    made = bursts(1.0, [])
    delays = made["flows"]["owd_p50_ns"].reshape(WINDOWS, len(MESH))
    delays[:AFTER] *= 30
    delays[:AFTER, UP] = 120 * US
    delays[AFTER:, UP] = 132 * US
    facts = BundleFacts(bundle(made))
    cause = finding(F.STRAGGLER, "rank 9")
    assert [each.subjects for each in _changed_link.find(facts)] == [("up",)]
    assert _changed_link.find(facts, [cause]) == []


@pytest.mark.parametrize(
    ("more", "begin", "beyond"),
    [
        (150.0, AFTER, True),
        (30.0, AFTER, False),  # bursts of its own may be as long
        (150.0, 0, False),  # it was always so
    ],
)
def test_a_flow_that_waits_twice_as_long_as_all_on_its_path_waits_for_itself(
    more: float, begin: int, beyond: bool
) -> None:
    """Six flows between two NICs, one link each way: five wait for 45 to 50 µs, as all did."""
    made = star([("a/n", "b/n")] * 6 + [("c/n", "d/n")] * 6)
    rng = np.random.default_rng(SEED)
    flows = made["flows"]
    delay = flows["owd_p50_ns"] = rng.uniform(45, 50, WINDOWS * 12) * US
    delay.reshape(WINDOWS, 12)[:6] = 4 * US
    delay.reshape(WINDOWS, 12)[begin:, 0] += more * US
    facts = BundleFacts(bundle(made))
    assert ([*facts.beyond_queues] == [0]) is beyond
    found = [each for each in slow_flow.find(facts) if each.subjects == ("qp0",)]
    assert [each.direct for each in found] == [True] * beyond


def test_the_queues_of_a_path_add_up() -> None:
    """One flow crosses two links; others wait 50 µs at each of them alone."""
    pairs = [("a/n", "b/n")] + [("a/n", "c/n")] * 3 + [("d/n", "b/n")] * 3
    made = star(pairs)
    delay = made["flows"]["owd_p50_ns"] = np.full(WINDOWS * len(pairs), 4.0 * US)
    at = delay.reshape(WINDOWS, len(pairs))
    at[AFTER:, 1:] += 50 * US
    at[AFTER:, 0] += 150 * US
    assert [*BundleFacts(bundle(made)).beyond_queues] == []
    at[AFTER:, 0] += 80 * US
    assert [*BundleFacts(bundle(made)).beyond_queues] == [0]


def test_what_holds_up_a_job_explains_no_flow_that_waits_for_itself() -> None:
    jitter = finding(F.HOST_JITTER, "h9", flows=(7,))
    slow = finding(F.SLOW_FLOW, "qp1", flows=(1,), delay=9e4, rate=1.9)
    assert _causes([jitter, slow])[0] == [jitter]
    own = msgspec.structs.replace(slow, direct=True)
    assert _causes([jitter, own])[0] == [jitter, own]


@pytest.mark.parametrize("both", [True, False])
def test_causes_that_exclude_each_other_are_two(both: bool) -> None:
    """A GPU with a low clock on a host that is short of CPU."""
    jitter = excluding(finding(F.HOST_JITTER, "h1", flows=(1,)), F.GPU_THROTTLE)
    throttle = finding(F.GPU_THROTTLE, "G1", flows=(1,))
    if both:
        throttle = excluding(throttle, F.HOST_JITTER)
    faults = [each.fault for each in _ties([jitter, throttle])]
    assert faults == ([F.HOST_JITTER, F.GPU_THROTTLE] if both else [F.UNDETERMINED])


def test_a_class_is_compared_since_all_of_its_pairs_wait() -> None:
    """Two of eight flows also waited in bursts long before, so that each alone is late since
    then."""
    pairs = [(f"{one}/{nic}", f"{other}/{nic}")
             for one, other in (("a", "b"), ("b", "a")) for nic in "mnop"]  # fmt: skip
    made = star(pairs)
    flows = made["flows"]
    flows["tc"] = np.full(len(flows["at_ns"]), 104.0)
    window = (flows["at_ns"] - T0) // (100 * MS)
    flows["owd_p50_ns"] = (2 + 60 * (window >= 26)) * US
    early = np.arange(len(window)) % len(pairs) < 2
    flows["owd_p50_ns"] += early * (window >= 3) * (window < 26) * (window % 5 < 3) * 9 * US
    keys = [(pair, kind, at) for at in range(WINDOWS) for pair in pairs for kind in (0, 1)]
    waits = np.array([60 * kind * (at >= 26) for _, kind, at in keys])
    made["probes"] = {
        "at_ns": T0 + np.array([at for *_, at in keys]) * 100 * MS,
        "src": [pair[0] for pair, *_ in keys], "dst": [pair[1] for pair, *_ in keys],
        "tc": np.array([104.0 * kind for _, kind, _ in keys]),
        "owd_p50_ns": (2 + waits) * US, "owd_p99_ns": (2 + waits) * US,
    }  # fmt: skip
    facts = BundleFacts(bundle(made))
    assert facts.flows is not None
    assert min(each.first for each in facts.flows.late.values()) < 10
    (found,) = class_mismatch.find(facts)
    assert len(found.flows) == len(pairs)


@pytest.mark.parametrize(("elsewhere", "sure"), [(1, True), (4, False)])
def test_flows_that_wait_as_long_elsewhere_make_a_queue_the_jobs_own(
    elsewhere: int, sure: bool
) -> None:
    """Since the recording began, 20 times as long as others, before so many NICs."""
    made = mesh()
    for nic in NICS[:elsewhere]:
        into = [flow for flow, (_, dst) in enumerate(MESH) if dst == nic]
        for flow in into:
            made["flows"]["owd_p50_ns"].reshape(WINDOWS, len(MESH))[:, flow] += 80 * US
    found = incast.find(BundleFacts(bundle(made)))
    assert len(found) == elsewhere
    assert all((each.confidence >= 0.5) is sure for each in found)


def test_flows_across_a_link_do_not_wait_for_themselves() -> None:
    made = busy()
    adds(made, UP, 300 * US)
    assert not set(UP) & set(BundleFacts(bundle(made)).beyond_queues)


@pytest.mark.parametrize("together", [False, True])
def test_flows_that_send_at_different_times_do_not_clear_their_link(together: bool) -> None:
    """Two flows share a link; one waits for 60 µs, the other, in windows of its own, for 12 µs, and
    now and then for 45 µs."""
    made = mesh()
    flows = made["flows"]
    one, other = MESH.index((NICS[0], NICS[5])), MESH.index((NICS[1], NICS[6]))
    flows["hops"] = [(path[0], "up", path[1]) if place % len(MESH) in {one, other} else path
                     for place, path in enumerate(flows["hops"])]  # fmt: skip
    for flow, parity, more in ((one, 0, 60.0), (other, 1, 12.0)):
        delays = of_flow(flows["owd_p50_ns"], flow, 0)
        delays[AFTER:] += more * US
        if flow == other:
            delays[AFTER::8] += 33 * US
        if not together:
            delays[np.arange(WINDOWS) % 2 != parity] = np.nan
    found = contention.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == [("up",)] * (not together)
