"""The halves of an agent on two NICs, va and vb, without a controller."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live import eventually

from syntony.agent.config import AgentConfig, ClockConfig, NicConfig
from syntony.agent.daemon import Agent
from syntony.agent.reactor.process import Reactor
from syntony.agent.spool import Spool
from syntony.agent.uplink import Uplink
from syntony.metrics.settings import MetricsConfig
from syntony.model.tls_files import TlsFiles
from syntony.traffic.policy import FailoverMode, Policy
from syntony.wire.parts import PartState


def config(place: Path, mode: FailoverMode = FailoverMode.ACT) -> AgentConfig:
    """Of both."""
    nowhere = TlsFiles(ca="/nonexistent", cert="/nonexistent", key="/nonexistent")
    return AgentConfig(
        host="h0", controller="127.0.0.1:1", tls=nowhere,
        nics=tuple(NicConfig(name=name, rail=rail) for rail, name in enumerate(("va", "vb"))),
        spool_dir=str(place / "spool"), clock=ClockConfig(dir=str(place / "run")),
        metrics=MetricsConfig(listen="127.0.0.1:9091", tls=False), traffic=Policy(mode=mode),
    )  # fmt: skip


@contextmanager
def reacting(its: AgentConfig) -> Iterator[Reactor]:
    """With its loop running."""
    reactor, stop = Reactor(its), threading.Event()
    reactor.start()
    loop = threading.Thread(target=reactor.run, args=(stop,))
    loop.start()
    try:
        yield reactor
        assert loop.is_alive(), "the reactor went down"
    finally:
        stop.set()
        loop.join()
        reactor.close()


@contextmanager
def reporting(its: AgentConfig) -> Iterator[Agent]:
    """The telemetry process, with its loop running."""
    spool, stop = Spool(Path(its.spool_dir), 1 << 20), threading.Event()
    agent = Agent(its, spool)
    agent.start()
    uplink = Uplink(its, agent.hello, agent.inbox.put, spool)
    loop = threading.Thread(target=agent.run, args=(uplink, stop))
    loop.start()
    try:
        yield agent
        assert loop.is_alive(), "the telemetry process went down"
    finally:
        stop.set()
        loop.join()
        agent.close()
        spool.close()


def down(*halves: Reactor | Agent) -> dict[str, str]:
    """Parts that do not run, and why."""
    return {
        part.name: part.reason
        for half in halves
        for part in half.parts.statuses(0)
        if part.state is not PartState.RUNNING
    }


def lacks(half: Reactor | Agent, parts: Collection[str]) -> None:
    """Exactly these do not run."""
    try:
        eventually(lambda: set(down(half)) == set(parts), f"without {parts}")
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {down(half)}") from error
