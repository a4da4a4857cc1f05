"""Steps and slews of the local clock, suspended and migrated machines: seen from other clocks.

CLOCK_MONOTONIC is slewed together with CLOCK_REALTIME but never stepped, CLOCK_MONOTONIC_RAW is
neither. The three are read within a known width of each other, so that differences between them
are known as intervals: where two intervals exclude each other, something has happened.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from syntony.model import US, S
from syntony.model.clocks import RAMP_PPB_PER_S, SWING_PPB

EDGE_NS = 20
"""Clocks that run alike may be read as different by this besides: rounding, other processors."""
SUSPENDED_NS = 100 * US
"""CLOCK_BOOTTIME ahead of CLOCK_MONOTONIC by this much more than before: the machine slept."""
PACE_NS = 8 * S
"""The clock's rate is judged over this long: two estimator windows. With readings good to 100 ns it
sees changes from some 30 ppb on; smaller ones are what quartzes do by themselves in that time."""
UNSEEN_NS = 2 * S
"""A change of some 100 ppb and more is seen within this."""
VAGUE_PPB = 20_000.0
"""A rate known no better is not known: a look's width over the time between two."""
UNKNOWN_PPB = 1e6
"""Tolerance of a rate that nothing is known of."""


_ANYWHERE = (-(1 << 63), 1 << 63)


class Moment(NamedTuple):
    """One instant in several clocks."""

    local_ns: int
    mono_ns: int
    """CLOCK_MONOTONIC: slewed together with CLOCK_REALTIME, never stepped."""
    boot_ns: int
    """CLOCK_BOOTTIME: the same, but it counts on while the machine sleeps."""
    marker: int = 0
    """The hypervisor's count of disruptions (migration, restored snapshot); 0 without one."""
    raw_ns: int = 0
    """CLOCK_MONOTONIC_RAW: neither slewed nor stepped."""
    width_ns: int = 0
    """Local and raw were read within this around `mono_ns`."""


class Disruption(NamedTuple):
    """The local clock cannot be extrapolated across this."""

    from_ns: int
    """First local reading that may already be affected."""
    step_ns: int
    """Size of the step; 0: not measured, but possible."""
    reason: str


class Slew(NamedTuple):
    """The clock has left the pace it had."""

    phase_ns: float
    """Current lead over that rate."""
    tolerance_ns: float
    rate_ppb: float
    """Rate in excess of that rate."""


class ClockRate(NamedTuple):
    """Rate of the clock relative to CLOCK_MONOTONIC_RAW, with a tolerance."""

    rate_ppb: float = 0.0
    tolerance_ppb: float = UNKNOWN_PPB


