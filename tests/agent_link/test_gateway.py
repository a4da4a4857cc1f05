"""Gateways between real processes: agents attach to them, a leader decides, either may be lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.agent_link.test_membership import Agent, attached
from tests.link import PATIENCE_S, ControllerProcess, GatewayProcess
from tests.live import eventually
from tests.ports import free_port

from syntony.agent.config import AgentConfig
from syntony.agent.fence import FILE
from syntony.controller.client import ask
from syntony.controller.config import ControllerConfig, check_gateway
from syntony.controller.gateway_server import _Dial
from syntony.errors import ConfigError, RemoteError, StoreError
from syntony.io.credentials import fits, load_credentials, new_request
from syntony.model import S
from syntony.model.tls_files import TlsFiles
from syntony.store import open_store
from syntony.store.clickhouse import ClickHouseEngine, parse_url
from syntony.wire.coding import encode
from syntony.wire.control import ControllerQuery, ControllerStatus, GatewayStatus
from syntony.wire.enrol import Issued, RenewQuery, RevokeCommand
from syntony.wire.failover import Switch, SwitchCommand
from syntony.wire.gateways import RELAY_PROTOCOL, GatewayHello, RelayedRequest, to_gateway
from syntony.wire.messages import Refuse
from syntony.wire.probes import Plan, ProbeKeys
from syntony.wire.roles import Identity, Role
from syntony.wire.x509 import read_certificate

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
            eventually(lambda agent=agent: told(agent, Plan) and told(agent, ProbeKeys))  # type: ignore[misc]
        ask(f"unix:{leader.socket}", STOP)
        for agent in (behind, direct):
            eventually(lambda agent=agent: told(agent, Switch))  # type: ignore[misc]
        eventually(lambda: of(leader, "gw1").rows > 0)
        found = status(leader)
        assert found.agents == 2
        (only,) = found.gateways
        assert (only.connected, only.agents, only.store_up) == (True, 1, True)
        rows = {each.host: each.rows for each in leader.fleet().agents}
        assert rows == {"h1": 1, "h2": 1}


def test_agents_renew_through_gateways_and_people_do_nothing_through_them(tmp_path: Path) -> None:
    with (
        fleet(tmp_path) as (leader, (gateway,)),
        attached(through(leader, "h1", gateway)) as agent,
    ):
        agent.send()
        key, csr = new_request("h1")
        issued = agent.uplink.ask(RenewQuery(csr=csr))
        assert isinstance(issued, Issued)
        assert fits(issued.certificate, key)
        for role in (Role.OPERATOR, Role.VIEWER):
            tls = leader.issue(f"a-{role}", role)
            with pytest.raises(RemoteError, match="ask the leader"):
                ask(f"127.0.0.1:{gateway.port}", ControllerQuery(), tls=tls)
        gateway.end(signal.SIGKILL)
        # Somebody has the gateway's key, and an operator's certificate, which is no secret.
        operator = leader.issue("ann", Role.OPERATOR)
        _, csr = new_request("ann")
        for query in (RenewQuery(csr=csr), STOP):
            answer = asyncio.run(_relay_request(leader, gateway.tls, operator, query))
            assert "agents only" in str(msgspec.msgpack.decode(answer)["reason"])


async def _relay_request(
    leader: ControllerProcess, tls: TlsFiles, shown: TlsFiles, query: msgspec.Struct
) -> bytes:
    async with _Dial(tls, several=False).open(f"127.0.0.1:{leader.port}") as call:
        request = RelayedRequest(
            query=encode(query), certificate=load_credentials(shown).certificate, peer="here"
        )
        (page,) = await call.ask(encode(request))
        return page


def test_revocations_reach_agents_and_gateways(tmp_path: Path) -> None:
    with (
        fleet(tmp_path) as (leader, (gateway,)),
        attached(through(leader, "h1", gateway)) as agent,
    ):
        agent.send()
        eventually(lambda: of(leader, "gw1").agents == 1)
        local = f"unix:{leader.socket}"
        ask(local, RevokeCommand(what="h1", by="ann", comment="test"))
        eventually(lambda: any(isinstance(each, Refuse) for each in agent.reported))
        eventually(lambda: of(leader, "gw1").agents == 0)
        ask(local, RevokeCommand(what="gw1", by="ann", comment="test"))
        eventually(lambda: not status(leader).gateways)


def written_down(directory: Path) -> object:
    """The leader's document of gateways."""
    place = f"file:{directory / 'state' / 'control.db'}?mode=ro"
    with contextlib.closing(sqlite3.connect(place, uri=True)) as state:
        rows = state.execute("SELECT body FROM document WHERE name = 'gateways'").fetchall()
    return msgspec.json.decode(rows[0][0]) if rows else None


