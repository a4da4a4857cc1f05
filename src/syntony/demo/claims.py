"""Checks an act's measurements against its claims: the demo's only verdicts. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from syntony.model import ClockState, S, Timeline, format_ns
from syntony.wire.probes import MatrixCell, SeriesPoint

CONVERGED_SIGMA_NS = 2_000.0
"""A clock counts as converged when its own 1-sigma is below this, …"""
TIMELINE_AGE_NS = 3 * S
"""… also for readings this long after its timeline's reference: the next solution is there by
then."""
CLOCK_ERROR_NS = 2_000
"""Claimed largest clock error on an idle lab: kernel stamps on shared, busy cores."""
BOUND_SIGMAS = 5
"""An error beyond this many of its own sigmas means that the sigma is wrong."""
DARK = 0.9
"""A direction that loses more than this share within one second is dark in that second."""
LOSS_FREE = 1e-4
"""Share of lost probes that an overloaded machine is allowed without any fault."""
SETTLE_NS = 2 * S
"""Seconds this near to a fault's start or end are not judged: probes passed in part of them."""


class DemoClaim(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    measured: str
    held: bool


class ActReport(msgspec.Struct, frozen=True, kw_only=True):
    act: str
    claims: tuple[DemoClaim, ...] = ()
    not_run: str = ""
    """Why the act could not run here; empty if it ran."""


class ClockError(msgspec.Struct, frozen=True, kw_only=True):
    """One host's clock error against the truth, at one instant."""

    host: str
    error_ns: float
    clk_err_ns: float


def converged(timelines: Sequence[Timeline], hosts: Collection[str]) -> bool:
    """Whether every host's clock is synchronized, on one timeline, with a small sigma."""
    found = {line.node: line for line in timelines}
    return (
        set(hosts) <= found.keys()
        and len({found[host].component for host in hosts}) == 1
        and all(
            found[host].state is ClockState.SYNCHRONIZED
            and math.hypot(
                found[host].sigma_ns, found[host].drift_sigma_ppb * 1e-9 * TIMELINE_AGE_NS
            )
            < CONVERGED_SIGMA_NS
            for host in hosts
        )
    )


def clock_claims(samples: Sequence[Sequence[ClockError]]) -> tuple[DemoClaim, ...]:
    """Claims on the errors of all hosts, sampled several times."""
    errors = np.array([abs(truth.error_ns) for sample in samples for truth in sample])
    ratios = np.array(
        [abs(truth.error_ns) / truth.clk_err_ns for sample in samples for truth in sample]
    )
    if not errors.size:
        return (DemoClaim(text="clocks agree with the truth", measured="no sample", held=False),)
    return (
        DemoClaim(
            text=f"every clock within {format_ns(CLOCK_ERROR_NS)} of the truth",
            measured=f"median {format_ns(float(np.median(errors)))}, "
            f"p95 {format_ns(float(np.quantile(errors, 0.95)))}, "
            f"worst {format_ns(float(errors.max()))}",
            held=bool(errors.max() <= CLOCK_ERROR_NS),
        ),
        DemoClaim(
            text=f"no error beyond {BOUND_SIGMAS} times the sigma reported with it",
            measured=f"worst {ratios.max():.1f} sigma over {len(ratios)} readings",
            held=bool(ratios.max() <= BOUND_SIGMAS),
        ),
    )


def coverage_claim(cells: Sequence[MatrixCell], nics: int) -> DemoClaim:
    """Every NIC is measured, as sender and as receiver, and hardly anything lost."""
    senders, receivers = ({getattr(cell, end) for cell in cells} for end in ("src", "dst"))
    blind = [cell for cell in cells if cell.owd_p50_ns is None]
    lost, sent = sum(cell.lost for cell in cells), sum(cell.sent for cell in cells)
    return DemoClaim(
        text=f"a one-way delay for every probed direction, at most {LOSS_FREE:.2%} lost",
        measured=f"{len(cells)} directions between {len(senders | receivers)} NICs, "
        f"{len(blind)} without a delay, {lost} of {sent} probes lost",
        held=len(senders) == len(receivers) == nics and not blind and lost <= LOSS_FREE * sent,
    )


class DarkReport(msgspec.Struct, frozen=True, kw_only=True):
    """Which directions a fault darkened, and when."""

    dark: tuple[str, ...]
    wrongly_dark: tuple[str, ...]
    still_lit: tuple[str, ...]
    still_dark: tuple[str, ...]
    first_dark_after_ns: int | None
    """From the fault to the start of the first dark second; seconds are the resolution."""
    lit_again_after_ns: int | None
    """From the fault's end to the start of the last second in which something came back."""


def darkness(
    points: Sequence[SeriesPoint], victim: str, began_ns: int, ended_ns: int
) -> DarkReport:
    """Compare the directions that went dark with those that the fault must have darkened.

    Args:
        points: per-second history of every pair, from before the fault to well after it.
        victim: the NIC cut off, ``host/nic``.
        began_ns: fault's start, fleet time.
        ended_ns: fault's end, fleet time.
    """
    seconds = _by_direction(points)
    inside = (began_ns + SETTLE_NS, ended_ns - SETTLE_NS)
    touched = {pair for pair in seconds if victim in pair}
    dark = {pair for pair, mine in seconds.items() if _dark_share(mine, *inside) > DARK}
    after = (ended_ns + SETTLE_NS, max((point.ts_ns for point in points), default=0) + 1)
    still = {pair for pair in dark if _dark_share(seconds[pair], *after) > 0}
    first = [point.ts_ns for pair in dark for point in seconds[pair] if _is_dark(point)]
    back = [
        next((p.ts_ns for p in seconds[pair] if p.ts_ns > ended_ns - S and not _is_dark(p)), None)
        for pair in dark - still
    ]
    known_back = [ts_ns for ts_ns in back if ts_ns is not None]
    return DarkReport(
        dark=_named(dark),
        wrongly_dark=_named(dark - touched),
        still_lit=_named(touched - dark),
        still_dark=_named(still),
        first_dark_after_ns=min(first) - began_ns if first else None,
        lit_again_after_ns=max(known_back) - ended_ns if known_back else None,
    )


def darkness_claims(report: DarkReport, victim: str, expected: int) -> tuple[DemoClaim, ...]:
    """Claims on a black-hole at one NIC that affects `expected` directions."""
    hit = len(report.dark) - len(report.wrongly_dark)
    return (
        DemoClaim(
            text=f"the black-hole at {victim} darkens its own {expected} directions and no other",
            measured=f"{hit} of {expected} dark, {len(report.wrongly_dark)} wrongly dark"
            + _after("first dark second began", report.first_dark_after_ns, "the fault"),
            held=hit == expected and not report.still_lit and not report.wrongly_dark,
        ),
        DemoClaim(
            text="all of them return after it",
            measured=f"{len(report.still_dark)} still dark"
            + _after("last return in the second that began", report.lit_again_after_ns, "its end"),
            held=bool(report.dark) and not report.still_dark,
        ),
    )


def _after(what: str, after_ns: int | None, event: str) -> str:
    if after_ns is None:
        return ""
    order = "after" if after_ns >= 0 else "before"
    return f", {what} {format_ns(abs(after_ns))} {order} {event}"


def _by_direction(
    points: Sequence[SeriesPoint],
) -> Mapping[tuple[str, str], list[SeriesPoint]]:
    seconds: dict[tuple[str, str], list[SeriesPoint]] = {}
    for point in sorted(points, key=lambda point: point.ts_ns):
        seconds.setdefault((point.src, point.dst), []).append(point)
    return seconds


def _is_dark(point: SeriesPoint) -> bool:
    return point.sent > 0 and point.lost > DARK * point.sent


def _dark_share(points: Sequence[SeriesPoint], from_ns: int, to_ns: int) -> float:
    """Share of dark seconds among the whole seconds of an interval that have probes. 0 if there are
    none."""
    inside = [
        _is_dark(point)
        for point in points
        if point.sent and from_ns <= point.ts_ns and point.ts_ns + S <= to_ns
    ]
    return sum(inside) / len(inside) if inside else 0.0


def _named(pairs: Collection[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{src} → {dst}" for src, dst in sorted(pairs))
