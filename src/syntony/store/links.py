"""Queries on links: the newest state of each port, its flaps and its history."""

from __future__ import annotations

from collections.abc import Mapping

from syntony.errors import UsageError
from syntony.store.engine import Engine, Row, integer, record
from syntony.store.queries import MAX_POINTS, window
from syntony.store.schema import quote
from syntony.wire.links import LinkCounterRow, LinkEventRow, LinkStatus
from syntony.wire.tables import LINK_COUNTER, LINK_EVENT, LINK_PORT

_LOOK = (
    "netdev", "rdma", "link_layer", "driver", "role", "state", "gbps", "temperature_c", "rx_dbm",
    "bias_ma", "tx_bps", "rx_bps",
)  # fmt: skip
_WORST = "['counted', 'reset', 'saturated', 'unknown']"


class LinkRows:
    """Queries on links; as thread-safe as the engine. Windows are half-open, fleet time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def ports(self, first_ns: int, last_ns: int) -> tuple[LinkStatus, ...]:
        """All ports reported in the window, sorted, with their losses of carrier in it."""
        since = self._engine.select_since
        losses = since(LINK_EVENT, first_ns, _flaps(first_ns, last_ns))
        flaps = {str(row[0]): row for row in losses}
        rows = since(LINK_PORT, first_ns, _ports(first_ns, last_ns))
        return tuple(_status(row, flaps) for row in rows)

    def events(self, first_ns: int, last_ns: int, nic: str = "") -> tuple[LinkEventRow, ...]:
        """Events of one port or of all, oldest first. Raises `UsageError`: more than `MAX_POINTS`
        rows."""
        rows = self._engine.select(_events(first_ns, last_ns, nic))
        if len(rows) > MAX_POINTS:
            raise UsageError(f"more than {MAX_POINTS} events; ask for a shorter window or one port")
        return tuple(record(LinkEventRow, row) for row in rows)

    def counters(self, first_ns: int, last_ns: int, nic: str = "") -> tuple[LinkCounterRow, ...]:
        """Counters that increased, with the increase, or that cannot be read."""
        rows = self._engine.select_since(LINK_COUNTER, first_ns, _counters(first_ns, last_ns, nic))
        return tuple(record(LinkCounterRow, row) for row in rows)

    def modules(self, first_ns: int, last_ns: int) -> dict[str, tuple[str, str]]:
        """Port → the newest ``well`` or ``beyond limit`` of its module, with its value."""
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
    nic, newest, oldest, *look = row
    seen = dict(zip(_LOOK, look, strict=True))
    # A number that is not finite has no place in JSON and arrives as null: not known.
    seen["gbps"] = seen["gbps"] or None
    _, losses, last_ns = flaps.get(str(nic), (nic, 0, None))
    known = seen | {"nic": nic, "flaps": losses, "last_flap_ns": last_ns, "seen_ns": newest}
    known["watched_ns"] = integer(newest) - integer(oldest)
    return record(LinkStatus, [known[name] for name in LinkStatus.__struct_fields__])
