"""Rows for stores: a second of probing as an agent would report it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from syntony.model import S
from syntony.store import Store
from syntony.store.schema import stored_columns
from syntony.wire.tables import HEARD, PROBE, Table

T0 = 1_700_000_000 * S
_DEFAULTS: dict[str, Any] = {"host": "h0", "stream": "s", "seq": 1, "ts_ns": T0, "prober": "a/n"}


def rows_of(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows with every stored column; what a row does not say is zero or empty."""
    columns = {
        column.name: pa.array(
            [row.get(column.name, _default(column.name, column.type)) for row in rows],
            getattr(pa, column.type)(),
        )
        for column in stored_columns(table)
    }
    return pa.table(columns)


def _default(name: str, kind: str) -> Any:
    return _DEFAULTS.get(name, "" if kind == "string" else 0)


def probed(src: str, dst: str, second: int = 0, **fields: Any) -> dict[str, Any]:
    """A forward row of `src` probing `dst`: 40 probes, all arrived in 1–5 µs, unless said."""
    row: dict[str, Any] = {
        "ts_ns": T0 + second * S,
        "src": src,
        "dst": dst,
        "prober": src,
        "sport": 61000,
        "sent": 40,
        "count": 40,
        "owd_min_ns": 1000,
        "owd_p50_ns": 2000,
        "owd_p90_ns": 3000,
        "owd_p99_ns": 4000,
        "owd_max_ns": 5000,
        "clk_err_ns": 50.0,
    }
    return row | fields


def silent(src: str, dst: str, second: int = 0, **fields: Any) -> dict[str, Any]:
    """A forward row of a second in which not one reply came back."""
    return probed(src, dst, second, count=0, unresolved=40, **fields)


def heard(src: str, dst: str, second: int = 0, received: int = 40) -> dict[str, Any]:
    """`dst` heard `src`."""
    return {"ts_ns": T0 + second * S, "src": src, "dst": dst, "received": received}


def fill(
    store: Store, probes: Sequence[Mapping[str, Any]], hearings: Sequence[Mapping[str, Any]] = ()
) -> None:
    store.insert(PROBE, rows_of(PROBE, probes))
    if hearings:
        store.insert(HEARD, rows_of(HEARD, hearings))
