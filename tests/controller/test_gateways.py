"""A gateway's link and its leader's side of it, connected in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.controller.test_sessions import CERTIFICATE

from syntony.controller import gateways as gateways_module
from syntony.controller.access import Caller
from syntony.controller.gateway_roster import GatewayRoster
from syntony.controller.gateways import STOPPED_NS, Gateways
from syntony.controller.hello_check import RefusedError
from syntony.controller.last_reports import TICK_NS, LastReports
from syntony.controller.leader_link import Call, LeaderLink
from syntony.errors import BusyError, RemoteError
from syntony.model import S
from syntony.state import ControlState
from syntony.wire.coding import encode
from syntony.wire.control import GatewayStatus
from syntony.wire.enrol import Revocations
from syntony.wire.gateways import (
    RELAY_PROTOCOL,
    AccessNews,
    AgentClosed,
    AgentEnded,
    AgentOpened,
    FleetNow,
    FromAgent,
    GatewayHello,
    GatewayLeaving,
    GatewayReport,
    RelayedRequest,
    ToAgent,
    ToGateway,
    Welcome,
    to_gateway,
)
from syntony.wire.messages import Bundle, Refuse, bundles
from syntony.wire.roles import Identity, Role

HELLO = GatewayHello(protocol=RELAY_PROTOCOL, version="1", epoch=0)
WHO = Caller(Identity(Role.GATEWAY, "gw1"), "ipv4:1", CERTIFICATE)


def drive(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


_OPEN: list[ControlState] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _OPEN:
        _OPEN.pop().close()


def control_state(directory: Path | None = None) -> ControlState:
    """Closed when the test is over."""
    _OPEN.append(ControlState(directory))
    return _OPEN[-1]


class Leader:
    """The leader's side, with agents that echo; what it sends is kept.

    Args:
        epoch: of the leader.
        state: control state.
    """

    def __init__(self, epoch: int = 3, state: ControlState | None = None) -> None:
        self.epoch = epoch
        self.stored: list[Any] = []
        self.revocations = Revocations()
        self.last_reports = LastReports(0)
        self.now_ns = 0
        self.roster = GatewayRoster(state or control_state())
        self.gateways = Gateways(
            self.roster,
            self.last_reports,
            self._follow,
            lambda *told: self.stored.append(told),
            lambda: self.revocations,
        )
        self.sent: list[Any] = []
        self.served: list[str] = []
        self.requests: asyncio.Queue[bytes | None] = asyncio.Queue()

    def _follow(self, gateway: str, epoch: int) -> Welcome:
        if epoch > self.epoch:
            raise RefusedError(f"{gateway} has obeyed epoch {epoch}")
        return Welcome(leader="c1", epoch=self.epoch)

    async def write(self, data: bytes) -> None:
        self.sent += to_gateway(data)

    async def echo(
        self,
        requests: AsyncIterator[bytes],
        identify: Callable[[], Caller],
        peer: str,
        write: Callable[[bytes], Awaitable[None]],
    ) -> None:
        self.served.append(peer)
        async for data in requests:
            if data == b"end":
                return
            if data == b"fail":
                raise ValueError("a bug")
            await write(data)

    def serve(self) -> asyncio.Task[None]:
        requests = self.requests

        async def received() -> AsyncIterator[bytes]:
            while (data := await requests.get()) is not None:
                yield data

        return asyncio.create_task(self.gateways.serve(WHO, received(), self.echo, self.write))

    def say(self, *messages: msgspec.Struct) -> None:
        """In one bundle, but for the hello."""
        alone = [encode(HELLO)] * (HELLO in messages)
        rest = bundles(encode(each) for each in messages if each is not HELLO)
        for data in (*alone, *rest):
            self.requests.put_nowait(data)

    def status(self) -> GatewayStatus:
        (status,) = self.gateways.statuses()
        return status

    def listen(self, lasting_ns: int) -> None:
        """All that comes is read meanwhile."""
        for _ in range(lasting_ns // TICK_NS):
            self.now_ns += TICK_NS
            self.last_reports.tick(self.now_ns)


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 — nobody tells
        await asyncio.sleep(0.001)


def opened(number: int) -> AgentOpened:
    return AgentOpened(agent=number, certificate=b"", peer=f"ipv4:{number}")


def test_streams_of_agents_share_one() -> None:
    async def work() -> None:
        leader = Leader()
        serving = leader.serve()
        leader.say(HELLO, opened(1), opened(2))
        leader.say(FromAgent(agent=1, data=b"a"), FromAgent(agent=2, data=b"b"))
        await until(lambda: len(leader.sent) == 4)
        assert leader.sent[:2] == [Welcome(leader="c1", epoch=3), Revocations()]
        assert leader.sent[2:] == [ToAgent(agent=1, data=b"a"), ToAgent(agent=2, data=b"b")]
        assert leader.served == ["ipv4:1 through gw1", "ipv4:2 through gw1"]
        assert leader.status().agents == 2
        leader.say(FromAgent(agent=1, data=b"end"), AgentClosed(agent=2))
        await until(lambda: AgentEnded(agent=1) in leader.sent and leader.status().agents == 0)
        leader.say(FromAgent(agent=1, data=b"late"))  # it crossed with the end
        leader.say(opened(3), FromAgent(agent=3, data=b"fail"), opened(4))
        leader.say(FromAgent(agent=4, data=b"d"))
        await until(lambda: ToAgent(agent=4, data=b"d") in leader.sent)
        assert AgentEnded(agent=3) in leader.sent
        leader.requests.put_nowait(None)
        await serving
        assert not leader.status().connected

    drive(work)


def test_an_agent_that_says_more_than_is_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateways_module, "MAX_WAITING", 5)

    async def work() -> None:
        leader = Leader()
        serving = leader.serve()
        leader.say(HELLO, opened(1), *(FromAgent(agent=1, data=b"x") for _ in range(9)))
        await until(lambda: AgentEnded(agent=1) in leader.sent)
        assert sum(isinstance(each, ToAgent) for each in leader.sent) == 5
        assert not serving.done()
        serving.cancel()

    drive(work)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([encode(opened(1))], "must begin with its hello"),
        ([b"".join(bundles([encode(HELLO), encode(opened(1))]))], "must begin with its hello"),
        ([encode(Bundle(messages=()))], "must begin with its hello"),
        ([b"\xc1"], "not a message"),
        ([encode(GatewayHello(protocol=99, version="1", epoch=0))], "speaks protocol 99"),
        ([encode(GatewayHello(protocol=RELAY_PROTOCOL, version="1", epoch=4))], "obeyed epoch 4"),
        ([encode(HELLO), encode(HELLO)], "a second hello"),
        ([encode(HELLO), encode(opened(1)), encode(opened(1))], "open already"),
        ([encode(HELLO), b"\x00"], "not a message"),
    ],
)
def test_a_stream_that_makes_no_sense_ends_with_the_reason(data: list[bytes], reason: str) -> None:
    async def work() -> None:
        leader = Leader()
        serving = leader.serve()
        for each in data:
            leader.requests.put_nowait(each)
        await serving
        refusal = leader.sent[-1]
        assert isinstance(refusal, Refuse)
        assert reason in refusal.reason

    drive(work)


def test_what_a_newer_gateway_says_is_skipped() -> None:
    class Newer(msgspec.Struct, tag="of-tomorrow"):
        what: int

    async def work() -> None:
        leader = Leader()
        serving = leader.serve()
        leader.say(HELLO, Newer(1), opened(1), FromAgent(agent=1, data=b"a"))
        await until(lambda: ToAgent(agent=1, data=b"a") in leader.sent)
        serving.cancel()

    drive(work)


def test_lag_grows_while_a_gateway_with_waiting_rows_is_silent() -> None:
    async def work() -> None:
        leader = Leader()
        serving = leader.serve()
        report = GatewayReport(queued_bytes=7, waited_ns=2_000, store_up=False, rows=5)
        leader.say(HELLO, report)
        await until(lambda: bool(leader.gateways.any_connected) and leader.status().rows == 5)
        now = leader.status()
        leader.listen(S)
        later = leader.status()
        assert (now.queued_bytes, now.store_up, now.connected) == (7, False, True)
        assert (now.lag_ns, later.lag_ns) == (2_000, 2_000 + S)
        leader.listen(STOPPED_NS - S)
        assert not leader.status().connected
        leader.say(msgspec.structs.replace(report, waited_ns=0))
        await until(lambda: leader.status().lag_ns == 0)
        leader.listen(S)
        assert leader.status().lag_ns == 0
        assert leader.status().connected
        serving.cancel()

    drive(work)


def test_a_gateway_is_not_absent_because_its_leader_was_paused() -> None:
    async def work() -> None:
        leader = Leader()
        serving = leader.serve()
        leader.say(HELLO)
        await until(lambda: leader.gateways.ever_connected == {"gw1"})
        leader.now_ns += 60 * S
        leader.last_reports.tick(leader.now_ns)
        assert leader.status().connected
        leader.listen(STOPPED_NS)
        assert not leader.status().connected
        serving.cancel()

    drive(work)


def test_all_gateways_are_told_and_revoked_ones_cut() -> None:
    async def work() -> None:
        leader = Leader()
        serving = leader.serve()
        leader.say(HELLO)
        await until(lambda: len(leader.sent) == 2)
        leader.gateways.send_state(5, lambda _: "")
        await until(lambda: leader.sent[2:] == [AccessNews(first=True), FleetNow(fleet_ns=5)])
        leader.revocations = Revocations(serials=frozenset({"ff"}))
        leader.gateways.send_state(None, lambda _: "")
        await until(lambda: leader.sent[4:] == [leader.revocations])
        leader.gateways.send_state(6, lambda _: "revoked")
        await serving
        assert not leader.gateways.any_connected

    drive(work)


@pytest.mark.parametrize("on_purpose", [False, True])
def test_the_next_leader_misses_a_gateway_unless_it_was_stopped_on_purpose(
    tmp_path: Path, on_purpose: bool
) -> None:
    async def work() -> None:
        state = control_state(tmp_path)
        leader = Leader(state=state)
        serving = leader.serve()
        leader.say(HELLO)
        await until(lambda: leader.gateways.ever_connected == {"gw1"})
        leader.roster.keep()
        if on_purpose:
            leader.say(GatewayLeaving())
        leader.requests.put_nowait(None)
        await serving
        assert leader.status().left is on_purpose
        assert not leader.status().connected
        leader.roster.keep()
        after = Leader(state=state)
        assert after.roster.names == (frozenset() if on_purpose else {"gw1"})
        assert [each.name for each in after.gateways.statuses()] == ["gw1"][on_purpose:]
        assert after.gateways.ever_connected == frozenset()
        serving = after.serve()
        after.say(HELLO)
        await until(lambda: after.gateways.ever_connected == {"gw1"})
        assert after.roster.names == {"gw1"}
        assert not after.status().left
        after.gateways.send_state(None, lambda _: "", frozenset({"gw1"}))
        assert after.roster.names == frozenset()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        after.gateways.send_state(None, lambda _: "", frozenset({"gw1"}))
        assert after.gateways.statuses() == ()
        state.close()

    drive(work)


def test_a_leader_that_goes_ends_no_agents_stream() -> None:
    async def work() -> None:
        leader = Leader()
        serving = leader.serve()
        leader.say(HELLO, opened(1), FromAgent(agent=1, data=b"a"))
        await until(lambda: ToAgent(agent=1, data=b"a") in leader.sent)
        leader.gateways.close()
        await serving
        assert not any(isinstance(each, AgentEnded) for each in leader.sent)
        leader.requests = asyncio.Queue()
        again = leader.serve()
        leader.say(HELLO)
        await again
        assert isinstance(leader.sent[-1], Refuse)

    drive(work)


class Wire:
    """A stream to a leader that says what it is given."""

    def __init__(self, *says: bytes, reads: bool = True) -> None:
        self._says = says
        self._reads = reads
        self.sent: list[bytes] = []
        self.over = asyncio.Event()

    async def write(self, data: bytes) -> None:
        if not self._reads:
            await asyncio.Event().wait()
        self.sent.append(data)

    async def answers(self) -> AsyncIterator[bytes]:
        for data in self._says:
            yield data
        await self.over.wait()

    async def ask(self, data: bytes) -> list[bytes]:
        if self.over.is_set():
            raise RemoteError("gone")
        return [data]


class Gateway:
    """A link, with the leaders that it finds one after the other."""

    def __init__(self, *wires: Wire) -> None:
        self.wires = list(wires)
        self.dialled = 0
        self.ups = 0
        self.taken: list[ToGateway] = []
        self.link = LeaderLink(("c1:1", "c2:1"), self._dial, self._up, self.taken.append)

    def _up(self) -> None:
        self.ups += 1

    @contextlib.asynccontextmanager
    async def _dial(self, address: str) -> AsyncIterator[Call]:
        if self.dialled == len(self.wires):
            await asyncio.Event().wait()
        assert address == f"c{self.dialled % 2 + 1}:1"
        self.dialled += 1
        yield self.wires[self.dialled - 1]


def welcome(epoch: int) -> bytes:
    return encode(Welcome(leader=f"e{epoch}", epoch=epoch))


def test_a_gateway_follows_the_highest_epoch_and_no_lower_one() -> None:
    async def work() -> None:
        late = encode(FleetNow(fleet_ns=1))
        wires = [Wire(welcome(2)), Wire(welcome(1), late), Wire(late), Wire(welcome(2), late)]
        gateway = Gateway(*wires)
        running = asyncio.create_task(gateway.link.run())
        await until(lambda: gateway.link.connected)
        wires[0].over.set()
        await until(lambda: not gateway.link.connected)
        with pytest.raises(BusyError):
            await gateway.link.ask(RelayedRequest(query=b"q", certificate=b"", peer=""))
        await until(lambda: gateway.ups == 2)
        assert gateway.dialled == 4
        await until(lambda: gateway.taken == [FleetNow(fleet_ns=1)])
        assert gateway.link.epoch == 2
        said = GatewayHello(protocol=RELAY_PROTOCOL, version="", epoch=2)
        hello = msgspec.msgpack.decode(wires[3].sent[0], type=GatewayHello)
        assert msgspec.structs.replace(hello, version="") == said
        assert await gateway.link.ask(RelayedRequest(query=b"q", certificate=b"", peer=""))
        running.cancel()

    drive(work)


def test_a_leader_that_reads_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syntony.controller.relay_writer.MAX_QUEUED_BYTES", 1_000)

    async def work() -> None:
        gateway = Gateway(Wire(welcome(1), reads=False), Wire(welcome(1)))
        running = asyncio.create_task(gateway.link.run())
        await until(lambda: gateway.ups == 1)
        for _ in range(20):
            gateway.link.send(FromAgent(agent=1, data=b"x" * 100))
        await until(lambda: gateway.ups == 2)
        running.cancel()

    drive(work)
