"""Dispatches agents' messages to the parts of the leading controller."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import unquote

from syntony.controller.access import Caller
from syntony.controller.clock_evidence import check_edges
from syntony.controller.dispatch import Dispatcher
from syntony.controller.hello_check import RefusedError
from syntony.controller.ingest import Ingest
from syntony.controller.job_flows import JobFlowRecorder
from syntony.controller.last_reports import LastReports
from syntony.controller.segments import SegmentService
from syntony.controller.service import GatewayLinks, OfFlows, RelayedApi, Report
from syntony.controller.services import Services
from syntony.controller.sessions import AgentSession
from syntony.errors import BusyError, StateError
from syntony.wire.audit import AuditReport
from syntony.wire.clocks import Edges
from syntony.wire.failover import PathsReport
from syntony.wire.gateways import ProbeLinks, ProbeLinksRequest
from syntony.wire.messages import Batch, Hello
from syntony.wire.parts import PartsReport
from syntony.wire.probes import KeysHeld, LossReport
from syntony.wire.query import Query
from syntony.wire.queue_pairs import QueuePairsReport
from syntony.wire.segments import SegmentsReport

MAX_STREAMS = 8
"""Streams of one name that are remembered: an agent in a crash loop has as many within seconds."""


class _Streams(NamedTuple):
    """Streams of one name, newest last."""

    replaced: deque[str]
    refused: deque[str]


class DuplicateAgents:
    """Detects two running agents with the same name, for example after a machine was cloned.

    A restarted agent has a new stream and never returns to an earlier one. So a stream that returns
    after another one has replaced it shows that two agents run. The first one is kept and the other
    refused: if they were served in turn, the plan of the whole fleet would change each time.

    Streams are kept by name; names come from certificates, which limits their number.
    """

    def __init__(self) -> None:
        self._current: dict[str, str] = {}
        self._streams: defaultdict[str, _Streams] = defaultdict(
            lambda: _Streams(deque(maxlen=MAX_STREAMS), deque(maxlen=MAX_STREAMS))
        )

    def check(self, hello: Hello, *, attached: bool) -> None:
        """Check an agent's first message. If it shows that the agent attached until now is another
        one of the same name, that one is refused from now on.

        Args:
            hello: of an accepted certificate.
            attached: whether an agent of that name is attached.

        Raises:
            RefusedError: this agent is the second one of its name.
        """
        host, stream = hello.host, hello.stream
        streams = self._streams[host]
        if attached and stream in streams.refused:
            raise RefusedError(
                f"another agent of the name {host!r} is attached: two machines have one name and "
                "one certificate; give this one its own (syntony enrol token agent NAME)"
            )
        if hello.backlog:
            return
        before = self._current.get(host, stream)
        self._current[host] = stream
        if stream == before:
            return
        if stream not in streams.replaced:
            streams.replaced.append(before)
            return
        streams.refused.append(before)
        _log.warning("two agents have the same name, only the first is served host=%s", host)


_log = logging.getLogger(__name__)


class AgentHub:
    """Implements `service.Hub`; one per controller, on its event loop.

    Args:
        services: the parts of the controller.
        sessions: host → its attached agent; changed here.
        ingest: takes their rows.
        last_reports: notified of every agent heard.
        job_flows, segments: take agents' reports of jobs' flows.
        dispatcher: answers questions.
        fleet_now: fleet time, None while unknown.
    """

    def __init__(
        self,
        *,
        services: Services,
        sessions: dict[str, AgentSession],
        ingest: Ingest,
        last_reports: LastReports,
        job_flows: JobFlowRecorder,
        segments: SegmentService,
        dispatcher: Dispatcher,
        fleet_now: Callable[[], int | None],
    ) -> None:
        self._services = services
        self._sessions = sessions
        self._ingest = ingest
        self._last_reports = last_reports
        self._job_flows, self._segments = job_flows, segments
        self._fleet_now = fleet_now
        self._namesakes = DuplicateAgents()
        self.seal, self.admit = services.leadership.seal, services.membership.enrolment.admit
        self._carry_out = dispatcher.carry_out
        self.served_api: RelayedApi | None = None
        """The HTTP API, once it is served."""

    def refused(self) -> None:
        self._services.fleet.refused += 1

    def check(self, hello: Hello) -> None:
        """Raises `RefusedError`: an agent that is refused."""
        self._services.leadership.check(hello)
        if (attached := self._sessions.get(hello.host)) is not None:
            attached.check_newest(hello)
        self._namesakes.check(hello, attached=attached is not None)

    def attached(self, session: AgentSession, hello: Hello, faults: Sequence[str]) -> None:
        """An agent has attached: send it the current state at once."""
        host = session.host
        self._last_reports.received(host)
        if (previous := self._sessions.get(host)) is not None:
            previous.outbox.close()
            if session.opening.via:  # queued messages are sent again, to a gateway
                self._ingest.leave(previous.source)
        self._sessions[host] = session
        session.source = self._ingest.greet(host, hello.stream, backlog=hello.backlog)
        session.acknowledge()
        session.outbox.put(self._services.membership.enrolment.revocations)
        self._services.fleet.join(hello, time.monotonic_ns(), faults)
        member = self._services.fleet.members[host]
        member.via, member.in_band = session.opening.via, nic_of(hello, session.opening.peer)
        self._services.placement.service.attached(host)
        if self._services.traffic.switch is not None:
            session.outbox.put(self._services.traffic.switch)
        self._services.keys.attached(host)
        if (plan := self._services.fleet.mesh.plans.get(host)) is not None:
            session.outbox.put(plan)
        _log.info("agent attached host=%s version=%s nics=%d", host, hello.version, len(hello.nics))

    async def batch(self, session: AgentSession, batch: Batch) -> None:
        """Rows of an agent; those of a stream that has been replaced are ignored."""
        if not self._is_current(session):
            return
        self._last_reports.received(session.host)
        queued = await self._ingest.put(session.source, batch)
        if not queued and self._is_current(session):
            session.acknowledge()

    async def report(self, session: AgentSession, report: Report) -> None:
        """What an agent sends besides rows; of flows and keys only from its current stream."""
        host = session.host
        if isinstance(report, Edges):
            self._take_edges(host, report)
        elif isinstance(report, PathsReport):
            self._last_reports.received(host)
            self._services.traffic.take(host, report, time.monotonic_ns())
        elif isinstance(report, AuditReport):
            try:
                await asyncio.to_thread(self._services.audits.take, host, report)
            except StateError as error:
                _log.error("audit report lost host=%s reason=%s", host, error)
        elif isinstance(report, PartsReport):
            if (member := self._services.fleet.members.get(host)) is not None:
                member.take_parts(report.parts, time.monotonic_ns())
        elif not self._is_current(session):
            return
        elif isinstance(report, KeysHeld):
            self._services.keys.held(host, report)
        else:
            self._take_flows(host, report)

    def _take_edges(self, host: str, edges: Edges) -> None:
        self._last_reports.received(host)
        edges, refused = check_edges(host, edges, self._services.fleet.is_clock)
        self._services.solving.take(host, edges.edges, edges.utc, edges.epochs)
        if refused:
            _log.warning("clock evidence refused host=%s parts=%d", host, refused)

    def _take_flows(self, host: str, report: OfFlows) -> None:
        if isinstance(report, LossReport):
            planned = self._services.fleet.probe_ports()
            self._services.locating.fresh.take(host, report, self._fleet_now(), planned)
        elif isinstance(report, QueuePairsReport):
            self._services.queue_pairs.take(host, report, self._fleet_now())
        elif isinstance(report, SegmentsReport):
            self._segments.take(host, report)
        else:
            self._services.placement.take(host, report, time.monotonic_ns())
            self._job_flows.take(host, report)

    def detached(self, session: AgentSession) -> None:
        """A stream ended; the agent keeps its place for a while."""
        if self._is_current(session):
            del self._sessions[session.host]
            if self._services.gateways.any_connected:
                self._ingest.leave(session.source)
            self._services.fleet.leave(session.host, time.monotonic_ns())
            self._services.placement.service.detached(session.host)
            self._services.queue_pairs.forget(session.host)
            _log.info("agent detached host=%s", session.host)

    def _is_current(self, session: AgentSession) -> bool:
        """Whether the agent has not attached again since."""
        return self._sessions.get(session.host) is session

    def gateways(self) -> GatewayLinks:
        return self._services.gateways

    def api(self) -> RelayedApi:
        """The HTTP API, for gateways. Raises `BusyError`: it is not served."""
        if self.served_api is None:
            raise BusyError("the leader serves no API: set api.listen in its configuration")
        return self.served_api

    async def probe_links(self, request: ProbeLinksRequest) -> ProbeLinks:
        """The links of probes, for a gateway that records a job."""
        found = await asyncio.to_thread(self._services.paths.links, request.probes)
        return ProbeLinks(links=tuple(found))

    async def answer(self, query: Query[Any], who: Caller) -> list[bytes]:
        """The pages of the answer. Raises `SyntonyError`."""
        return await self._carry_out(query, who)


def nic_of(hello: Hello, peer: str) -> str:
    """The NIC (``host/nic``) whose address a connection came from; empty: none of the fabric's.

    Args:
        hello: the agent's, checked: addresses are spelt as the standard library does.
        peer: address in gRPC's notation (``ipv4:10.0.0.1:5000``, ``ipv6:%5Bfd00::1%5D:5000``), also
            with the gateway that relays the connection behind it.
    """
    _, _, address = unquote(peer.partition(" ")[0]).partition(":")
    try:
        source = str(ip_address(address.rpartition(":")[0].strip("[]")))
    except ValueError:
        return ""
    for nic in hello.nics:
        if source in nic.addresses:
            return f"{hello.host}/{nic.name}"
    return ""
