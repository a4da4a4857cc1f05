"""A gateway: agents attach to it and it stores their rows; the leader decides.

It has no lease and no state that other gateways lack. Messages of agents other than rows are
relayed to the leader unchanged, messages of the leader to the agent. Without a leader agents stay
attached, and rows are still stored and acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import msgspec

from syntony.controller.access import Caller
from syntony.controller.access_tokens import ReplicatedAccess
from syntony.controller.batches import BatchPiece
from syntony.controller.dispatch import Dispatcher, Instant, authorise
from syntony.controller.enrolment import refusal
from syntony.controller.hello_check import RefusedError
from syntony.controller.ingest import BatchOutcome, Ingest
from syntony.controller.leader_link import Dial, LeaderLink
from syntony.controller.probed_rows import NAMES
from syntony.controller.recorded_paths import LeaderPaths
from syntony.controller.relayed_rows import Names, rows_stored
from syntony.controller.service import GatewayLinks, RelayedApi, Report
from syntony.controller.services import StoreOnly
from syntony.controller.sessions import AgentSession, end_refused
from syntony.errors import BusyError, DeniedError, UsageError, WireError
from syntony.model import S
from syntony.store import Store
from syntony.wire.coding import encode
from syntony.wire.enrol import Revocations
from syntony.wire.fragments import Assembler, Fragment
from syntony.wire.gateways import (
    AccessNews,
    AgentClosed,
    AgentEnded,
    AgentOpened,
    FleetNow,
    FromAgent,
    GatewayLeaving,
    GatewayReport,
    ProbeLinks,
    ProbeLinksRequest,
    RelayedRequest,
    ToAgent,
    ToGateway,
)
from syntony.wire.messages import (
    Ack,
    Batch,
    ControllerMessage,
    Decision,
    Hello,
    Refuse,
    Unknown,
    decode_controller,
)
from syntony.wire.query import Query
from syntony.wire.roles import Role
from syntony.wire.x509 import Certificate

_log = logging.getLogger(__name__)

REPORT_NS = 1 * S
"""Interval of reports to the leader, and of checks of certificates."""
LEADERLESS_NS = 15 * S
"""After this long without a leader agents try another gateway, in case only this one is
disconnected: a standby takes over within 5 s."""
RELEASED_AT_ONCE = 0.1
"""Share of the agents that are released per second, so that they do not all arrive elsewhere at
once."""


class _Relayed:
    """An agent's stream, as relayed to the leader."""

    def __init__(self, number: int, session: AgentSession) -> None:
        self.number = number
        self.session = session
        self.assembler = Assembler()


