"""Rows of the store about a job, and the bundles that are made of them, for tests."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from syntony.io.bundle_files import arrow_type, bundle_from_tables
from syntony.model import MS, S
from syntony.wire.tables import TABLES
from syntony.workload import Bundle
from syntony.workload.recorded import SETTLE_NS, RecordedBundle, recorded
from syntony.workload.schema import TABLES as BUNDLE_TABLES

SEED = random.randrange(1 << 32)
T0 = 1_700_000_000 * S
Rows = dict[str, list[dict[str, Any]]]


def columns(rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, dict[str, list[Any]]]:
    """As the store gives them: what a row does not say is 0 or empty."""
    found = {}
    for name, some in rows.items():
        table, listed = TABLES[name], list(some)
        found[name] = {
            column.name: [
                row.get(column.name, "" if column.type == "string" else 0) for row in listed
            ]
            for column in table.columns
        }
    return found


def record(rows: Rows, *, seconds: int = 60, now_ns: int | None = None) -> RecordedBundle:
    last_ns = T0 + seconds * S
    now = last_ns + 2 * SETTLE_NS if now_ns is None else now_ns
    return recorded("night", columns(rows), T0, last_ns, now)


def arrow(found: RecordedBundle) -> dict[str, pa.Table]:
    tables = {}
    for name, some in found.tables.items():
        kinds = {column.name: arrow_type(column.kind) for column in BUNDLE_TABLES[name]}
        tables[name] = pa.table({key: pa.array(values, kinds[key]) for key, values in some.items()})
    return tables


def bundle(found: RecordedBundle) -> Bundle:
    return bundle_from_tables(arrow(found), found.manifest)


def process(host: str, rank: int, second: int = 0, **fields: Any) -> dict[str, Any]:
    at_ns = T0 + second * S
    return {
        "ts_ns": at_ns, "window_ns": 2 * S, "host": host, "job": "night", "pid": 7, "rank": rank,
        "ranks": 4, "began_ns": T0, "exit_status": math.nan, "oom_killed": math.nan,
        "handles_term": math.nan, **fields,
    }  # fmt: skip


def flow(src: str, dst: str, second: int, **fields: Any) -> dict[str, Any]:
    return {
        "ts_ns": T0 + second * S, "job": "night", "src": src, "dst": dst, "sport": 40_000,
        "dport": 5_000, "tx_bps": 1e8, "rtt_ns": 200_000, "connection": "tcp-40000-5000", **fields,
    }  # fmt: skip


def steps_of(
    ranks: int, count: int, late: Mapping[int, int], draw: random.Random
) -> list[dict[str, Any]]:
    """All-reduces of 5 ms every 50 ms; a rank in `late` comes so many ns later."""
    found, at_ns = [], T0 + S
    for seq in range(count):
        begun = [
            at_ns + int(draw.gauss(0, 50_000)) + 100_000 + late.get(rank, 0)
            for rank in range(ranks)
        ]
        done_ns = max(begun) + 5 * MS
        found += [
            {
                "ts_ns": begun[rank], "host": f"h{rank}", "job": "night", "pid": 7, "rank": rank,
                "comm": "0.abc", "ranks": ranks, "seq": seq, "op": "all_reduce", "bytes": 4096,
                "done_ns": done_ns,
            }
            for rank in range(ranks)
        ]  # fmt: skip
        at_ns = done_ns + 45 * MS
    return found


def delay(src: str, dst: str, second: int, **fields: Any) -> dict[str, Any]:
    return {
        "ts_ns": T0 + second * S, "job": "night", "src": src, "dst": dst, "sport": 40_000,
        "dport": 5_000, "count": 12, "bound_ns": 400, **fields,
    }  # fmt: skip
