"""Parquet files that a user names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from syntony.errors import InputError
from syntony.input_files import check_file

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

MAX_BYTES = 16 << 30
"""Maximum size of one compressed file: the memory of a large host."""


def read_parquet(file: Path, wanted: Iterable[str]) -> pa.Table:
    """Those of the wanted columns that the file has. Raises `InputError`: it is not a Parquet
    file."""
    from pyarrow import ArrowException, parquet

    try:
        check_file(file, MAX_BYTES)
    except OSError as error:
        raise InputError("not-parquet", f"{file}: {error.strerror}") from error
    try:
        schema = parquet.read_schema(file)
        return parquet.read_table(file, columns=[name for name in wanted if name in schema.names])
    except (ArrowException, OSError) as error:
        raise InputError("not-parquet", f"{file} is not a readable Parquet file") from error


def as_arrays(table: pa.Table) -> dict[str, NDArray[Any]]:
    """Columns of numbers without nulls as such, instants as ns; others as objects, nulls None."""
    import pyarrow as pa

    def array(column: Any) -> NDArray[Any]:
        if column.null_count == 0 and pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ns")).cast(pa.int64())
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if column.null_count == 0 and numeric:
            return np.asarray(column.to_numpy())
        return np.array(column.to_pylist(), dtype=object)

    return {name: array(table.column(name)) for name in table.column_names}
