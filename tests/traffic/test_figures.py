"""Times and numbers as the reference pages and kernels have them, at the last instant before."""

from __future__ import annotations

import pytest
from tests.traffic.flow_samples import flow_sample
from tests.traffic.one_end import NOW, POLICY, Host, life, machine, of, there
from tests.traffic.test_parts import life as life_of
from tests.traffic.test_plain import INODE
from tests.traffic.test_plain import Host as PlainHost

from syntony.model import MS, S
from syntony.model.paths import FlowSample, FourTuple, LinkEvent, StallEvent
from syntony.traffic.connection import FailedAttempts, MptcpConnection, Subflow, SubflowState
from syntony.traffic.extra_ports import ExtraPortProbing
from syntony.traffic.health import Health
from syntony.traffic.instructions import Note, WatchPaths
from syntony.traffic.lease import ListeningHost, may_decide
from syntony.traffic.meter import Meter
from syntony.traffic.pair_timeouts import PairTimeouts
from syntony.traffic.pairs import ConnectionProgress, LocalNic, PairState, Reply, WatchedFlow

FLOW = FourTuple("10.0.0.1", 61_000, "10.0.0.2", 8_621)
PAIR = ("nic0", there(0))


@pytest.mark.parametrize(("late_ns", "reported"), [(5 * S - 1, False), (5 * S, True)])
def test_a_connection_is_degraded_after_five_seconds(late_ns: int, reported: bool) -> None:
    host = Host()
    host.settle(NOW)
    notes = [each.action for each in of(host.settle(NOW + late_ns), Note)]
    assert ("degraded" in notes) is reported


@pytest.mark.parametrize(
    ("age_ns", "since_ns", "may"),
    [(3 * S - 1, 10 * S, True), (3 * S, 10 * S, False), (0, 4_500 * MS, True),
     (0, 4_500 * MS - 1, False)],
)  # fmt: skip
def test_a_lease_of_three_seconds_and_a_wait_that_outlasts_it(
    age_ns: int, since_ns: int, may: bool
) -> None:
    heard = {"h": ListeningHost(NOW - since_ns, NOW - age_ns)}
    assert may_decide(heard, {"h"}, NOW)[0] is may


def progress(
    acked_ns: int, *, rtt_ns: int = MS, waits_ns: int = 0, streams: bool = False
) -> ConnectionProgress:
    return ConnectionProgress(FLOW, acked_ns, rtt_ns, waits_ns, streams)


@pytest.mark.parametrize(
    ("waits_ms", "rtt_ms", "streams", "hangs"),
    [(15, 1, False, False), (15.001, 1, False, True), (40, 40, False, False),
     (40.001, 40, False, True), (15.001, 40, True, True), (15, 40, True, False)],
)  # fmt: skip
def test_data_hang_after_15_ms_or_a_round_trip_if_none_was_coming(
    waits_ms: float, rtt_ms: int, streams: bool, hangs: bool
) -> None:
    each = progress(0, rtt_ns=rtt_ms * MS, waits_ns=round(waits_ms * MS), streams=streams)
    assert each.hangs() is hangs


def believed_until(flow: ConnectionProgress | None, *, presumed: bool = False) -> int:
    """Of a pair last answered at `NOW`, looked at 100 ms later, ns after `NOW`."""
    host = Host()
    for flow_id in (0, 1):
        host.health.liveness(life(flow_id, NOW, alive=False))
    if presumed:
        host.health.presume_dead({PAIR: NOW}, NOW)
    host.health.corroborate(*PAIR, [flow] if flow else [], NOW + 100 * MS)
    return max(0, host.health._pairs[PAIR].carries_until_ns - NOW)


@pytest.mark.parametrize(
    ("flow", "until_ms"),
    [
        (None, 105),  # nobody waits: looked at again in 5 ms
        (progress(NOW, waits_ns=30 * MS), 105), (progress(NOW, waits_ns=30 * MS + 1), 0),
        # What was sent after the last answer was acknowledged.
        (progress(NOW + 16 * MS + 1, waits_ns=S), 32.000001),
        (progress(NOW + 16 * MS, waits_ns=S), 46),
        (progress(NOW + 15 * MS + 1, waits_ns=S), 45.000001),
        (progress(NOW + 15 * MS, waits_ns=S), 0),
        (progress(NOW, rtt_ns=50 * MS, waits_ns=50 * MS), 105),
        (progress(NOW, rtt_ns=50 * MS, waits_ns=50 * MS + 1), 0),
    ],
)  # fmt: skip
def test_a_pair_is_believed_in_by_what_its_jobs_data_do(
    flow: ConnectionProgress | None, until_ms: float
) -> None:
    assert believed_until(flow) == round(until_ms * MS)


