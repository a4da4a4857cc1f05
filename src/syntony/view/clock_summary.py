"""The data of a clock report: histories, errors against truth, a pair's delays. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import msgspec
import numpy as np

from syntony.model import ClockState, S, Timeline
from syntony.model.names import host_of
from syntony.view.clock_history import by_clock
from syntony.wire.clocks import ClockSample
from syntony.wire.probes import MatrixCell, SeriesPoint

Truth = Mapping[str, Callable[[int], int]]
"""Clock → what the machine's clock read when this one read that (`SyntheticClock.unmap_ns`)."""


NEAR_NS = 10 * S
"""Maximum distance between a delay's second and the clock solution used for it."""


class ClockSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One clock over time; all lists have one entry per sample."""

    node: str
    at_s: list[float]
    """Seconds before the newest sample of all: 0 is the newest."""
    offset_ns: list[float]
    drift_ppb: list[float]
    sigma_ns: list[float]
    bound_ns: list[float | None]
    state: list[ClockState]
    error_ns: list[float | None]
    """Error against the truth minus the median error of all clocks (the timeline's free choice);
    None: unknown."""


class DelayReport(msgspec.Struct, frozen=True, kw_only=True):
    """One pair of NICs over time; one entry per second in which both directions were measured."""

    src: str
    dst: str
    at_s: list[float]
    forward_ns: list[int]
    """Median one-way delay src → dst."""
    reverse_ns: list[int]
    half_rtt_ns: list[float]
    """Half a round trip, which does not depend on clocks."""
    raw_forward_ns: list[int]
    """The same delay from the hosts' uncorrected stamps."""
    raw_reverse_ns: list[int]
    clock_error_ns: list[float | None]
    """How far `forward_ns` is from the truth (`reverse_ns` as far the other way)."""


class ClockReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole report, also exported as JSON."""

    fleet: str
    newest_ns: int
    """Fleet time of the newest sample."""
    step_ns: int
    known_truth: bool
    clocks: list[ClockSeries]
    delays: DelayReport | None


class ClockFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The report's summary figures; None where there is nothing to count."""

    clocks: int
    samples: int
    synchronized: float
    """Share of samples."""
    bound_p50_ns: float | None
    bound_p95_ns: float | None
    error_p50_ns: float | None
    error_p95_ns: float | None
    error_max_ns: float | None
    compared: int
    """Samples with both an error and a bound."""
    violations: int
    """Of these, errors beyond their bound."""


def summarize_clocks(
    fleet: str,
    samples: Sequence[ClockSample],
    step_ns: int,
    points: Sequence[SeriesPoint] = (),
    truth: Truth | None = None,
) -> ClockReport:
    """Make a report on a fleet's clocks; `points` are both directions of one pair of NICs."""
    newest_ns = max((sample.ts_ns for sample in samples), default=0)
    errors = errors_ns(samples, truth) if truth else {}
    clocks = by_clock(samples)
    return ClockReport(
        fleet=fleet,
        newest_ns=newest_ns,
        step_ns=step_ns,
        known_truth=bool(errors),
        clocks=[_clock_series(node, own, newest_ns, errors) for node, own in clocks.items()],
        delays=_delay_series(points, clocks, newest_ns, errors),
    )


def errors_ns(samples: Sequence[ClockSample], truth: Truth) -> dict[tuple[str, int], float]:
    """Per (clock, instant): fleet time as this clock reads it, minus the truth.

    The fleet timeline's offset and rate are arbitrary. So for every clock of one solve we compute
    the machine instant at which it would read this fleet time; its difference from the median is
    the error. Unknown and unsynchronized clocks do not take part in the median.
    """
    errors = {}
    ordered = sorted(samples, key=lambda sample: sample.ts_ns)
    for ts_ns, solve in groupby(ordered, key=lambda sample: sample.ts_ns):
        known = [s for s in solve if s.node in truth and s.state is not ClockState.UNKNOWN]
        real = {s.node: truth[s.node](local_ns(s, ts_ns)) for s in known}
        good = [real[s.node] for s in known if s.state is ClockState.SYNCHRONIZED]
        if len(good) < 2:
            continue
        # Of differences, which fit a float; instants do not.
        gauge_ns = statistics.median(at_ns - good[0] for at_ns in good)
        errors.update({(node, ts_ns): gauge_ns - (at - good[0]) for node, at in real.items()})
    return errors


def local_ns(sample: ClockSample, fleet_ns: int) -> int:
    """The reading of the sample's clock at an instant of fleet time."""
    line = Timeline(
        node=sample.node,
        ref_ns=sample.ref_ns,
        offset_ns=sample.offset_ns,
        drift_ppb=sample.drift_ppb,
        sigma_ns=sample.sigma_ns,
    )
    return line.to_local_ns(fleet_ns)


def most_asymmetric_pair(cells: Sequence[MatrixCell]) -> tuple[str, str] | None:
    """The pair whose median delays differ most by direction, as ends of the slower direction."""
    p50 = {(cell.src, cell.dst): cell.owd_p50_ns for cell in cells if cell.owd_p50_ns is not None}
    both = [way for way in p50 if way[::-1] in p50]
    return max(both, key=lambda way: p50[way] - p50[way[::-1]], default=None)


def clock_figures(report: ClockReport) -> ClockFigures:
    """Counts and quantiles over all clocks and samples."""
    states = [state for clock in report.clocks for state in clock.state]
    bounds = [b for clock in report.clocks for b in clock.bound_ns if b is not None]
    pairs = [
        (abs(error), bound)
        for clock in report.clocks
        for error, bound in zip(clock.error_ns, clock.bound_ns, strict=True)
        if error is not None and bound is not None
    ]
    errors = [error for error, _ in pairs]
    return ClockFigures(
        clocks=len(report.clocks),
        samples=len(states),
        synchronized=states.count(ClockState.SYNCHRONIZED) / len(states) if states else 0.0,
        bound_p50_ns=_quantile(bounds, 0.5),
        bound_p95_ns=_quantile(bounds, 0.95),
        error_p50_ns=_quantile(errors, 0.5),
        error_p95_ns=_quantile(errors, 0.95),
        error_max_ns=_quantile(errors, 1.0),
        compared=len(pairs),
        violations=sum(error > bound for error, bound in pairs),
    )


def _quantile(values: Sequence[float], share: float) -> float | None:
    return float(np.quantile(values, share)) if values else None


def _clock_series(
    node: str,
    samples: Sequence[ClockSample],
    newest_ns: int,
    errors: Mapping[tuple[str, int], float],
) -> ClockSeries:
    return ClockSeries(
        node=node,
        at_s=[(sample.ts_ns - newest_ns) / S for sample in samples],
        offset_ns=[sample.offset_ns for sample in samples],
        drift_ppb=[sample.drift_ppb for sample in samples],
        sigma_ns=[sample.sigma_ns for sample in samples],
        bound_ns=[sample.bound_ns for sample in samples],
        state=[sample.state for sample in samples],
        error_ns=[errors.get((node, sample.ts_ns)) for sample in samples],
    )


def _delay_series(
    points: Sequence[SeriesPoint],
    clocks: Mapping[str, Sequence[ClockSample]],
    newest_ns: int,
    errors: Mapping[tuple[str, int], float],
) -> DelayReport | None:
    if not points:
        return None
    src, dst = points[0].src, points[0].dst
    forward = _medians(points, src, dst)
    reverse = _medians(points, dst, src)
    a, b = _clock_of(src, clocks), _clock_of(dst, clocks)
    if not a or not b:
        return None
    near = {
        at: (_nearest(clocks[a], at), _nearest(clocks[b], at))
        for at in sorted(forward.keys() & reverse.keys())
    }
    near = {
        at: pair
        for at, pair in near.items()
        if all(abs(sample.ts_ns - at) <= NEAR_NS for sample in pair)
    }
    if not near:
        return None
    seconds = list(near)
    # Every raw forward delay includes the offset of b's clock from a's.
    apart = [local_ns(two, at) - local_ns(one, at) for at, (one, two) in near.items()]
    return DelayReport(
        src=src,
        dst=dst,
        at_s=[(at - newest_ns) / S for at in seconds],
        forward_ns=[forward[at] for at in seconds],
        reverse_ns=[reverse[at] for at in seconds],
        half_rtt_ns=[(forward[at] + reverse[at]) / 2 for at in seconds],
        raw_forward_ns=[forward[at] + off for at, off in zip(seconds, apart, strict=True)],
        raw_reverse_ns=[reverse[at] - off for at, off in zip(seconds, apart, strict=True)],
        clock_error_ns=[_difference(errors, one, two) for one, two in near.values()],
    )


def _medians(points: Sequence[SeriesPoint], src: str, dst: str) -> dict[int, int]:
    return {
        point.ts_ns: point.owd_p50_ns
        for point in points
        if (point.src, point.dst) == (src, dst) and point.owd_p50_ns is not None
    }


def _clock_of(nic: str, clocks: Mapping[str, Sequence[ClockSample]]) -> str:
    """A NIC's own clock where it has one, else its host's; empty if neither is known."""
    return next((name for name in (nic, host_of(nic)) if name in clocks), "")


def _nearest(samples: Sequence[ClockSample], at_ns: int) -> ClockSample:
    return min(samples, key=lambda sample: abs(sample.ts_ns - at_ns))


def _difference(
    errors: Mapping[tuple[str, int], float], src: ClockSample, dst: ClockSample
) -> float | None:
    one, two = errors.get((src.node, src.ts_ns)), errors.get((dst.node, dst.ts_ns))
    return None if one is None or two is None else two - one
