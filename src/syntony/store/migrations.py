"""The telemetry store's schema: its version, and migrations from all earlier ones.

New tables and columns of `syntony.wire.tables` are added automatically. Migrations are for other
changes: a renamed column, another type or sort key, a removed table. ClickHouse has no transactions
over statements, so each must be idempotent: it may run again after a crash.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from syntony.errors import StoreError
from syntony.store import minutes, queries
from syntony.store.engine import Engine, integer
from syntony.store.schema import SHARD, add_columns, capabilities, create_table
from syntony.wire.tables import TABLES, Table

VERSIONS = "schema_version"
"""Table with the schema versions of a store's history."""


class Migration(NamedTuple):
    """One step, run before tables and columns are added."""

    version: int
    statements: Sequence[str] = ()


MIGRATIONS = (
    # Stores from before versions, and new ones: tables and columns are added.
    Migration(1),
    # Findings have probabilities and twins: columns are added.
    Migration(2),
    # One-way delays of queue pairs and probes over verbs: tables are added.
    Migration(3),
    # Processes, collectives, steps and flows of jobs: tables are added.
    Migration(4),
    # One-way delays of jobs' TCP segments: a table is added.
    Migration(5),
    # Flows of jobs have a DSCP: a column is added.
    Migration(6),
    # Shorter sort keys: of new tables; those that are there keep theirs, and answer the same.
    Migration(7),
    # Flows of jobs have the time they waited for the receiver's window: a column is added.
    Migration(8),
    # Readings of GPUs: a table. PCIe slots of ports, interrupts of jobs' cores: columns are added.
    Migration(9),
    # Rows by the minute: a table, which fills itself from what is there.
    Migration(10),
    # Replaced ranks of jobs: a table is added.
    Migration(11),
    # Spares that wait: a column is added.
    Migration(12),
    # Which hours are summed up by the minute: a table, once filled from the minutes.
    Migration(13),
    # Which minutes of hours under way are summed up: a table.
    Migration(14),
    # Smaller granules of minutes: of new tables; those that are there keep theirs.
    Migration(15),
    # Collectives have the number of their batch beside that of the operation: a column is added.
    Migration(16),
    # Processes of jobs have a state, and when they ended: columns are added.
    Migration(17),
    # Ports have the rates at which they send and receive: columns are added.
    Migration(18),
    # Processes of jobs have an exit status, and whether memory lacked: columns are added.
    Migration(19),
    # Processes of jobs say whether they handle SIGTERM: a column is added.
    Migration(20),
    # Processes of jobs say where their Python is: a column is added.
    Migration(21),
)
SUMMED_HOURS = 13
"""The version that added this table; it is filled after the tables are created."""


def migrate(
    engine: Engine,
    tables: Iterable[Table] = TABLES.values(),
    migrations: Sequence[Migration] = MIGRATIONS,
) -> None:
    """Migrate a store, new or old, to the newest schema. Raises `StoreError`: a newer version of
    Syntony wrote it (nothing was changed), or the engine failed."""
    newest = migrations[-1].version
    layout = engine.layout
    for statement in layout.create(
        VERSIONS, "version UInt32", "MergeTree", "ORDER BY version", "version"
    ):
        engine.execute(statement)
    present = integer(engine.select(f"SELECT max(version) FROM {VERSIONS}")[0][0])
    if present > newest:
        raise StoreError(
            f"store has schema {present}, this version knows up to {newest}; start the version "
            "that wrote it, or a newer one"
        )
    wanted = [each for each in migrations if each.version > present]
    for migration in wanted:
        for statement in migration.statements:
            engine.execute(statement)
    _add_tables_and_columns(engine, tables)
    _add_minutes(engine, present)
    if wanted:
        for table in tables:
            for statement in layout.refresh(table.name, SHARD):
                engine.execute(statement)
        reached = ", ".join(f"({each.version})" for each in wanted)
        engine.execute(f"INSERT INTO {VERSIONS} VALUES {reached}")


def _add_minutes(engine: Engine, present: int) -> None:
    for statement in minutes.create(engine.layout):
        engine.execute(statement)
    if present < SUMMED_HOURS:
        engine.execute(minutes.FILL_HOURS)


def _add_tables_and_columns(engine: Engine, tables: Iterable[Table]) -> None:
    layout = engine.layout
    can = capabilities(str(engine.select("SELECT version()")[0][0]))
    present: defaultdict[str, set[str]] = defaultdict(set)
    for name, column in engine.select(queries.columns(layout)):
        present[str(name)].add(str(column))
    for table in tables:
        # Of a cluster, another server may lack the table.
        if table.name not in present or layout.cluster:
            for statement in create_table(table, can, layout):
                engine.execute(statement)
        if table.name in present:
            for statement in add_columns(table, present[table.name], can, layout):
                engine.execute(statement)