def test_a_path_that_nobody_waits_for_is_kept_for_a_quarter_of_a_second() -> None:
    host = Host()
    for flow_id in (0, 1):
        host.health.liveness(life(flow_id, NOW, alive=False))
    host.health.corroborate(*PAIR, [], NOW + 245 * MS)
    host.health.corroborate(*PAIR, [], NOW + 400 * MS)
    assert host.health._pairs[PAIR].carries_until_ns == NOW + 250 * MS


@pytest.mark.parametrize(
    ("deaths", "after_ns", "more_ms"),
    [(1, 0, 40), (3, 0, 120), (5, 0, 200), (7, 0, 200), (3, 10 * S - 1, 120), (3, 10 * S, 80)],
)
def test_each_death_that_healed_at_once_gives_40_ms_for_ten_seconds(
    deaths: int, after_ns: int, more_ms: int
) -> None:
    host = Host()
    for _ in range(deaths):
        for flow_id in (0, 1):
            host.health.liveness(life(flow_id, NOW, alive=False))
        host.health.liveness(life(0, NOW, alive=True))
    assert host.health.timeout_ns(PAIR, NOW + after_ns) == more_ms * MS


@pytest.mark.parametrize(("dead_ns", "brief"), [(500 * MS - 1, 1), (500 * MS, 0)])
def test_a_death_is_brief_for_half_a_second(dead_ns: int, brief: int) -> None:
    host = Host()
    for flow_id in (0, 1):
        host.health.liveness(life(flow_id, NOW, alive=False))
    host.health.liveness(life(0, NOW + dead_ns, alive=True))
    assert host.health._pairs[PAIR].brief == brief
    assert PairState().brief_now(NOW) == 0


def test_after_a_stall_of_ours_deaths_wait_and_not_for_ever() -> None:
    found = Health(POLICY, [LocalNic(name="nic0", rail=0, addresses=("10.0.0.1",))])
    found.watch([WatchedFlow(0, "nic0", there(0), "p/nic0", 0)])
    found.liveness(life_of(0, at_ns=NOW, alive=True))
    found.liveness(life_of(0, at_ns=NOW, alive=False))
    assert found.due_ns() == NOW + 6 * MS
    found.stall(StallEvent(at_ns=NOW, lasted_ns=S))
    assert found.due_ns() == NOW + 25 * MS
    assert found.timeout_ns(PAIR, NOW) == 25 * MS
    assert found.timeout_ns(PAIR, NOW + S) == 0
    found.stall(StallEvent(at_ns=NOW + 10 * S, lasted_ns=S))
    assert found.due_ns() == NOW + 106 * MS, "four graces more"


@pytest.mark.parametrize(("answered_ms", "waits"), [(9, True), (10, False)])
def test_a_peer_is_late_until_another_nic_of_it_answered_10_ms_later(
    answered_ms: int, waits: bool
) -> None:
    host = Host()
    for flow_id in (0, 1):
        host.health.liveness(life(flow_id, NOW, alive=False))
    now_ns = NOW + POLICY.settle_ns
    host.health.excuse_late_peers({10: Reply(NOW + answered_ms * MS), 99: Reply(0)}, now_ns)
    until_ns = host.health._pairs[PAIR].carries_until_ns
    assert until_ns == (now_ns + 10 * MS if waits else 0)


