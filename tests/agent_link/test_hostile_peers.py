"""Peers that open connections, announce gigabytes, or go by one name, against a real controller:
each is one line in its log and a counter or a refusal, and nobody else notices."""

from __future__ import annotations

import contextlib
import re
import resource
import select
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.agent_link.http2 import RESET, frame, http2_call, read_to_the_end
from tests.link import ControllerProcess, hello, open_spool
from tests.live import eventually
from tests.ports import free_port

from syntony.agent.uplink import Uplink
from syntony.controller.client import ask
from syntony.io.descriptors import raise_limit
from syntony.io.transport import grpc
from syntony.wire.enrol import JOIN
from syntony.wire.messages import ATTACH, QUERY, ControllerMessage, FleetQuery, Hello, Refuse
from syntony.wire.roles import Role

IDLE = 10_000
"""Connections of a stranger; each end needs a file descriptor for each."""
GB = 1 << 30


LIMITED = (
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit})); "
    "from syntony.cli.controller import command; command()"
)
HALF_A_HELLO = bytes.fromhex("1603010200010001fc0303")
"""Of TLS: 512 bytes are announced."""


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < IDLE + 1_000,
    reason=f"needs {IDLE + 1_000} descriptors (ulimit -Hn): floods of idle connections are NOT "
    "tested",
)
@pytest.mark.parametrize(
    ("port", "limit", "said"),
    [
        ("agents", 1_024, b""),
        ("agents", 1_024, HALF_A_HELLO),
        ("agents", 4_096, b""),
        ("api", 1_024, b""),
        ("api", 4_096, HALF_A_HELLO),
        ("enrolment", 1_024, HALF_A_HELLO),
    ],
)
def test_ten_thousand_idle_connections(tmp_path: Path, port: str, limit: int, said: bytes) -> None:
    """A flood once took all descriptors: nobody got in any more, at any port."""
    controller, api = ControllerProcess(tmp_path), free_port()
    with controller.config.open("a") as config:
        config.write(f'api = {{ listen = "127.0.0.1:{api}" }}\n')
    ports = {"agents": controller.port, "api": api, "enrolment": controller.join_port}
    tls = controller.issue("o1", Role.OPERATOR)
    with contextlib.ExitStack() as stack:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        raise_limit()
        controller.start(LIMITED.format(limit=limit))
        stack.callback(controller.end, signal.SIGKILL)
        first = stack.enter_context(_attached(controller, "h1", tmp_path / "h1", 0))
        eventually(lambda: first.connected)
        before = first.connections
        idle: dict[int, socket.socket] = {}
        for _ in range(IDLE):
            each = stack.enter_context(socket.create_connection(("127.0.0.1", ports[port]), 60))
            idle[each.fileno()] = each
            with contextlib.suppress(OSError):
                each.sendall(said)
        assert _open_files(controller.pid) < limit * 7 // 8, "files of the store can be opened"
        if port != "agents":
            ask(f"127.0.0.1:{controller.port}", FleetQuery(), tls=tls)
        if port != "api":
            with socket.create_connection(("127.0.0.1", api), timeout=600) as plain:
                plain.sendall(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n")
                assert plain.recv(100).startswith(b"HTTP/1.1 ")
        second = stack.enter_context(_attached(controller, "h2", tmp_path / "h2", 1))
        eventually(lambda: second.connected)
        assert (first.connected, first.connections) == (True, before)
        # None of them is kept for longer than a handshake may take.
        poll = select.poll()
        for number in idle:
            poll.register(number, select.POLLIN)

        def closed() -> bool:
            for number, _ in poll.poll(0):
                poll.unregister(number)
                idle.pop(number)
            return not idle

        eventually(closed)
        ask(f"127.0.0.1:{controller.port}", FleetQuery(), tls=tls)


@contextlib.contextmanager
def _attached(controller: ControllerProcess, host: str, place: Path, rail: int) -> Iterator[Uplink]:
    agent = _Agent(controller, host, place, rail)
    try:
        with agent.uplink as uplink:
            yield uplink
    finally:
        agent.spool.close()


def _open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@pytest.mark.parametrize("method", [QUERY, ATTACH, JOIN])
def test_a_gigabyte_is_refused_when_it_is_announced(
    controller: ControllerProcess, method: str
) -> None:
    """Not when it has arrived: as a client that is not gRPC sees it."""
    before = _resident(controller.pid)
    with http2_call(controller, method) as connection:
        connection.sendall(frame(0, 0, 1, b"\0" + GB.to_bytes(4, "big") + bytes(8_000)))
        answer = read_to_the_end(connection)
    assert b"grpc-status" in answer or RESET in answer
    assert _resident(controller.pid) - before < GB / 8
    controller.fleet()


@pytest.mark.parametrize("method", [QUERY, ATTACH])
def test_what_unpacks_to_a_gigabyte_is_not_unpacked(
    controller: ControllerProcess, method: str
) -> None:
    """A compressed message announces its compressed size only."""
    before = _resident(controller.pid)
    with (
        grpc.secure_channel(
            f"127.0.0.1:{controller.port}",
            _credentials(controller),
            options=[("grpc.max_send_message_length", -1)],
            compression=grpc.Compression.Gzip,
        ) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary(method)(bytes(GB // 4), timeout=600)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _peak(controller.pid) - before < GB / 8
    controller.fleet()


class _Agent:
    """An uplink that claims a host and addresses of its own, and what it is told."""

    def __init__(self, controller: ControllerProcess, host: str, place: Path, rail: int) -> None:
        self._rail = rail
        self.reported: list[ControllerMessage] = []
        self.spool = open_spool(str(place), 1 << 20)
        config = controller.agent_config(host, controller.issue(host, place=place.name))
        self.uplink = Uplink(config, self._hello, self.reported.append, self.spool)
        self._host = host

    def _hello(self, stream: str) -> Hello:
        usual = hello(self._host, stream, rails=1)
        address = f"10.77.{self._rail}.1"
        nic = msgspec.structs.replace(usual.nics[0], addresses=(address,))
        return msgspec.structs.replace(usual, nics=(nic,))

    @property
    def refusals(self) -> list[str]:
        return [each.reason for each in self.reported if isinstance(each, Refuse)]


def test_one_name_on_two_machines(tmp_path: Path) -> None:
    """They once took turns, ten times a second, and the whole fleet's plan with them."""
    controller, scraped = ControllerProcess(tmp_path), free_port()
    with controller.config.open("a") as config:
        config.write(f'metrics = {{ listen = "127.0.0.1:{scraped}" }}\n')
    with contextlib.ExitStack() as stack:
        controller.start()
        stack.callback(controller.end, signal.SIGKILL)
        first, other = (
            _Agent(controller, host, tmp_path / host, rail)
            for rail, host in enumerate(("h1", "h2"))
        )
        for agent in (first, other):
            stack.callback(agent.spool.close)
            stack.enter_context(agent.uplink)
        eventually(lambda: "plan generation=" in controller.log())
        copy = _Agent(controller, "h1", tmp_path / "copy", 2)
        stack.callback(copy.spool.close)
        copy_up = stack.enter_context(copy.uplink)
        eventually(lambda: len(copy.refusals) >= 5)
        assert "two machines have one name" in copy.refusals[-1]
        assert first.uplink.connected
        assert not copy_up.connected
        assert (first.refusals, first.uplink.connections) == ([], 2)
        assert (other.refusals, other.uplink.connections) == ([], 1)
        assert controller.log().count("plan generation=") <= 3
        assert controller.log().count("two agents have the same name") == 1
        assert controller.log().count("agent refused") == 1
        with urllib.request.urlopen(f"http://127.0.0.1:{scraped}/metrics", timeout=600) as page:
            counted = re.search(rb"^syntony_agents_refused_total (\S+)$", page.read(), re.MULTILINE)
        assert counted is not None
        assert float(counted[1]) >= len(copy.refusals)


def test_an_address_is_its_owners_also_for_the_next_controller(tmp_path: Path) -> None:
    """A claim that waited for the controller's restart once took both NICs out of the plan."""
    controller = ControllerProcess(tmp_path)
    with contextlib.ExitStack() as stack:
        controller.start()
        stack.callback(controller.end, signal.SIGKILL)
        owner = _Agent(controller, "h1", tmp_path / "h1", 0)
        stack.callback(owner.spool.close)
        stack.enter_context(owner.uplink)
        eventually(lambda: "plan generation=" in controller.log())
        controller.end(signal.SIGKILL)
        thief = _Agent(controller, "a0", tmp_path / "a0", 0)
        stack.callback(thief.spool.close)
        stack.enter_context(thief.uplink)
        controller.start()
        eventually(lambda: any(each.faults for each in controller.fleet().agents))
        faults = {each.host: each.faults for each in controller.fleet().agents}
        reason = "nic=rail0 reason=another host claims 10.77.0.1 too"
        assert faults == {"h1": (), "a0": (reason,)}


def _credentials(controller: ControllerProcess) -> grpc.ChannelCredentials:
    tls = controller.issue("o2", Role.OPERATOR)
    return grpc.ssl_channel_credentials(
        Path(tls.ca).read_bytes(), Path(tls.key).read_bytes(), Path(tls.cert).read_bytes()
    )


def _resident(pid: int, field: str = "VmRSS") -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def _peak(pid: int) -> int:
    return _resident(pid, "VmHWM")
