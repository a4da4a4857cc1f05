"""The leader's side of gateways: each gateway relays the streams of many agents over one stream.

`FleetService.serve` serves the stream of an agent behind a gateway like that of an agent that is
attached directly; only this module handles the difference.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Container, Mapping
from functools import partial
from types import MappingProxyType

from syntony.controller.access import Caller, presented
from syntony.controller.gateway_roster import GatewayRoster
from syntony.controller.hello_check import MAX_TEXT, RefusedError
from syntony.controller.last_reports import LastReports
from syntony.controller.relay_writer import RelayWriter
from syntony.controller.relayed_rows import Names, RelayedBatches, opened
from syntony.controller.service import Serve, Write
from syntony.controller.silent_agents import gateway_subject
from syntony.errors import WireError
from syntony.state.access_tokens import ApiSecret
from syntony.wire.control import GatewayStatus
from syntony.wire.enrol import Revocations
from syntony.wire.gateways import (
    RELAY_PROTOCOL,
    AccessNews,
    AgentClosed,
    AgentEnded,
    AgentOpened,
    ApiAccess,
    FleetNow,
    FromAgent,
    FromGateway,
    GatewayHello,
    GatewayLeaving,
    GatewayReport,
    RowsStored,
    ToAgent,
    Welcome,
    from_gateway,
)
from syntony.wire.messages import Refuse, Unknown
from syntony.wire.x509 import Certificate

_log = logging.getLogger(__name__)

NO_CREDENTIALS: Mapping[str, ApiSecret] = MappingProxyType({})
MAX_ENTRIES = 2_000
"""Maximum tokens and sessions in one message."""
MAX_WAITING = 1_000
"""Maximum unread messages of one agent; with more, its stream ends."""
STOPPED_NS = 5_000_000_000
"""A gateway that has sent nothing for this long is absent, even if its stream is open."""


class AttachedGateway:
    """State of one gateway at its leader.

    Args:
        name: in its certificate.
        last_reports: notified of every message.
    """

    def __init__(self, name: str, last_reports: LastReports) -> None:
        self.name = name
        self.version = ""
        self.link: _Link | None = None
        """None: it is not connected."""
        self.ever_connected = False
        """Whether it was connected since this leader began."""
        self.left = False
        """Whether it reported that it was stopped on purpose."""
        self._subject, self._last_reports = gateway_subject(name), last_reports
        self.report = GatewayReport(queued_bytes=0, waited_ns=0, store_up=True, rows=0)

    def note_message(self) -> None:
        self.ever_connected = True
        self._last_reports.received(self._subject)

    def status(self) -> GatewayStatus:
        """State at the last time that the leader was reading."""
        (silent_ns,) = self._last_reports.silent((self._subject,), grace_ns=0).values()
        link, report = self.link, self.report
        connected = link is not None and silent_ns < STOPPED_NS
        return GatewayStatus(
            name=self.name,
            version=self.version,
            connected=connected,
            silent_ns=silent_ns,
            agents=0 if link is None else link.agents,
            lag_ns=report.waited_ns + (silent_ns if report.waited_ns else 0),
            queued_bytes=report.queued_bytes,
            store_up=report.store_up,
            rows=report.rows,
            left=self.left and not connected,
        )


class Gateways:
    """All gateways of one leader, on its event loop. Implements `service.GatewayLinks`.

    Args:
        roster: the expected gateways.
        last_reports: measures for how long they have been silent.
        follow: returns who leads; raises `RefusedError`: the gateway has followed a later leader.
        stored: takes the batches that a gateway has stored.
        revocations: in force now.
    """

    def __init__(
        self,
        roster: GatewayRoster,
        last_reports: LastReports,
        follow: Callable[[str, int], Welcome],
        stored: Callable[[RelayedBatches], None],
        revocations: Callable[[], Revocations],
    ) -> None:
        self.roster = roster
        self._last_reports = last_reports
        self._follow = follow
        self._stored = stored
        self._revocations = revocations
        self._known = {name: AttachedGateway(name, last_reports) for name in roster.names}
        self._absent: set[str] = set()
        self._closing = False

    @property
    def any_connected(self) -> bool:
        """Whether rows are also stored elsewhere."""
        return any(each.link is not None for each in self._known.values())

    def statuses(self) -> tuple[GatewayStatus, ...]:
        """Every gateway that is expected, or was connected since this leader began."""
        return tuple(each.status() for _, each in sorted(self._known.items()))

    @property
    def ever_connected(self) -> frozenset[str]:
        """Names of gateways that were connected since this leader began."""
        return frozenset(name for name, each in self._known.items() if each.ever_connected)

    async def serve(
        self, who: Caller, requests: AsyncIterator[bytes], serve: Serve, write: Write
    ) -> None:
        """Serve one gateway's stream until it ends."""
        name = who.identity.name
        writer = RelayWriter(write)
        try:
            hello = await _first(requests)
            welcome = self._follow(f"gateway {name!r}", hello.epoch)
            if self._closing:
                raise RefusedError("this controller is shutting down")
        except (RefusedError, WireError) as error:
            _log.warning("gateway refused gateway=%s reason=%s", name, error)
            await _send(writer, Refuse(reason=str(error)))
            return
        if (gateway := self._known.get(name)) is None:
            gateway = self._known[name] = AttachedGateway(name, self._last_reports)
        if gateway.link is not None:
            _log.warning("gateway reconnected, closing its old stream gateway=%s", name)
            gateway.link.end()
        link = gateway.link = _Link(gateway, who.certificate, writer, serve, self._stored)
        gateway.version, gateway.left = hello.version[:MAX_TEXT], False
        gateway.note_message()
        self.roster.add(name)
        writer.post(welcome)
        link.send_revocations(self._revocations())
        _log.info("gateway connected gateway=%s version=%s", name, gateway.version)
        try:
            await link.run(requests)
        finally:
            if gateway.link is link:
                gateway.link = None
                if gateway.left:
                    self.roster.discard(name)
                    _log.info("gateway was stopped on purpose gateway=%s", name)
                else:
                    _log.warning("gateway disconnected gateway=%s agents=%d", name, link.lost)

    def send_state(
        self,
        fleet_ns: int | None,
        refusal: Callable[[Certificate], str],
        removed: Container[str] = (),
        access: Mapping[str, ApiSecret] = NO_CREDENTIALS,
    ) -> None:
        """Once a second: send all gateways the current state.

        Args:
            fleet_ns: fleet time; None while unknown.
            refusal: returns why a certificate is now refused; empty: it is accepted.
            removed: names that no longer belong to the fleet.
            access: valid tokens and sessions of the HTTP API, by digest.
        """
        revocations = self._revocations()
        for gateway in self._known.values():
            if (link := gateway.link) is None:
                continue
            if link.certificate is not None and (why := refusal(link.certificate)):
                _log.warning("gateway's stream closed gateway=%s reason=%s", gateway.name, why)
                link.end()
                continue
            link.send_revocations(revocations)
            link.send_access(access)
            if fleet_ns is not None:
                link.post(FleetNow(fleet_ns=fleet_ns))
        for name in [each for each in self._known if each in removed]:
            self.roster.discard(name)
            if self._known[name].link is None:
                del self._known[name]
        self._note_absent()

    def _note_absent(self) -> None:
        absent = {
            each.name
            for each in self.statuses()
            if not each.connected and not each.left and each.silent_ns >= STOPPED_NS
        }
        for name in sorted(absent - self._absent):
            _log.warning("gateway absent, its agents connect to another gateway gateway=%s", name)
        for name in sorted(self._absent - absent):
            if name in self.roster.names:
                _log.info("gateway is back gateway=%s", name)
        self._absent = absent

    def close(self) -> None:
        """Ask all gateways to connect to the next leader; their agents stay with them."""
        self._closing = True
        self.release()

    def release(self) -> None:
        """Another controller may lead: gateways look for it, and come back if none does."""
        for gateway in self._known.values():
            if gateway.link is not None:
                gateway.link.end()


