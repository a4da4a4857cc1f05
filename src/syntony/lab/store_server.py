"""One store for several controllers of a lab: as much of a ClickHouse server's HTTP interface as
`syntony.store.clickhouse` uses, in front of the embedded engine.

    python -m syntony.lab.store_server DIRECTORY PORT
"""

from __future__ import annotations

import os
import sys
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
PORT = 8123
URL = f"clickhouse://default@{HOST}:{PORT}/syntony"
_INSERT_END = " FORMAT Native"
_WHOLE = "SETTINGS max_partitions_per_insert_block = 0"


class _Engine:
    """The embedded engine: one statement after the other, in the order in which they come, whether
    or not anybody waits for the answer."""

    def __init__(self, directory: Path) -> None:
        from chdb.session import Session

        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._session: Any = Session(str(directory))
        self._database = ""
        self._queue = ThreadPoolExecutor(1)

    def query(self, sql: str, database: str) -> bytes:
        """The answer. Raises `RuntimeError`: the engine's complaint."""
        return self._queue.submit(self._query, sql, database).result()

    def _query(self, sql: str, database: str) -> bytes:
        if database and database != self._database:
            self._session.query(f"USE {database}")
            self._database = database
        result = self._session.query(sql, "JSONCompact")
        return bytes(result.bytes() or b"") if result is not None else b""

    def insert(self, sql: str, database: str, block: bytes) -> bytes:
        """Put a block of rows in, whole or not at all."""
        head = sql.removesuffix(_INSERT_END)
        names = head[head.index("(") + 1 : head.rindex(")")]
        with os.fdopen(os.memfd_create("block", os.MFD_CLOEXEC), "wb") as file:
            file.write(block)
            file.flush()
            source = f"file('/proc/self/fd/{file.fileno()}', 'Native')"
            return self.query(
                f"{head} SELECT {names} FROM {source} {_WHOLE}",  # noqa: S608 — the client's own SQL
                database,
            )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: _Engine

    def do_POST(self) -> None:
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        size = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(size)
        if len(body) < size:  # the client died meanwhile
            self.close_connection = True
            return
        database = asked.get("database", "")
        try:
            if "query" in asked:
                answer = self.engine.insert(asked["query"], database, body)
            else:
                answer = self.engine.query(body.decode(), database)
            self._answer(200, answer)
        except RuntimeError as error:
            self._answer(500, str(error).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — the library's name
        """Nothing: each statement would be a line."""


def serving(directory: Path, port: int) -> ThreadingHTTPServer:
    """A server that listens; its caller runs `serve_forever`."""
    handler = type("Handler", (_Handler,), {"engine": _Engine(directory)})
    return ThreadingHTTPServer((HOST, port), handler)


if __name__ == "__main__":
    serving(Path(sys.argv[1]), int(sys.argv[2])).serve_forever()
