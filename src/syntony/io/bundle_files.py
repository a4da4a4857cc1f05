"""Bundles as files: a directory with `manifest.json` and one Parquet file for each table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from syntony.errors import InputError
from syntony.input_files import check_file, read_bytes
from syntony.workload.bundle import (
    LIMITS,
    NULL,
    Bundle,
    Codes,
    Gap,
    Manifest,
    check_manifest,
    make_bundle,
    parse_manifest,
)
from syntony.workload.schema import TABLES, BundleColumn, Kind

if TYPE_CHECKING:
    import pyarrow as pa

    from syntony.wire.jobs import RecordedRows

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 20
MAX_TABLE_BYTES = 16 << 30
MAX_ROWS = 50_000_000
"""Of one table, as a file and when read: what a large host's memory holds."""


def read_bundle(folder: Path) -> Bundle:
    """Reads and checks a bundle; tables that cannot be read become gaps. Raises `InputError`: no
    manifest, a manifest of another kind, or no usable table."""
    try:
        data = read_bytes(folder / MANIFEST, MAX_MANIFEST_BYTES)
    except OSError as error:
        raise InputError(
            "not-a-bundle",
            f"{folder}: {MANIFEST} cannot be read ({error.strerror}); a bundle is a directory that "
            "`syntony record` wrote, or one with a manifest as in docs/reference/bundle.md",
        ) from error
    manifest = parse_manifest(data)
    tables: dict[str, pa.Table] = {}
    gaps: list[Gap] = []
    for name in TABLES:
        file_name = folder / f"{name}.parquet"
        if not file_name.exists():
            continue
        table, gap = _read(name, file_name)
        if table is not None:
            tables[name] = table
        gaps += gap
    known = {MANIFEST, *(f"{name}.parquet" for name in TABLES)}
    foreign = sorted(each.name for each in folder.iterdir() if each.name not in known)
    if foreign:
        gaps.append(Gap("", f"files that are not part of a bundle: {', '.join(foreign[:5])}"))
    return _bundle(manifest, tables, tuple(gaps))


def bundle_from_tables(tables: Mapping[str, pa.Table], manifest: Mapping[str, Any]) -> Bundle:
    """A bundle from tables in memory, checked in the same way. Raises `InputError`: no usable
    table, or a manifest of another kind."""
    try:
        checked = check_manifest(msgspec.convert(manifest, Manifest))
    except msgspec.ValidationError as error:
        raise InputError("broken-manifest", str(error)) from error
    return _bundle(checked, tables, ())


def arrow_tables(tables: Mapping[str, Mapping[str, Sequence[Any]]]) -> dict[str, pa.Table]:
    """Columns of values, None for null, as Arrow tables of the schema's types."""
    import pyarrow as pa

    found = {}
    for name, columns in tables.items():
        kinds = {column.name: arrow_type(column.kind) for column in TABLES[name]}
        schema = pa.schema([(column, kinds[column]) for column in columns])
        found[name] = pa.Table.from_pydict(dict(columns), schema=schema)
    return found


def joined(rows: Iterable[RecordedRows]) -> dict[str, pa.Table]:
    """The tables of an answer to `RecordingQuery`, whole."""
    import pyarrow as pa

    parts: dict[str, list[pa.Table]] = {}
    for each in rows:
        with pa.ipc.open_stream(each.arrow) as reader:
            parts.setdefault(each.table, []).append(reader.read_all())
    return {name: pa.concat_tables(some) for name, some in parts.items()}


def write_bundle(folder: Path, tables: Mapping[str, pa.Table], manifest: Mapping[str, Any]) -> None:
    """Writes a bundle into a new or empty directory. Raises `OSError`: nothing of it is left, for
    a part of a bundle reads as a whole one."""
    from pyarrow import parquet

    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for name, table in tables.items():
            parquet.write_table(table, folder / f"{name}.parquet", compression="zstd")
        encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
        (folder / MANIFEST).write_bytes(encoded)
    except BaseException:
        for file in (MANIFEST, *(f"{name}.parquet" for name in tables)):
            (folder / file).unlink(missing_ok=True)
        if made:
            folder.rmdir()
        raise


