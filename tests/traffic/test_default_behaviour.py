"""What agents and controllers do as they are delivered, in the figures of the reference pages."""

from __future__ import annotations

import pytest
from tests.traffic.flow_samples import flow_sample
from tests.traffic.one_end import NOW, POLICY, Host, nics, of, watched
from tests.traffic.test_pacer_steps import LINK, RATE, flow, part

from syntony.model import MS, US, S
from syntony.model.paths import FourTuple
from syntony.traffic import events
from syntony.traffic.connection import FailedAttempts, MptcpConnection, Subflow, SubflowState
from syntony.traffic.connection_table import ConnectionTable
from syntony.traffic.health import Health
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Cause, Create, Note, Reason, Retire
from syntony.traffic.pace_policy import PacePolicy
from syntony.traffic.pacing import LinkQueue, Pacer
from syntony.traffic.pairs import PairState
from syntony.traffic.source_ports import SourcePorts
from syntony.traffic.standby import TRIALS, Standby

FULL = [flow(0, 0.5), flow(1, 0.5)]


def paced(pacer: Pacer, queue_ns: int, now_ns: int, rate: float = 1.0) -> bool:
    flows = [flow(0, rate / 2), flow(1, rate / 2)]
    return bool(pacer.step(flows, {LINK: RATE}, {LINK: LinkQueue(now_ns, queue_ns)}, now_ns))


@pytest.mark.parametrize(
    ("queue_ns", "rate", "crowded"),
    [(50 * US, 0.6, True), (50 * US - 1, 1.0, False), (S, 0.599, False)],
)
def test_a_link_is_taken_up_from_50_us_and_60_per_cent(
    queue_ns: int, rate: float, crowded: bool
) -> None:
    pacer = Pacer()
    paced(pacer, queue_ns, S, rate)
    assert bool(pacer.congested) is crowded


def test_it_is_taken_up_after_two_seconds_with_pauses_of_one() -> None:
    pacer = Pacer()
    assert not paced(pacer, MS, S)
    assert not paced(pacer, 0, 2 * S)
    assert not paced(pacer, MS, 3 * S - 1)
    assert paced(pacer, MS, 3 * S)
    late = Pacer()
    assert not paced(late, MS, S)
    assert not paced(late, 0, 2 * S + 1)
    assert not paced(late, MS, 3 * S), "a longer pause: it starts again"


@pytest.mark.parametrize(("age_ns", "counts"), [(5 * S, True), (5 * S + 1, False)])
def test_a_delay_of_five_seconds_ago_decides_and_no_older_one(age_ns: int, counts: bool) -> None:
    pacer = Pacer()
    for at_ns in (10 * S, 11 * S, 12 * S):
        pacer.step(FULL, {LINK: RATE}, {LINK: LinkQueue(at_ns - age_ns, MS)}, at_ns)
    assert bool(pacer.links) is counts


def taken_up(queue_ns: int) -> Pacer:
    pacer = Pacer()
    paced(pacer, queue_ns, S)
    paced(pacer, 50 * US, 2 * S)
    assert paced(pacer, 50 * US, 3 * S)
    return pacer


def test_97_per_cent_are_shared_out_less_what_drains_the_queue_in_a_second() -> None:
    assert part(taken_up(50 * US)) == pytest.approx(0.97 - 0.00005)
    assert part(taken_up(20 * MS)) == pytest.approx(0.95)
    assert part(taken_up(S)) == pytest.approx(0.92)


def test_while_packets_wait_it_is_5_per_cent_less_each_time_down_to_half() -> None:
    pacer = taken_up(50 * US)
    parts = [part(pacer)]
    for second in range(5, 65, 2):
        busy = [flow(0, part(pacer) / 2), flow(1, part(pacer) / 2)]
        pacer.step(busy, {LINK: RATE}, {LINK: LinkQueue(second * S, S)}, second * S)
        parts.append(part(pacer))
    assert parts[1] == pytest.approx(parts[0] * 0.95)
    assert parts[-1] == 0.5


def test_a_delay_counts_1200_ms_after_a_change_whether_or_not_it_was_looked_at_before() -> None:
    for late_ns, counts in ((1_200 * MS - 1, False), (1_200 * MS, True)):
        pacer = taken_up(50 * US)
        before = part(pacer)
        at_ns = 3 * S + late_ns
        pacer.step(FULL, {LINK: RATE}, {LINK: LinkQueue(at_ns, S)}, 5 * S)
        assert (part(pacer) < before) is counts
    # A look that changes nothing does not begin the wait anew.
    pacer = taken_up(50 * US)
    busy = [flow(0, 0.485), flow(1, 0.485)]
    for at_ns in (5 * S, 7 * S):
        pacer.step(busy, {LINK: RATE}, {LINK: LinkQueue(at_ns, 0)}, at_ns)
    before = part(pacer)
    pacer.step(busy, {LINK: RATE}, {LINK: LinkQueue(9 * S, 0)}, 9 * S)
    assert part(pacer) == before
    pacer.step(busy, {LINK: RATE}, {LINK: LinkQueue(9 * S + MS, S)}, 9 * S + MS)
    assert part(pacer) < before


@pytest.mark.parametrize(("rate", "kept"), [(0.4, True), (0.38, False)])
def test_a_link_used_by_less_than_40_per_cent_is_let_go_after_five_seconds(
    rate: float, kept: bool
) -> None:
    pacer = taken_up(50 * US)
    assert paced(pacer, 0, 8 * S - 1, rate)
    assert paced(pacer, 0, 8 * S, rate) is kept


