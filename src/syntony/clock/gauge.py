"""Keep the fleet timeline continuous between solves; detect stepped clocks and holdover.

The gauge (the zero of fleet time) is arbitrary. It starts as the mean of the clocks of a part and
is then kept continuous, so no single host is the reference, and any may fail.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec
import numpy as np

from syntony.clock.lead import Lead
from syntony.clock.median import median
from syntony.model import ClockState, Timeline, format_ns

WANDER_PPB = 100.0
"""Assumed drift change in holdover (Graham, NSDI'22, reaches this with temperature memory)."""
STEP_NS = 1_000.0
STEP_SIGMAS = 10.0
"""A clock that is this far (both) from where it was predicted has stepped."""


def continue_timeline(
    fresh: Mapping[str, Timeline],
    previous: Mapping[str, Timeline],
    disrupted: Collection[str] = (),
) -> dict[str, Timeline]:
    """Shift offsets and rates so that the fleet timeline stays continuous; flag clock steps.

    Clocks whose hosts have reported a step or a slew (`disrupted`) are not used for this while
    there are others, and get no flag.

    If parts join, the one with most clocks keeps its time; the clocks of the others are flagged.
    """
    known = _heirs(fresh, previous, disrupted)
    if not known:
        gauge_ns = math.fsum(line.offset_ns for line in fresh.values()) / len(fresh)
        return {node: _shifted(line, -gauge_ns, 0.0) for node, line in fresh.items()}
    jumps = {node: _predicted(previous[node], fresh[node]) for node in fresh if node in previous}
    gauge_ns = _median(jumps[node] for node in known)
    gauge_ppb = _median(previous[node].drift_ppb - fresh[node].drift_ppb for node in known)
    result = {}
    for node, line in fresh.items():
        off_ns = jumps.get(node, gauge_ns) - gauge_ns
        shifted = _shifted(line, gauge_ns, gauge_ppb)
        if node not in disrupted and abs(off_ns) > max(
            STEP_NS, STEP_SIGMAS * _step_sigma(line, previous.get(node))
        ):
            reason = shifted.reason or f"stepped by {format_ns(-off_ns)} against the others"
            shifted = msgspec.structs.replace(shifted, state=ClockState.DISRUPTED, reason=reason)
        result[node] = shifted
    return result


def hold_over(line: Timeline, age_ns: int) -> Timeline:
    """A timeline in holdover, without edges for `age_ns`."""
    drift_sigma_ppb = math.hypot(line.drift_sigma_ppb, WANDER_PPB)
    return msgspec.structs.replace(
        line,
        sigma_ns=math.hypot(line.sigma_ns, drift_sigma_ppb * 1e-9 * age_ns),
        drift_sigma_ppb=drift_sigma_ppb,
        state=ClockState.HOLDOVER,
        reason="no fresh edges",
    )


def apply_lead(line: Timeline, lead: Lead) -> Timeline:
    """A timeline after a step and a change of rate of fleet time, the same for all clocks."""
    since_s = (line.to_local_ns(lead.at_ns) - line.ref_ns) * 1e-9
    return _shifted(line, lead.step_ns - lead.rate_ppb * since_s, lead.rate_ppb)


def kept_time(
    fresh: Mapping[str, Timeline],
    previous: Mapping[str, Timeline],
    disrupted: Collection[str] = (),
) -> list[str]:
    """Clocks that had fleet time, are honest, and have not stepped since."""
    return [
        node
        for node, line in fresh.items()
        if node in previous and node not in disrupted and line.state is ClockState.SYNCHRONIZED
    ]


def _heirs(
    fresh: Mapping[str, Timeline], previous: Mapping[str, Timeline], disrupted: Collection[str]
) -> list[str]:
    """Clocks whose previous timelines define the gauge: of the part that has most of them.

    The earlier timeline of a clock that has stepped is void. A part with only such clocks is
    therefore not chosen if any other clock is there, however small that clock's part is.
    """
    steady = kept_time(fresh, previous, disrupted) or kept_time(fresh, previous)
    parts = Counter(previous[node].component for node in steady)
    heir = min(parts, key=lambda part: (-parts[part], part), default=None)
    return [node for node in steady if previous[node].component == heir]


def _predicted(before: Timeline, now: Timeline) -> float:
    """Distance of the old timeline from the new one at the new reference instant, ns."""
    return before.to_fleet_ns(now.ref_ns) - now.ref_ns - now.offset_ns


def _step_sigma(line: Timeline, before: Timeline | None) -> float:
    if before is None:
        return math.inf
    drift_ns = before.drift_sigma_ppb * 1e-9 * abs(line.ref_ns - before.ref_ns)
    return math.hypot(line.sigma_ns, before.sigma_ns, drift_ns)


def _shifted(line: Timeline, offset_ns: float, drift_ppb: float) -> Timeline:
    return msgspec.structs.replace(
        line, offset_ns=line.offset_ns + offset_ns, drift_ppb=line.drift_ppb + drift_ppb
    )


def _median(values: Iterable[float]) -> float:
    return median(np.fromiter(values, dtype=np.float64))
