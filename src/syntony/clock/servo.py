"""Steer a clock to fleet time: by frequency, within limits; by a step only if configured.

The estimators assume that a quartz's frequency walks by some ppb per √s. Changes as small as that
(*fine*) may be made at any time. A larger one (*coarse*) is a disruption: the clock has no
fleet time until windows have passed that contain only the new frequency. So coarse changes are few:
four for a clock that starts far off, a minute apart.
"""

from __future__ import annotations

from typing import NamedTuple

from syntony.model import ClockState, S, Timeline

PULL_NS = 60 * S
"""Time constant with which the remaining offset is taken away, and the least time from one coarse
change to the next: after it the offset is gone."""
FINE_PPB = 10.0
"""Natural change of a quartz's frequency in `SETTLE_NS`: 5 ppb per √s."""
COARSE_PPB = 100.0
"""Smaller changes are made in fine steps."""
SETTLE_NS = 6 * S
"""From one adjustment to a timeline that rests on windows (4 s) without any time before it."""
PULL_PPB = 100_000.0
"""Fastest approach: 0.1 ms a second, NTP's pace."""


class Adjustment(NamedTuple):
    """Correction of the clock."""

    rate_ppb: float
    """Frequency to set, as clock_adjtime counts it."""
    step_ns: int
    coarse: bool
    """More than the natural change of a quartz: fleet time must be solved again."""


class Servo:
    """One clock's. Pure.

    Args:
        limit_ppb: largest frequency ever set.
        step_ns: step where the clock is further off than this; 0: never.
    """

    def __init__(self, limit_ppb: float, step_ns: int = 0) -> None:
        self._limit_ppb = limit_ppb
        self._step_ns = step_ns
        self._adjusted_ns: int | None = None
        self._coarse_ns: int | None = None

    def update(self, line: Timeline, local_ns: int, rate_ppb: float) -> Adjustment | None:
        """What a newly solved timeline asks for, if anything.

        Args:
            local_ns: its reading now.
            rate_ppb: the frequency set at present.
        """
        if line.state is not ClockState.SYNCHRONIZED:
            return None
        last_ns = self._adjusted_ns
        if last_ns is not None and line.ref_ns < last_ns + SETTLE_NS:
            return None
        behind_ns = line.to_fleet_ns(local_ns) - local_ns
        rested = self._coarse_ns is None or line.ref_ns >= self._coarse_ns + PULL_NS
        steps = self._step_ns and abs(behind_ns) > self._step_ns and rested
        step_ns = behind_ns if steps else 0
        pull_ppb = (behind_ns - step_ns) / (PULL_NS + SETTLE_NS) * 1e9
        pull_ppb = max(-PULL_PPB, min(PULL_PPB, pull_ppb))
        # line.drift_ppb is how much faster fleet time runs than this clock, the pull of the last
        # adjustment included: what it asks for replaces that pull.
        wanted_ppb = max(
            -self._limit_ppb, min(self._limit_ppb, rate_ppb + line.drift_ppb + pull_ppb)
        )
        change_ppb = wanted_ppb - rate_ppb
        self._adjusted_ns = local_ns
        if step_ns or (rested and abs(change_ppb) > COARSE_PPB):
            self._coarse_ns = local_ns
            return Adjustment(wanted_ppb, step_ns, True)
        if not rested:
            return None  # the pull of the last coarse change is at work
        return Adjustment(rate_ppb + max(-FINE_PPB, min(FINE_PPB, change_ppb)), 0, False)