class _Messages:
    """One agent's messages, until they are read by its one reader: an `asyncio.Queue` behind a
    generator costs three times as much."""

    def __init__(self) -> None:
        self._waiting: deque[bytes | None] = deque()
        self._reader: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, data: bytes | None) -> None:
        """Add a message; None: there will be no more."""
        self._waiting.append(data)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __aiter__(self) -> _Messages:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        if (data := self._waiting[0]) is None:  # it stays: there is nothing after it
            raise StopAsyncIteration
        del self._waiting[0]
        return data


class _Link:
    def __init__(
        self,
        gateway: AttachedGateway,
        certificate: Certificate | None,
        writer: RelayWriter,
        serve: Serve,
        stored: Callable[[RelayedBatches], None],
    ) -> None:
        self._gateway = gateway
        self.certificate = certificate
        self._writer = writer
        self._serve = serve
        self._stored = stored
        self._names: Names = {}
        self._streams: dict[int, _Messages] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._sent_revocations: Revocations | None = None
        self._api_access: Mapping[str, ApiSecret] | None = None
        self._unknown = ""
        self._ended = asyncio.Event()
        self._over = False
        self.lost = 0
        """Agents that were attached when it ended."""

    @property
    def agents(self) -> int:
        """Number of agents attached through it."""
        return len(self._streams)

    def post(self, message: FleetNow | Revocations | AccessNews) -> None:
        self._writer.post(message)

    def send_revocations(self, revocations: Revocations) -> None:
        if revocations != self._sent_revocations:
            self._sent_revocations = revocations
            self._writer.post(revocations)

    def send_access(self, access: Mapping[str, ApiSecret]) -> None:
        """Send tokens and sessions of the HTTP API, as differences."""
        before, self._api_access = self._api_access, access
        changed = [each for digest, each in access.items() if (before or {}).get(digest) != each]
        gone = tuple(digest for digest in before or {} if digest not in access)
        parts = [changed[at : at + MAX_ENTRIES] for at in range(0, len(changed), MAX_ENTRIES)]
        if not parts and (gone or before is None):
            parts = [[]]
        for number, part in enumerate(parts):
            self.post(
                AccessNews(
                    known=tuple(_sent_revocations(each) for each in part),
                    gone=() if number else gone,
                    first=before is None and not number,
                )
            )

    def end(self) -> None:
        """Close it; the gateway dials again."""
        self._over = True
        self._ended.set()

    async def run(self, requests: AsyncIterator[bytes]) -> None:
        """Serve until it ends."""
        parts = [
            asyncio.create_task(self._receive(requests)),
            asyncio.create_task(self._writer.run()),
            asyncio.create_task(self._ended.wait()),
            asyncio.create_task(self._writer.overfull.wait()),
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                if (error := part.exception()) is not None:
                    _log.info("gateway's stream broke gateway=%s: %s", self._gateway.name, error)
        finally:
            self._over, self.lost = True, self.agents
            streams = tuple(self._serving)
            for task in (*streams, *parts):
                task.cancel()
            await asyncio.gather(*streams, *parts, return_exceptions=True)

    async def _receive(self, requests: AsyncIterator[bytes]) -> None:
        name = self._gateway.name
        try:
            async for data in requests:
                self._gateway.note_message()
                for message in from_gateway(data):
                    self._take(message)
        except WireError as error:
            _log.warning("gateway's stream ended gateway=%s reason=%s", name, error)
            await self._writer.post(Refuse(reason=str(error)))

    def _take(self, message: FromGateway | Unknown) -> None:
        if isinstance(message, FromAgent):
            self._from_agent(message)
        elif isinstance(message, RowsStored):
            self._stored(opened(message, self._names))
        elif isinstance(message, AgentOpened):
            self._open(message)
        elif isinstance(message, AgentClosed):
            if (stream := self._streams.pop(message.agent, None)) is not None:
                stream.put(None)
        elif isinstance(message, GatewayReport):
            self._gateway.report = message
        elif isinstance(message, GatewayLeaving):
            self._gateway.left = True
        elif isinstance(message, Unknown):
            if not self._unknown:
                self._unknown = message.kind
                _log.warning(
                    "messages skipped gateway=%s kind=%.40r reason=of a newer version",
                    self._gateway.name, message.kind,
                )  # fmt: skip
        else:
            raise WireError("a second hello on one stream")

    def _open(self, message: AgentOpened) -> None:
        if message.agent in self._streams:
            raise WireError(f"agent {message.agent} is open already")
        stream = self._streams[message.agent] = _Messages()
        task = asyncio.create_task(self._serve_agent(message, stream))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    def _from_agent(self, message: FromAgent) -> None:
        stream = self._streams.get(message.agent)
        if stream is None:
            return  # its stream has ended here, which the gateway does not know yet
        if len(stream) >= MAX_WAITING:
            del self._streams[message.agent]
            stream.put(None)
            _log.warning(
                "agent's stream ended gateway=%s agent=%d reason=%d messages wait",
                self._gateway.name, message.agent, MAX_WAITING,
            )  # fmt: skip
            return
        stream.put(message.data)

    async def _serve_agent(self, message: AgentOpened, stream: _Messages) -> None:
        via = self._gateway.name
        peer = f"{message.peer} through {via}"

        async def write(data: bytes) -> None:
            await asyncio.shield(self._writer.post(ToAgent(agent=message.agent, data=data)))

        identify = partial(presented, message.certificate, peer, via)
        try:
            await self._serve(stream, identify, peer, write)
        except Exception:  # noqa: BLE001 — supervisor: one agent's stream must not end the others
            _log.exception("agent's stream failed gateway=%s", self._gateway.name)
        finally:
            if self._streams.get(message.agent) is stream:
                del self._streams[message.agent]
            if not self._over:
                self._writer.post(AgentEnded(agent=message.agent))


def _sent_revocations(access: ApiSecret) -> ApiAccess:
    fields = access._asdict()
    return ApiAccess(**{name: fields[name] for name in ApiAccess.__struct_fields__})


async def _first(requests: AsyncIterator[bytes]) -> GatewayHello:
    """The first message. Raises `RefusedError`, `WireError`."""
    async for data in requests:
        hello, *more = [*from_gateway(data), None]
        if more != [None] or not isinstance(hello, GatewayHello):
            break
        if hello.protocol != RELAY_PROTOCOL:
            raise RefusedError(
                f"the gateway speaks protocol {hello.protocol}, this controller "
                f"{RELAY_PROTOCOL}; install versions that are next to each other"
            )
        return hello
    raise RefusedError("a gateway's stream must begin with its hello, alone")


async def _send(writer: RelayWriter, message: Refuse) -> None:
    """Send one message, and no more."""
    sent, writing = writer.post(message), asyncio.create_task(writer.run())
    await asyncio.wait((sent, writing), return_when=asyncio.FIRST_COMPLETED)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
