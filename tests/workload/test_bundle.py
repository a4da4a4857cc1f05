"""Reading bundles: what is broken is left out and named, and nothing worse happens."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bench.diagnosis import drawn
from bench.diagnosis.case import arrow_tables, bundle_of
from pyarrow import parquet

from syntony.errors import InputError
from syntony.io.bundle_files import bundle_from_tables, read_bundle, write_bundle
from syntony.workload import Bundle, FaultClass, diagnose
from syntony.workload.bundle import NULL
from syntony.workload.schema import TABLES

DOC = Path(__file__).resolve().parents[2] / "docs" / "reference" / "bundle.md"
MANIFEST = {"format": "syntony-bundle", "version": 1}
STEPS = {"step": [1, 2], "rank": [0, 0], "begin_ns": [10, 20], "end_ns": [20, 30]}


def bundle_tables() -> str:
    """The tables as Markdown, for the reference page."""
    parts = []
    for table, columns in TABLES.items():
        lines = [f"### `{table}`", "", "| Column | Type | | Meaning |", "| --- | --- | --- | --- |"]
        for name, kind, required, meaning in columns:
            lines.append(f"| `{name}` | {kind} | {'required' if required else ''} | {meaning} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


WRITTEN = [table for table in TABLES if table != "processes"]
"""Tables that the generator makes."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    case = drawn.make_case("contention", 3)
    write_bundle(tmp_path / "bundle", arrow_tables(case), case.manifest)
    return tmp_path / "bundle"


def reasons(bundle: Bundle) -> str:
    return "; ".join(f"{gap.table}: {gap.reason}" for gap in bundle.gaps)


def test_the_page_has_every_column() -> None:
    assert bundle_tables() in DOC.read_text()


@pytest.mark.parametrize("there", [False, True])
def test_a_bundle_that_cannot_be_written_whole_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """As a part of it would be read as a recording with few tables."""
    write = parquet.write_table
    written: list[Path] = []

    def full(table: object, where: Path, **options: str) -> None:
        if written:
            where.write_bytes(b"PAR1")
            raise OSError(28, "No space left on device")
        written.append(where)
        write(table, where, **options)

    folder = tmp_path / "bundle"
    if there:
        folder.mkdir()
    case = drawn.make_case("contention", 3)
    monkeypatch.setattr(parquet, "write_table", full)
    with pytest.raises(OSError, match="No space"):
        write_bundle(folder, arrow_tables(case), case.manifest)
    assert written
    assert [each for each in tmp_path.rglob("*") if each != folder] == []
    assert folder.exists() == there


def test_files_say_what_tables_in_memory_say(folder: Path) -> None:
    found, again = read_bundle(folder), bundle_of(drawn.make_case("contention", 3))
    assert not found.gaps
    assert diagnose(found) == diagnose(again)
    assert diagnose(found).verdicts


@pytest.mark.parametrize("table", WRITTEN)
def test_a_missing_table_is_a_gap_with_its_price(folder: Path, table: str) -> None:
    (folder / f"{table}.parquet").unlink()
    bundle = read_bundle(folder)
    assert [(gap.table, gap.reason) for gap in bundle.gaps] == [(table, "missing")]
    assert bundle.gaps[0].limits
    verdicts = diagnose(bundle).verdicts
    expected = set() if table == "flows" else {FaultClass.CONTENTION}
    assert {each.fault for each in verdicts} == expected


def test_every_table_alone_can_be_diagnosed(folder: Path) -> None:
    whole = {name: parquet.read_table(folder / f"{name}.parquet") for name in WRITTEN}
    for name, table in whole.items():
        diagnose(bundle_from_tables({name: table}, MANIFEST))


@pytest.mark.parametrize("size", [0, 4, 100, 5000])
def test_a_truncated_file_is_left_out(folder: Path, size: int) -> None:
    file = folder / "flows.parquet"
    file.write_bytes(file.read_bytes()[:size])
    bundle = read_bundle(folder)
    assert "flows: not a readable Parquet file" in reasons(bundle)
    assert not diagnose(bundle).verdicts


