"""What time services say of the host's clock: chrony, ntpd (ntp, NTPsec), systemd-timesyncd."""

from __future__ import annotations

import re
from typing import NamedTuple

from syntony.audit.facts import UnreadableError
from syntony.audit.parse.text import fields
from syntony.model import DAY_NS, HOUR_NS, MS, US, S


class WallClockError(NamedTuple):
    """The error of the host's clock against true time."""

    synchronised: bool
    offset_ns: float
    """As the service estimates it."""
    bound_ns: float
    """How far off the estimate may be: half the delay to the source and the dispersion."""


_DECIMAL = re.compile(r"[+-]?\d{1,15}(?:\.\d{1,15})?(?:[eE][+-]?\d{1,2})?")


def parse_chrony(text: str) -> WallClockError:
    """`chronyc -n -c tracking`. Raises `UnreadableError`."""
    cells = text.strip().split(",")
    if len(cells) < 14 or not all(_DECIMAL.fullmatch(cell) for cell in cells[4:12]):
        raise UnreadableError("`chronyc -c tracking` printed no tracking report")
    offset, delay, dispersion = (float(cells[at]) * S for at in (4, 10, 11))
    synchronised = cells[1] not in {"", "0.0.0.0"} and cells[13] != "Not synchronised"  # noqa: S104 - chrony's word for none
    return WallClockError(synchronised, offset, abs(delay) / 2 + abs(dispersion))


_VARIABLE = re.compile(r"\b(\w{1,30})=(\"[^\"]*\"|[^,\s]+)")


def parse_ntpq(text: str) -> WallClockError:
    """`ntpq -c rv`: the system variables, milliseconds (RFC 9327). Raises `UnreadableError`."""
    reported = {match[1]: match[2] for match in _VARIABLE.finditer(text)}
    numbers = [reported.get(name, "") for name in ("offset", "rootdelay", "rootdisp")]
    if not all(_DECIMAL.fullmatch(number) for number in numbers):
        raise UnreadableError("`ntpq -c rv` printed no system variables")
    offset, delay, dispersion = (float(number) * MS for number in numbers)
    synchronised = reported.get("leap") in {"00", "01", "10"} and "sync_unspec" not in text
    return WallClockError(synchronised, offset, abs(delay) / 2 + abs(dispersion))


_SPAN = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(us|µs|ms|min|s|h|d)\b")
_UNITS = {"us": US, "µs": US, "ms": MS, "s": S, "min": 60 * S, "h": HOUR_NS, "d": DAY_NS}


def parse_timesyncd(text: str) -> WallClockError:
    """`timedatectl timesync-status`. Raises `UnreadableError`."""
    reported = fields(text)
    if "Server" not in reported:
        raise UnreadableError("`timedatectl timesync-status` reported no server")
    if "Offset" not in reported or reported.get("Packet count", "") == "0":
        return WallClockError(synchronised=False, offset_ns=0.0, bound_ns=0.0)
    offset, delay, root = (_span_ns(reported.get(name, "").partition("(")[0])
                           for name in ("Offset", "Delay", "Root distance"))  # fmt: skip
    good = reported.get("Leap", "normal") != "not synchronized"
    return WallClockError(good, offset, delay / 2 + root)


def _span_ns(text: str) -> float:
    """``-1.071ms``, ``1min 2.5s`` (systemd.time(7)); 0 for what is none."""
    total = sum(float(match[1]) * _UNITS[match[2]] for match in _SPAN.finditer(text))
    return -total if text.strip().startswith("-") else total
