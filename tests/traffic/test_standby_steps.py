"""Which of several slow subflows is put on standby, by what was measured of each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.traffic.one_end import APP, NOW, POLICY, Host, here, of, there

from syntony.model import MS, S
from syntony.model.paths import FourTuple
from syntony.traffic.connection import Subflow
from syntony.traffic.instructions import Cause, Note, Retire
from syntony.traffic.meter import MeterWindow
from syntony.traffic.round_trips import RoundTrips
from syntony.traffic.standby import Standby
from syntony.traffic.turn import Turn

MBPS = 1_000_000


class End:
    """A connection with one subflow a rail, each measured for two seconds.

    Args:
        rtts_ms: round trips.
        busy: share of the time that each had data under way.
        mbps: what each carried; and `can`, what each could.
        keep: paths that must stay in use.
    """

    def __init__(
        self,
        rtts_ms: Sequence[float],
        *,
        busy: Sequence[float],
        mbps: Sequence[int],
        can: int = 100,
        keep: int = 1,
    ) -> None:
        policy = type(POLICY)(mode=POLICY.mode, min_paths=keep)
        self.host = Host(policy, rails=len(rtts_ms))
        self.trips = RoundTrips()
        self.standby = Standby(policy, self.host.health, self.trips)
        for rail in range(1, len(rtts_ms)):
            self.host.add(FourTuple(here(rail), 40_000, there(rail), APP), f"nic{rail}")
        self.look(rtts_ms, times=4)
        self.measure(busy, mbps, can)

    @property
    def subflows(self) -> list[Subflow]:
        return list(self.host.conn.subflows.values())

    def look(self, rtts_ms: Sequence[float], times: int = 1) -> None:
        for _ in range(times):
            self.trips.take({
                (f"nic{rail}", there(rail)): int(rtt_ms * MS) for rail, rtt_ms in enumerate(rtts_ms)
            })  # fmt: skip

    def measure(self, busy: Sequence[float], mbps: Sequence[int], can: int = 100) -> None:
        for each, share, rate in zip(self.subflows, busy, mbps, strict=True):
            for _ in range(5):
                each.meter.recent.append(
                    MeterWindow(rate * MBPS // 2, int(share * S / 2), S // 2, can * MBPS)
                )
                each.meter.windows += 1

    def check(self, now_ns: int = NOW, *, acting: bool = True) -> list[Note]:
        self.turn = Turn(self.host.conn, now_ns, [], [])
        self.standby.check(self.turn, self.subflows, acting=acting)
        return of(self.turn, Note)

    def aside(self) -> list[str]:
        return [each.nic or "" for each in self.subflows if each.on_standby]


@pytest.mark.parametrize("rtts_ms", [(0.5, 20, 60), (0.5, 60, 20), (60, 0.5, 20)])
def test_where_not_all_may_go_the_slowest_goes(rtts_ms: tuple[float, ...]) -> None:
    busy = [rtt_ms / 60 for rtt_ms in rtts_ms]
    end = End(rtts_ms, busy=busy, mbps=[5] * 3, keep=2)
    (note,) = end.check()
    assert end.aside() == [f"nic{rtts_ms.index(60)}"]
    assert (note.action, note.reason.cause) == ("standby", Cause.SLOW)
    (order,) = of(end.turn, Retire)
    assert order.retired
    assert note.reason.since_ns == NOW - 2 * S
    quick = end.subflows[rtts_ms.index(0.5)]
    said = f"round trip 60.0 ms, 0.5 ms on {quick.nic}; it carries 5.0 Mb/s and costs the others "
    assert note.reason.evidence.startswith(said)


def test_all_slow_ones_go_together_where_none_alone_would_help() -> None:
    end = End((0.5, 50, 50), busy=(0.1, 0.9, 0.9), mbps=(40, 5, 5))
    assert [note.action for note in end.check()] == ["standby"] * 2
    assert end.aside() == ["nic1", "nic2"]
    kept = End((0.5, 50, 50), busy=(0.1, 0.9, 0.9), mbps=(40, 5, 5), keep=2)
    assert kept.check() == [], "one alone frees nobody, and two may not go"


@pytest.mark.parametrize(
    ("mbps", "goes"), [(49, True), (51, False)]
)  # fmt: skip
def test_a_slow_one_goes_if_it_costs_more_than_it_carries(mbps: int, goes: bool) -> None:
    """The other could carry 0.9 · 100 Mb/s in the time it is busy, and carries 40."""
    end = End((0.5, 20), busy=(0.5, 0.9), mbps=(40, mbps))
    assert bool(end.check()) is goes
    assert bool(end.aside()) is goes


@pytest.mark.parametrize(
    ("fast_ms", "slow_ms", "slow"),
    [(0.1, 1.099, False), (0.1, 1.1, True), (5, 9.99, False), (5, 10, True)],
)
def test_slow_is_twice_the_fastest_and_a_millisecond_more(
    fast_ms: float, slow_ms: float, slow: bool
) -> None:
    end = End((fast_ms, slow_ms), busy=(0.5, 0.9), mbps=(20, 5))
    assert end.standby.concerns(end.host.conn) is slow
    assert bool(end.check()) is slow


def test_one_that_was_quick_at_any_of_four_looks_is_not_slow() -> None:
    end = End((0.5, 20), busy=(0.5, 0.9), mbps=(20, 5))
    end.look((0.5, 1.4))
    for _ in range(3):
        end.look((0.5, 20))
        assert end.check() == []
    end.look((0.5, 20))
    assert end.check()


def test_whoever_only_observes_tells_once_and_touches_nothing() -> None:
    end = End((0.5, 20), busy=(0.5, 0.9), mbps=(20, 5))
    (note,) = end.check(acting=False)
    assert note.action == "would-standby"
    assert end.check(NOW + S, acting=False) == []
    assert not end.aside()
    assert not of(end.turn, Retire)


def gained(now_ns: int, mbps: int) -> End:
    """A trial that began at `NOW`: 25 Mb/s before, `mbps` without the slow one."""
    end = End((0.5, 20), busy=(0.5, 0.9), mbps=(20, 5))
    assert end.check()
    assert end.check(now_ns) == [], "not measured anew yet"
    end.measure((0.9, 0.0), (mbps, 0))
    return end


@pytest.mark.parametrize(("mbps", "kept"), [(27, True), (26, False)])
def test_a_trial_that_does_not_gain_a_twentieth_is_over(mbps: int, kept: bool) -> None:
    end = gained(NOW + 2 * S, mbps)
    notes = end.check(NOW + 2 * S)
    assert [note.action for note in notes] == ([] if kept else ["resume"])
    assert bool(end.aside()) is kept
    if not kept:
        assert notes[0].reason.evidence == "26.0 Mb/s without it, 25.0 with it"
        (order,) = of(end.turn, Retire)
        assert not order.retired
        end.measure((0.5, 0.9), (20, 5))
        assert end.check(NOW + 62 * S - 1) == [], "not tried again for a minute"
        assert end.check(NOW + 62 * S)
    else:
        end.measure((0.9, 0.0), (1, 0))
        assert end.check(NOW + 9 * S) == [], "a gain is believed for good"


@pytest.mark.parametrize(("rtt_ms", "back"), [(10.3, False), (10.2, True)])
def test_one_that_is_half_as_slow_is_taken_back(rtt_ms: float, back: bool) -> None:
    """It was 19.5 ms slower than the fastest one."""
    end = gained(NOW + 2 * S, 50)
    assert end.check(NOW + 2 * S) == []
    end.look((0.5, rtt_ms), times=3)
    assert end.check(NOW + 9 * S) == [], "slow at one of four looks"
    end.look((0.5, rtt_ms))
    notes = end.check(NOW + 9 * S)
    assert [note.action for note in notes] == (["resume"] if back else [])
    if back:
        assert notes[0].reason.evidence == f"round trip {rtt_ms} ms again"


@pytest.mark.parametrize(("busy", "after_s", "back"), [
    (0.996, 30, True), (0.99, 30, False), (0.996, 29.9, False)
])  # fmt: skip
def test_a_job_that_streams_gets_it_back_to_try(busy: float, after_s: float, back: bool) -> None:
    end = gained(NOW + 2 * S, 50)
    assert end.check(NOW + 2 * S) == []
    end.measure((busy, 0.0), (50, 0))
    notes = end.check(NOW + int(after_s * S))
    assert [note.action for note in notes] == (["resume"] if back else [])
    if back:
        assert notes[0].reason.evidence == "the other paths are busy all the time"
