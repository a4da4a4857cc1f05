"""A gateway's stream to the leader: finds the leader, reconnects, and fences by epoch."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from syntony import __version__
from syntony.controller.relay_writer import RelayWriter
from syntony.errors import BusyError, RemoteError, SyntonyError, WireError
from syntony.io.dialling import ControllerDialer
from syntony.model import S
from syntony.wire.coding import encode
from syntony.wire.gateways import (
    RELAY_PROTOCOL,
    GatewayHello,
    ProbeLinks,
    ProbeLinksRequest,
    Relayed,
    ToGateway,
    Welcome,
    decode_links,
    to_gateway,
)
from syntony.wire.messages import Refuse, Unknown
from syntony.wire.query import Failure

_log = logging.getLogger(__name__)

LINKS_TIMEOUT_NS = 10 * S
"""A leader looks up the links of 10,000 probes in 0.1 s; a recording does not wait for a busy
one."""


class Call(Protocol):
    async def write(self, data: bytes) -> None:
        """Send; waits while the peer does not read."""

    def answers(self) -> AsyncIterator[bytes]:
        """Received messages, until the stream ends. Raises `RemoteError`: with an error."""

    async def ask(self, data: bytes) -> list[bytes]:
        """The pages of the answer to a relayed request. Raises `RemoteError`."""


Dial = Callable[[str], AbstractAsyncContextManager[Call]]
"""Opens a stream to an address; raises `SyntonyError`."""


class LeaderLink:
    """Keeps a gateway's stream to the leader open.

    One per gateway, on its event loop.

    Args:
        leaders: addresses of controllers, one of which leads.
        dial: opens a stream.
        up: called once a leader has accepted this gateway.
        take: called with all later messages.
    """

    def __init__(
        self,
        leaders: tuple[str, ...],
        dial: Dial,
        up: Callable[[], None],
        take: Callable[[ToGateway], None],
    ) -> None:
        self._dialling = ControllerDialer(leaders)
        self._dial = dial
        self._up = up
        self._take = take
        self._loop: asyncio.AbstractEventLoop | None = None
        """None: it does not run yet."""
        self._call: Call | None = None
        self._writer: RelayWriter | None = None
        self._reported: set[str] = set()
        """Reasons logged since there was a leader: each once."""
        self.leader = ""
        """Its name; empty: there is none now."""
        self._leaders = leaders
        self.epoch = 0
        """The highest epoch of a leader that this gateway has followed."""
        self.reads_probed = False
        """See `Welcome.probed`."""
        self.connections = 0
        """Number of leaders that have accepted it."""

    @property
    def connected(self) -> bool:
        return self._writer is not None

    @property
    def leader_hint(self) -> str:
        """For error messages: the leader and its address, or the addresses of all possible
        leaders."""
        if self.leader:
            return f"the leader, {self.leader} at {self._dialling.controller}"
        return f"the leader, which is none now ({', '.join(self._leaders)})"

    def send(self, message: msgspec.Struct) -> None:
        """Send to the leader; dropped without one. Never waits."""
        if self._writer is not None:
            self._writer.post(message)

    async def ask(self, request: Relayed) -> list[bytes]:
        """The pages of the leader's answer. Raises `BusyError`: there is no leader, or it ends."""
        call, task = self._call, asyncio.current_task()
        if call is None or not self.connected:
            raise BusyError("this gateway has no leader now; ask again, or ask the leader")
        try:
            return await call.ask(encode(request))
        except RemoteError as error:
            raise BusyError(f"the leader does not answer this gateway: {error}") from error
        except asyncio.CancelledError:
            if task is None or task.cancelling():
                raise
            raise BusyError("this gateway has lost its leader; ask again") from None

    def probe_links(self, request: ProbeLinksRequest) -> ProbeLinks:
        """The leader's answer; from another thread. Raises `SyntonyError`: there is none."""
        if self._loop is None:
            raise BusyError("this gateway has no leader now")
        asked = asyncio.run_coroutine_threadsafe(self.ask(request), self._loop)
        try:
            (page,) = asked.result(LINKS_TIMEOUT_NS / S) or [b""]
        except (TimeoutError, ValueError):
            asked.cancel()
            raise BusyError(f"{self.leader_hint}: no answer about paths of probes") from None
        answer = decode_links(page)
        if isinstance(answer, Failure):
            raise BusyError(f"{self.leader_hint}: {answer.reason}")
        if len(answer.links) != len(request.probes):
            raise WireError(f"links of {len(answer.links)} probes, {len(request.probes)} were sent")
        return answer

    async def run(self) -> None:
        """Follow leaders until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            address, before = self._dialling.controller, self.connections
            try:
                async with self._dial(address) as call:
                    await self._follow(call)
            except SyntonyError as error:
                self._report(str(error))
            except Exception:  # noqa: BLE001 — supervisor: the link outlives one message's fault
                _log.exception("stream to leader failed, reconnecting address=%s", address)
            if self.leader:
                _log.warning("leader lost leader=%s address=%s", self.leader, address)
                self.leader = ""
            established = self.connections > before
            self._dialling.next_controller(time.monotonic_ns(), established=established)
            wait_ns = self._dialling.wait_ns(random.uniform, established=established)
            await asyncio.sleep(wait_ns / S)

    def _report(self, reason: str) -> None:
        if reason not in self._reported:
            self._reported.add(reason)
            _log.warning("no leader at %s, retrying reason=%s", self._dialling.controller, reason)

    async def _follow(self, call: Call) -> None:
        """Serve one stream until it ends. Raises `SyntonyError`."""
        writer = RelayWriter(call.write)
        hello = GatewayHello(protocol=RELAY_PROTOCOL, version=__version__, epoch=self.epoch)
        writer.post(hello)
        parts = [
            asyncio.create_task(writer.run()),
            asyncio.create_task(self._listen(call, writer)),
            asyncio.create_task(writer.overfull.wait()),
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            self._writer = self._call = None
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _listen(self, call: Call, writer: RelayWriter) -> None:
        async for data in call.answers():
            for message in to_gateway(data):
                if isinstance(message, Refuse):
                    raise RemoteError(f"refused: {message.reason}")
                if isinstance(message, Welcome):
                    self._welcome(message, call, writer)
                elif self._writer is not writer:
                    raise WireError("a leader's first message must be its welcome")
                elif not isinstance(message, Unknown):
                    self._take(message)

    def _welcome(self, message: Welcome, call: Call, writer: RelayWriter) -> None:
        if message.epoch < self.epoch:
            raise WireError(
                f"controller {message.leader[:80]!r} has epoch {message.epoch}, epoch {self.epoch} "
                "has been in charge here since: it is not followed"
            )
        self.epoch, self.leader = message.epoch, message.leader[:80]
        self.reads_probed = message.probed
        self._call, self._writer = call, writer
        self.connections += 1
        self._reported.clear()
        _log.info("leader found leader=%s epoch=%d", self.leader, self.epoch)
        self._up()
