"""What all generators of bundles hand over: tables, a manifest and what is true of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from syntony.io.bundle_files import bundle_from_tables
from syntony.workload.schema import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

    from syntony.workload.bundle import Bundle

Columns = dict[str, list[Any]]


class Truth(NamedTuple):
    """What was done to the job. `fault` is a class of the taxonomy, empty for nothing."""

    fault: str = ""
    subject: str = ""
    """The link, NIC, flow, rank, host or rail that is to be named."""
    onset_ns: int = 0
    variant: str = ""
    """For the report of misses: topology, framework, kind of fault."""


class Unfit(Exception):  # noqa: N818 - not an error: another job is drawn
    """This job cannot have the fault."""


class Case(NamedTuple):
    """One recorded job that never was."""

    tables: dict[str, Columns]
    manifest: dict[str, Any]
    truth: Truth
    also: tuple[Truth, ...] = ()
    """Further faults, elsewhere in the same job."""


class Rows:
    """Rows of one table, as they come."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def add(self, **values: Any) -> None:
        """One row; what is not named is null."""
        self._rows.append(values)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._rows)

    @property
    def columns(self) -> Columns:
        """As columns, null where a row lacks one that another has."""
        names = {name: None for row in self._rows for name in row}
        return {name: [row.get(name) for row in self._rows] for name in names}


def arrow_tables(case: Case) -> dict[str, pa.Table]:
    """The case's tables in the types of the schema."""
    import pyarrow as pa

    from syntony.io.bundle_files import arrow_type

    tables = {}
    for name, columns in case.tables.items():
        types = {column.name: arrow_type(column.kind) for column in TABLES[name]}
        tables[name] = pa.table(
            {each: pa.array(values, types[each]) for each, values in columns.items()}
        )
    return tables


def cut(case: Case, windows: int) -> Case:
    """What had been recorded so many windows after the onset."""
    width_ns = next(table["window_ns"][0] for table in case.tables.values() if "window_ns" in table)
    return until(case, case.truth.onset_ns + windows * int(width_ns))


def until(case: Case, end_ns: int) -> Case:
    """What had been recorded by an instant."""
    tables = {}
    for name, columns in case.tables.items():
        known = columns[{"steps": "end_ns", "collectives": "enqueue_ns"}.get(name, "at_ns")]
        kept = [row for row, at_ns in enumerate(known) if at_ns < end_ns]
        if kept:
            tables[name] = {each: [values[row] for row in kept] for each, values in columns.items()}
    operations = tables.get("collectives", {})
    if "done_ns" in operations:
        operations["done_ns"] = [at_ns if at_ns is not None and at_ns < end_ns else None
                                 for at_ns in operations["done_ns"]]  # fmt: skip
    return case._replace(tables=tables, manifest=case.manifest | {"end_ns": end_ns})


def bundle_of(case: Case) -> Bundle:
    """The case, read as `syntony diagnose` reads a directory, without the files."""
    return bundle_from_tables(arrow_tables(case), case.manifest)
