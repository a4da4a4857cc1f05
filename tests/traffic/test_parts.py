"""The parts that failover is made of, each by itself."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.traffic.flow_samples import flow_sample

from syntony.agent.steering.liveness import (
    AT_ONCE_NS,
    FASTEST_NS,
    MORE_PORTS,
    PORTS_PER_PAIR,
    SLOWEST_NS,
    WATCH_PPS,
    choose,
)
from syntony.agent.steering.rows import columns, is_news, path_row
from syntony.model import MS, S
from syntony.model.paths import FlowSample, FourTuple, LinkEvent, LivenessEvent
from syntony.traffic.budget import Budget
from syntony.traffic.connection import MptcpConnection, Subflow, SubflowState
from syntony.traffic.health import Health
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Cause, Create, Destroy, Reason, WatchPaths
from syntony.traffic.late_peers import BACK_NS
from syntony.traffic.pairs import LocalNic, Reply, WatchedFlow
from syntony.traffic.policy import Policy
from syntony.wire.probes import ProbeFlow
from syntony.wire.tables import PATH_EVENTS

POLICY = Policy()
FLOW = FourTuple("10.0.0.1", 61_000, "10.0.0.2", 8_621)
NICS = [LocalNic(name=f"nic{rail}", rail=rail, addresses=(f"10.{rail}.0.1",)) for rail in (0, 1)]


def test_hold_down_doubles_to_its_cap_and_decays() -> None:
    hold = HoldDown()
    assert hold.until_ns == 0
    lengths = []
    for number in range(8):
        now_ns = number * S
        hold.failed(now_ns, POLICY)
        lengths.append((hold.until_ns - now_ns) // S)
    assert lengths == [1, 2, 4, 8, 16, 32, 60, 60]
    later_ns = 8 * S + 5 * POLICY.decay_ns
    hold.failed(later_ns, POLICY)
    assert (hold.until_ns - later_ns) // S < 32
    hold.failed(later_ns + 1000 * POLICY.decay_ns, POLICY)
    assert hold.until_ns - (later_ns + 1000 * POLICY.decay_ns) == POLICY.hold_down_ns


@given(st.lists(st.integers(0, 2 * S), max_size=200), st.integers(1, 50))
def test_no_window_of_a_second_sees_more_than_twice_the_budget(gaps: list[int], per_s: int) -> None:
    budget, now_ns, taken = Budget(per_s), 0, []
    for gap_ns in gaps:
        now_ns += gap_ns
        if budget.take(now_ns):
            taken.append(now_ns)
    for at_ns in taken:
        # A full bucket, and what flows in meanwhile.
        assert sum(at_ns <= each < at_ns + S for each in taken) <= 2 * per_s


def test_a_budget_says_when_to_come_again() -> None:
    budget = Budget(10)
    assert all(budget.take(S) for _ in range(10))
    assert not budget.take(S)
    assert budget.take(S + budget.wait_ns)


def sample(at_ns: int, acked: int, *, unacked: int, retransmits: int = 0) -> FlowSample:
    return flow_sample(
        FLOW, at_ns, bytes_acked=acked, unacked=unacked, retransmits=retransmits, last_ack_ns=at_ns
    )


def test_stalled_means_data_under_way_no_progress_and_repetition() -> None:
    subflow = Subflow(FLOW, "nic0", SubflowState.UP, 0)
    assert not subflow.take(sample(0, 100, unacked=5), POLICY)
    assert not subflow.take(sample(50 * MS, 100, unacked=5, retransmits=1), POLICY)
    assert subflow.take(sample(61 * MS, 100, unacked=5, retransmits=1), POLICY)
    assert not subflow.take(sample(70 * MS, 100, unacked=5, retransmits=2), POLICY), "told once"
    subflow.take(sample(80 * MS, 101, unacked=5, retransmits=2), POLICY)
    assert subflow.stalled is None, "any progress is life"


def test_a_lone_segment_gets_the_time_that_the_kernel_gives_it() -> None:
    subflow = Subflow(FLOW, "nic0", SubflowState.UP, 0)
    subflow.take(sample(0, 100, unacked=0), POLICY)
    assert not subflow.take(sample(350 * MS, 100, unacked=1), POLICY)
    assert subflow.take(sample(361 * MS, 100, unacked=1), POLICY)


def test_an_idle_flow_that_begins_to_send_is_not_stalled() -> None:
    subflow = Subflow(FLOW, "nic0", SubflowState.UP, 0)
    subflow.take(sample(10 * S, 100, unacked=0), POLICY)
    assert not subflow.take(sample(10 * S + 15 * MS, 100, unacked=9, retransmits=1), POLICY)


def test_a_flow_that_fell_silent_with_probes_between_the_same_nics_is_stalled_at_once() -> None:
    def quiet_at(at_ns: int, *, partial_ns: int | None) -> bool:
        """A flow that loses segments all the time, last acknowledged at 1 s."""
        subflow = Subflow(FLOW, "nic0", SubflowState.UP, 0)
        subflow.take(sample(S // 2, 100, unacked=5), POLICY)
        subflow.take(sample(S, 101, unacked=5, retransmits=1), POLICY)
        now = msgspec.structs.replace(
            sample(at_ns, 101, unacked=5, retransmits=2), last_ack_ns=at_ns - S
        )
        return subflow.take(now, POLICY, partial_ns)

    soon_ns, late_ns = S + POLICY.silence_ns, S + 550 * MS
    assert not quiet_at(late_ns, partial_ns=None), "a queue may do that to it"
    assert quiet_at(soon_ns, partial_ns=S), "probes went with it"
    assert quiet_at(soon_ns, partial_ns=S + 30 * MS), "or a little later"
    assert not quiet_at(soon_ns - MS, partial_ns=S), "not before its time"
    assert not quiet_at(late_ns, partial_ns=S - 52 * MS), "acknowledged since: another way"


def test_a_pair_is_torn_when_two_of_its_flows_are_silent_and_others_are_answered() -> None:
    found = Health(POLICY, NICS)
    found.watch([WatchedFlow(each, "nic0", "10.0.0.2", "p/nic0", 0) for each in range(4)])
    for each in range(4):
        found.liveness(life(each, at_ns=0, alive=True))

    def partial_after(flow_id: int, at_ns: int, *, alive: bool = False) -> int | None:
        found.liveness(life(flow_id, at_ns=at_ns, alive=alive))
        found.revive_answered({3: Reply(at_ns)}, at_ns)
        return found.partial_ns("nic0", "10.0.0.2")

    assert partial_after(0, 1 * S) is None, "one may stand in a queue"
    assert partial_after(1, 2 * S) == 1 * S
    assert partial_after(2, 3 * S) == 2 * S
    assert partial_after(3, 4 * S) is None, "dead as a whole"
    assert partial_after(3, 5 * S, alive=True) == 2 * S
    assert partial_after(2, 6 * S, alive=True) == 1 * S
    assert partial_after(1, 7 * S, alive=True) is None
    assert found.partial_ns("nic1", "10.1.0.2") is None


def test_a_pair_is_dead_when_those_that_live_are_no_longer_asked() -> None:
    found = Health(POLICY, NICS)
    found.watch([WatchedFlow(each, "nic0", "10.0.0.2", "p/nic0", 0) for each in range(4)])
    for each in (3, 2, 1, 0):
        found.liveness(life(each, at_ns=S, alive=each > 1))
    found.watch_only(frozenset({0, 1, 2}), 2 * S)
    assert not found.unanswered("nic0", "10.0.0.2")
    found.watch_only(frozenset({0, 1}), 2 * S)
    assert found.unanswered("nic0", "10.0.0.2")
    assert found.decide_deaths(2 * S + POLICY.settle_ns) == [("nic0", "10.0.0.2")]
    found.liveness(life(1, at_ns=3 * S, alive=True))
    assert found.dead("nic0", "10.0.0.2") is None


def test_of_a_new_plan_only_what_is_still_asked_tears_a_pair() -> None:
    found = Health(POLICY, NICS)
    flows = [WatchedFlow(each, "nic0", "10.0.0.2", "p/nic0", 0) for each in range(4)]
    found.watch(flows)
    for each in range(4):
        found.liveness(life(each, at_ns=S, alive=each > 1))
    found.revive_answered({3: Reply(2 * S)}, 2 * S)
    assert found.partial_ns("nic0", "10.0.0.2") == S
    found.watch(flows[::-1])
    assert found.partial_ns("nic0", "10.0.0.2") == S, "the same flows"
    found.watch(flows[1:])
    assert found.partial_ns("nic0", "10.0.0.2") is None


PEERS = ("p", "q")


def health() -> Health:
    """Two NICs, each with two peers on its rail; every path answers."""
    found = Health(POLICY, NICS)
    flows = [
        WatchedFlow(10 * rail + number, f"nic{rail}", f"10.{rail}.0.{number + 2}",
                    f"{peer}/nic{rail}", rail)
        for rail in (0, 1)
        for number, peer in enumerate(PEERS)
    ]  # fmt: skip
    found.watch(flows)
    for flow in flows:
        found.liveness(life(flow.flow_id, at_ns=0, alive=True))
    return found


def life(flow_id: int, *, at_ns: int, alive: bool) -> LivenessEvent:
    return LivenessEvent(at_ns=at_ns, flow_id=flow_id, alive=alive, since_ns=at_ns, misses=4)


@pytest.mark.parametrize(
    ("dead", "cause"),
    [((0, 1), Cause.LOCAL_NIC), ((0,), Cause.REMOTE_NIC)],
)
def test_whose_fault_it_is(dead: tuple[int, ...], cause: Cause) -> None:
    found = health()
    for flow_id in dead:
        found.liveness(life(flow_id, at_ns=S, alive=False))
    assert found.decide_deaths(S) == [], "not before its siblings are known"
    assert len(found.decide_deaths(S + POLICY.settle_ns)) == len(dead)
    reason = found.dead("nic0", "10.0.0.2")
    assert reason is not None
    assert reason.cause is cause


def test_everything_dead_is_no_conclusion_until_something_lives() -> None:
    found = health()
    for flow_id in (0, 1, 10, 11):
        found.liveness(life(flow_id, at_ns=S, alive=False))
    assert found.decide_deaths(2 * S) == []
    assert len(found.undecided) == 4
    assert found.due_ns() is None, "and no reason to look again and again"
    found.liveness(life(10, at_ns=3 * S, alive=True))
    assert found.decide_deaths(3 * S + BACK_NS - 1) == [], "the others may answer a little later"
    assert len(found.decide_deaths(3 * S + BACK_NS)) == 2, "one peer answers nowhere at all"


def test_a_nic_is_known_by_its_address_when_it_is_renamed() -> None:
    found = health()
    event = LinkEvent(at_ns=S, nic="new", carrier=True, admin_up=True,
                      addresses=("10.0.0.1",), carrier_down_count=0)  # fmt: skip
    found.link(event)
    assert found.nic_of("10.0.0.1") == "new"
    gone = msgspec.structs.replace(event, nic="nic0", carrier=False, addresses=())
    assert not found.link(gone), "the old name is nobody's any more"
    assert found.dead("new", "10.0.0.2") is None


def test_ids_of_subflows_go_round_and_skip_those_in_use() -> None:
    conn = MptcpConnection(1, 0, accepted=False)
    held = Subflow(FLOW, "nic0", SubflowState.UP, 0)
    held.local_id = 40
    conn.subflows[FLOW] = held
    given = [conn.new_id() for _ in range(400)]
    assert min(given) == 32
    assert max(given) == 255
    assert 40 not in given


def probe_flow(src: str, number: int) -> ProbeFlow:
    return ProbeFlow(
        flow_id=number, src=src, dst="p/nic", dst_nic_id=1, dst_addr=f"10.0.{number % 50}.1",
        dst_port=8620, src_port=61_000 + number, interval_ns=S,
    )  # fmt: skip


def test_watching_stays_within_its_budget() -> None:
    flows = [probe_flow("nic0", number) for number in range(500)]

    def chosen(*remotes: str) -> list[ProbeFlow]:
        requested = WatchPaths(paths=frozenset(("nic0", remote) for remote in remotes))
        return choose(flows, requested, str)

    few = chosen("10.0.1.1")
    assert len(few) == PORTS_PER_PAIR
    assert {flow.interval_ns for flow in few} == {len(few) * S // WATCH_PPS}
    many = chosen(*(flow.dst_addr for flow in flows))
    assert len(many) == 50 * PORTS_PER_PAIR
    assert many[0].interval_ns > FASTEST_NS
    assert chosen() == []


def test_a_pair_in_doubt_is_asked_on_more_ports_at_once_and_a_torn_one_in_its_turn() -> None:
    flows = [probe_flow("eth0", number) for number in range(500)]  # ten ports a pair
    pairs = [("nic0", f"10.0.{number}.1") for number in range(10)]

    def requested(pair: tuple[str, str], **more: frozenset[tuple[str, str]]) -> list[int]:
        watch = WatchPaths(paths=frozenset(pairs), **more)
        found = choose(flows, watch, {"nic0": "eth0"}.__getitem__)
        return [flow.interval_ns for flow in found if flow.dst_addr == pair[1]]

    usual_ns = 10 * PORTS_PER_PAIR * S // WATCH_PPS
    suspect = frozenset(pairs[:1])
    assert requested(pairs[0]) == [usual_ns] * PORTS_PER_PAIR
    both = [usual_ns] * PORTS_PER_PAIR + [AT_ONCE_NS] * MORE_PORTS + [SLOWEST_NS] * 2
    assert requested(pairs[0], suspect=suspect) == both
    assert requested(pairs[1], suspect=suspect) == [usual_ns] * PORTS_PER_PAIR, "the others as ever"
    partial = requested(pairs[0], partial=suspect)
    in_turn = PORTS_PER_PAIR + MORE_PORTS
    assert partial == [usual_ns * 44 // 40] * in_turn + [SLOWEST_NS] * 2, "within the budget"


def test_rows_have_exactly_the_tables_columns() -> None:
    reason = Reason(Cause.PATH, "seen", 5 * MS, 2 * MS)
    left = Destroy(token=0xAB, job="j", flow=FLOW, reason=reason)
    row = path_row(left, 6 * MS, "", lambda flow: str(flow.local_port) if flow else "")
    assert (row.detect_ns, row.act_ns, row.old_path, row.connection) == (
        3 * MS, 1 * MS, "61000", "000000ab",
    )  # fmt: skip
    made = columns([row], "h0", 1_000)
    assert set(made) == {column.name for column in PATH_EVENTS.columns}
    assert made["ts_ns"][0] == 6 * MS + 1_000
    vain = Destroy(token=1, job="j", flow=FLOW, reason=Reason(Cause.JOIN, "", 0, 0))
    assert not is_news(vain)
    one = Create(token=1, job="j", flow=FLOW, local_id=32, reason=reason)
    assert is_news(one)
    assert not is_news(msgspec.structs.replace(one, quiet=True)), "reported when it is up"
