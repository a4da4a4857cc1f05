"""Interfaces of default routes in ``/proc/net/route`` and ``/proc/net/ipv6_route``. Pure."""

from __future__ import annotations


def default_routes_4(table: str) -> tuple[str, ...]:
    """In the table's order, each once."""
    rows = (line.split() for line in table.splitlines()[1:])
    found = (row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000")
    return tuple(dict.fromkeys(found))


def default_routes_6(table: str) -> tuple[str, ...]:
    """The same; the kernel's own reject route is of ``lo``."""
    rows = (line.split() for line in table.splitlines())
    found = (row[9] for row in rows if len(row) > 9 and row[:2] == ["0" * 32, "00"])
    return tuple(dict.fromkeys(name for name in found if name != "lo"))
