"""The controller process: one event loop around ingest, solve, plan and questions."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from syntony.controller.access import Caller
from syntony.controller.answers import Answers
from syntony.controller.audits import AuditDesk
from syntony.controller.clock_evidence import credible
from syntony.controller.config import ControllerConfig
from syntony.controller.fleet import Fleet, Planner
from syntony.controller.fleet_time import FleetTime
from syntony.controller.incidents import AlertDesk
from syntony.controller.ingest import Ingest, Outcome
from syntony.controller.judging import Judging
from syntony.controller.listen import open_server, raise_descriptor_limit
from syntony.controller.locating import LocateLoop
from syntony.controller.loops import Loops
from syntony.controller.metrics import Exporter, open_metrics
from syntony.controller.orders import Order, Orders
from syntony.controller.placement import Placement
from syntony.controller.service import FleetService
from syntony.controller.sessions import Session
from syntony.controller.settled import last_settled
from syntony.controller.sla import SlaDesk, SlaQuestions
from syntony.controller.solve import SolveLoop, Solver, timelines_per_host
from syntony.controller.timeline_file import TimelineFile
from syntony.controller.traffic import TrafficDesk
from syntony.errors import StoreError
from syntony.io.clocks import KernelClock
from syntony.mesh.stats import hold_ns
from syntony.model import MS, S, format_ns
from syntony.state import ControlState
from syntony.store import Store
from syntony.wire.audit import AuditReport, AuditReportsQuery
from syntony.wire.clocks import Edges
from syntony.wire.control import ChangesQuery
from syntony.wire.failover import ConnectionsQuery, FailoverStatusQuery, PathsReport
from syntony.wire.incidents import IncidentsQuery, RulesQuery
from syntony.wire.messages import Ack, Answer, Batch, Hello, Query
from syntony.wire.traffic import (
    FlowsReport,
    Moves,
    MovesQuery,
    Paces,
    TrafficQuery,
)

_log = logging.getLogger(__name__)

SOLVE_CHECK_NS = 200 * MS
LOCATE_INTERVAL_NS = 100 * MS
"""Between two looks whether a second has settled; once a second there is something to do."""
PLAN_CHECK_NS = 200 * MS
PLACE_INTERVAL_NS = 250 * MS
"""Agents' windows are half a second: what is new is seen soon, and twice."""
READ_PATHS_NS = 1 * S
"""Between two looks for learnt paths in the store."""
JUDGE_INTERVAL_NS = 2 * S
"""Between two evaluations of the rules: a tenth of what it takes to look at a page."""
TELL_INTERVAL_NS = 1 * S
LOOK_INTERVAL_NS = 10 * S
"""Between two looks at the latency of the past minute."""
KEEP_INTERVAL_NS = 10 * S
"""A crash loses this much of the fleet timeline's course, which its rate bridges to a few ns."""
EXPIRE_INTERVAL_NS = 600 * S
STOP_GRACE_S = 1.0


