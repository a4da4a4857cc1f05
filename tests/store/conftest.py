"""Stores to test against: the embedded one, and a private server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ports import free_port

from syntony.store import Store, open_store
from syntony.store.embedded import EmbeddedEngine
from syntony.store.migrations import VERSIONS
from syntony.store.queries import HOURS, MARKS, MINUTES
from syntony.wire.tables import TABLES

_KNOWN = {VERSIONS, MINUTES, HOURS, MARKS, *TABLES}


class SharedEngine:
    """An embedded engine on one directory, for the tests of a module one after the other: creating
    all tables takes longer than most tests. (A process has one directory open at a time.)"""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._engine: EmbeddedEngine | None = None

    def empty_store(self) -> Store:
        """A store on it, without what earlier tests left."""
        if self._engine is None:
            self._engine = EmbeddedEngine(self._directory)
        present = self._engine.select(
            "SELECT name, total_rows FROM system.tables WHERE database = currentDatabase()"
        )
        for name, rows in present:
            if str(name) not in _KNOWN:
                self._engine.execute(f"DROP TABLE {name}")
            elif rows:
                self._engine.execute(f"TRUNCATE TABLE {name}")
        self._engine._found_ns.clear()
        self._engine._inserted_ns.clear()
        return Store(self._engine)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


@pytest.fixture(scope="module")
def shared_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedEngine]:
    made = SharedEngine(tmp_path_factory.mktemp("engine"))
    yield made
    made.close()


@pytest.fixture
def own_directory(shared_engine: SharedEngine, tmp_path: Path) -> str:
    """For a test that opens the embedded engine itself, perhaps several times."""
    shared_engine.close()
    return str(tmp_path / "store")


@pytest.fixture(params=["embedded", pytest.param("clickhouse", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of either kind."""
    if request.param == "embedded":
        yield request.getfixturevalue("shared_engine").empty_store()
    else:
        opened = open_store(f"{request.getfixturevalue('clickhouse_server')}/t{uuid.uuid4().hex}")
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def clickhouse_server(clickhouse_process: tuple[str, subprocess.Popen[bytes]]) -> str:
    """The URL of a private ClickHouse server."""
    return clickhouse_process[0]


@pytest.fixture(scope="session")
def clickhouse_process(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """It is on loopback, as Debian packages it; its URL, and the process."""
    binary = shutil.which("clickhouse-server") or shutil.which(
        "clickhouse-server", path="/usr/sbin"
    )
    if binary is None:
        pytest.skip(
            "needs clickhouse-server (sh deploy/system-packages.sh --slow): the store is NOT "
            "tested on a server"
        )
    directory = tmp_path_factory.mktemp("clickhouse")
    port = free_port()
    (directory / "config.xml").write_text(_config(directory, port, free_port()))
    (directory / "users.xml").write_text(_USERS)
    command = [binary, f"--config-file={directory / 'config.xml'}"]
    with (
        (directory / "out").open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out, cwd=directory) as server,
    ):
        try:
            _wait(port, server)
            yield f"clickhouse://tester:p%40ss@127.0.0.1:{port}", server
        finally:
            server.kill()


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail("clickhouse-server did not come up")


def _config(directory: Path, http_port: int, tcp_port: int) -> str:
    return f"""<yandex>
  <logger><level>error</level><log>{directory}/log</log><errorlog>{directory}/err</errorlog></logger>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{http_port}</http_port><tcp_port>{tcp_port}</tcp_port>
  <path>{directory}/data/</path><tmp_path>{directory}/scratch/</tmp_path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size>
</yandex>"""


_USERS = """<yandex>
  <profiles><default/></profiles><quotas><default/></quotas>
  <users><tester><password>p@ss</password><networks><ip>127.0.0.1</ip></networks>
  <profile>default</profile><quota>default</quota></tester></users>
</yandex>"""
