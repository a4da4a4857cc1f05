"""A ClickHouse server over its HTTP interface, from 18.16 to today's.

Only what both share is used: ``Native`` blocks in, ``JSONCompact`` out, so one implementation and
no client library serve every version (decision record 0031).
"""

from __future__ import annotations

import base64
import http.client
import ssl
import threading
import urllib.parse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from syntony.errors import StoreError, UsageError
from syntony.model.names import is_name
from syntony.store.engine import Row, bounded, first_line, parse_rows
from syntony.store.native import encode_block
from syntony.wire.tables import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_PORT = 8123
DEFAULT_TLS_PORT = 8443
TIMEOUT_S = 30.0
_SETTINGS = {
    "output_format_json_quote_64bit_integers": "0",
    "max_partitions_per_insert_block": "0",
}


class Address(NamedTuple):
    """Where a server is and as whom to speak to it."""

    host: str
    port: int
    tls: bool
    user: str
    password: str
    database: str


def parse_url(url: str) -> Address:
    """``clickhouse://user:password@host:port/database``; ``clickhouses://`` for TLS.

    Raises:
        UsageError: not of that form.
    """
    parts = urllib.parse.urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:
        raise UsageError(
            f"store URL: {error}; write clickhouse://user@host:8123/database"
        ) from error
    database = parts.path.strip("/") or "syntony"
    if parts.scheme not in {"clickhouse", "clickhouses"} or not parts.hostname:
        raise UsageError("store URL: write clickhouse://user@host:8123/database")
    if not is_name(database) or not database.isidentifier():
        raise UsageError(f"store URL: {database!r} cannot name a database")
    tls = parts.scheme == "clickhouses"
    return Address(
        parts.hostname,
        port or (DEFAULT_TLS_PORT if tls else DEFAULT_PORT),
        tls,
        urllib.parse.unquote(parts.username or "default"),
        urllib.parse.unquote(parts.password or ""),
        database,
    )


class ClickHouseEngine:
    """One database on one server. Thread-safe: each thread keeps its own connection."""

    def __init__(self, address: Address) -> None:
        """Connect, and make the database if it is not there.

        Raises:
            StoreError: unreachable, or access refused.
        """
        self._address = address
        self._local = threading.local()
        self._connections: list[http.client.HTTPConnection] = []
        try:
            self._known = self._probe_settings()
            self._post(f"CREATE DATABASE IF NOT EXISTS {address.database}", database="")
        except StoreError:
            self.close()
            raise

    def execute(self, sql: str) -> None:
        self._post(sql)

    def select(self, sql: str) -> list[Row]:
        return parse_rows(self._post(f"{bounded(sql)} FORMAT JSONCompact"))

    def select_since(self, table: Table, first_ns: int, sql: str) -> list[Row]:  # noqa: ARG002
        return self.select(sql)  # others write there, too

    def insert(self, table: str, columns: Sequence[Column], rows: pa.Table) -> None:
        names = ", ".join(column.name for column in columns)
        self._post(f"INSERT INTO {table} ({names}) FORMAT Native", encode_block(columns, rows))

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _probe_settings(self) -> dict[str, str]:
        """Those of our settings that this version knows: an unknown one would refuse the query."""
        self._known = {}
        names = ", ".join(f"'{name}'" for name in _SETTINGS)
        answer = self._post(
            f"SELECT name FROM system.settings WHERE name IN ({names}) FORMAT JSONCompact",
            database="",
        )
        known = {row[0] for row in parse_rows(answer)}
        return {name: value for name, value in _SETTINGS.items() if name in known}

    def _post(self, sql: str, body: bytes | None = None, database: str | None = None) -> bytes:
        wanted = self._address.database if database is None else database
        query = dict(self._known)
        if wanted:
            query["database"] = wanted
        if body is not None:
            query["query"] = sql
        path = "/?" + urllib.parse.urlencode(query)
        status, answer = self._exchange(path, sql.encode() if body is None else body)
        if status != http.client.OK:
            raise StoreError(
                f"store {self._address.host}:{self._address.port}: "
                f"{first_line(answer.decode(errors='replace'))}"
            )
        return answer

    def _exchange(self, path: str, body: bytes) -> tuple[int, bytes]:
        address = self._address
        login = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
        connection = self._connection()
        try:
            connection.request("POST", path, body, {"Authorization": f"Basic {login}"})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            # A closed connection opens again at its next request; anyone who inserts looks up what
            # arrived of this one.
            connection.close()
            raise StoreError(
                f"store {address.host}:{address.port} does not answer: "
                f"{str(error) or type(error).__name__}"
            ) from error

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            address = self._address
            if address.tls:
                connection = http.client.HTTPSConnection(
                    address.host,
                    address.port,
                    timeout=TIMEOUT_S,
                    context=ssl.create_default_context(),
                )
            else:
                connection = http.client.HTTPConnection(
                    address.host, address.port, timeout=TIMEOUT_S
                )
            self._local.connection = connection
            self._connections.append(connection)
        return connection
