"""Plans and lists of a large fleet over real connections: in parts, and used only whole."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import msgspec
import pytest
from tests.agent_link.test_leadership import Impostor
from tests.agent_link.test_membership import attached
from tests.controller.asking import services_with
from tests.link import ControllerProcess
from tests.live import eventually

from syntony.controller.access import Caller
from syntony.controller.client import ask
from syntony.controller.dispatch import Dispatcher, Instant
from syntony.controller.fleet import Member
from syntony.controller.service import FleetService
from syntony.controller.sessions import AgentSession
from syntony.io.credentials import load_credentials
from syntony.io.transport import grpc
from syntony.model import S
from syntony.model.tls_files import TlsFiles
from syntony.wire.coding import MAX_MESSAGE_BYTES, encode
from syntony.wire.fragments import Fragmenter
from syntony.wire.messages import Ack, Decision, FleetQuery, Hello, NicInfo, Refuse
from syntony.wire.probes import Plan, PlanQuery, ProbeFlow
from syntony.wire.query import Query
from syntony.wire.roles import Role

NICS = 6_400
FLOWS_PER_NIC = 20


def name_of(nic: int) -> str:
    return f"host{nic // 8:05d}/rail{nic % 8}"


def large_plan(generation: int) -> Plan:
    """Of an agent that probes, and is probed by, 6,400 NICs."""
    draw = random.Random(generation)
    flows = tuple(
        ProbeFlow(
            flow_id=number, src=f"rail{number % 8}", dst=name_of(number % NICS),
            dst_nic_id=draw.randrange(1, 1 << 32), dst_addr=f"10.{number % 250}.1.2",
            dst_port=8620, src_port=draw.randrange(61_000, 65_000), interval_ns=S,
        )
        for number in range(NICS * FLOWS_PER_NIC)
    )  # fmt: skip
    return Plan(
        generation=generation,
        nic_ids={f"rail{rail}": rail + 1 for rail in range(8)},
        nic_names={number + 9: name_of(number) for number in range(NICS)},
        clocks={name_of(number): f"host{number // 8:05d}" for number in range(NICS)},
        flows=flows,
    )


class Hub:
    """A controller's edge with a large fleet behind it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        flows = tuple((name_of(number % NICS), flow) for number, flow in enumerate(plan.flows))
        nic = NicInfo(
            name="rail0", rail=0, addresses=("2001:db8::1234:5678",), clock="host00000/rail0",
            stamping="kernel" * 30, port=8620,
        )  # fmt: skip
        hello = Hello(protocol=3, version="0", host="h", nics=(nic,) * 8, stream="s")
        fleet = SimpleNamespace(
            mesh=SimpleNamespace(generation=plan.generation), flows=lambda: flows,
            contested={}, withheld={},
            verbs_flows=tuple,
            members={f"host{number:05d}": Member(hello) for number in range(16_000)},
        )  # fmt: skip
        store = SimpleNamespace(count_rows=lambda: 7)
        services = services_with(fleet=fleet, store=store)
        self._dispatcher = Dispatcher(services, lambda: Instant(None, 0))

    def admit(self, _: Caller) -> None:
        pass

    def check(self, _: Hello) -> None:
        pass

    def seal(self, message: Any, stored: int) -> bytes:
        if not isinstance(message, Plan):
            return encode(message)
        inner = encode(message)
        return encode(Decision(issuer="c", epoch=1, message=inner, stored=stored))

    def attached(self, session: AgentSession, _: Hello, __: Sequence[str]) -> None:
        session.outbox.acknowledge(0)
        session.outbox.put(self.plan)

    def detached(self, _: AgentSession) -> None:
        pass

    async def answer(self, query: Query[Any], who: Caller) -> list[bytes]:
        return await self._dispatcher.carry_out(query, who)


