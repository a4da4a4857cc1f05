"""Percentiles of one-way delay over groups of NIC pairs, computed by the engine."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, cast

from syntony.model.sla import Latency
from syntony.store.engine import Engine, Row, Scalar, integer, real
from syntony.store.queries import DOUBTFUL, POINTS, WEIGHTS, window
from syntony.store.schema import quote
from syntony.wire.probes import Plane
from syntony.wire.tables import PROBE, VERBS, Table

Grouping = Literal["host", "rail"]
MAX_PAIRS = 4_000
"""Most pairs in one condition: about 200 KB of SQL."""
_HOST, _NIC = (
    "arrayElement(splitByChar('/', {}), 1)",
    "arrayElement(splitByChar('/', {}), 2)",
)
_KEYS: dict[Grouping, tuple[str, str]] = {
    "host": (_HOST.format("src"), _HOST.format("dst")),
    # A fleet names the NICs of a rail alike.
    "rail": (_NIC.format("src"), _NIC.format("dst")),
}


class LatencyRows:
    """Queries on latency; as thread-safe as the engine. Windows are half-open, fleet time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def by(self, grouping: Grouping, first_ns: int, last_ns: int) -> dict[str, Latency]:
        """``a->b`` → latency, by pair of hosts or of rails, for each direction.

        Only losses whose direction the prober knew count; `Store.pair_latencies` has all of them.
        """
        a, b = _KEYS[grouping]
        sql = _latency(f"{a} AS a, {b} AS b", "a, b", first_ns, last_ns)
        rows = self._engine.select_since(PROBE, first_ns, sql)
        return {f"{row[0]}->{row[1]}": _of(row[2:]) for row in rows}

    def pairs(self, first_ns: int, last_ns: int) -> dict[tuple[str, str], tuple[Latency, int]]:
        """Latency of each direction of each pair of NICs, with losses as in `by`, and the number of
        sent probes that are doubtful (`queries.DOUBTFUL`)."""
        keys = f"src AS a, dst AS b, {DOUBTFUL}"
        rows = self._engine.select_since(PROBE, first_ns, _latency(keys, "a, b", first_ns, last_ns))
        return {(str(row[0]), str(row[1])): (_of(row[3:]), integer(row[2])) for row in rows}

    def classes(
        self, over: Plane, first_ns: int, last_ns: int
    ) -> dict[tuple[str, str, int], Latency]:
        """(source, target, DSCP) → latency over one plane.

        A round trip that failed in an unknown direction counts as lost on the way to the target.
        """
        table = VERBS if over is Plane.VERBS else PROBE
        sql = _latency(
            "src AS a, dst AS b, dscp AS c", "a, b, c", first_ns, last_ns,
            table=table, lost="sum(lost) + sumIf(unresolved, prober = src)",
        )  # fmt: skip
        rows = self._engine.select_since(table, first_ns, sql)
        return {(str(row[0]), str(row[1]), integer(row[2])): _of(row[3:]) for row in rows}

    def of_pairs(self, pairs: Collection[tuple[str, str]], first_ns: int, last_ns: int) -> Latency:
        """Latency of all these pairs of NICs together (at most the first `MAX_PAIRS`)."""
        if not pairs:
            return Latency(sent=0, lost=0, measured=0)
        wanted = ", ".join(f"({quote(a)}, {quote(b)})" for a, b in sorted(pairs)[:MAX_PAIRS])
        where = f" AND (src, dst) IN ({wanted})"
        rows = self._engine.select(_latency("1 AS a", "a", first_ns, last_ns, where))
        return _of(rows[0][1:]) if rows else Latency(sent=0, lost=0, measured=0)


def _latency(
    keys: str,
    group: str,
    first_ns: int,
    last_ns: int,
    where: str = "",
    *,
    table: Table = PROBE,
    lost: str = "sum(lost)",
) -> str:
    """Columns: the keys, then sent, lost, measured, [p50, p90, p99], clock error."""
    return (
        f"SELECT {keys}, sum(sent), {lost}, sum(count), "
        f"quantilesExactWeightedArray(0.5, 0.9, 0.99)([{POINTS}], [{WEIGHTS}]), "
        f"maxIf(clk_err_ns, count > 0) "
        f"FROM {table.name} WHERE {window(first_ns, last_ns)}{where} GROUP BY {group}"
    )


def _of(row: Row) -> Latency:
    sent, lost, measured, percentiles, clk_err = row
    count = integer(measured)
    if not count:
        return Latency(sent=integer(sent), lost=integer(lost), measured=0)
    p50, p90, p99 = (integer(value) for value in cast("list[Scalar]", percentiles))
    return Latency(
        sent=integer(sent),
        lost=integer(lost),
        measured=count,
        p50_ns=p50,
        p90_ns=p90,
        p99_ns=p99,
        # What is not finite arrives as null.
        clk_err_ns=None if clk_err is None else round(real(clk_err)),
    )
