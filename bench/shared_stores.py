"""A lab whose controllers and gateways share real stores, each of which can be killed or paused.

PostgreSQL for control state; for telemetry a ClickHouse cluster of two shards of two replicas and
its ZooKeeper, which run in the lab's node ctl.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.live import LiveLab, live
from tests.postgres import Server, server
from tests.store.cluster import LOGIN, Cluster

DATABASE = "deaths"
CONTROLLERS = GATEWAYS = 2
STORES = ("postgresql", "replica", "zookeeper")


class SharedStores(NamedTuple):
    """The servers of one run."""

    lab: LiveLab
    postgresql: Server
    cluster: Cluster

    def strike(self, kind: str, rng: random.Random) -> Callable[[], object]:
        """Take one away (``replica-kill``, ``postgresql-pause``, …); what brings it back."""
        what, _, how = kind.partition("-")
        if what == "postgresql":
            return self._without_postgresql(how)
        one = self.cluster.keeper if what == "zookeeper" else rng.choice(self.cluster.servers)
        if how == "pause":
            one.signal(signal.SIGSTOP)
            return lambda: one.signal(signal.SIGCONT)
        one.kill()
        return self.cluster.start_keeper if what == "zookeeper" else one.start

    def _without_postgresql(self, how: str) -> Callable[[], object]:
        if how == "kill":
            self.postgresql.signal(signal.SIGKILL)
            return self.postgresql.start
        self.postgresql.signal(signal.SIGSTOP)
        return lambda: self.postgresql.signal(signal.SIGCONT)

    def select(self, sql: str) -> Sequence[Sequence[object]]:
        """Rows of a statement, from the whole cluster."""
        port, (user, _, password) = self.cluster.servers[0].port, LOGIN.partition(":")
        login = f"{user}:{urllib.parse.unquote(password)}"
        words = (
            "curl", "-sSf", "-u", login, "--data-binary", f"{sql} FORMAT JSONCompact",
            f"http://127.0.0.1:{port}/?database={DATABASE}",
        )  # fmt: skip
        said = subprocess.run(
            self.lab.enter_argv("ctl", words), capture_output=True, text=True, check=False
        )
        if said.returncode != 0:
            raise RuntimeError(f"{sql}: {said.stderr.strip() or said.stdout.strip()}")
        rows: list[list[object]] = json.loads(said.stdout)["data"]
        return rows


@contextmanager
def shared_stores(name: str, *options: str) -> Iterator[SharedStores]:
    """A lab with two controllers and two gateways. It is up before the cluster is: the servers are
    in its network namespace, so its controllers wait for their store first."""
    with ExitStack() as stack:
        postgresql = stack.enter_context(server())
        state = postgresql.database()
        postgresql.directory.chmod(0o711)  # its owner is nobody in the lab's user namespace
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sytch")))
        entered: list[LiveLab] = []
        cluster = Cluster(directory, lambda words: entered[0].enter_argv("ctl", words))
        lab = stack.enter_context(
            live(
                *(name, *options, "--state", state, "--store", cluster.url(DATABASE)),
                *("--controllers", str(CONTROLLERS), "--gateways", str(GATEWAYS)),
                agents=True,
            )
        )
        entered.append(lab)
        stack.enter_context(cluster.running())
        yield SharedStores(lab, postgresql, cluster)
