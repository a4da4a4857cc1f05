"""What carriers and probes of other pairs say of a path that nobody probes, row by row."""

from __future__ import annotations

import pytest
from tests.traffic.one_end import NOW, POLICY, life, nics

from syntony.model import MS, S
from syntony.model.paths import LinkEvent
from syntony.traffic.health import Health
from syntony.traffic.instructions import Cause
from syntony.traffic.pairs import Reply, WatchedFlow

FLOWS = [
    WatchedFlow(100 * rail + 10 * peer + n, f"nic{rail}", f"10.{rail}.0.{peer}",
                f"p{peer}/nic{rail}", rail)
    for rail in (0, 1) for peer in (2, 3) for n in (0, 1)
]  # fmt: skip


def health(*alive: int) -> Health:
    """Two NICs, two peers on the rail of each, two flows to each: 120 and 121 are nic1's to p2."""
    found = Health(POLICY, nics())
    found.watch(FLOWS)
    for flow in FLOWS:
        found.liveness(life(flow.flow_id, NOW, alive=flow.flow_id in alive))
    return found


@pytest.mark.parametrize(
    ("carrier", "admin", "up"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_a_nic_is_up_with_a_carrier_if_it_is_meant_to_be(
    carrier: bool, admin: bool, up: bool
) -> None:
    found = health(20, 120)
    event = LinkEvent(at_ns=NOW + 5, nic="nic0", carrier=carrier, admin_up=admin, addresses=(),
                      carrier_down_count=1)  # fmt: skip
    assert found.link(event) is (not up or found.nic_of("10.0.0.1") is None)
    reason = found.dead("nic0", "10.9.9.9")
    assert (reason is None) is up
    if reason is not None:
        assert (reason.cause, reason.at_ns, reason.since_ns) == (
            Cause.LOCAL_CARRIER,
            NOW + 5,
            NOW + 5,
        )
        back = LinkEvent(at_ns=NOW + S, nic="nic0", carrier=True, admin_up=True,
                         addresses=("10.0.0.1",), carrier_down_count=1)  # fmt: skip
        assert found.link(back)
        assert found.revived_ns("nic0", "10.9.9.9") == NOW + S
        assert found.usable_from_ns("nic0", "10.9.9.9") == NOW + S + POLICY.hold_down_ns


@pytest.mark.parametrize(
    ("alive", "reaches"),
    [
        ((20,), True),  # nothing of rail 1 lives: whose fault that is nobody knows
        ((20, 120), True), ((20, 120, 130), True),
        ((20, 130), False),  # nic1 lives, and p2's NIC of rail 1 does not
        ((20, 130, 131), False), ((120, 130), False), ((), False),
    ],
)  # fmt: skip
def test_across_rails_both_ends_have_to_live_as_far_as_anyone_knows(
    alive: tuple[int, ...], reaches: bool
) -> None:
    assert health(*alive).reaches("nic0", "10.1.0.2") is reaches


@pytest.mark.parametrize(("alive", "reaches"), [((20,), True), ((30,), False), ((20, 21), True)])
def test_a_probed_path_lives_by_its_own_probes(alive: tuple[int, ...], reaches: bool) -> None:
    assert health(*alive).reaches("nic0", "10.0.0.2") is reaches


@pytest.mark.parametrize(
    ("alive", "partial"),
    [((30,), True), ((31,), True), ((120,), False), ((20, 30), False), ((), False)],
)
def test_a_silent_pair_may_live_on_other_ports_if_its_nic_is_heard(
    alive: tuple[int, ...], partial: bool
) -> None:
    assert health(*alive).may_be_partial("nic0", "10.0.0.2") is partial


def test_a_nic_with_one_pair_only_may_always_live_on_other_ports() -> None:
    found = Health(POLICY, nics())
    found.watch([flow for flow in FLOWS if flow.remote == "10.0.0.2"])
    for flow_id in (20, 21):
        found.liveness(life(flow_id, NOW, alive=False))
    assert found.may_be_partial("nic0", "10.0.0.2")


@pytest.mark.parametrize(
    ("alive", "cause", "evidence"),
    [
        ((120, 130), Cause.LOCAL_NIC, "2 of 2 paths of nic0 dead, 1 of 1 to 10.0.0.2"),
        ((30, 120, 130), Cause.REMOTE_NIC, "1 of 2 paths of nic0 dead, 1 of 1 to 10.0.0.2"),
    ],
)
def test_whose_fault_a_death_is(alive: tuple[int, ...], cause: Cause, evidence: str) -> None:
    found = health(*alive)
    assert ("nic0", "10.0.0.2") in found.decide_deaths(NOW + POLICY.settle_ns)
    reason = found.dead("nic0", "10.0.0.2")
    assert reason is not None
    assert reason.cause is cause
    assert reason.evidence == f"4 probes unanswered; {evidence}"


def test_a_pair_that_was_never_answered_says_nothing_of_whose_fault_it_is() -> None:
    """As many pairs as are planned across rails, in a fabric that does not route between them."""
    found = Health(POLICY, nics())
    across = [WatchedFlow(500, "nic1", "10.0.0.2", "p2/nic0", 0),
              WatchedFlow(501, "nic0", "10.1.0.2", "p2/nic1", 1)]  # fmt: skip
    found.watch([*FLOWS, *across])
    for flow in FLOWS:
        found.liveness(life(flow.flow_id, NOW, alive=flow.flow_id in {30, 120, 130}))
    assert ("nic0", "10.0.0.2") in found.decide_deaths(NOW + POLICY.settle_ns)
    reason = found.dead("nic0", "10.0.0.2")
    assert reason is not None
    assert reason.cause is Cause.REMOTE_NIC
    assert reason.evidence.endswith("1 of 2 paths of nic0 dead, 1 of 1 to 10.0.0.2")


def test_a_pair_that_is_alone_on_both_sides_is_dead_by_nobodys_fault() -> None:
    found = Health(POLICY, nics())
    found.watch([flow for flow in FLOWS if flow.remote in {"10.0.0.2", "10.1.0.2"}])
    for flow_id in (20, 21, 120, 121):
        found.liveness(life(flow_id, NOW, alive=flow_id >= 120))
    found.presume_dead({("nic0", "10.0.0.2"): NOW - 70 * MS}, NOW)
    assert found.decide_deaths(NOW) == [("nic0", "10.0.0.2")]
    reason = found.dead("nic0", "10.0.0.2")
    assert reason is not None
    assert reason.cause is Cause.PATH
    assert reason.evidence.startswith("no answer for 70 ms and data waiting")
    assert not found.revive_answered({20: Reply(NOW - 70 * MS)}, NOW), (
        "as old as its last sign of life"
    )
    assert found.revive_answered({20: Reply(NOW - 70 * MS + 1)}, NOW)
    assert found.dead("nic0", "10.0.0.2") is None


def test_deaths_on_one_nic_alone_are_concluded_where_the_other_is_down() -> None:
    """Nothing is concluded while every path of several NICs is dead; of one NIC it is."""
    everything = health()
    for flow in FLOWS:
        everything.liveness(life(flow.flow_id, NOW, alive=True))
        everything.liveness(life(flow.flow_id, NOW, alive=False))
    assert everything.decide_deaths(NOW + S) == []
    seen = [bool(everything.undecided)]
    assert everything.pending_deaths(NOW + S) == []
    down = LinkEvent(at_ns=NOW + S, nic="nic1", carrier=False, admin_up=True,
                     addresses=("10.1.0.1",), carrier_down_count=1)  # fmt: skip
    assert everything.link(down)
    assert len(everything.decide_deaths(NOW + S)) == 4
    seen.append(bool(everything.undecided))
    assert seen == [True, False]


@pytest.mark.parametrize(
    ("heard_ns", "late"),
    [
        ({120: NOW + 10 * MS - 1}, True),
        ({120: NOW + 10 * MS}, False),
        ({120: NOW, 130: NOW + 100 * MS}, True),  # another peer is awake, this one is not
        ({120: NOW, 300: NOW + 100 * MS}, True),  # the same remote NIC, asked from elsewhere
        ({120: NOW, 121: NOW + 10 * MS}, False),  # any port of its other NIC
        ({30: NOW, 130: NOW}, False),  # nothing is known of its other NICs
    ],
)
def test_a_nic_is_not_given_up_while_its_whole_peer_is_late(
    heard_ns: dict[int, int], late: bool
) -> None:
    """Heard last when nic0's path to it was: 20 and 21 are probed over that."""
    found = Health(POLICY, nics())
    flows = [*FLOWS, WatchedFlow(300, "nic1", "10.0.0.2", "p2/nic0", 0)]
    found.watch(flows)
    for flow in flows:
        found.liveness(life(flow.flow_id, NOW, alive=flow.flow_id not in {20, 21}))
    now_ns = NOW + POLICY.settle_ns
    assert found.pending_deaths(now_ns - 1) == []
    assert found.pending_deaths(now_ns) == [("nic0", "10.0.0.2")]
    found.excuse_late_peers({flow: Reply(at_ns) for flow, at_ns in heard_ns.items()}, now_ns)
    assert found.decide_deaths(now_ns) == ([] if late else [("nic0", "10.0.0.2")])
    assert (found.dead("nic0", "10.0.0.2") is None) is late
    assert found.decide_deaths(now_ns + 10 * MS) == ([("nic0", "10.0.0.2")] if late else []), (
        "not long"
    )


def test_an_answer_counts_from_when_its_question_may_have_been_read() -> None:
    for rtt_ns, late in ((MS, True), (MS - 1, False)):
        found = health(*range(120, 140), 30, 31)
        heard = {120: Reply(NOW + 11 * MS - 1, rtt_ns=rtt_ns)}
        found.excuse_late_peers(heard, NOW + POLICY.settle_ns)
        assert (found.decide_deaths(NOW + POLICY.settle_ns) == []) is late
        silent = health(*range(120, 140), 30, 31)
        silent.excuse_late_peers({120: Reply(NOW + S, silent=True)}, NOW + POLICY.settle_ns)
        assert silent.decide_deaths(NOW + POLICY.settle_ns) == [], "fallen silent as well"
