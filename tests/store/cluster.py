"""A ClickHouse cluster on loopback: two shards of two replicas, and the ZooKeeper they agree by.

Servers are Debian's: ``apt-get install clickhouse-server zookeeper``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.ports import free_port

NAME = "fleet"
HANG_S = 300
"""No server takes so long to start, on whatever machine."""
LOGIN = "tester:p%40ss"
_JARS = (
    "zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop", "netty-all", "metrics-core",
    "snappy-java", "jackson-core", "jackson-databind", "jackson-annotations", "commons-cli",
)  # fmt: skip


def clickhouse() -> str:
    """The server's program; skips where there is none."""
    found = shutil.which("clickhouse-server") or shutil.which("clickhouse-server", path="/usr/sbin")
    if found is None:
        pytest.skip(
            "needs clickhouse-server (sh deploy/system-packages.sh --slow): clusters of "
            "ClickHouse are NOT tested"
        )
    return found


def _classes() -> str:
    """ZooKeeper's class path; skips where it or Java is not there."""
    places = [Path(each) for each in os.environ.get("JAVA_JARS", "/usr/share/java").split(":")]
    jars = [place / f"{jar}.jar" for jar in _JARS for place in places]
    there = [str(jar) for jar in jars if jar.exists()]
    if shutil.which("java") is None or not any(each.endswith("zookeeper.jar") for each in there):
        pytest.skip(
            "needs ZooKeeper and Java (Debian: zookeeper, default-jre): clusters of ClickHouse "
            "are NOT tested"
        )
    return ":".join(there)


Enter = Callable[[Sequence[str]], Sequence[str]]
"""The command line that runs a command where the servers are."""


class Server:
    """One process that is killed, paused and started again."""

    def __init__(self, command: list[str], directory: Path, port: int, enter: Enter) -> None:
        self._command = command
        self._directory = directory
        self._enter = enter
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it answers."""
        out = (self._directory / "out").open("ab")
        self._process = subprocess.Popen(
            self._enter(self._command),
            stdout=out, stderr=out, cwd=self._directory, start_new_session=True,
        )  # fmt: skip
        out.close()
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if self.says(b"") is not None:
                return
            time.sleep(0.1)
        pytest.fail(f"{self._command[0]} did not come up: {self._directory}")

    def says(self, line: bytes) -> bytes | None:
        """What it answers to a line over TCP; to none, nothing. None: nobody listens."""
        words = [sys.executable, "-c", _ASK, str(self.port), line.decode()]
        asked = subprocess.run(
            self._enter(words), capture_output=True, check=False, stdin=subprocess.DEVNULL
        )
        return asked.stdout if asked.returncode == 0 else None

    def signal(self, number: int) -> None:
        """To it and what it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """As `kill -9`."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None


_ASK = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5) as asked:
    if sys.argv[2]:
        asked.sendall(sys.argv[2].encode())
        sys.stdout.buffer.write(asked.recv(1 << 16))
"""


class Cluster:
    """All of them. ``replicas[shard][number]``.

    A server that gets no processor time for `session_s` loses ZooKeeper, and with it the statement
    that it is at. One that was killed and is back is refused until its last session has ended.
    """

    def __init__(self, directory: Path, enter: Enter = tuple, session_s: int = 5) -> None:
        binary, classes = clickhouse(), _classes()
        keeper = directory / "keeper"
        keeper.mkdir()
        self.keeper = Server(
            ["java", "-Xmx256m", "-Dzookeeper.admin.enableServer=false", "-cp", classes,
             "org.apache.zookeeper.server.ZooKeeperServerMain", str(keeper / "zoo.cfg")],
            keeper, free_port(), enter,
        )  # fmt: skip
        (keeper / "zoo.cfg").write_text(
            f"tickTime=500\ndataDir={keeper}/data\nclientPort={self.keeper.port}\n"
            "clientPortAddress=127.0.0.1\nmaxSessionTimeout=30000\n"
        )
        places = [(shard, number) for shard in (1, 2) for number in (1, 2)]
        ports = {place: (free_port(), free_port(), free_port()) for place in places}
        shards = "".join(
            "<shard><internal_replication>true</internal_replication>"
            + "".join(
                f"<replica><host>127.0.0.1</host><port>{ports[shard, number][1]}</port>"
                "<user>tester</user><password>p@ss</password></replica>"
                for number in (1, 2)
            )
            + "</shard>"
            for shard in (1, 2)
        )
        zookeeper = (
            f"<node><host>127.0.0.1</host><port>{self.keeper.port}</port></node>"
            f"<session_timeout_ms>{1000 * session_s}</session_timeout_ms>"
        )
        self.replicas: list[list[Server]] = [[], []]
        for shard, number in places:
            place = directory / f"s{shard}r{number}"
            place.mkdir()
            (place / "users.xml").write_text(_USERS)
            (place / "config.xml").write_text(
                _config(place, ports[shard, number], shards, zookeeper, (shard, number))
            )
            command = [binary, f"--config-file={place / 'config.xml'}"]
            self.replicas[shard - 1].append(Server(command, place, ports[shard, number][0], enter))

    @property
    def servers(self) -> list[Server]:
        return [each for shard in self.replicas for each in shard]

    def url(self, database: str) -> str:
        """Of all servers."""
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.servers)
        return f"clickhouse://{LOGIN}@{hosts}/{database}?cluster={NAME}"

    def start_keeper(self) -> None:
        """Until it serves: a server that finds it half started loses the thread for statements on
        the cluster, for good (ClickHouse 18)."""
        self.keeper.start()
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline:
            if b"Mode" in (self.keeper.says(b"srvr") or b""):
                return
            time.sleep(0.2)
        pytest.fail("ZooKeeper does not serve")

    @contextlib.contextmanager
    def running(self) -> Iterator[Cluster]:
        """Started, and ended afterwards."""
        try:
            self.start_keeper()
            for each in self.servers:
                each.start()
            yield self
        finally:
            for each in (*self.servers, self.keeper):
                each.kill()


def _config(
    place: Path, ports: tuple[int, int, int], shards: str, zookeeper: str, own: tuple[int, int]
) -> str:
    http, tcp, between = ports
    shard, number = own
    return f"""<yandex>
  <logger><level>error</level><log>{place}/log</log><errorlog>{place}/err</errorlog></logger>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{http}</http_port><tcp_port>{tcp}</tcp_port>
  <interserver_http_host>127.0.0.1</interserver_http_host>
  <interserver_http_port>{between}</interserver_http_port>
  <path>{place}/data/</path><tmp_path>{place}/scratch/</tmp_path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size>
  <zookeeper>{zookeeper}</zookeeper>
  <remote_servers><{NAME}>{shards}</{NAME}></remote_servers>
  <macros><shard>{shard}</shard><replica>{number}</replica></macros>
  <distributed_ddl><path>/clickhouse/task_queue/ddl</path></distributed_ddl>
</yandex>"""


_USERS = """<yandex>
  <profiles><default/></profiles><quotas><default/></quotas>
  <users><tester><password>p@ss</password><networks><ip>127.0.0.1</ip></networks>
  <profile>default</profile><quota>default</quota></tester>
  <default><password></password><networks><ip>127.0.0.1</ip></networks>
  <profile>default</profile><quota>default</quota></default></users>
</yandex>"""
"""Statements on the cluster are passed on between replicas as user ``default``."""
