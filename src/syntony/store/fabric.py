"""Queries on the fabric: traced paths, findings and changes."""

from __future__ import annotations

from typing import NamedTuple

from syntony.model.findings import Finding
from syntony.store.engine import Engine, Row, integer, real, record
from syntony.store.queries import window
from syntony.store.schema import quote
from syntony.wire.fabric import MAX_CHANGES, FabricChange
from syntony.wire.tables import FABRIC_CHANGE, FINDING, PATH


class TracedPathRow(NamedTuple):
    ts_ns: int
    src: str
    dst: str
    sport: int
    dport: int
    hops: str
    """Separated by spaces; ``*``: a hop that did not answer."""


class FabricRows:
    """Queries on the fabric; as thread-safe as the engine. Windows are half-open, fleet time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def learnt_paths(
        self, first_ns: int, last_ns: int, *, proto: str = "udp"
    ) -> tuple[TracedPathRow, ...]:
        """Paths of flows of one protocol (``udp``, ``tcp``) traced in the window, oldest first."""
        rows = self._engine.select_since(PATH, first_ns, _learnt_paths(first_ns, last_ns, proto))
        return tuple(
            TracedPathRow(
                integer(ts_ns), str(src), str(dst), integer(sport), integer(dport), str(hops)
            )
            for ts_ns, src, dst, sport, dport, hops in rows
        )

    def findings(self, first_ns: int, last_ns: int) -> tuple[tuple[int, Finding], ...]:
        """(fleet time, finding), oldest first."""
        rows = self._engine.select(_findings(first_ns, last_ns))
        return tuple((integer(row[0]), _finding(row)) for row in rows)

    def changes(self, first_ns: int, last_ns: int) -> tuple[FabricChange, ...]:
        """Changes of the fabric, oldest first; the newest `MAX_CHANGES`."""
        rows = self._engine.select(
            f"SELECT ts_ns, change, what, name, detail FROM {FABRIC_CHANGE.name} "
            f"WHERE {window(first_ns, last_ns)} ORDER BY ts_ns DESC, name LIMIT {MAX_CHANGES}"
        )
        return tuple(record(FabricChange, row) for row in reversed(rows))


def _learnt_paths(first_ns: int, last_ns: int, proto: str) -> str:
    """Paths, oldest first: ts_ns, src, dst, sport, dport, hops."""
    # Agents before there were TCP paths reported no protocol.
    of_proto = "proto IN ('udp', '')" if proto == "udp" else f"proto = {quote(proto)}"
    return (
        f"SELECT ts_ns, src, dst, sport, dport, hops FROM {PATH.name} "
        f"WHERE {window(first_ns, last_ns)} AND {of_proto} ORDER BY ts_ns"
    )


def _findings(first_ns: int, last_ns: int) -> str:
    """Findings, oldest first, with all columns of the table."""
    names = ", ".join(column.name for column in FINDING.columns)
    return (
        f"SELECT {names} FROM {FINDING.name} WHERE {window(first_ns, last_ns)} "
        f"ORDER BY ts_ns, component"
    )


def _finding(row: Row) -> Finding:
    _, component, kind, fault, loss, delay_ns, confidence, span, explains, paths, *suspects = row
    others, probabilities, twins = suspects
    return Finding(
        component=str(component),
        kind=str(kind),
        fault=str(fault),
        loss=real(loss),
        delay_ns=real(delay_ns),
        confidence=real(confidence),
        window=str(span),
        explains=real(explains),
        paths=integer(paths),
        alternatives=tuple(name for name in str(others).split(", ") if name),
        probabilities=tuple(float(each) for each in str(probabilities).split(", ") if each),
        twins=integer(twins),
    )
