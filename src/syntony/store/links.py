"""What the store knows of links: the newest look at each port, its flaps, its history."""

from __future__ import annotations

import math
from collections.abc import Mapping

from syntony.errors import UsageError
from syntony.store.engine import Engine, Row, Value, integer
from syntony.store.interface import MAX_POINTS
from syntony.store.queries import window
from syntony.store.schema import quote
from syntony.wire.links import LinkCounterRow, LinkEventRow, LinkStatus
from syntony.wire.tables import LINK_COUNTER, LINK_EVENT, LINK_PORT

_LOOK = (
    "netdev", "rdma", "link_layer", "driver", "role", "state", "gbps", "temperature_c", "rx_dbm",
    "bias_ma",
)  # fmt: skip
_WORST = "['counted', 'reset', 'saturated', 'unknown']"


class LinkRows:
    """Questions on links; thread-safe as its engine is. Windows are half-open, fleet time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def ports(self, first_ns: int, last_ns: int) -> tuple[LinkStatus, ...]:
        """Every port seen in the window, sorted, with its losses of carrier in it."""
        since = self._engine.select_since
        losses = since(LINK_EVENT, first_ns, _flaps(first_ns, last_ns))
        flaps = {str(row[0]): row for row in losses}
        rows = since(LINK_PORT, first_ns, _ports(first_ns, last_ns))
        return tuple(_status(row, flaps) for row in rows)

    def events(self, first_ns: int, last_ns: int, nic: str = "") -> tuple[LinkEventRow, ...]:
        """What happened to one port, or to all, oldest first.

        Raises:
            UsageError: more than `MAX_POINTS` rows.
        """
        rows = self._engine.select(_events(first_ns, last_ns, nic))
        if len(rows) > MAX_POINTS:
            raise UsageError(f"more than {MAX_POINTS} events; ask for a shorter window or one port")
        return tuple(
            LinkEventRow(
                ts_ns=integer(row[0]),
                nic=str(row[1]),
                kind=str(row[2]),
                losses=integer(row[3]),
                before=str(row[4]),
                after=str(row[5]),
                detail=str(row[6]),
                remedy=str(row[7]),
            )
            for row in rows
        )

    def counters(self, first_ns: int, last_ns: int, nic: str = "") -> tuple[LinkCounterRow, ...]:
        """How far each counter went up, those that did or that cannot be read."""
        rows = self._engine.select_since(LINK_COUNTER, first_ns, _counters(first_ns, last_ns, nic))
        return tuple(
            LinkCounterRow(
                nic=str(row[0]),
                counter=str(row[1]),
                increase=integer(row[2]),
                last_ns=integer(row[3]),
                reading=str(row[4]),
            )
            for row in rows
        )

    def modules(self, first_ns: int, last_ns: int) -> dict[str, tuple[str, str]]:
        """Port → the newest ``well`` or ``beyond limit`` of its module, and what was measured."""
        rows = self._engine.select_since(LINK_EVENT, first_ns, _modules(first_ns, last_ns))
        return {str(nic): (str(after), str(detail)) for nic, after, detail in rows}


def _modules(first_ns: int, last_ns: int) -> str:
    return (
        f"SELECT nic, argMax(after, ts_ns), argMax(detail, ts_ns) FROM {LINK_EVENT.name} "
        f"WHERE {window(first_ns, last_ns)} AND kind = 'module' "
        "AND (after = 'well' OR after = 'beyond limit') GROUP BY nic"
    )


def _ports(first_ns: int, last_ns: int) -> str:
    newest = ", ".join(f"argMax({name}, ts_ns)" for name in _LOOK)
    return (
        f"SELECT nic, max(ts_ns), min(ts_ns), {newest} FROM {LINK_PORT.name} "
        f"WHERE {window(first_ns, last_ns)} GROUP BY nic ORDER BY nic"
    )


def _flaps(first_ns: int, last_ns: int) -> str:
    return (
        f"SELECT nic, sum(losses), max(ts_ns) FROM {LINK_EVENT.name} "
        f"WHERE {window(first_ns, last_ns)} AND losses > 0 GROUP BY nic"
    )


def _events(first_ns: int, last_ns: int, nic: str) -> str:
    return (
        f"SELECT ts_ns, nic, kind, losses, before, after, detail, remedy FROM {LINK_EVENT.name} "
        f"WHERE {window(first_ns, last_ns)}{_of(nic)} ORDER BY ts_ns, nic LIMIT {MAX_POINTS + 1}"
    )


def _counters(first_ns: int, last_ns: int, nic: str) -> str:
    worst = f"arrayElement({_WORST}, max(indexOf({_WORST}, reading)))"
    return (
        f"SELECT nic, counter, sum(increase), max(ts_ns), {worst} FROM {LINK_COUNTER.name} "
        f"WHERE {window(first_ns, last_ns)}{_of(nic)} GROUP BY nic, counter ORDER BY nic, counter"
    )


def _of(nic: str) -> str:
    return f" AND nic = {quote(nic)}" if nic else ""


def _status(row: Row, flaps: Mapping[str, Row]) -> LinkStatus:
    nic = str(row[0])
    look = dict(zip(_LOOK, row[3:], strict=True))
    flapped = flaps.get(nic)
    return LinkStatus(
        nic=nic,
        netdev=str(look["netdev"]),
        rdma=str(look["rdma"]),
        link_layer=str(look["link_layer"]),
        driver=str(look["driver"]),
        role=str(look["role"]),
        state=str(look["state"]),
        gbps=_known(look["gbps"]) or None,
        flaps=integer(flapped[1]) if flapped else 0,
        last_flap_ns=integer(flapped[2]) if flapped else None,
        seen_ns=integer(row[1]),
        watched_ns=integer(row[1]) - integer(row[2]),
        temperature_c=_known(look["temperature_c"]),
        rx_dbm=_known(look["rx_dbm"]),
        bias_ma=_known(look["bias_ma"]),
    )


def _known(value: Value | None) -> float | None:
    """A number that is not finite has no place in JSON and arrives as null: not known."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None
