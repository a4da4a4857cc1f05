"""A ClickHouse server over its HTTP interface, from 18.16 to today's.

Only common features are used, ``Native`` blocks for input and ``JSONCompact`` for output, so that
one implementation without a client library serves all versions (decision record 0031).
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import re
import select
import ssl
import threading
import urllib.parse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from syntony.errors import StoreError, UsageError
from syntony.model.names import is_name
from syntony.store.engine import Row, bounded, first_line, parse_rows
from syntony.store.layout import Layout
from syntony.store.schema import sql_type
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
_CLUSTER_SETTINGS = {
    # An insert has returned when its rows are on their shards, not when they wait to be sent there.
    "insert_distributed_sync": "1",
    # The first replica of each shard while it lives: what was inserted is seen by the next look-up.
    "load_balancing": "in_order",
    "prefer_localhost_replica": "0",
}

_PRESENT = (
    "SELECT name FROM system.databases UNION ALL "
    "SELECT concat(database, '.', name) FROM system.tables FORMAT JSONCompact"
)
_CHANGES = re.compile(r"(?P<what>CREATE|DROP) (TABLE|DATABASE) IF (NOT )?EXISTS (?P<name>\S+)")


class ServerAddress(NamedTuple):
    """A server's address, and the user and database to use."""

    host: str
    port: int
    tls: bool
    user: str
    password: str
    database: str
    cluster: str = ""
    """Name of a cluster in the server's configuration; empty: a single server."""
    others: tuple[tuple[str, int], ...] = ()
    """Further servers of the cluster, tried in turn if one does not answer."""


def parse_url(url: str) -> ServerAddress:
    """``clickhouse://user:password@host:port/database``; ``clickhouses://`` for TLS.

    For a cluster, ``clickhouse://host:port,host:port/database?cluster=NAME``.

    Raises:
        UsageError: the URL has another form.
    """
    parts, others = _first_server(url)
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
    default = DEFAULT_TLS_PORT if tls else DEFAULT_PORT
    cluster = _cluster(parts.query)
    if others and not cluster:
        raise UsageError("store URL: several servers must be a cluster; add ?cluster=NAME")
    return ServerAddress(
        parts.hostname,
        port or default,
        tls,
        urllib.parse.unquote(parts.username or "default"),
        urllib.parse.unquote(parts.password or ""),
        database,
        cluster,
        tuple(_server(each, default) for each in others),
    )


def _first_server(url: str) -> tuple[urllib.parse.SplitResult, list[str]]:
    parts = urllib.parse.urlsplit(url)
    login, at, servers = parts.netloc.rpartition("@")
    first, *others = servers.split(",")
    return parts._replace(netloc=f"{login}{at}{first}"), others


def _server(text: str, default: int) -> tuple[str, int]:
    """Parse ``host`` or ``host:port``. Raises `UsageError`."""
    host, _, port = text.rpartition(":") if ":" in text else (text, "", str(default))
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"store URL: {text!r} is not a server; write host:8123")
    return host, int(port)


def _cluster(query: str) -> str:
    """The cluster's name. Raises `UsageError`: an unknown option, or an empty name."""
    given = urllib.parse.parse_qs(query, keep_blank_values=True)
    (name,) = given.pop("cluster", [""])[-1:]
    if given:
        raise UsageError(f"store URL: {', '.join(given)}: the only option is ?cluster=NAME")
    if query and not name.isidentifier():
        raise UsageError(f"store URL: {name!r} cannot name a cluster")
    return name


class NoAnswerError(StoreError):
    """A server did not answer."""


