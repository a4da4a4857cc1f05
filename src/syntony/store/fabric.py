"""What the store knows of the fabric: flows' seconds, learnt paths, what was to blame."""

from __future__ import annotations

from typing import NamedTuple

from syntony.model.findings import Finding
from syntony.store.engine import Engine, Row, integer, real
from syntony.store.queries import SECOND, window
from syntony.store.schema import quote
from syntony.wire.fabric import MAX_CHANGES, FabricChange
from syntony.wire.tables import FABRIC_CHANGE, FINDING, HEARD, PATH, PROBE


class FlowSecond(NamedTuple):
    """One flow's requests (`prober` is `src`) or replies in one second."""

    src: str
    dst: str
    prober: str
    sport: int
    second: int
    sent: int
    lost: int
    unresolved: int
    measured: int
    """Delays measured; 0 makes `owd_p50_ns` void."""
    owd_p50_ns: int
    clk_err_ns: float


class PathRow(NamedTuple):
    """One path as it was learnt."""

    ts_ns: int
    src: str
    dst: str
    sport: int
    dport: int
    hops: str
    """By spaces, ``*`` for a silent one."""


class FabricRows:
    """Questions on the fabric; thread-safe as its engine is. Windows are half-open, fleet time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def flow_seconds(self, first_ns: int, last_ns: int) -> tuple[FlowSecond, ...]:
        """Every row of probing in the window, by flow, direction and second; in no order."""
        rows = self._engine.select(_flow_seconds(first_ns, last_ns))
        return tuple(
            FlowSecond(
                str(row[0]),
                str(row[1]),
                str(row[2]),
                integer(row[3]),
                integer(row[4]),
                integer(row[5]),
                integer(row[6]),
                integer(row[7]),
                integer(row[8]),
                integer(row[9]),
                # An error that is not finite arrives as null: not known.
                real(0.0 if row[10] is None else row[10]),
            )
            for row in rows
        )

    def heard(self, first_ns: int, last_ns: int) -> dict[tuple[str, str, int], int]:
        """Requests heard: (prober, target, second) to their number."""
        rows = self._engine.select(_heard(first_ns, last_ns))
        return {(str(src), str(dst), integer(second)): integer(n) for src, dst, second, n in rows}

    def learnt_paths(
        self, first_ns: int, last_ns: int, *, proto: str = "udp"
    ) -> tuple[PathRow, ...]:
        """Paths of flows of one protocol (``udp``, ``tcp``) learnt in the window, oldest first."""
        rows = self._engine.select(_learnt_paths(first_ns, last_ns, proto))
        return tuple(
            PathRow(integer(ts_ns), str(src), str(dst), integer(sport), integer(dport), str(hops))
            for ts_ns, src, dst, sport, dport, hops in rows
        )

    def findings(self, first_ns: int, last_ns: int) -> tuple[tuple[int, Finding], ...]:
        """(fleet time, what was to blame then), oldest first."""
        rows = self._engine.select(_findings(first_ns, last_ns))
        return tuple((integer(row[0]), _finding(row)) for row in rows)

    def changes(self, first_ns: int, last_ns: int) -> tuple[FabricChange, ...]:
        """What became of the fabric, oldest first; the newest `MAX_CHANGES`."""
        rows = self._engine.select(
            f"SELECT ts_ns, change, what, name, detail FROM {FABRIC_CHANGE.name} "
            f"WHERE {window(first_ns, last_ns)} ORDER BY ts_ns DESC, name LIMIT {MAX_CHANGES}"
        )
        return tuple(
            FabricChange(
                ts_ns=integer(row[0]),
                change=str(row[1]),
                what=str(row[2]),
                name=str(row[3]),
                detail=str(row[4]),
            )
            for row in reversed(rows)
        )


def _flow_seconds(first_ns: int, last_ns: int) -> str:
    """Rows of probing: src, dst, prober, sport, second, sent, lost, unresolved, count, p50 and
    clock error.
    """
    return (
        f"SELECT src, dst, prober, sport, {SECOND} AS second, sum(sent), sum(lost), "
        "sum(unresolved), sum(count), max(owd_p50_ns), max(clk_err_ns) "
        f"FROM {PROBE.name} WHERE {window(first_ns, last_ns)} "
        "GROUP BY src, dst, prober, sport, second"
    )


def _heard(first_ns: int, last_ns: int) -> str:
    """Requests heard: src, dst, second, number."""
    return (
        f"SELECT src, dst, {SECOND} AS second, sum(received) FROM {HEARD.name} "
        f"WHERE {window(first_ns, last_ns)} GROUP BY src, dst, second"
    )


def _learnt_paths(first_ns: int, last_ns: int, proto: str) -> str:
    """Paths, oldest first: ts_ns, src, dst, sport, dport, hops."""
    # Agents before there were TCP paths told of no protocol.
    of_proto = "proto IN ('udp', '')" if proto == "udp" else f"proto = {quote(proto)}"
    return (
        f"SELECT ts_ns, src, dst, sport, dport, hops FROM {PATH.name} "
        f"WHERE {window(first_ns, last_ns)} AND {of_proto} ORDER BY ts_ns"
    )


def _findings(first_ns: int, last_ns: int) -> str:
    """What was to blame, oldest first, every column of the table."""
    names = ", ".join(column.name for column in FINDING.columns)
    return (
        f"SELECT {names} FROM {FINDING.name} WHERE {window(first_ns, last_ns)} "
        f"ORDER BY ts_ns, component"
    )


def _finding(row: Row) -> Finding:
    _, component, kind, fault, loss, delay_ns, confidence, span, explains, paths, others = row
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
    )
