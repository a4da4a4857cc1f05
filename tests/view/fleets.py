"""Fleets of clocks with a known truth, as the controller would store and tell them."""

from __future__ import annotations

from collections.abc import Callable

from syntony.model import ClockState, S, Timeline
from syntony.wire.clocks import ClockSample
from syntony.wire.probes import SeriesPoint

T0 = 1_700_000_000 * S


def line(node: str, **fields: object) -> Timeline:
    """A synchronized clock 1 ms ahead of fleet time, good to 10 ns."""
    chosen = {
        "ref_ns": T0,
        "offset_ns": -1e6,
        "drift_ppb": 0.0,
        "sigma_ns": 10.0,
        "state": ClockState.SYNCHRONIZED,
        "component": "h0",
    } | fields
    return Timeline(node=node, **chosen)  # type: ignore[arg-type]


def sample(node: str, second: int = 0, **fields: object) -> ClockSample:
    """One stored solution."""
    chosen = {
        "ts_ns": T0 + second * S,
        "ref_ns": T0 + second * S,
        "offset_ns": 0.0,
        "drift_ppb": 0.0,
        "sigma_ns": 10.0,
        "drift_sigma_ppb": 1.0,
        "bound_ns": 40.0,
        "state": ClockState.SYNCHRONIZED,
    } | fields
    return ClockSample(node=node, **chosen)  # type: ignore[arg-type]


def reported(node: str, ahead_ns: int, error_ns: int, seconds: int) -> list[ClockSample]:
    """A clock that is `ahead_ns` of the machine's and is believed to be `error_ns` more."""
    return [
        sample(
            node,
            second,
            ref_ns=T0 + second * S + ahead_ns,
            offset_ns=float(-ahead_ns - error_ns),
        )
        for second in range(seconds)
    ]


def truth(ahead_ns: int) -> Callable[[int], int]:
    """The machine's reading when such a clock reads this."""
    return lambda local_ns: local_ns - ahead_ns


def point(src: str, dst: str, second: int, p50_ns: int | None) -> SeriesPoint:
    """One second of one direction."""
    return SeriesPoint(
        ts_ns=T0 + second * S,
        src=src,
        dst=dst,
        sent=40,
        lost=0,
        owd_min_ns=p50_ns,
        owd_p50_ns=p50_ns,
        owd_p99_ns=p50_ns,
    )