class Controller:
    """Implements `service.Hub`.

    Args:
        config: where to listen, certificates, mesh.
        store: open; closed by whoever opened it.
        planner: `syntony.mesh.plan.make_plan`.
        solver: `syntony.clock.anchored.AnchoredSolver`.

    Raises:
        ConfigError: a state directory that cannot be used.
    """

    def __init__(
        self, config: ControllerConfig, store: Store, planner: Planner, solver: Solver
    ) -> None:
        self._config = config
        self._store = store
        state_dir = Path(config.state_dir) if config.state_dir else None
        self._state = ControlState(state_dir)
        key = self._state.probe_key()
        self._fleet = Fleet(config, planner, key.secret, key.key_id)
        self._solving = SolveLoop(solver)
        self._time = FleetTime()
        self._kept = TimelineFile(state_dir) if state_dir else None
        self._kept_clocks = 0
        self._ingest = Ingest(store, self._fleet_now, self._stored)
        self._locating = LocateLoop(store, config.topology, state_dir)
        self._hold_ns = hold_ns(config.probe_interval_ns)
        self._alerts = AlertDesk(config.alerts, state_dir, store)
        self._slas = SlaDesk(config.sla, store, self._fleet, self._locating)
        self._clock = KernelClock("controller")
        self._traffic = TrafficDesk(self._state)
        self._judging = Judging(
            alerts=self._alerts,
            fleet=self._fleet,
            solving=self._solving,
            locating=self._locating,
            slas=self._slas,
            traffic=self._traffic,
            fleet_now=self._fleet_now,
        )
        self._placement = Placement(
            store, config.placement, config.pacing, self._locating.topology, self._state
        )
        questions = SlaQuestions(self._slas, self._traffic, self._alerts, self._locating)
        self._answers = Answers(store, self._fleet, self._solving, self._locating, questions)
        self._audits = AuditDesk()
        self._sessions: dict[str, Session] = {}
        self._loops = Loops()
        self._orders = Orders(
            state=self._state,
            traffic=self._traffic,
            placement=self._placement,
            alerts=self._alerts,
            audits=self._audits,
            sessions=self._sessions,
            put_local=self._ingest.put_local,
        )
        self._probe_ports: tuple[int, dict[tuple[str, str], int]] = (0, {})
        self.port = 0
        """Where agents attach, once serving: the configured port, or the one given for 0."""

    async def serve(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT, or until cancelled.

        Args:
            ready: called once connections are accepted.

        Raises:
            ConfigError, MissingError: certificates or addresses that cannot be used.
        """
        await self._learn_time()
        server, self.port = open_server(self._config, FleetService(self).handlers())
        scraping = open_metrics(self._config, self._exporter())
        await server.start()
        _log.info("controller up listen=%s port=%d", self._config.listen, self.port)
        if ready is not None:
            ready()
        try:
            await self._work()
        finally:
            for session in self._sessions.values():
                session.outbox.close()
            if scraping is not None:
                await asyncio.to_thread(scraping.close)
            await server.stop(STOP_GRACE_S)
            await self._keep()
            self._state.close()
            _log.info("controller down")

    def _exporter(self) -> Exporter:
        return Exporter(
            fleet=self._fleet,
            solving=self._solving,
            traffic=self._traffic,
            ingest=self._ingest,
            loops=self._loops,
            locating=self._locating,
            slas=self._slas,
            alerts=self._alerts,
            placing=self._placement.desk,
            audits=self._audits,
            fleet_now=self._fleet_now,
        )

    async def _work(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._ingest.run()),
                group.create_task(self._loops.every(SOLVE_CHECK_NS, self._solve)),
                group.create_task(self._loops.every(PLAN_CHECK_NS, self._plan)),
                group.create_task(self._loops.every(LOCATE_INTERVAL_NS, self._locate)),
                group.create_task(self._loops.every(PLACE_INTERVAL_NS, self._place)),
                group.create_task(self._loops.every(READ_PATHS_NS, self._read_paths)),
                group.create_task(self._loops.every(KEEP_INTERVAL_NS, self._keep)),
                group.create_task(self._loops.every(EXPIRE_INTERVAL_NS, self._expire)),
                group.create_task(self._loops.every(JUDGE_INTERVAL_NS, self._judging.judge)),
                group.create_task(self._loops.every(TELL_INTERVAL_NS, self._tell)),
                group.create_task(self._loops.every(LOOK_INTERVAL_NS, self._look)),
            ]
            await stop.wait()
            for task in tasks:
                task.cancel()

    async def _learn_time(self) -> None:
        """Questions about the past can be asked before the first agent is back."""
        latest_ns = await asyncio.to_thread(self._store.latest_ns)
        if latest_ns:
            self._time.remember(latest_ns, time.monotonic_ns())
        memory = None if self._kept is None else self._kept.load()
        if memory is not None:
            self._solving.inherit(memory)
            _log.info("fleet timeline goes on clocks=%d", len(memory.lines))

    def _fleet_now(self) -> int | None:
        """Rows are of the past, those of a backlog of long ago; solved clocks are of now. Neither
        is of the future."""
        now_ns = time.monotonic_ns()
        known = [
            time_ns for time_ns in (self._time.now(now_ns), self._solving.now(now_ns)) if time_ns
        ]
        return max(known, default=None)

    # --- what the service hands on ---

    def attached(self, session: Session, hello: Hello, faults: Sequence[str]) -> None:
        """An agent is there: what it should know goes out at once."""
        host = session.host
        previous = self._sessions.get(host)
        if previous is not None:
            previous.outbox.close()
        self._sessions[host] = session
        session.outbox.put(Ack(seq=self._ingest.greet(host, hello.stream)))
        self._fleet.join(hello, time.monotonic_ns(), faults)
        self._placement.desk.attached(host)
        if self._traffic.switch is not None:
            session.outbox.put(self._traffic.switch)
        plan = self._fleet.mesh.plans.get(host)
        if plan is not None:
            session.outbox.put(plan)
        _log.info("agent attached host=%s version=%s nics=%d", host, hello.version, len(hello.nics))

    async def batch(self, session: Session, batch: Batch) -> None:
        """Rows of an agent; a stream that has been replaced is no longer listened to."""
        if self._sessions.get(session.host) is not session:
            return
        queued = await self._ingest.put(session.host, session.stream, batch)
        if not queued and self._sessions.get(session.host) is session:
            session.outbox.put(Ack(seq=self._ingest.stored(session.host)))

    def edges(self, session: Session, edges: Edges) -> None:
        """An agent's view of the clocks around it."""
        edges, refused = credible(session.host, edges, self._fleet.is_clock)
        self._solving.take(session.host, edges.edges, edges.utc, edges.epochs)
        if refused:
            _log.warning("clock evidence refused host=%s parts=%d", session.host, refused)

    def paths(self, session: Session, report: PathsReport) -> None:
        """An agent's managed connections."""
        self._traffic.take(session.host, report, time.monotonic_ns())

    def audited(self, session: Session, report: AuditReport) -> None:
        """An agent's answer to an audit's order."""
        self._audits.take(session.host, report)

    def flows(self, session: Session, report: FlowsReport) -> None:
        """An agent's managed flows; a stream that has been replaced is no longer listened to."""
        if self._sessions.get(session.host) is session:
            self._placement.take(session.host, report, time.monotonic_ns())

    def detached(self, session: Session) -> None:
        """A stream ended; the agent keeps its place for a while."""
        if self._sessions.get(session.host) is session:
            del self._sessions[session.host]
            self._fleet.leave(session.host, time.monotonic_ns())
            self._placement.desk.detached(session.host)
            _log.info("agent detached host=%s", session.host)

    async def answer(self, query: Query, who: Caller) -> Answer:
        """A request that its caller may make.

        Raises:
            UsageError, StateError: an order that cannot be carried out, a question that has none.
        """
        if isinstance(query, Order):
            return await self._orders.carry_out(query, who.issuer(query.by), self._now())
        match query:
            case AuditReportsQuery():
                return self._audits.reports(query)
            case ChangesQuery():
                return await asyncio.to_thread(self._orders.changes, query, self._now())
            case IncidentsQuery():
                return await asyncio.to_thread(self._alerts.incidents, query, self._now())
            case (
                RulesQuery()
                | ConnectionsQuery()
                | FailoverStatusQuery()
                | TrafficQuery()
                | MovesQuery()
            ):
                return self._present(query)
            case _:
                return await self._answers.answer(query, self._fleet_now())

    def _present(
        self,
        query: RulesQuery | ConnectionsQuery | FailoverStatusQuery | TrafficQuery | MovesQuery,
    ) -> Answer:
        match query:
            case RulesQuery():
                return self._alerts.told_rules()
            case ConnectionsQuery():
                return self._traffic.paths(query, time.monotonic_ns())
            case FailoverStatusQuery():
                return self._traffic.status(time.monotonic_ns())
            case TrafficQuery():
                return self._placement.traffic(query, time.monotonic_ns())
            case MovesQuery():
                return self._placement.moves(query)

    def _now(self) -> int:
        """Fleet time, or this host's before there is any."""
        return self._fleet_now() or self._clock.now_ns()

    # --- loops ---

    def _stored(self, outcomes: list[Outcome]) -> None:
        now_ns = time.monotonic_ns()
        for outcome in outcomes:
            self._count(outcome, now_ns)
            if outcome.paths_from_ns is not None:
                self._locating.path_window.stored(outcome.paths_from_ns)
                self._placement.path_window.stored(outcome.paths_from_ns)
        newest = {(outcome.host, outcome.stream): outcome.seq for outcome in outcomes}
        for (host, stream), seq in newest.items():
            session = self._sessions.get(host)
            if session is not None and session.stream == stream:
                session.outbox.put(Ack(seq=seq))

    def _count(self, outcome: Outcome, now_ns: int) -> None:
        member = self._fleet.members[outcome.host]
        member.batches += 1
        member.heard_ns = now_ns
        member.dropped = outcome.dropped
        if outcome.refused:
            member.refused_rows += outcome.rows
            return
        member.rows += outcome.rows
        member.newest_ns = max(member.newest_ns, outcome.newest_ns)
        if outcome.probes_per_s is not None:
            member.probes_per_s = outcome.probes_per_s
        self._time.observe(outcome.host, outcome.newest_ns, now_ns)

    async def _solve(self) -> None:
        now_ns = time.monotonic_ns()
        if not self._solving.due(now_ns):
            return
        timelines = await asyncio.to_thread(self._solving.step, now_ns)
        if len(timelines) > self._kept_clocks:
            await self._keep()  # before anybody is told: a successor goes on from what was told
        if self._solving.stepped_ns:
            _log.warning("fleet time stepped to UTC by=%s", format_ns(self._solving.stepped_ns))
            self._time = FleetTime()
        rows = self._solving.rows(now_ns)
        if rows is not None:
            self._ingest.put_local(rows)
        told = timelines_per_host(
            timelines, self._fleet.mesh.clocks, self._solving.utc, self._solving.last_step
        )
        for host, message in told.items():
            session = self._sessions.get(host)
            if session is not None and message.timelines:
                session.outbox.put(message)

    async def _locate(self) -> None:
        fleet_now_ns = self._fleet_now()
        if fleet_now_ns is None:
            return
        last = last_settled(self._ingest.probed, fleet_now_ns, self._hold_ns)
        if not self._locating.due(last):
            return
        try:
            pieces = await asyncio.to_thread(self._locating.step, fleet_now_ns, last, self._ports())
        except StoreError as error:
            _log.error("localisation failed reason=%s", error)
            return
        for piece in pieces:
            self._ingest.put_local(piece)
        await self._judging.news()

    def _ports(self) -> dict[tuple[str, str], int]:
        """(prober, target) to the target's port, of the plan in force."""
        generation = self._fleet.mesh.generation
        if self._probe_ports[0] != generation:
            ports = {(src, flow.dst): flow.dst_port for src, flow in self._fleet.flows()}
            self._probe_ports = (generation, ports)
        return self._probe_ports[1]

    async def _read_paths(self) -> None:
        fleet_now_ns = self._placement.now(time.monotonic_ns())
        if fleet_now_ns is None:
            return
        try:
            await asyncio.to_thread(self._placement.read, fleet_now_ns, self._nics())
        except StoreError as error:
            _log.error("paths not read for placement reason=%s", error)

    def _nics(self) -> dict[str, str]:
        """Address to ``host/nic``."""
        return {nic.address: str(ref) for ref, nic in self._fleet.mesh.nics.items()}

    async def _place(self) -> None:
        fleet_now_ns = self._placement.now(time.monotonic_ns())
        if fleet_now_ns is None:
            return
        self._placement.probed(self._ports(), self._locating.links)
        nics = self._nics()
        hosts, findings = tuple(self._fleet.members), self._locating.answer.findings
        decided = await asyncio.to_thread(self._placement.step, fleet_now_ns, nics, hosts, findings)
        for row in decided.rows:
            self._ingest.put_local(row)
        orders: list[tuple[str, Moves | Paces]] = [*decided.orders.items(), *decided.paces.items()]
        for host, order in orders:
            session = self._sessions.get(host)
            if session is not None:
                session.outbox.put(order)

    async def _keep(self) -> None:
        memory = self._solving.memory()
        if self._kept is None or memory is None:
            return
        self._kept_clocks = len(self._solving.timelines)
        try:
            await asyncio.to_thread(self._kept.save, memory)
        except OSError as error:
            _log.error("fleet timeline not kept reason=%s", error)

    async def _plan(self) -> None:
        now_ns = time.monotonic_ns()
        if not self._fleet.due(now_ns):
            return
        # Seconds for a large fleet: not on the event loop.
        mesh = await asyncio.to_thread(self._fleet.replan, now_ns)
        flows = sum(map(len, mesh.flows.values()))
        _log.info("plan generation=%d hosts=%d flows=%d", mesh.generation, len(mesh.plans), flows)
        for ref, address in self._fleet.contested.items():
            _log.warning("NIC left out nic=%s reason=another host claims %s too", ref, address)
        for host, plan in mesh.plans.items():
            session = self._sessions.get(host)
            if session is not None:
                session.outbox.put(plan)

    async def _look(self) -> None:
        fleet_now_ns = self._fleet_now()
        if fleet_now_ns is None:
            return
        try:
            await asyncio.to_thread(self._slas.look, fleet_now_ns)
        except StoreError as error:
            _log.error("latency not judged reason=%s", error)

    async def _tell(self) -> None:
        now_ns = time.monotonic_ns()
        rows = await asyncio.to_thread(self._alerts.rows)
        if rows is not None:
            self._ingest.put_local(rows)
        await asyncio.to_thread(self._alerts.deliver, now_ns, self._now(), self._clock.now_ns())

    async def _expire(self) -> None:
        fleet_now_ns = self._fleet_now()
        if fleet_now_ns is None:
            return
        try:
            dropped = await asyncio.to_thread(self._store.expire, fleet_now_ns)
        except StoreError as error:
            _log.error("retention failed reason=%s", error)
            return
        if dropped:
            _log.info("retention dropped partitions=%d", dropped)


def run(config: ControllerConfig, store: Store, planner: Planner, solver: Solver) -> None:
    """The daemon's main loop; returns after SIGTERM or SIGINT."""
    os.umask(0o077)
    raise_descriptor_limit()
    asyncio.run(Controller(config, store, planner, solver).serve())
