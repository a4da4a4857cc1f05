"""Hostile bundles: any bytes and any values end in verdicts, notes or one line, not a crash."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bench.diagnosis import foreign, queued
from bench.diagnosis.case import arrow_tables
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.errors import InputError
from syntony.io.bundle_files import bundle_from_tables, read_bundle, write_bundle
from syntony.workload import Bundle, diagnose
from syntony.workload.schema import TABLES

INSTANTS = st.integers(0, 60).map(lambda step: 10**18 + step * 10**8)
NUMBERS = st.one_of(
    st.none(), st.floats(), st.integers(-5, 5).map(float),
    st.sampled_from([1e18, -1e18, 1e300, 2.0**62, 0.0]),
)  # fmt: skip
NAMES = st.sampled_from(["h0/n", "h1/n", "h0", "", "/", "a>b", "\x1b[31m", "é\x1f"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "instant": st.one_of(INSTANTS, st.none(), st.sampled_from([0, -1, 2**63 - 1, -(2**63)])),
    "whole": st.one_of(st.none(), st.integers(0, 12), st.sampled_from([2**62, -(2**63), 10**8])),
    "number": NUMBERS,
    "text": st.one_of(st.none(), NAMES),
    "flag": st.one_of(st.none(), st.booleans()),
    "names": st.one_of(st.none(), st.lists(st.one_of(NAMES, st.none()), max_size=3)),
}
TYPES = {"instant": pa.int64(), "whole": pa.int64(), "number": pa.float64(), "text": pa.string(),
         "flag": pa.bool_(), "names": pa.list_(pa.string())}  # fmt: skip
MANIFEST = {"format": "syntony-bundle", "version": 1}


@st.composite
def tables(draw: st.DrawFn) -> dict[str, pa.Table]:
    chosen = draw(st.lists(st.sampled_from(sorted(TABLES)), min_size=1, unique=True))
    found = {}
    for name in chosen:
        rows = draw(st.integers(0, 25))
        columns = [each for each in TABLES[name] if each.required or draw(st.booleans())]
        found[name] = pa.table({
            each.name: pa.array(draw(st.lists(VALUES[each.kind], min_size=rows, max_size=rows)),
                                TYPES[each.kind])
            for each in columns
        })  # fmt: skip
    return found


def judge(bundle: Bundle) -> None:
    for verdict in diagnose(bundle).verdicts:
        assert 0 <= verdict.confidence <= 1
        assert verdict.subjects
        assert verdict.end_ns is None or isinstance(verdict.end_ns, int)
        assert all(isinstance(each, str) for each in verdict.subjects)
        numbers = (each.value for each in verdict.evidence if each.value is not None)
        assert not any(math.isinf(each) for each in numbers)


@given(tables())
@settings(max_examples=100)
def test_any_values(found: dict[str, pa.Table]) -> None:
    try:
        bundle = bundle_from_tables(found, MANIFEST)
    except InputError:
        return
    judge(bundle)


@pytest.mark.parametrize("fault", ["contention", "hang", "clock-fault", "reduced-capacity"])
def test_real_tables_with_holes_and_nonsense(fault: str) -> None:
    """Values of a real bundle replaced at random; the seed is printed."""
    seed = random.getrandbits(32)
    rng = random.Random(seed)
    case = foreign.make_case(fault, rng.randrange(1000))
    for name, columns in case.tables.items():
        kinds = {column.name: column.kind for column in TABLES[name]}
        for column, values in columns.items():
            for _ in range(rng.choice((0, 0, 3, len(values) // 4))):
                row = rng.randrange(len(values))
                if kinds[column] == "number":
                    values[row] = rng.choice((None, 0.0, -1.0, 2.0**62, 7.0))
                elif kinds[column] in {"whole", "instant"}:
                    values[row] = rng.choice((None, 0, -1, 2**62, 7))
                elif kinds[column] in {"text", "names"}:
                    values[row] = None
    print(f"seed {seed}")
    judge(bundle_from_tables(arrow_tables(case), case.manifest))


def test_any_bytes(tmp_path: Path) -> None:
    """Bytes of Parquet files flipped, cut and swapped; the seed is printed."""
    seed = random.getrandbits(32)
    rng = random.Random(seed)
    case = foreign.make_case("data-stall", 3)
    small = {name: table.slice(0, 200) for name, table in arrow_tables(case).items()}
    write_bundle(tmp_path, small, case.manifest)
    whole = {name: (tmp_path / f"{name}.parquet").read_bytes() for name in small}
    for _ in range(25):
        for name, data in whole.items():
            broken = bytearray(data)
            for _ in range(rng.choice((0, 1, 4, 64))):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            (tmp_path / f"{name}.parquet").write_bytes(
                broken[: rng.choice((len(broken), rng.randrange(len(broken))))])  # fmt: skip
        try:
            bundle = read_bundle(tmp_path)
        except InputError:
            continue
        print(f"seed {seed}")
        judge(bundle)


def test_rates_of_zero_before_flows_wait() -> None:
    case = queued.make_case("contention", 3)
    flows = case.tables["flows"]
    before = [at_ns < case.truth.onset_ns for at_ns in flows["at_ns"]]
    rates = zip(before, flows["rate_bps"], strict=True)
    flows["rate_bps"] = [0.0 if early else rate for early, rate in rates]
    judge(bundle_from_tables(arrow_tables(case), case.manifest))
