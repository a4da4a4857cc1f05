"""Tables for the terminal. Pure."""

from __future__ import annotations

import math
from typing import Any

from syntony.model import format_ns
from syntony.view import lazy_rich


def plain_table(*headings: str, **column: Any) -> lazy_rich.Table:
    """A table without lines.

    Args:
        headings: of the columns; ``>`` before one aligns its column right, and keeps it whole.
        column: options of every column, as Rich's `Table.add_column` takes them.
    """
    table = lazy_rich.Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        right = heading.startswith(">")
        usual = {"justify": "right" if right else "left", "no_wrap": right}
        table.add_column(heading.lstrip(">"), **(usual | column))
    return table


def duration(value_ns: float | None) -> str:
    """A duration for people; a dash if unknown."""
    return "–" if value_ns is None or not math.isfinite(value_ns) else format_ns(value_ns)
