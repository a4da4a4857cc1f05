"""Layout of tables: on one server, or on a cluster of shards and replicas. Pure SQL.

On a cluster each table exists twice: a replicated table with the rows, in the database
``NAME_local`` on every server, and a distributed table of the same name in the database ``NAME``,
which all reads and writes use. A row's shard depends on its sender, so a batch is on one shard.
"""

from __future__ import annotations

from typing import NamedTuple


class Layout(NamedTuple):
    """The layout of one database's tables."""

    cluster: str = ""
    """Its name in the servers' ``remote_servers``; empty: one server."""
    database: str = ""
    """The database that is read and written."""

    @property
    def _local(self) -> str:
        return f"{self.database}_local"

    @property
    def _everywhere(self) -> str:
        return f" ON CLUSTER {self.cluster}"

    def databases(self) -> list[str]:
        """Statements that create the databases; run outside of any database."""
        if not self.cluster:
            return [f"CREATE DATABASE IF NOT EXISTS {self.database}"]
        return [
            f"CREATE DATABASE IF NOT EXISTS {name}{self._everywhere}"
            for name in (self._local, self.database)
        ]

    def create(self, name: str, columns: str, engine: str, order: str, shard: str) -> list[str]:
        """Statements that create a table if it is missing.

        Args:
            columns: their definitions.
            engine: of the MergeTree family, with its arguments in parentheses or without.
            order: its ``PARTITION BY`` and ``ORDER BY``.
            shard: an expression over columns: rows with the same value are on one shard.
        """
        if not self.cluster:
            return [f"CREATE TABLE IF NOT EXISTS {name} ({columns}) ENGINE = {engine} {order}"]
        kind, _, arguments = engine.rstrip(")").partition("(")
        path = f"'/clickhouse/tables/{{shard}}/{self._local}/{name}', '{{replica}}'"
        given = f"{path}, {arguments}" if arguments else path
        rows = (
            f"CREATE TABLE IF NOT EXISTS {self._local}.{name}{self._everywhere} ({columns}) "
            f"ENGINE = Replicated{kind}({given}) {order}"
        )
        return [rows, self._distributed(name, shard)]

    def _distributed(self, name: str, shard: str) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.database}.{name}{self._everywhere} "
            f"AS {self._local}.{name} ENGINE = Distributed({self.cluster}, {self._local}, {name}, "
            f"{shard})"
        )

    def alter(self, name: str, change: str) -> list[str]:
        """Statements that change a table; `refresh` it if its columns change."""
        if not self.cluster:
            return [f"ALTER TABLE {name} {change}"]
        return [f"ALTER TABLE {self._local}.{name}{self._everywhere} {change}"]

    def refresh(self, name: str, shard: str) -> list[str]:
        """Statements that create the distributed table again, with all columns of the rows. It has
        no rows, and ClickHouse 18 cannot alter it on a cluster."""
        if not self.cluster:
            return []
        drop = f"DROP TABLE IF EXISTS {self.database}.{name}{self._everywhere}"
        return [drop, self._distributed(name, shard)]

    def drop_partition(self, name: str, number: int) -> list[str]:
        return self.alter(name, f"DROP PARTITION {number}")

    @property
    def of_rows(self) -> str:
        """An expression for the database of the tables that hold rows."""
        return f"'{self._local}'" if self.cluster else "currentDatabase()"

    @property
    def parts(self) -> str:
        """The ``FROM`` expression for the parts of all tables, on one replica of each shard."""
        table = f"cluster('{self.cluster}', system, parts)" if self.cluster else "system.parts"
        return f"{table} WHERE active AND database = {self.of_rows}"


ONE_SERVER = Layout()
