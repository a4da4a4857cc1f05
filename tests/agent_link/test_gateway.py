"""Gateways between real processes: agents attach to them, a leader decides, either may be lost."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
from tests.agent_link.test_membership import Agent, attached
from tests.link import ControllerProcess, GatewayProcess, wait_until

from syntony.agent.config import AgentConfig
from syntony.controller.client import ask
from syntony.wire.control import ControllerQuery, ControllerStatus, GatewayStatus
from syntony.wire.failover import Switch, SwitchCommand
from syntony.wire.probes import Plan, ProbeKeys

STOP = SwitchCommand(stopped=True, by="ann", why="test")


@contextlib.contextmanager
def fleet(
    directory: Path, gateways: int = 1
) -> Iterator[tuple[ControllerProcess, list[GatewayProcess]]]:
    """A leader and its gateways."""
    leader = ControllerProcess(directory, name="leader")
    made = [GatewayProcess(leader, name=f"gw{number}") for number in range(1, gateways + 1)]
    try:
        leader.start()
        for each in made:
            each.start()
        yield leader, made
    finally:
        for process in (*made, leader):
            if process.ended() is None:
                with contextlib.suppress(AttributeError, AssertionError):
                    os.kill(process.pid, signal.SIGCONT)
            process.end(signal.SIGKILL)


def through(leader: ControllerProcess, host: str, *gateways: GatewayProcess) -> AgentConfig:
    places = tuple(f"127.0.0.1:{each.port}" for each in gateways)
    return msgspec.structs.replace(leader.agent_config(host), controller=places)


def status(leader: ControllerProcess) -> ControllerStatus:
    return ask(f"unix:{leader.socket}", ControllerQuery())


def of(leader: ControllerProcess, name: str) -> GatewayStatus:
    return next(each for each in status(leader).gateways if each.name == name)


def told(agent: Agent, kind: type) -> bool:
    return any(isinstance(each, kind) for each in agent.reported)


def test_an_agent_behind_a_gateway_is_served_as_any_other(tmp_path: Path) -> None:
    with (
        fleet(tmp_path) as (leader, (gateway,)),
        attached(through(leader, "h1", gateway)) as behind,
        attached(leader.agent_config("h2")) as direct,
    ):
        for agent in (behind, direct):
            agent.send()
            wait_until(lambda agent=agent: told(agent, Plan) and told(agent, ProbeKeys))  # type: ignore[misc]
        ask(f"unix:{leader.socket}", STOP)
        for agent in (behind, direct):
            wait_until(lambda agent=agent: told(agent, Switch))  # type: ignore[misc]
        wait_until(lambda: of(leader, "gw1").rows > 0)
        found = status(leader)
        assert found.agents == 2
        (only,) = found.gateways
        assert (only.connected, only.agents, only.store_up) == (True, 1, True)
        rows = {each.host: each.rows for each in leader.fleet().agents}
        assert rows == {"h1": 1, "h2": 1}