def test_joins_in_a_row_three_at_once_then_longer_waits() -> None:
    tries, waits = FailedAttempts(), []
    for _ in range(13):
        tries.failed(NOW, POLICY)
        waits.append((tries.next_ns - NOW) // MS)
    assert waits == [0, 0, 0, 60, 120, 240, 480, 960, 1920, 3840, 5000, 5000, 5000]
    taken = FailedAttempts()
    for _ in range(7):
        taken.port_taken(NOW, POLICY)
    assert taken.count == 0
    taken.port_taken(NOW, POLICY)
    assert taken.count == 1
    assert MptcpConnection(1, NOW, accepted=False).announced_by_ns == NOW + S


def sample(at_ns: int, acked: int, **more: int) -> FlowSample:
    values = {"unacked": 5, "last_ack_ns": at_ns} | more
    return flow_sample(FLOW, at_ns, bytes_acked=acked, **values)


@pytest.mark.parametrize(
    ("at_ns", "backoff", "stalled"),
    [(6 * S - 1, 1, False), (6 * S, 1, True), (2 * S, 1, False), (2 * S, 2, True),
     (1_500 * MS - 1, 2, False), (1_500 * MS, 2, True)],
)  # fmt: skip
def test_a_lossy_flow_of_the_last_five_seconds_stalls_after_two_timers_and_half_a_second(
    at_ns: int, backoff: int, stalled: bool
) -> None:
    subflow = Subflow(FLOW, "nic0", SubflowState.UP, 0)
    subflow.take(sample(S // 2, 100), POLICY)
    subflow.take(sample(S, 101, retransmits=1), POLICY)
    assert subflow.take(sample(at_ns, 101, retransmits=2, backoff=backoff), POLICY) is stalled


@pytest.mark.parametrize(("gap_ms", "windows"), [(399, 0), (400, 1)])
def test_a_window_is_400_ms_and_four_are_kept(gap_ms: int, windows: int) -> None:
    meter = Meter()
    for k in range(2):
        meter.take(sample(k * gap_ms * MS, k * 1_000))
    assert meter.windows == windows
    for k in range(2, 9):
        meter.take(sample(k * S, k * 1_000, delivery_bps=k))
    assert len(meter.recent) == 4
    assert meter.capacity_bps == 5
    assert Meter().recent_bps == Meter().busy == Meter().capacity_bps == 0


def test_of_several_pairs_the_first_due_counts() -> None:
    extra_ports = ExtraPortProbing()
    assert extra_ports.due_ns() is None
    for late_ms in (0, 100):
        assert extra_ports.begin(("n", str(late_ms)), NOW + late_ms * MS)
    assert extra_ports.due_ns() == NOW + 250 * MS
    assert extra_ports.end(NOW + 250 * MS, lambda _: True)
    assert extra_ports.due_ns() == NOW + 350 * MS, "before the torn one"


def test_extra_ports_are_asked_for_a_quarter_of_a_second_once_a_second() -> None:
    extra_ports = ExtraPortProbing()
    pairs = [("n", str(k)) for k in range(6)]
    assert [extra_ports.begin(pair, NOW) for pair in pairs] == [True] * 4 + [False] * 2
    assert extra_ports.due_ns() == NOW + 250 * MS
    assert extra_ports.end(NOW + 250 * MS, lambda pair: pair == pairs[0])
    assert extra_ports.partial == {pairs[0]}
    assert extra_ports.due_ns() == NOW + 1_250 * MS
    assert not extra_ports.begin(pairs[1], NOW + S - 1)
    assert extra_ports.begin(pairs[1], NOW + S)
    assert not extra_ports.begin(pairs[0], NOW + S), "torn: it is asked already"


@pytest.mark.parametrize(
    ("waits_ms", "rtt_ms", "requested"),
    [(29, 1, False), (30, 1, True), (39, 20, False), (40, 20, True)],
)
def test_data_that_wait_30_ms_and_two_round_trips_are_asked_about(
    waits_ms: int, rtt_ms: int, requested: bool
) -> None:
    found = machine()
    found.tick(NOW + 50 * MS)
    (flow,) = found.connections[7].subflows
    began = {"token": 7, "unacked": 5, "rtt_ns": rtt_ms * MS, "last_ack_ns": 0}
    for ms in (0, waits_ms):
        began["last_ack_ns"] = ms * MS
        news = sample(NOW + (60 + ms) * MS, 9, **began)
        out = found.handle(FlowSample(**{**{f: getattr(news, f) for f in news.__struct_fields__},
                                         "flow": flow}))  # fmt: skip
    assert any(isinstance(each, WatchPaths) and each.suspect for each in out) is requested


def test_what_is_not_listed_for_three_seconds_is_over() -> None:
    for late_ns, there_ in ((3 * S, True), (3 * S + 1, False)):
        host = PlainHost()
        host.machine.plain.forget(late_ns)
        assert (INODE in host.machine.plain.flows) is there_


def test_patience_is_45_ms_at_first_and_between_25_and_200() -> None:
    silence = PairTimeouts()
    assert silence.timeout_ns(PAIR, NOW) == 45 * MS
    assert silence.timeout_ns(PAIR, NOW + 3_600 * S) == 25 * MS
    silence.late(50 * MS, NOW)
    assert silence.timeout_ns(PAIR, NOW) == (25 + 50 + 4 * 20) * MS
    silence.late(900 * MS, NOW)
    assert silence.timeout_ns(PAIR, NOW) == 200 * MS
    calm = PairTimeouts()
    calm.late(30 * MS, NOW)
    assert calm.timeout_ns(PAIR, NOW) == 55 * MS
    assert calm.timeout_ns(PAIR, NOW + 4 * S) == max(25 + 15, 45 * 0.5 ** (4 / 16)) * MS


def test_a_nic_that_comes_up_without_a_change_of_its_addresses_is_news_all_the_same() -> None:
    host = Host()
    event = LinkEvent(at_ns=NOW, nic="nic0", carrier=False, admin_up=True, addresses=(),
                      carrier_down_count=1)  # fmt: skip
    assert host.health.link(event)
    assert not host.health.link(event)
    assert host.health.nic_of("10.0.0.1") == "nic0", "the kernel takes addresses that will be back"