def test_hold_downs_of_links_double_to_two_minutes_and_are_forgotten_as_slowly() -> None:
    hold, policy, now_ns, lengths = HoldDown(), PacePolicy(), 0, []
    for _ in range(7):
        hold.failed(now_ns, policy)
        lengths.append((hold.until_ns - now_ns) // S)
        now_ns += S
    assert lengths == [5, 10, 20, 40, 80, 120, 120]
    for quiet_ns, length_s in ((120 * S - 1, 10), (120 * S, 5)):
        once = HoldDown()
        once.failed(S, policy)
        once.failed(S + quiet_ns, policy)
        assert (once.until_ns - S - quiet_ns) // S == length_s


def test_trials_of_standby_wait_30_s_up_to_ten_minutes_and_an_hour_forgets_one() -> None:
    hold, now_ns, lengths = HoldDown(), 0, []
    for _ in range(7):
        hold.failed(now_ns, TRIALS)
        lengths.append((hold.until_ns - now_ns) // S)
        now_ns += S
    assert lengths == [30, 60, 120, 240, 480, 600, 600]
    for quiet_ns, length_s in ((3_600 * S - 1, 60), (3_600 * S, 30)):
        once = HoldDown()
        once.failed(S, TRIALS)
        once.failed(S + quiet_ns, TRIALS)
        assert (once.until_ns - S - quiet_ns) // S == length_s


# --- beginnings ---


def test_a_connection_that_is_told_of_begins_with_nothing_to_undo() -> None:
    conn = MptcpConnection(7, NOW, accepted=False)
    assert (conn.inherited, conn.called, conn.degraded, conn.alone_ns) == (False, False, None, None)
    assert (conn.job, conn.short_since_ns, conn.local_port) == (None, None, 0)
    assert conn.announced_ns == conn.seen_ns == NOW
    assert conn.announced_by_ns > NOW
    assert of(Host().settle(), Retire) == [], "only what an earlier agent may have put on standby"
    subflow = Subflow(FourTuple("a", 1, "b", 2), "n", SubflowState.UP, NOW)
    assert (subflow.one_of, subflow.on_standby, subflow.rate_bps) == (False, False, 0)
    assert (subflow.retransmits, subflow.lossy_ns, subflow.local_id) == (0, None, 0)
    tries = FailedAttempts()
    assert (tries.count, tries.next_ns, tries.began_ns, tries.taken) == (0, 0, 0, 0)
    pair = PairState()
    assert (pair.since_ns, pair.misses, pair.brief, pair.brief_ns) == (0, 0, 0, 0)
    assert (pair.carries_until_ns, pair.revived_ns, pair.presumed, pair.died_ns) == (
        0, 0, False, None
    )  # fmt: skip


@pytest.mark.parametrize(
    ("local", "remote", "accepted"),
    [(40_000, 5_000, False), (5_000, 40_000, True), (POLICY.port, 5_000, True),
     (5_000, 5_000, False), (40_000, POLICY.port, False)],
)  # fmt: skip
def test_who_made_a_connection_that_is_older_than_the_agent_its_ports_tell(
    local: int, remote: int, accepted: bool
) -> None:
    health = Health(POLICY, nics())
    health.watch(watched())
    table = ConnectionTable(POLICY, health, SourcePorts(POLICY, 1))
    sample = flow_sample(FourTuple("10.0.0.1", local, "10.0.0.2", remote), NOW, token=3)
    conn, subflow = table.sampled(sample)
    assert conn.accepted is accepted
    assert conn.inherited
    assert subflow is not None
    reported = events.ConnectionUp(at_ns=NOW, token=4, flow=sample.flow, accepted=accepted)
    assert not table.established(reported).inherited


def test_a_standby_is_dated_to_when_its_round_trip_was_first_too_long() -> None:
    host = Host()
    host.announced(1)
    slow = host.add(FourTuple("10.1.0.1", 61_000, "10.1.0.2", POLICY.port), "nic1")
    trips = host.steering.round_trips
    for _ in range(4):
        trips.take({("nic0", "10.0.0.2"): MS, ("nic1", "10.1.0.2"): 9 * MS})
    standby = Standby(POLICY, host.health, trips)
    turn = host.settle()
    reason = standby._reason(turn, slow, host.conn.subflows[host.first], 3e6)
    assert (reason.at_ns, reason.since_ns) == (NOW, NOW - 2 * S)
    assert "round trip 9.0 ms, 1.0 ms on nic0" in reason.evidence
    assert "costs the others 3.0" in reason.evidence


def test_what_an_operator_reads_first_is_not_kept_from_him() -> None:
    """Only repetitions are quiet, and joins of which several are begun at once."""
    host = Host()
    host.conn.subflows[host.first].stalled = Reason(Cause.FABRIC, "e", NOW, NOW)
    host.announced(1)
    turn = host.settle()
    assert [create.quiet for create in of(turn, Create)] == [False, False]
    kept = Host(accepted=True)
    kept.kill(0)
    (note,) = of(kept.settle(NOW + S), Note)
    assert not note.quiet
    quiet = []
    for _ in range(5):
        host.conn.tries("nic1", "10.1.0.2").failed(NOW, POLICY)
        quiet.append(not host.conn.tries("nic1", "10.1.0.2").reported)
    assert quiet == [False, False, True, False, True]
