"""The agents' estimates of their clocks against the truth. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping

import msgspec

from syntony.model import ClockState, Timeline
from syntony.wire.clocks import ClockTruth


class TrueClock(msgspec.Struct, frozen=True, kw_only=True):
    """One host's clock at one machine instant: it reads ``at_ns + offset_ns``."""

    host: str
    at_ns: int
    offset_ns: int
    drift_ppb: float


def compare(clocks: Iterable[TrueClock], timelines: Iterable[Timeline]) -> list[ClockTruth]:
    """Puts each host's timeline beside its true clock.

    The fleet timeline's gauge is free: only differences between clocks of one component can be
    right or wrong, so the component's median difference is taken as the gauge.
    """
    by_host = {line.node: line for line in timelines}
    truths = list(clocks)
    raw = {
        clock.host: _estimate_ns(clock, by_host[clock.host]) - clock.offset_ns
        for clock in truths
        if _useful(by_host.get(clock.host))
    }
    gauge = _gauges(raw, by_host)
    return [_beside(clock, by_host.get(clock.host), raw, gauge) for clock in truths]


def _useful(line: Timeline | None) -> bool:
    return line is not None and line.state is not ClockState.UNKNOWN


def _estimate_ns(clock: TrueClock, line: Timeline) -> int:
    """Local minus fleet time, at the local reading of the common instant."""
    local_ns = clock.at_ns + clock.offset_ns
    return local_ns - line.to_fleet_ns(local_ns)


def _gauges(raw: Mapping[str, int], by_host: Mapping[str, Timeline]) -> dict[str, int]:
    parts: dict[str, list[int]] = {}
    for host, difference in raw.items():
        parts.setdefault(by_host[host].component, []).append(difference)
    # median_high is one of the values: no half nanoseconds, no loss at 10^18.
    return {part: statistics.median_high(values) for part, values in parts.items()}


def _beside(
    clock: TrueClock, line: Timeline | None, raw: Mapping[str, int], gauge: Mapping[str, int]
) -> ClockTruth:
    bare = ClockTruth(
        host=clock.host,
        at_ns=clock.at_ns,
        offset_ns=clock.offset_ns,
        drift_ppb=clock.drift_ppb,
        state=None if line is None else line.state,
    )
    if line is None or clock.host not in raw:
        return bare
    local_ns = clock.at_ns + clock.offset_ns
    age_ns = local_ns - line.ref_ns
    return msgspec.structs.replace(
        bare,
        est_offset_ns=raw[clock.host] + clock.offset_ns,
        est_drift_ppb=-line.drift_ppb,
        error_ns=raw[clock.host] - gauge[line.component],
        clk_err_ns=round(math.hypot(line.sigma_ns, line.drift_sigma_ppb * 1e-9 * age_ns)),
        bound_ns=line.bound_ns(local_ns),
    )