class Server:
    """The controller's own gRPC edge, on a thread."""

    def __init__(self, hub: Hub, tls: TlsFiles, local: Path) -> None:
        self._hub, self._tls, self._local = hub, tls, local
        self.port = 0
        self._ready, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(300)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(300)

    async def _serve(self) -> None:
        # As `listen.open_server`: no message may be larger than the protocol says.
        limits = ("grpc.max_receive_message_length", "grpc.max_send_message_length")
        server = grpc.aio.server(options=[(name, MAX_MESSAGE_BYTES) for name in limits])
        server.add_generic_rpc_handlers((FleetService(self._hub).handlers(),))  # type: ignore[arg-type]
        own = load_credentials(self._tls)
        keys = [(own.key, own.certificate)]
        credentials = grpc.ssl_server_credentials(keys, own.ca, True)
        self.port = server.add_secure_port("127.0.0.1:0", credentials)
        server.add_insecure_port(f"unix:{self._local}")
        await server.start()
        self._ready.set()
        await asyncio.to_thread(self._over.wait)
        await server.stop(0)


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> ControllerProcess:
    """Its certificates; never started."""
    return ControllerProcess(tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def server(controller: ControllerProcess) -> Iterator[Server]:
    hub = Hub(large_plan(3))
    assert len(encode(hub.plan)) > MAX_MESSAGE_BYTES
    with Server(hub, controller.tls, controller.socket) as serving:
        yield serving


def test_a_plan_of_6400_nics_reaches_its_agent_whole(
    controller: ControllerProcess, server: Server
) -> None:
    config = msgspec.structs.replace(
        controller.agent_config("h1"), controller=f"127.0.0.1:{server.port}"
    )
    with attached(config) as agent:
        eventually(lambda: any(isinstance(each, Plan) for each in agent.reported))
        assert agent.reported == [large_plan(3)]
        assert agent.uplink.connections == 1


def test_lists_of_a_large_fleet_are_answered_whole(
    controller: ControllerProcess, server: Server
) -> None:
    assert server.port
    target = f"unix:{controller.socket}"
    plan = ask(target, PlanQuery(), timeout_ns=60 * S)
    assert [flow for _, flow in plan.flows] == list(large_plan(3).flows)
    fleet = ask(target, FleetQuery(), timeout_ns=60 * S)
    assert [each.host for each in fleet.agents] == [f"host{n:05d}" for n in range(16_000)]
    assert fleet.rows_stored == 7
    assert len(encode(fleet)) > MAX_MESSAGE_BYTES


@pytest.mark.parametrize("wrong", ["truncated", "reordered", "repeated", "mixed"])
def test_half_a_plan_is_never_used(tmp_path: Path, wrong: str) -> None:
    """The agent ends such a stream and dials again; the plan that then comes whole is taken."""
    controller = ControllerProcess(tmp_path)
    config, tls = controller.agent_config("h1"), controller.issue("c1", Role.CONTROLLER)
    fragmenter = Fragmenter()
    old, new = (
        list(fragmenter.divide(encode(Decision(issuer="c", epoch=1, message=encode(plan)))))
        for plan in (large_plan(1), large_plan(2))
    )
    assert len(old) > 3
    broken = {
        "truncated": [*old[:-1], encode(Refuse(reason="that is all"))],
        "reordered": [old[0], old[2], old[1], *old[3:]],
        "repeated": [old[0], old[1], old[1], *old[2:]],
        "mixed": [*old[:2], *new[2:]],
    }[wrong]
    with Impostor(tls, encode(Ack(seq=0)), *broken) as impostor:
        there = msgspec.structs.replace(config, controller=f"127.0.0.1:{impostor.port}")
        with attached(there) as agent:
            if wrong == "truncated":
                eventually(lambda: bool(agent.reported))
            else:
                eventually(lambda: impostor.attached >= 2)
            assert not any(isinstance(each, Plan) for each in agent.reported)
    with Impostor(tls, encode(Ack(seq=0)), *new) as impostor:
        there = msgspec.structs.replace(config, controller=f"127.0.0.1:{impostor.port}")
        with attached(there) as agent:
            eventually(lambda: bool(agent.reported))
            assert agent.reported == [large_plan(2)]
