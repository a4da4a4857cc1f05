"""A standby takes over from a controller that dies, ends or is paused, with all that it knew."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.agent_link.test_membership import Agent, attached
from tests.link import ControllerProcess
from tests.live import eventually

from syntony.agent.config import AgentConfig
from syntony.agent.fence import FILE
from syntony.controller.client import ask
from syntony.wire.control import ChangesQuery, ControllerQuery
from syntony.wire.failover import FailoverStatusQuery, Switch, SwitchCommand
from syntony.wire.probes import KeysQuery

STOP = SwitchCommand(stopped=True, by="ann", why="test")


@contextlib.contextmanager
def pair(directory: Path, state: str) -> Iterator[tuple[ControllerProcess, ControllerProcess]]:
    """A controller in charge and its standby."""
    one = ControllerProcess(directory, state=state, name="one")
    two = ControllerProcess(directory, state=state, name="two", standby=True)
    one.start()
    two.begin()
    try:
        eventually(lambda: two.ended() is not None or "standby, waiting" in two.log())
        assert two.ended() is None, two.log()
        yield one, two
    finally:
        for each in (one, two):
            if each.ended() is None:
                os.kill(each.pid, signal.SIGCONT)
            each.end(signal.SIGKILL)


def stopped_by(agent: Agent) -> list[str]:
    return [each.by for each in agent.reported if isinstance(each, Switch) and each.stopped]


def of_both(one: ControllerProcess, two: ControllerProcess) -> AgentConfig:
    places = tuple(f"127.0.0.1:{each.port}" for each in (two, one))  # the standby first
    return msgspec.structs.replace(one.agent_config("h1"), controller=places)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("sqlite", signal.SIGKILL),
        pytest.param("postgresql", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("postgresql", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("postgresql", signal.SIGSTOP, marks=pytest.mark.slow),
    ],
)
def test_a_standby_goes_on_where_the_controller_ended(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, how: signal.Signals
) -> None:
    state = request.getfixturevalue("postgresql").database() if kind == "postgresql" else ""
    with pair(tmp_path, state) as (one, two), attached(of_both(one, two)) as agent:
        ask(f"unix:{one.socket}", STOP)
        eventually(lambda: bool(stopped_by(agent)))
        keys = ask(f"unix:{one.socket}", KeysQuery()).epochs
        agent.reported.clear()
        os.kill(one.pid, how)
        eventually(two.up)
        eventually(lambda: "ann" in stopped_by(agent))
        assert (agent.directory / FILE).read_text() == "2"
        local = f"unix:{two.socket}"
        status = ask(local, ControllerQuery())
        assert (status.name, status.epoch, status.durable) == ("two", 2, True)
        assert status.seen_epoch <= 2
        switch = ask(local, FailoverStatusQuery()).switch
        assert switch is not None
        assert switch.stopped
        assert ask(local, KeysQuery()).epochs == keys
        assert [each.what for each in ask(local, ChangesQuery()).changes] == ["failover switch"]
        if how is signal.SIGSTOP:
            os.kill(one.pid, signal.SIGCONT)
            eventually(lambda: one.ended() is not None)
            assert one.ended() != 0
            assert "taken over by another controller" in one.log()
            assert two.up()


def test_without_standby_a_second_controller_is_refused(tmp_path: Path) -> None:
    one = ControllerProcess(tmp_path, name="one")
    one.start()
    try:
        two = ControllerProcess(tmp_path, name="two")
        two.begin()
        eventually(lambda: two.ended() is not None)
        assert two.ended() != 0
        assert "in use by another controller" in two.log()
    finally:
        one.end(signal.SIGKILL)