class ClickHouseEngine:
    """One database on one server, or on a cluster through any of several. Thread-safe: each thread
    keeps its own connection."""

    def __init__(self, address: ServerAddress) -> None:
        """Connect, and create the database if it is missing. Raises `StoreError`: unreachable, or
        access refused."""
        self._address = address
        self._servers = ((address.host, address.port), *address.others)
        self._at = 0
        """Index in `_servers` of the server in use."""
        self.layout = Layout(address.cluster, address.database)
        self._local = threading.local()
        self._connections: list[http.client.HTTPConnection] = []
        self._present = set[str]()
        """Databases and tables that need not be created."""
        try:
            self._known = self._probe_settings()
            if self.layout.cluster:
                self._present = self._everywhere()
            for statement in self.layout.databases():
                if not self._is_present(statement):
                    self._post(statement, database="", again=True)
        except StoreError:
            self.close()
            raise

    def execute(self, sql: str) -> None:
        if not self._is_present(sql):
            self._post(sql)

    def select(self, sql: str) -> list[Row]:
        return parse_rows(self._post(f"{bounded(sql)} FORMAT JSONCompact", again=True))

    def select_since(self, table: Table, first_ns: int, sql: str) -> list[Row]:  # noqa: ARG002
        return self.select(sql)  # others write there, too

    def insert(self, table: str, columns: Sequence[Column], rows: pa.Table) -> None:
        names = ", ".join(column.name for column in columns)
        self._post(f"INSERT INTO {table} ({names}) FORMAT Native", encode_block(columns, rows))

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _probe_settings(self) -> dict[str, str]:
        """Settings that this version knows: with an unknown one it would refuse the query."""
        self._known = {}
        settings = _SETTINGS | (_CLUSTER_SETTINGS if self.layout.cluster else {})
        names = ", ".join(f"'{name}'" for name in settings)
        answer = self._post(
            f"SELECT name FROM system.settings WHERE name IN ({names}) FORMAT JSONCompact",
            database="",
            again=True,
        )
        known = {row[0] for row in parse_rows(answer)}
        return {name: value for name, value in settings.items() if name in known}

    def _everywhere(self) -> set[str]:
        """Databases and tables on every server that answers. A statement on the cluster waits for
        all servers, and for ZooKeeper: one that is down would keep each controller from starting.
        """
        found = {}
        for at in range(len(self._servers)):
            self._at = at
            with contextlib.suppress(StoreError):  # the first statement says why, if none answers
                answer = self._request(_PRESENT, None, "")
                found[at] = {str(row[0]) for row in parse_rows(answer)}
        self._at = min(found, default=0)
        return set.intersection(*found.values()) if found else set()

    def _is_present(self, sql: str) -> bool:
        """Whether a statement would create what is there."""
        changes = _CHANGES.match(sql)
        if changes is None:
            return False
        if changes["what"] == "DROP":
            self._present.discard(changes["name"])
            return False
        return changes["name"] in self._present

    def _post(
        self,
        sql: str,
        body: bytes | None = None,
        database: str | None = None,
        *,
        again: bool = False,
    ) -> bytes:
        """Post a request and return the answer.

        Args:
            again: the request is idempotent: if a server does not answer, the next one is tried.
        """
        for _ in self._servers[1:] if again else ():
            try:
                return self._request(sql, body, database)
            except NoAnswerError:
                continue
        return self._request(sql, body, database)

    def _request(self, sql: str, body: bytes | None, database: str | None) -> bytes:
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
                f"store {self._servers[self._at][0]}:{self._servers[self._at][1]}: "
                f"{first_line(answer.decode(errors='replace'))}"
            )
        return answer

    def _exchange(self, path: str, body: bytes) -> tuple[int, bytes]:
        address = self._address
        login = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
        at = self._at
        connection = self._connection(at)
        try:
            connection.request("POST", path, body, {"Authorization": f"Basic {login}"})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            # A connection closed here opens again at its next request; anyone who inserts looks up
            # what arrived of this one.
            connection.close()
            self._at = (at + 1) % len(self._servers)
            host, port = self._servers[at]
            raise NoAnswerError(
                f"store {host}:{port} does not answer: {str(error) or type(error).__name__}"
            ) from error

    def _connection(self, at: int) -> http.client.HTTPConnection:
        """This thread's connection to a server."""
        known: dict[int, http.client.HTTPConnection]
        known = self._local.known = getattr(self._local, "known", {})
        if (connection := known.get(at)) is None:
            host, port = self._servers[at]
            if self._address.tls:
                context = ssl.create_default_context()
                connection = http.client.HTTPSConnection(
                    host, port, timeout=TIMEOUT_S, context=context
                )
            else:
                connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
            known[at] = connection
            self._connections.append(connection)
        elif _closed_by_server(connection):
            connection.close()  # opens again at the request
        return connection


def _closed_by_server(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has closed an idle connection (ClickHouse: after `keep_alive_timeout`, 3 s
    or more). All of the last answer was read, so there is nothing to read but the end."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def encode_block(columns: Sequence[Column], rows: pa.Table) -> bytes:
    """One ``Native`` block with the given columns of `rows`.

    It is the number of columns and of rows, then per column its name, its type and its values:
    numbers little-endian one after another, strings each behind its length. Lengths and counts are
    LEB128 varints. (ClickHouse documentation, "Native" format.)
    """
    parts = [varint(len(columns)), varint(rows.num_rows)]
    for column in columns:
        parts += [_text(column.name), _text(sql_type(column))]
        parts.append(_values(column, rows.column(column.name)))
    return b"".join(parts)


def varint(value: int) -> bytes:
    """LEB128 of a number ≥ 0."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(text: str) -> bytes:
    data = text.encode()
    return varint(len(data)) + data


def _values(column: Column, values: pa.ChunkedArray) -> bytes:
    if column.type != "string":
        # "<" forces the order of bytes the format wants whatever this machine's is.
        wanted = np.dtype(column.type).newbyteorder("<")
        return bytes(values.to_numpy().astype(wanted, copy=False).data)
    # Names repeat row after row: each distinct one is encoded once.
    coded = values.combine_chunks().dictionary_encode()
    texts = [_text(text) for text in coded.dictionary.to_pylist()]
    return b"".join([texts[index] for index in coded.indices.to_pylist()])
