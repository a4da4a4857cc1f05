"""Link rates as `tc` writes them (``200mbit``), bits per second everywhere else."""

from __future__ import annotations

import re

from syntony.errors import UsageError

_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?bit)(?:/s)?", re.IGNORECASE)
MIN_BPS = 64_000
"""Below this one full-size packet takes longer than a shaper lets packets wait."""
MAX_BPS = 40 * 10**9


def parse_rate_bps(text: str) -> int:
    """``"200mbit"``, ``"1gbit"``, ``"64kbit"`` to bits per second. Raises `UsageError`: no unit, an
    unknown unit, not a number, or outside 64 kbit to 40 gbit."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a rate; write for example 200mbit, 1gbit or 512kbit")
    rate_bps = round(float(match[1]) * _UNITS[match[2].lower()])
    if not MIN_BPS <= rate_bps <= MAX_BPS:
        raise UsageError(f"rate {text!r} is out of range; use 64kbit to 40gbit")
    return rate_bps


def format_rate(rate_bps: int) -> str:
    """Bits per second for people and for `tc`: the largest unit that divides it."""
    for unit in ("gbit", "mbit", "kbit"):
        if rate_bps % _UNITS[unit] == 0:
            return f"{rate_bps // _UNITS[unit]}{unit}"
    return f"{rate_bps}bit"
