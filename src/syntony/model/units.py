"""Time and units. Durations and instants are ``int`` nanoseconds everywhere."""

from __future__ import annotations

import re

from syntony.errors import UsageError

NS = 1
US = 1_000
MS = 1_000_000
S = 1_000_000_000
HOUR_NS = 3600 * S
DAY_NS = 24 * HOUR_NS

_UNITS = {
    "ns": NS, "us": US, "µs": US, "ms": MS, "s": S, "m": 60 * S, "min": 60 * S, "h": HOUR_NS,
    "d": DAY_NS,
}  # fmt: skip
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|min|m|h|d)")


def parse_duration_ns(text: str) -> int:
    """``"5s"``, ``"250ms"``, ``"1.5h"`` to nanoseconds. Raises `UsageError`: no unit, an unknown
    unit, not a number, or over 292 years."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a duration; write for example 5s, 250ms, 20us or 1h")
    number, unit = match.groups()
    length_ns = float(number) * _UNITS[unit]
    if length_ns >= 1 << 63:  # rows and messages have 64 bits
        raise UsageError(f"{text[:40]!r} is too long; a duration is at most 292 years")
    return round(length_ns)


def format_ns(value_ns: float) -> str:
    """A duration for people: three significant digits and a unit (``-1.23 µs``, ``2.1 h``)."""
    magnitude = abs(value_ns)
    for unit, scale, least in _SPANS:
        if magnitude >= least:
            return f"{value_ns / scale:.3g} {unit}"
    return f"{value_ns:.0f} ns"


_SPANS = (
    ("years", 31_557_600 * S, 1000 * DAY_NS), ("d", DAY_NS, 3 * DAY_NS),
    ("h", HOUR_NS, 2 * HOUR_NS), ("min", 60 * S, 1000 * S), ("s", S, S), ("ms", MS, MS),
    ("µs", US, US),
)  # fmt: skip
"""Units of durations: name, length, and the least duration that is written in it."""


def format_bps(rate_bps: float) -> str:
    """Bits a second for people: three significant digits and a unit (``86 kb/s``)."""
    for unit, scale in (("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)):
        if abs(rate_bps) >= scale:
            return f"{rate_bps / scale:.3g} {unit}"
    return f"{rate_bps:.0f} b/s"