@pytest.mark.parametrize(
    ("manifest", "name"),
    [
        (b"", "broken-manifest"),
        (b"\xff\xfe", "broken-manifest"),
        (b"[]", "broken-manifest"),
        (b'{"format": "syntony-bundle"}', "broken-manifest"),
        (b'{"format": "other", "version": 1}', "not-a-bundle"),
        (b'{"format": "syntony-bundle", "version": 2}', "unknown-version"),
        (b'{"format": "syntony-bundle", "version": 1, "begin_ns": 5, "end_ns": 4}',
         "broken-manifest"),
        (b'{"format": "syntony-bundle", "version": 1, "rail_shares": {"a": 2}}',
         "broken-manifest"),
        (b"[" * 100_000, "broken-manifest"),
    ],
)  # fmt: skip
def test_a_broken_manifest_is_one_line(folder: Path, manifest: bytes, name: str) -> None:
    (folder / "manifest.json").write_bytes(manifest)
    with pytest.raises(InputError) as reported:
        read_bundle(folder)
    assert reported.value.name == name
    assert "\n" not in str(reported.value)


def test_a_directory_without_manifest_or_tables(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not-a-bundle"):
        read_bundle(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    with pytest.raises(InputError, match="no table can be used"):
        read_bundle(tmp_path)


def test_tables_of_another_clock_are_left_out(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["timelines"] = {"flows": "h3's own"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    bundle = read_bundle(folder)
    assert "flows: on timeline \"h3's own\", not 'fleet'" in reasons(bundle)
    assert not diagnose(bundle).verdicts


@pytest.mark.parametrize("declared", [True, False])
def test_rows_of_another_clock_are_left_out(declared: bool) -> None:
    case = drawn.make_case("contention", 3)
    manifest = case.manifest if declared else {**MANIFEST, "job": case.manifest["job"]}
    case.tables["links"]["at_ns"] = [at - case.manifest["begin_ns"]
                                     for at in case.tables["links"]["at_ns"]]  # fmt: skip
    case.tables["flows"]["at_ns"][0] = 5
    bundle = bundle_from_tables(arrow_tables(case), manifest)
    assert "rows are of another time or clock" in reasons(bundle)
    assert "links" not in bundle.tables
    assert {each.fault for each in diagnose(bundle).verdicts} == {FaultClass.CONTENTION}


def steps(**columns: object) -> Bundle:
    return bundle_from_tables({"steps": pa.table({**STEPS, **columns})}, MANIFEST)


def test_foreign_columns_are_named(folder: Path) -> None:
    table = parquet.read_table(folder / "steps.parquet")
    parquet.write_table(table.append_column("mood", pa.array(["good"] * table.num_rows)),
                        folder / "steps.parquet")  # fmt: skip
    (folder / "notes.txt").write_text("hello")
    reported = reasons(read_bundle(folder))
    assert "steps: unknown columns left out: mood" in reported
    assert "not part of a bundle: notes.txt" in reported


def test_a_column_of_another_type_is_left_out() -> None:
    bundle = steps(work=["much", "more"])
    assert "steps: column work is string, not number" in reasons(bundle)
    assert "work" not in bundle.table("steps")
    with pytest.raises(InputError, match="no usable column begin_ns"):
        steps(begin_ns=[0.5, 1.5])


def test_values_that_cannot_be_are_not_recorded() -> None:
    table = steps(work=[-1.0, float("nan")], data_ns=[float("inf"), 3]).table("steps")
    assert np.isnan(table.numbers("work")).all()
    assert table.numbers("data_ns")[1] == 3
    assert np.isnan(table.numbers("data_ns")[0])


def test_nulls_and_timestamps_keep_their_nanoseconds() -> None:
    at = 1_790_000_000_000_000_001
    bundle = steps(begin_ns=pa.array([at, None], pa.timestamp("ns")), end_ns=[at + 3, at + 4])
    table = bundle.table("steps")
    assert table.ints("begin_ns").tolist() == [at]
    assert table.ints("end_ns").tolist() == [at + 3]
    assert "1 of 2 rows make no sense" in reasons(bundle)
    assert NULL not in table.ints("begin_ns")


def test_dictionaries_lists_and_nulls() -> None:
    rows = {"flow": pa.array(["a", "b", None]).dictionary_encode(), "at_ns": [1, 1, 1],
            "window_ns": [1, 1, 1], "src": ["h0/n"] * 3, "dst": ["h1/n"] * 3,
            "hops": [["x", "y"], None, []]}  # fmt: skip
    table = bundle_from_tables({"flows": pa.table(rows)}, MANIFEST).table("flows")
    assert [table.codes("flow").at(row) for row in range(table.rows)] == ["a", "b"]
    assert [table.codes("hops").at(row) for row in range(table.rows)] == [("x", "y"), None]


def test_lost_records_are_told() -> None:
    case = drawn.make_case("", 4)
    case.tables["flows"]["dropped"] = [2.0] * len(case.tables["flows"]["flow"])
    assert "records were lost while recording" in reasons(bundle_of(case))
