"""How fast the PCIe slot of a device is, and could be, from sysfs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path

from syntony.io.files import text_of
from syntony.links.snapshot import Slot

_SPEED = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)\s*GT/s")
_WIDTH = re.compile(r"\d{1,3}")
_UNKNOWN_WIDTHS = frozenset({0, 255})


def read_slot(device: Path) -> Slot | None:
    """Of ``/sys/class/net/NIC/device`` and the like; None for what is on no PCIe bus.

    What card and slot can is the least of what both ends of the link can.
    """
    try:
        place = device.resolve(strict=True)
    except OSError:
        return None
    speed, width = _speed(place / "current_link_speed"), _width(place / "current_link_width")
    if math.isnan(speed) and math.isnan(width):
        return None
    ends = place, place.parent
    return Slot(
        speed, _least(_speed(end / "max_link_speed") for end in ends),
        width, _least(_width(end / "max_link_width") for end in ends),
    )  # fmt: skip


def _least(values: Iterable[float]) -> float:
    return min((each for each in values if not math.isnan(each)), default=math.nan)


def _speed(file: Path) -> float:
    match = _SPEED.match(text_of(file) or "")
    return float(match[1]) if match else math.nan


def _width(file: Path) -> float:
    match = _WIDTH.match(text_of(file) or "")
    return math.nan if match is None or int(match[0]) in _UNKNOWN_WIDTHS else float(match[0])