def test_a_gateway_that_is_stopped_says_so_and_one_that_dies_is_missed(tmp_path: Path) -> None:
    with fleet(tmp_path, 2) as (leader, (one, two)):
        eventually(lambda: len(status(leader).gateways) == 2)
        one.end(signal.SIGTERM)
        two.end(signal.SIGKILL)
        eventually(lambda: not any(each.connected for each in status(leader).gateways))
        assert {each.name: each.left for each in status(leader).gateways} == {
            "gw1": True, "gw2": False,
        }  # fmt: skip
        eventually(lambda: written_down(tmp_path) == {"names": ["gw2"]})
        leader.end(signal.SIGKILL)
        leader.start()
        assert [each.name for each in status(leader).gateways] == ["gw2"]
        one.start()
        eventually(
            lambda: any(each.name == "gw1" and each.connected for each in status(leader).gateways)
        )


def test_an_agent_goes_to_another_gateway_when_its_own_dies_or_stands_still(
    tmp_path: Path,
) -> None:
    with (
        fleet(tmp_path, 2) as (leader, (one, two)),
        attached(through(leader, "h1", one, two)) as agent,
    ):
        agent.send()
        eventually(lambda: of(leader, "gw1").agents == 1)
        os.kill(one.pid, signal.SIGSTOP)
        agent.send()
        eventually(lambda: of(leader, "gw2").agents == 1)
        eventually(lambda: not of(leader, "gw1").connected)
        os.kill(one.pid, signal.SIGCONT)
        eventually(lambda: of(leader, "gw1").connected)
        assert of(leader, "gw1").agents == 0
        two.end(signal.SIGKILL)
        agent.send()
        eventually(lambda: of(leader, "gw1").agents == 1 and not of(leader, "gw2").connected)
        assert leader.fleet().agents[0].rows == 3
        agent.reported.clear()
        ask(f"unix:{leader.socket}", STOP)
        eventually(lambda: told(agent, Switch))
        assert all(each.live for each in agent.reported if isinstance(each, Switch))


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
            eventually(lambda: told(agent, Switch))
            agent.reported.clear()
            connections = agent.uplink.connections
            one.end(signal.SIGKILL)
            agent.send()  # nobody leads
            two.start()
            eventually(lambda: told(agent, Switch) and told(agent, ProbeKeys))
            assert ask(f"unix:{two.socket}", ControllerQuery()).epoch == 2
            eventually(lambda: of(two, "gw1").agents == 1)
            assert agent.uplink.connections == connections
            assert (agent.directory / FILE).read_text() == "2"
            agent.send()
    finally:
        for each in (gateway, one, two):
            each.end(signal.SIGKILL)


@pytest.fixture
def shared_store(tmp_path: Path) -> Iterator[str]:
    """One that several processes use, as they would a ClickHouse server."""
    port = free_port()
    words = ("-m", "syntony.lab.store_server", str(tmp_path / "shared"), str(port))
    server = subprocess.Popen([sys.executable, *words])
    url = f"clickhouse://default@127.0.0.1:{port}/syntony"

    def answers() -> bool:
        with contextlib.suppress(StoreError):
            open_store(url).close()
            return True
        return False

    try:
        eventually(answers)
        yield url
    finally:
        server.kill()
        server.wait(PATIENCE_S)


def in_store(url: str) -> list[tuple[object, ...]]:
    """Host, rows and different batches of each."""
    engine = ClickHouseEngine(parse_url(url))
    found = engine.select("SELECT host, count(), uniqExact(seq) FROM probe_1s GROUP BY host")
    engine.close()
    return sorted(map(tuple, found))


SECONDS = 80


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_or_doubled_whoever_dies(
    tmp_path: Path, shared_store: str
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    one = ControllerProcess(tmp_path, shared_store, name="one")
    two = ControllerProcess(tmp_path, shared_store, name="two", standby=True)
    gateways = [
        GatewayProcess(one, two, name=f"gw{number}", store=shared_store) for number in (1, 2)
    ]
    first, second = chance.sample(gateways, 2)
    killed, lost, paused = sorted(chance.sample(range(10, 40), 3))

    def lose_leader() -> None:
        one.end(signal.SIGKILL)
        two.begin()

    events: dict[int, Callable[[], object]] = {
        killed: lambda: first.end(signal.SIGKILL),
        lost: lose_leader,
        45: first.start,
        45 + paused // 4: lambda: os.kill(second.pid, signal.SIGSTOP),
        SECONDS - 5: lambda: os.kill(second.pid, signal.SIGCONT),
    }
    try:
        for process in (one, *gateways):
            process.start()
        with contextlib.ExitStack() as stack:
            agents = [
                stack.enter_context(
                    attached(through(one, f"h{number}", *chance.sample(gateways, 2)))
                )
                for number in range(3)
            ]
            for moment in range(SECONDS):
                if moment in events:
                    events[moment]()
                for agent in agents:
                    agent.submit()
                time.sleep(0.1)
            eventually(lambda: all(agent.all_stored() for agent in agents))
            eventually(two.up)
            eventually(lambda: status(two).agents == len(agents))
            ask(f"unix:{two.socket}", STOP)
            eventually(lambda: all(told(agent, Switch) for agent in agents))
        assert in_store(shared_store) == [(f"h{n}", SECONDS, SECONDS) for n in range(3)]
    finally:
        for process in (*gateways, one, two):
            process.end(signal.SIGKILL)


class Balancer:
    """A TCP balancer: each connection goes to the next target, whoever had the last one."""

    def __init__(self, *ports: int) -> None:
        self._targets = itertools.cycle(ports)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.accepted = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.accepted += 1
                try:
                    far = socket.create_connection(("127.0.0.1", next(self._targets)))
                except OSError:
                    near.close()
                    continue
                self._pairs.append((near, far))
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=ends, daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self, *, far: bool) -> None:
        """End all connections; `far`: only towards the gateway, which may still hold batches."""
        for near, behind in self._pairs:
            for end in (behind,) if far else (near, behind):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        for pair in self._pairs:
            for end in pair:
                end.close()


