"""Gateways between real processes: agents attach to them, a leader decides, either may be lost."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.agent_link.test_membership import Agent, attached
from tests.link import ControllerProcess, GatewayProcess, wait_until

from syntony.agent.config import AgentConfig
from syntony.agent.fence import FILE
from syntony.controller.client import ask
from syntony.controller.config import ControllerConfig
from syntony.controller.gateway_server import check_gateway
from syntony.errors import ConfigError, RemoteError
from syntony.io.credentials import fits, new_request
from syntony.wire.control import ChangesQuery, ControllerQuery, ControllerStatus, GatewayStatus
from syntony.wire.enrol import Issued, RenewQuery, RevokeCommand
from syntony.wire.failover import Switch, SwitchCommand
from syntony.wire.messages import Refuse
from syntony.wire.probes import Plan, ProbeKeys
from syntony.wire.roles import Role

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


def test_requests_and_revocations_pass_through_gateways(tmp_path: Path) -> None:
    with (
        fleet(tmp_path) as (leader, (gateway,)),
        attached(through(leader, "h1", gateway)) as agent,
    ):
        agent.send()
        operator = leader.issue("ann", Role.OPERATOR)
        target = f"127.0.0.1:{gateway.port}"
        assert ask(target, ControllerQuery(), tls=operator).name == "leader"
        with pytest.raises(RemoteError, match="needs a certificate of role"):
            ask(target, STOP, tls=leader.issue("vera", Role.VIEWER))
        ask(target, STOP, tls=operator)
        wait_until(lambda: told(agent, Switch))
        changed = ask(f"unix:{leader.socket}", ChangesQuery()).changes[-1]
        assert "through gw1" in changed.origin
        key, csr = new_request("h1")
        issued = agent.uplink.ask(RenewQuery(csr=csr))
        assert isinstance(issued, Issued)
        assert fits(issued.certificate, key)
        ask(target, RevokeCommand(what="h1", by="ann", comment="test"), tls=operator)
        wait_until(lambda: any(isinstance(each, Refuse) for each in agent.reported))
        wait_until(lambda: of(leader, "gw1").agents == 0)
        ask(target, RevokeCommand(what="gw1", by="ann", comment="test"), tls=operator)
        wait_until(lambda: not of(leader, "gw1").connected)


def test_an_agent_goes_to_another_gateway_when_its_own_dies_or_stands_still(
    tmp_path: Path,
) -> None:
    with (
        fleet(tmp_path, 2) as (leader, (one, two)),
        attached(through(leader, "h1", one, two)) as agent,
    ):
        agent.send()
        wait_until(lambda: of(leader, "gw1").agents == 1)
        os.kill(one.pid, signal.SIGSTOP)
        agent.send()
        wait_until(lambda: of(leader, "gw2").agents == 1)
        wait_until(lambda: not of(leader, "gw1").connected)
        os.kill(one.pid, signal.SIGCONT)
        wait_until(lambda: of(leader, "gw1").connected)
        assert of(leader, "gw1").agents == 0
        two.end(signal.SIGKILL)
        agent.send()
        wait_until(lambda: of(leader, "gw1").agents == 1 and not of(leader, "gw2").connected)
        assert leader.fleet().agents[0].rows == 3
        agent.reported.clear()
        ask(f"unix:{leader.socket}", STOP)
        wait_until(lambda: told(agent, Switch))


def test_a_gateway_stores_while_there_is_no_leader_and_follows_the_next(tmp_path: Path) -> None:
    one = ControllerProcess(tmp_path, name="one")
    two = ControllerProcess(tmp_path, name="two", standby=True)
    gateway = GatewayProcess(one, two, name="gw1")
    try:
        one.start()
        gateway.start()
        with attached(through(one, "h1", gateway)) as agent:
            agent.send()
            ask(f"unix:{one.socket}", STOP)
            wait_until(lambda: told(agent, Switch))
            agent.reported.clear()
            connections = agent.uplink.connections
            one.end(signal.SIGKILL)
            agent.send()  # nobody leads
            two.start()
            wait_until(lambda: told(agent, Switch) and told(agent, ProbeKeys))
            assert ask(f"unix:{two.socket}", ControllerQuery()).epoch == 2
            wait_until(lambda: of(two, "gw1").agents == 1)
            assert agent.uplink.connections == connections
            assert (agent.directory / FILE).read_text() == "2"
            agent.send()
    finally:
        for each in (gateway, one, two):
            each.end(signal.SIGKILL)


def test_agents_and_strangers_are_no_gateways(tmp_path: Path) -> None:
    with fleet(tmp_path, 0) as (leader, _):
        fake = GatewayProcess(leader, name="mallory")
        tls = leader.issue("mallory", Role.AGENT, place="agents")
        fake.config.write_text(
            fake.config.read_text().replace(str(fake.tls.cert.parent), str(tls.cert.parent))
        )
        fake.begin()
        wait_until(lambda: "is of role agent" in fake.log() or fake.ended() is not None)
        assert not fake.up()
        assert fake.ended() is None
        fake.end(signal.SIGKILL)
        assert status(leader).gateways == ()


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("gateway = true", "whom does it follow"),
        ('leaders = ["c:1"]', "add gateway = true"),
        (
            'gateway = true\nleaders = ["c:1"]\nstate_dir = "/tmp/x"',
            "state_dir: a gateway has none",
        ),
        ('gateway = true\nleaders = ["c:1"]\nstandby = true', "standby: a gateway has none"),
    ],
)
def test_what_is_not_a_gateways_is_refused(setting: str, reason: str) -> None:
    text = f'listen = "127.0.0.1:0"\ntls_ca = "a"\ntls_cert = "b"\ntls_key = "c"\n{setting}\n'
    config = msgspec.toml.decode(text, type=ControllerConfig)
    with pytest.raises(ConfigError, match=reason):
        check_gateway(config)