class StepDetector:
    """Detects steps and changes of rate of a clock by comparing successive moments."""

    def __init__(self) -> None:
        self._last: Moment | None = None
        self._ahead = _ANYWHERE
        """Interval of local minus CLOCK_MONOTONIC, constant but for steps."""
        self._moments: deque[tuple[Moment, ClockRate]] = deque()
        self._origin: tuple[Moment, ClockRate] | None = None
        """A moment at the pace that was left, until `settle`."""
        self.pace = ClockRate()
        self.left_pace = False
        """Whether the last look was the first one that another rate must have led to."""
        self.off_ns = 0.0
        """How far the clock may have gone from the `expected` pace between the last two looks; 0:
        not to be seen."""

    def look(self, now: Moment, *, was_set: bool = False) -> Disruption | None:
        """What happened since the last call.

        Args:
            was_set: the kernel says that the clock was set since then.
        """
        expected = self.expected
        last, self._last = self._last, now
        found = None if last is None else self._compare(last, now, was_set=was_set)
        self.off_ns = 0.0 if last is None or found is not None else _off_ns(last, now, expected)
        if found is not None:
            self._ahead = _ANYWHERE
            self._moments.clear()
            self.pace, self._origin = ClockRate(), None
        least_ns, most_ns = _ahead_ns(now)
        self._ahead = max(self._ahead[0], least_ns), min(self._ahead[1], most_ns)
        self._follow(now)
        return found

    def resume(self, seen: Moment, pace: ClockRate) -> None:
        """Go on from the last look of a predecessor, and the pace it knew."""
        self.look(seen)
        self.pace = pace
        self._moments[-1] = seen, pace

    @property
    def last(self) -> Moment | None:
        """The last look."""
        return self._last

    @property
    def expected(self) -> ClockRate:
        """Rate that users of the clock assume."""
        slew = self.slew()
        if slew is None or self._origin is None:
            return self.pace
        left = self._origin[1]
        return ClockRate(left.rate_ppb + slew.rate_ppb, left.tolerance_ppb)

    def slew(self) -> Slew | None:
        """Deviation from that rate at the last reading; None: none."""
        if self._origin is None or self._last is None:
            return None
        origin, pace = self._origin
        now, gone_ns = self._last, self._last.raw_ns - origin.raw_ns
        phase_ns = _fast_ns(now) - _fast_ns(origin) - pace.rate_ppb * 1e-9 * gone_ns
        tolerance_ns = _widths_ns(origin, now) + pace.tolerance_ppb * 1e-9 * gone_ns
        rate_ppb = self.pace.rate_ppb - pace.rate_ppb
        if self.pace.tolerance_ppb > VAGUE_PPB:  # it has just changed
            rate_ppb = phase_ns / max(gone_ns, 1) * 1e9
        return Slew(phase_ns, tolerance_ns, rate_ppb)

    def settle(self) -> None:
        """Accept the present rate: users of the clock have measured it again."""
        self._origin = None

    def changed(self) -> None:
        """The rate was changed on purpose, and users of the clock know it."""
        self._moments.clear()
        self.pace = ClockRate()

    def _compare(self, last: Moment, now: Moment, *, was_set: bool) -> Disruption | None:
        least_ns, most_ns = _ahead_ns(now)
        step_ns = 0
        if least_ns > self._ahead[1] or most_ns < self._ahead[0]:
            step_ns = (least_ns + most_ns - sum(self._ahead)) // 2
        from_ns = last.local_ns + 1 + min(0, step_ns)
        if step_ns:
            return Disruption(from_ns, step_ns, "clock stepped")
        if now.boot_ns - last.boot_ns - (now.mono_ns - last.mono_ns) > SUSPENDED_NS:
            return Disruption(from_ns, 0, "machine was suspended")
        if now.marker != last.marker:
            return Disruption(from_ns, 0, "machine was migrated or restored")
        if was_set:
            return Disruption(from_ns, 0, "clock was set, by less than can be seen")
        return None

    def _follow(self, now: Moment) -> None:
        """Whether one rate can have led from all moments recently to this one."""
        moments = self._moments
        while len(moments) > 1 and now.raw_ns - moments[0][0].raw_ns > PACE_NS:
            moments.popleft()
        least, most = -math.inf, math.inf
        for then, _ in moments:
            gone_ns = now.raw_ns - then.raw_ns
            if gone_ns <= 0:
                continue
            slope = (_fast_ns(now) - _fast_ns(then)) / gone_ns
            doubt = _widths_ns(then, now) / gone_ns
            least, most = max(least, slope - doubt), min(most, slope + doubt)
        self.left_pace = least > most or (self.off_ns > 0 and self._origin is None)
        if self.left_pace:
            if self._origin is None:
                self._origin = self._before(now)
            moments.clear()
            self.pace = ClockRate()
        elif moments and math.isfinite(least):
            self.pace = ClockRate((least + most) / 2 * 1e9, (most - least) / 2 * 1e9)
        moments.append((now, self.pace))

    def _before(self, now: Moment) -> tuple[Moment, ClockRate]:
        """Where the clock's pace is best known from before it was left: a change is seen some time
        after it began, and spoils what is estimated meanwhile."""

        def doubt_ns(at: tuple[Moment, ClockRate]) -> float:
            gone_ns = now.raw_ns - at[0].raw_ns
            return at[0].width_ns / 2 + at[1].tolerance_ppb * 1e-9 * gone_ns

        early = [at for at in self._moments if now.raw_ns - at[0].raw_ns >= UNSEEN_NS]
        known = [at for at in early if at[1].tolerance_ppb <= VAGUE_PPB]
        return min(known, key=doubt_ns) if known else self._moments[-1]


def _ahead_ns(moment: Moment) -> tuple[int, int]:
    """Interval of local minus CLOCK_MONOTONIC."""
    ahead_ns, half_ns = moment.local_ns - moment.mono_ns, (moment.width_ns + EDGE_NS + 1) // 2
    return ahead_ns - half_ns, ahead_ns + half_ns


def _off_ns(last: Moment, now: Moment, pace: ClockRate) -> float:
    """As readers of the page take it (`slewed_ns` of syn_clock_reader.c), but for what a quartz
    does by itself, which every bound holds already."""
    gone_ns = now.raw_ns - last.raw_ns
    off_ns = abs(_fast_ns(now) - _fast_ns(last) - pace.rate_ppb * 1e-9 * gone_ns)
    widths_ns, gone_s = _widths_ns(last, now), abs(gone_ns) * 1e-9
    wander_ns = min(RAMP_PPB_PER_S * gone_s * gone_s / 2, SWING_PPB * gone_s)
    least_ns = widths_ns + pace.tolerance_ppb * gone_s + wander_ns
    return off_ns + least_ns if off_ns > least_ns else 0.0


def _fast_ns(moment: Moment) -> int:
    """How far CLOCK_MONOTONIC is ahead of the raw clock."""
    return moment.mono_ns - moment.raw_ns


def _widths_ns(one: Moment, other: Moment) -> float:
    return (one.width_ns + other.width_ns) / 2 + EDGE_NS