def test_a_balancer_that_splits_a_stream_loses_and_doubles_nothing(
    tmp_path: Path, shared_store: str
) -> None:
    """Each connection of an agent lands at the other gateway, with batches under way."""
    leader = ControllerProcess(tmp_path, shared_store, name="leader")
    gateways = [GatewayProcess(leader, name=f"gw{n}", store=shared_store) for n in (1, 2)]
    try:
        for process in (leader, *gateways):
            process.start()
        balancer = Balancer(*(each.port for each in gateways))
        config = leader.agent_config("h1")
        place = (f"127.0.0.1:{balancer.port}",)
        with attached(msgspec.structs.replace(config, controller=place)) as agent:
            agent.send()
            for number in range(40):
                agent.submit()
                time.sleep(0.1)
                if number % 8 == 5:
                    balancer.cut(far=number % 16 == 5)
            eventually(agent.all_stored)
            agent.reported.clear()
            ask(f"unix:{leader.socket}", STOP)
            eventually(lambda: told(agent, Switch))
            found = status(leader).gateways
            assert sorted(each.agents for each in found) == [0, 1]
        assert balancer.accepted >= 5
        assert in_store(shared_store) == [("h1", 41, 41)]
        balancer.close()
    finally:
        for process in (*gateways, leader):
            process.end(signal.SIGKILL)


@pytest.mark.parametrize("role", [Role.AGENT, Role.CONTROLLER])
def test_agents_and_controllers_are_no_gateways(tmp_path: Path, role: Role) -> None:
    with fleet(tmp_path, 0) as (leader, _):
        fake = GatewayProcess(leader, name="mallory")
        tls = leader.issue("mallory", role, place="others")
        fake.config.write_text(
            fake.config.read_text().replace(
                str(Path(fake.tls.cert).parent), str(Path(tls.cert).parent)
            )
        )
        fake.begin()
        eventually(lambda: fake.ended() is not None)
        assert f"is of role {role}; a gateway needs one of role gateway" in fake.log()
        with pytest.raises(RemoteError):
            _relay(leader, tls)
        assert status(leader).gateways == ()


def _relay(leader: ControllerProcess, tls: TlsFiles) -> None:
    """Dials as a gateway does. Raises `RemoteError`."""

    async def dial() -> None:
        async with _Dial(tls, several=False).open(f"127.0.0.1:{leader.port}") as call:
            await call.write(encode(GatewayHello(protocol=RELAY_PROTOCOL, version="", epoch=0)))
            async for data in call.answers():
                for message in to_gateway(data):
                    if isinstance(message, Refuse):
                        assert "only gateways relay" in message.reason
                        raise RemoteError(message.reason)

    asyncio.run(asyncio.wait_for(dial(), PATIENCE_S))


def test_a_gateway_renews_its_certificate_through_its_leader(tmp_path: Path) -> None:
    with fleet(tmp_path, 0) as (leader, _):
        gateway = GatewayProcess(leader, name="gw1", lifetime_ns=30 * S)
        try:
            before = Path(gateway.tls.cert).read_bytes()
            gateway.start()
            eventually(lambda: "certificate renewed" in gateway.log())
            after = Path(gateway.tls.cert).read_bytes()
            assert after != before
            renewed = read_certificate(after)
            assert renewed.identity == Identity(Role.GATEWAY, "gw1")
            assert renewed.validity.expires_ns > read_certificate(before).validity.expires_ns
        finally:
            gateway.end(signal.SIGKILL)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("gateway = true", "name its leaders"),
        ('leaders = ["c:1"]', "add gateway = true"),
        (
            'gateway = true\nleaders = ["c:1"]\nstate_dir = "/tmp/x"',
            "state_dir: not for a gateway",
        ),
        ('gateway = true\nleaders = ["c:1"]\nstandby = true', "standby: not for a gateway"),
    ],
)
def test_what_is_not_a_gateways_is_refused(setting: str, reason: str) -> None:
    text = f'listen = "127.0.0.1:0"\ntls_ca = "a"\ntls_cert = "b"\ntls_key = "c"\n{setting}\n'
    config = msgspec.toml.decode(text, type=ControllerConfig)
    with pytest.raises(ConfigError, match=reason):
        check_gateway(config)
