"""Rows for stores: a second of probing as an agent would report it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from syntony.model import S
from syntony.store import Store, open_store
from syntony.store.schema import stored_columns
from syntony.wire.tables import HEARD, PROBE, Table

T0 = 1_700_000_000 * S
_DEFAULTS: dict[str, Any] = {"host": "h0", "stream": "s", "seq": 1, "ts_ns": T0, "prober": "a/n"}


def rows_of(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows with every stored column; what a row does not say is zero or empty."""
    columns = {
        column.name: pa.array(
            [row.get(column.name, _default(column.name, column.type)) for row in rows],
            pa.string() if column.type == "string" else getattr(pa, _arrow_name(column.type))(),
        )
        for column in stored_columns(table)
    }
    return pa.table(columns)


def _default(name: str, kind: str) -> Any:  # noqa: ANN401 — a value of any column
    return _DEFAULTS.get(name, "" if kind == "string" else 0)


def _arrow_name(kind: str) -> str:
    return kind if kind.startswith(("int", "uint")) else kind


def probed(src: str, dst: str, second: int = 0, **fields: Any) -> dict[str, Any]:
    """A forward row of `src` probing `dst`: 40 probes, all arrived in 1–5 µs, unless said."""
    row: dict[str, Any] = {
        "ts_ns": T0 + second * S,
        "src": src,
        "dst": dst,
        "prober": src,
        "sport": 61000,
        "sent": 40,
        "count": 40,
        "owd_min_ns": 1000,
        "owd_p50_ns": 2000,
        "owd_p90_ns": 3000,
        "owd_p99_ns": 4000,
        "owd_max_ns": 5000,
        "clk_err_ns": 50.0,
    }
    return row | fields


def silent(src: str, dst: str, second: int = 0, **fields: Any) -> dict[str, Any]:
    """A forward row of a second in which not one reply came back."""
    return probed(src, dst, second, count=0, unresolved=40, **fields)


def heard(src: str, dst: str, second: int = 0, received: int = 40) -> dict[str, Any]:
    """`dst` heard `src`."""
    return {"ts_ns": T0 + second * S, "src": src, "dst": dst, "received": received}


def fill(store: Store, probes: Sequence[Mapping[str, Any]], hearings: Sequence[Mapping[str, Any]] = ()) -> None:
    store.insert(PROBE, rows_of(PROBE, probes))
    if hearings:
        store.insert(HEARD, rows_of(HEARD, hearings))


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Store]:
    store = open_store(str(tmp_path / "store"))
    yield store
    store.close()


@pytest.fixture(scope="session")
def clickhouse_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A private ClickHouse server on loopback, as Debian packages it."""
    binary = shutil.which("clickhouse-server") or shutil.which(
        "clickhouse-server", path="/usr/sbin"
    )
    if binary is None:
        pytest.skip("clickhouse-server is not installed (apt-get install clickhouse-server)")
    directory = tmp_path_factory.mktemp("clickhouse")
    port = _free_port()
    (directory / "config.xml").write_text(_config(directory, port, _free_port()))
    (directory / "users.xml").write_text(_USERS)
    command = [binary, f"--config-file={directory / 'config.xml'}"]
    with (
        (directory / "out").open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out, cwd=directory) as server,
    ):
        try:
            _wait(port, server)
            yield f"clickhouse://tester:p%40ss@127.0.0.1:{port}/syntony_test"
        finally:
            server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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
  <path>{directory}/data/</path><tmp_path>{directory}/tmp/</tmp_path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size>
</yandex>"""


_USERS = """<yandex>
  <profiles><default/></profiles><quotas><default/></quotas>
  <users><tester><password>p@ss</password><networks><ip>127.0.0.1</ip></networks>
  <profile>default</profile><quota>default</quota></tester></users>
</yandex>"""

StoreOpener = Callable[[], Store]