class Gateway:
    """Implements `service.Hub`.

    Args:
        leaders: addresses of controllers, one of which leads.
        store: open; its opener closes it.
        dial: opens a stream to an address.
        civil_now: ns since 1970, UTC.
    """

    def __init__(
        self, leaders: tuple[str, ...], store: Store, dial: Dial, civil_now: Callable[[], int]
    ) -> None:
        self.ingest = Ingest(store, self.fleet_now, self._stored)
        self.link = LeaderLink(leaders, dial, self._leader_up, self._from_leader)
        services = StoreOnly(store, LeaderPaths(self.link.probe_links))
        self._dispatcher = Dispatcher(services, self._instant)
        self._civil_now = civil_now
        self._numbers = count(1)
        self._sessions: dict[str, _Relayed] = {}
        """Host → its agent attached here."""
        self._streams: dict[int, _Relayed] = {}
        self.access = ReplicatedAccess(civil_now)
        """Tokens and sessions of the HTTP API, as last received from a leader."""
        self.revocations: Revocations | None = None
        """As last received from a leader."""
        self.ready = asyncio.Event()
        """Set once a leader has sent the revoked certificates; no agent is admitted before."""
        self._fleet: tuple[int, int] | None = None
        """Fleet time as last received from a leader, and when on CLOCK_MONOTONIC."""
        self._sent_names: Names = {}
        """State already sent to the current leader."""
        self.refused_agents = 0
        self.rows = 0
        self._led_ns = time.monotonic_ns()
        """When there last was a leader."""
        self._releasing: list[_Relayed] | None = None
        """Agents still to be released; None: there was a leader since the last release."""

    @property
    def agents(self) -> int:
        return len(self._sessions)

    def fleet_now(self) -> int | None:
        """As the leader last sent it, then advanced by this host's clock."""
        if self._fleet is None:
            return None
        return self._fleet[0] + time.monotonic_ns() - self._fleet[1]

    async def run(self) -> None:
        """Run everything except the ports, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.ingest.run())
            group.create_task(self.link.run())
            group.create_task(self._report())

    def close(self) -> None:
        """Agents are asked to dial another gateway; the leader is informed that this one leaves."""
        self.link.send(GatewayLeaving())
        self._dispatcher.close()
        for relayed in self._sessions.values():
            relayed.session.outbox.close()

    async def _report(self) -> None:
        while True:
            ingest = self.ingest
            self.link.send(
                GatewayReport(
                    queued_bytes=ingest.queued_bytes,
                    waited_ns=ingest.waited_ns(time.monotonic_ns()),
                    store_up=not ingest.failing,
                    rows=self.rows,
                )
            )
            self._enforce()
            self._release(time.monotonic_ns())
            await asyncio.sleep(REPORT_NS / S)

    def _release(self, now_ns: int) -> None:
        """Once a second: after `LEADERLESS_NS` without a leader, release the agents attached now,
        once. Agents that arrive later stay, so that without any leader agents do not circulate
        between gateways."""
        if self.link.connected:
            self._led_ns, self._releasing = now_ns, None
            return
        if now_ns - self._led_ns < LEADERLESS_NS:
            return
        if self._releasing is None:
            self._releasing = list(self._sessions.values())
            _log.warning("no leader, agents try another gateway agents=%d", self.agents)
        share = math.ceil(self.agents * RELEASED_AT_ONCE)
        leaving, self._releasing = self._releasing[:share], self._releasing[share:]
        for relayed in leaving:
            relayed.session.outbox.close()

    # --- called by the service ---

    def admit(self, who: Caller) -> None:
        """Raises `UsageError`: the certificate is revoked or has expired, or that is unknown
        yet."""
        if who.certificate is not None:
            self.admit_certificate(who.certificate)

    def admit_certificate(self, certificate: Certificate) -> None:
        """Raises `UsageError`: it is revoked or has expired, or that is unknown yet."""
        if self.revocations is None:
            raise UsageError("this gateway has not found a leader yet")
        if why := refusal(certificate, self.revocations, self._civil_now()):
            raise UsageError(why)

    def refused(self) -> None:
        self.refused_agents += 1

    def check(self, hello: Hello) -> None:
        """The leader decides whether it serves the agent. Raises `RefusedError`: the agent is
        attached here by a later connection."""
        if (attached := self._sessions.get(hello.host)) is not None:
            attached.session.check_newest(hello)

    def seal(self, message: ControllerMessage, stored: int) -> bytes:
        """Decisions are sealed by the leader; the number of stored batches is added here."""
        if isinstance(message, Decision):
            message = msgspec.structs.replace(message, stored=stored)
        return encode(message)

    def attached(self, session: AgentSession, hello: Hello, faults: Sequence[str]) -> None:  # noqa: ARG002 — the leader finds them itself
        host = session.host
        if (previous := self._sessions.get(host)) is not None:
            self._end(previous)
        session.source = self.ingest.greet(host, hello.stream, backlog=hello.backlog)
        session.acknowledge()
        relayed = _Relayed(next(self._numbers), session)
        self._sessions[host] = self._streams[relayed.number] = relayed
        self._open(relayed)
        _log.info("agent attached host=%s version=%s", host, hello.version)

    async def batch(self, session: AgentSession, batch: Batch) -> None:
        if self._current(session) is None:
            return
        queued = await self.ingest.put(session.source, batch)
        if not queued and self._current(session) is not None:
            session.acknowledge()

    async def report(self, session: AgentSession, report: Report) -> None:
        """Relay what an agent sends besides rows."""
        if (relayed := self._current(session)) is not None:
            self.link.send(FromAgent(agent=relayed.number, data=encode(report)))

    def detached(self, session: AgentSession) -> None:
        if (relayed := self._current(session)) is not None:
            del self._sessions[session.host]
            self.ingest.leave(session.source)
            for table in NAMES:
                self._sent_names.pop((table, session.host), None)
            self._close(relayed)
            _log.info("agent detached host=%s", session.host)

    def gateways(self) -> GatewayLinks:
        """Raises `RefusedError`: always."""
        raise RefusedError("this is a gateway; gateways connect to leaders only")

    async def answer(self, query: Query[Any], who: Caller) -> list[bytes]:
        """Answer operators from the store, and agents through the leader.

        Raises:
            DeniedError: only the leader can answer, or do, that.
            BusyError: there is no leader now, or too much to do.
            SyntonyError: as `Dispatcher.respond` does.
        """
        if who.identity.role is Role.AGENT:
            return await self.link.ask(
                RelayedRequest(query=encode(query), certificate=who.pem, peer=who.origin)
            )
        known = authorise(query, who)
        if not known.shared:
            raise DeniedError(
                f"{type(query).__name__}: a gateway answers from the store alone; ask "
                f"{self.link.leader_hint}"
            )
        return await self._dispatcher.carry_out(query, who)

    async def respond(
        self, query: Query[Any], who: Caller, render: Callable[[Any], list[bytes]]
    ) -> list[bytes]:
        """Answer a request that needs only the store. Raises as `Dispatcher.respond` does, and
        `UsageError`: the caller's certificate is refused."""
        self.admit(who)
        return await self._dispatcher.respond(query, who, render)

    def api(self) -> RelayedApi:
        """Raises `RefusedError`: always."""
        raise RefusedError("this is a gateway; gateways ask leaders only")

    async def probe_links(self, request: ProbeLinksRequest) -> ProbeLinks:  # noqa: ARG002 — as above
        """Raises `RefusedError`: always."""
        raise RefusedError("this is a gateway; gateways ask leaders only")

    def _instant(self) -> Instant:
        """The current time. Raises `BusyError`: fleet time is unknown here."""
        if (fleet_ns := self.fleet_now()) is None:
            raise BusyError(
                "this gateway does not know fleet time yet; ask again, or ask "
                f"{self.link.leader_hint}"
            )
        return Instant(fleet_ns, fleet_ns)

    # --- to the leader ---

    def _current(self, session: AgentSession) -> _Relayed | None:
        """None: the agent has attached again since."""
        relayed = self._sessions.get(session.host)
        return relayed if relayed is not None and relayed.session is session else None

    def _open(self, relayed: _Relayed) -> None:
        opening = relayed.session.opening
        relayed.assembler = Assembler()
        self.link.send(
            AgentOpened(agent=relayed.number, certificate=opening.pem, peer=opening.peer)
        )
        self.link.send(FromAgent(agent=relayed.number, data=opening.hello))

    def _close(self, relayed: _Relayed) -> None:
        if self._streams.pop(relayed.number, None) is not None:
            self.link.send(AgentClosed(agent=relayed.number))

    def _end(self, relayed: _Relayed) -> None:
        self._close(relayed)
        relayed.session.outbox.close()

    def _stored(self, outcomes: list[BatchOutcome], pieces: list[BatchPiece]) -> None:
        self.rows += sum(outcome.rows for outcome in outcomes if not outcome.refused)
        if self.link.connected:
            sent_names = self._sent_names if self.link.reads_probed else None
            for message in rows_stored(outcomes, pieces, sent_names):
                self.link.send(message)
        for host in {outcome.host for outcome in outcomes}:
            if (relayed := self._sessions.get(host)) is not None:
                relayed.session.acknowledge()

    def _leader_up(self) -> None:
        """A leader is connected, perhaps the same again: send it the attached agents."""
        self._sent_names.clear()
        for relayed in self._sessions.values():
            self._open(relayed)

    # --- from the leader ---

    def _from_leader(self, message: ToGateway) -> None:
        if isinstance(message, ToAgent):
            if (relayed := self._streams.get(message.agent)) is not None:
                self._deliver(relayed, message.data)
        elif isinstance(message, AgentEnded):
            if (relayed := self._streams.pop(message.agent, None)) is not None:
                relayed.session.outbox.close()
        elif isinstance(message, FleetNow):
            self._fleet = message.fleet_ns, time.monotonic_ns()
        elif isinstance(message, AccessNews):
            self.access.take(message)
        elif isinstance(message, Revocations):
            self.revocations = message
            self.ready.set()
            self._enforce()

    def _deliver(self, relayed: _Relayed, data: bytes) -> None:
        """Pass on a message for an agent. Raises `WireError`: it is invalid."""
        message = decode_controller(data)
        if isinstance(message, Fragment):
            whole = relayed.assembler.take(message)
            if whole is None:
                return
            message = decode_controller(whole)
        if isinstance(message, (Ack, Unknown)):  # acknowledgements are for rows stored here
            return
        if isinstance(message, Refuse):
            relayed.session.end(message.reason)
            return
        if isinstance(message, Decision) and message.epoch < self.link.epoch:
            raise WireError(
                f"a decision of epoch {message.epoch}, epoch {self.link.epoch} has been in charge "
                "here since"
            )
        relayed.session.outbox.put(message)

    def _enforce(self) -> None:
        if self.revocations is None:
            return
        attached = [relayed.session for relayed in self._sessions.values()]
        refused = partial(refusal, revocations=self.revocations, civil_ns=self._civil_now())
        end_refused(attached, refused)