def arrow_type(kind: Kind) -> pa.DataType:
    import pyarrow as pa

    return {
        "instant": pa.int64(),
        "whole": pa.int64(),
        "number": pa.float64(),
        "text": pa.string(),
        "flag": pa.bool_(),
        "names": pa.list_(pa.string()),
    }[kind]


def _read(name: str, file: Path) -> tuple[pa.Table | None, list[Gap]]:
    from pyarrow import ArrowException, parquet

    try:
        check_file(file, MAX_TABLE_BYTES)
        metadata = parquet.read_metadata(file)
        if metadata.num_rows > MAX_ROWS:
            return None, [Gap(name, f"more than {MAX_ROWS:,} rows", LIMITS[name])]
        wanted = {column.name for column in TABLES[name]}
        present = parquet.read_schema(file).names
        table = parquet.read_table(file, columns=[each for each in present if each in wanted])
    except (ArrowException, OSError, ValueError) as error:
        text = " ".join(str(getattr(error, "strerror", None) or error).split())[:120]
        return None, [Gap(name, f"not a readable Parquet file ({text})", LIMITS[name])]
    foreign = sorted(set(present) - wanted)
    reported = [Gap(name, f"unknown columns left out: {', '.join(foreign[:5])}")] if foreign else []
    return table, reported


def _bundle(manifest: Manifest, tables: Mapping[str, pa.Table], gaps: tuple[Gap, ...]) -> Bundle:
    columns: dict[str, dict[str, Any]] = {}
    found = list(gaps)
    for name, table in tables.items():
        if name not in TABLES:
            continue  # of a newer recorder
        columns[name] = {}
        for column, values, problem in _columns(name, table):
            if problem:
                found.append(Gap(name, problem))
            else:
                columns[name][column.name] = values
    return make_bundle(manifest, columns, tuple(found))


def _columns(name: str, table: pa.Table) -> Iterator[tuple[BundleColumn, Any, str]]:
    """Each column of the schema that the table has: its values, or what is wrong with it."""
    import pyarrow as pa

    for column in TABLES[name]:
        count = table.column_names.count(column.name)
        if count == 0:
            continue
        if count > 1:
            yield column, None, f"column {column.name} is there twice"
            continue
        try:
            values = _typed(table.column(column.name), column)
        except (pa.ArrowException, ValueError, OverflowError):
            values = None
        problem = f"column {column.name} is {table.column(column.name).type}, not {column.kind}"
        yield column, values, problem if values is None else ""


def _typed(values: pa.ChunkedArray, column: BundleColumn) -> Any:
    """The column as the rules want it; None if its type does not fit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("ns")).cast(pa.int64())
    if pa.types.is_null(values.type) and not column.required:
        values = values.cast(arrow_type(column.kind))
    if not _fits(values.type, column.kind):
        return None
    if column.kind in {"text", "names"}:
        return _codes(values) if column.kind == "text" else _list_codes(values)
    if column.kind in {"instant", "whole"}:
        return np.asarray(pc.fill_null(values.cast(pa.int64()), NULL).to_numpy())
    if column.kind == "flag":
        values = values.cast(pa.int8())
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy())


def _fits(kind: pa.DataType, wanted: Kind) -> bool:
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind):
        return wanted == "names" and _fits(kind.value_type, "text")
    if types.is_floating(kind):
        return wanted == "number"
    if types.is_integer(kind):
        return wanted in {"number", "instant", "whole"}
    texts = types.is_string(kind) or types.is_large_string(kind)
    return wanted == ("flag" if types.is_boolean(kind) else "text" if texts else None)


def _codes(values: pa.ChunkedArray) -> Codes:
    import pyarrow.compute as pc

    coded = values.combine_chunks().dictionary_encode()
    codes = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return Codes(codes, tuple(coded.dictionary.to_pylist()))


def _list_codes(values: pa.ChunkedArray) -> Codes:
    """Lists joined by a character that no name has, numbered, and parted again."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = values.combine_chunks()
    texts = pc.binary_join(lists.cast(pa.list_(pa.string())), "\x1f")
    coded = _codes(pa.chunked_array([texts]))
    return Codes(
        coded.codes, tuple(tuple(each.split("\x1f")) if each else () for each in coded.values)
    )
