"""Columns of Parquet files as arrays."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from syntony.cli.parquet import as_arrays

AT_NS = 1_700_000_000_123_456_000


@pytest.mark.parametrize(("unit", "step"), [("ms", 1_000_000), ("us", 1000), ("ns", 1)])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_instants_are_ns_in_whatever_unit_the_file_has_them(
    unit: str, step: int, zone: str | None
) -> None:
    column = pa.array([AT_NS // step], pa.timestamp(unit, zone))
    assert as_arrays(pa.table({"t": column}))["t"].tolist() == [AT_NS // step * step]


def test_numbers_stay_exact_and_what_is_missing_is_none() -> None:
    found = as_arrays(pa.table({
        "whole": [2**63 - 1], "part": [0.5], "text": ["a"],
        "absent": pa.array([None], pa.int64()),
        "unset": pa.array([None], pa.timestamp("ns")),
        "day": [dt.date(2026, 1, 2)],
    }))  # fmt: skip
    assert found["whole"].tolist() == [2**63 - 1]
    assert found["part"].dtype == np.float64
    assert [found[name].tolist() for name in ("text", "absent", "unset")] == [["a"], [None], [None]]
    assert found["day"].tolist() == [dt.date(2026, 1, 2)]
