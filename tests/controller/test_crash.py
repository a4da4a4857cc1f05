"""Either side is killed in the middle of a stream: nothing is lost, nothing is stored twice."""

from __future__ import annotations

import contextlib
import functools
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.link import T0, ControllerProcess, hello, open_spool, probe_rows, running
from tests.live import eventually

from syntony.agent.spool import Spool
from syntony.agent.uplink import Uplink
from syntony.model import S
from syntony.model.names import host_of
from syntony.store import open_store
from syntony.wire.tables import PROBE

BATCHES = 150
_AGENT = """
import sys
from tests.link import hello, open_spool, probe_rows
from syntony.agent.config import AgentConfig
from syntony.agent.uplink import Uplink
import msgspec, time
config = msgspec.json.decode(sys.argv[1], type=AgentConfig)
spool = open_spool(config.spool_dir, 1 << 24)
uplink = Uplink(config, lambda stream: hello(config.host, stream), lambda message: None, spool)
uplink.start()
first = spool.last_seq
for second in range(first, int(sys.argv[2])):
    uplink.submit("probe_1s", *probe_rows(config.host, second))
    print(second, flush=True)
    time.sleep(0.005)
while spool.acknowledged < spool.last_seq:
    time.sleep(0.05)
uplink.close()
"""


def _stored(store_path: str) -> Counter[tuple[str, int]]:
    """How often each (host, second) is in the store."""
    store = open_store(store_path)
    try:
        recorded = store.recorded(PROBE, T0, T0 + 3600 * S)
        points = store.series(T0, T0 + 3600 * S)
        assert store.count_rows() == len(recorded)
        return Counter(
            (host_of(p.src), (p.ts_ns - T0) // S) for p in points for _ in range(p.sent // 40)
        )
    finally:
        store.close()


@pytest.mark.slow
def test_the_controller_is_killed_twice(tmp_path: Path) -> None:
    with running(tmp_path) as controller:
        agents = []
        for host in ("k1", "k2", "k3"):
            config = controller.agent_config(host)
            spool = open_spool(config.spool_dir, 1 << 24)
            uplink = Uplink(config, functools.partial(hello, host), lambda _: None, spool)
            uplink.start()
            agents.append((host, spool, uplink))
        feeding = threading.Thread(target=_feed, args=(agents,))
        feeding.start()
        for _ in range(2):
            _wait_for_progress([spool for _, spool, _ in agents])
            controller.end(signal.SIGKILL)
            controller.start()
        feeding.join()
        eventually(lambda: all(spool.acknowledged == BATCHES for _, spool, _ in agents))
        for _, spool, uplink in agents:
            assert spool.dropped_rows == 0
            uplink.close()
            spool.close()
        assert controller.end() == 0
        expected = {(host, second) for host, _, _ in agents for second in range(BATCHES)}
        assert _stored(controller.store) == Counter(expected)


def _wait_for_progress(spools: list[Spool]) -> None:
    seen = [spool.acknowledged for spool in spools]
    eventually(lambda: all(spool.acknowledged > s for spool, s in zip(spools, seen, strict=True)))


def _feed(agents: list[tuple[str, Spool, Uplink]]) -> None:
    for second in range(BATCHES):
        for host, _, uplink in agents:
            uplink.submit("probe_1s", *probe_rows(host, second))
        time.sleep(0.01)


def test_an_agent_is_killed_and_returns(tmp_path: Path) -> None:
    with running(tmp_path) as controller:
        config = controller.agent_config("k4")
        first = _agent(config, 100_000)
        assert first.stdout is not None
        appended = 0
        for line in first.stdout:
            appended = int(line)
            if appended >= BATCHES:
                break
        first.kill()
        first.wait()
        with contextlib.closing(first.stdout):
            appended = max([appended, *(int(line) for line in first.stdout if line.endswith("\n"))])
        second = _agent(config, appended + 20)
        assert second.stdout is not None
        with contextlib.closing(second.stdout):
            second.stdout.read()
        assert second.wait() == 0
        assert controller.end() == 0
        stored = _stored(controller.store)
        assert set(stored.values()) == {1}
        assert set(stored) >= {("k4", number) for number in range(appended + 1)}


def _agent(config: object, until: int) -> subprocess.Popen[str]:
    import msgspec

    return subprocess.Popen(
        [sys.executable, "-c", _AGENT, msgspec.json.encode(config).decode(), str(until)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_a_second_controller_on_the_same_store_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as controller:
        second = ControllerProcess(tmp_path / "second", store=controller.store)
        with pytest.raises(AssertionError, match="in use by another controller"):
            second.start()
