"""Bundles from plain columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from syntony.workload import Bundle
from syntony.workload.bundle import Codes, Manifest, make_bundle
from syntony.workload.schema import FORMAT, TABLES, VERSION

T0 = 1_700_000_000_000_000_000
MS = 1_000_000
Columns = dict[str, dict[str, Any]]
KINDS = {table: {column.name: column.kind for column in each} for table, each in TABLES.items()}


def bundle(columns: Columns, timeline: str = "fleet") -> Bundle:
    """Checked, as one that was read."""
    typed = {
        table: {name: coded(values) if KINDS[table][name] in {"text", "names"}
                else np.asarray(values) for name, values in each.items()}
        for table, each in columns.items()
    }  # fmt: skip
    return make_bundle(Manifest(format=FORMAT, version=VERSION, timeline=timeline), typed)


def coded(values: list[Any]) -> Codes:
    """Texts, or tuples of them, as numbers."""
    names = {each: place for place, each in enumerate(dict.fromkeys(values))}
    return Codes(np.array([names[each] for each in values], dtype=np.int64), tuple(names))
