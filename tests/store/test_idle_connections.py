"""A server closes a connection that is idle: the next request opens another one, and is not lost.

ClickHouse does so after its `keep_alive_timeout` (3 s; 10 s and more in current versions).
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.live import eventually
from tests.store.rows import T0, probed, rows_of

from syntony.errors import StoreError
from syntony.model import S
from syntony.store import open_store
from syntony.store.clickhouse import ClickHouseEngine, parse_url
from syntony.wire.tables import PROBE

KEEP_ALIVE_S = 3


class Server(ThreadingHTTPServer):
    """Answers every request with no rows, and keeps connections open until told otherwise."""

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.status = 200
        self._open: list[socket.socket] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                server._open.append(self.connection)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.requests.append(body.decode(errors="replace"))
                answer = b'{"data": []}'
                self.send_response(server.status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"clickhouse://127.0.0.1:{self.server_port}/idle"

    def close_connections(self) -> None:
        """As after `keep_alive_timeout`."""
        for each in self._open:
            each.shutdown(socket.SHUT_RDWR)
        self._open.clear()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_an_insert_after_the_server_closed_is_sent_once(server: Server) -> None:
    engine = ClickHouseEngine(parse_url(server.url))
    for _ in range(3):
        server.close_connections()
        engine.execute("INSERT INTO t VALUES (1)")
        assert engine.select("SELECT 1") == []
    assert server.requests.count("INSERT INTO t VALUES (1)") == 3
    engine.close()


def test_a_server_that_is_gone_is_an_error(server: Server) -> None:
    engine = ClickHouseEngine(parse_url(server.url))
    server.shutdown()
    server.server_close()
    server.close_connections()
    eventually(lambda: not server._open)
    with pytest.raises(StoreError, match="does not answer"):
        engine.select("SELECT 1")
    engine.close()


@pytest.mark.slow
def test_a_store_that_was_idle_takes_and_finds_rows(clickhouse_server: str) -> None:
    store = open_store(f"{clickhouse_server}/idle")
    for second in range(2):
        time.sleep(KEEP_ALIVE_S + 2)
        store.insert(PROBE, rows_of(PROBE, [probed("a/n", "b/n", second, seq=second + 1)]))
        time.sleep(KEEP_ALIVE_S + 2)
        assert len(store.recorded(PROBE, T0, T0 + 60 * S)) == second + 1
    store.close()


def test_a_server_of_a_cluster_that_refuses_us_keeps_no_controller_from_starting(
    server: Server,
) -> None:
    """A proxy in front of one that is down answers 503; one that starts refuses logins."""
    with Server() as refusing:
        refusing.status = 503
        thread = threading.Thread(target=refusing.serve_forever)
        thread.start()
        there, other = server.server_port, refusing.server_port
        url = f"clickhouse://127.0.0.1:{there},127.0.0.1:{other}/db?cluster=c"
        try:
            engine = ClickHouseEngine(parse_url(url))
            assert engine.select("SELECT 1") == []
            engine.close()
        finally:
            refusing.shutdown()
            thread.join()
        assert refusing.requests, "it was asked what it has"
