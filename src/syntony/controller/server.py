"""The controller process: one event loop around ingest, solve, plan and questions."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable

from syntony.clock.anchored import AnchoredSolver
from syntony.clock.anchors import Anchor
from syntony.controller.access_tokens import AccessControl
from syntony.controller.agent_hub import AgentHub
from syntony.controller.api_hub import ApiHub, OpenApi
from syntony.controller.audits import AuditRuns
from syntony.controller.batches import BatchPiece
from syntony.controller.complete_seconds import last_complete
from syntony.controller.config import ControllerConfig
from syntony.controller.dispatch import Dispatcher, Instant
from syntony.controller.enrolment_service import ENFORCE_INTERVAL_NS, EnrolmentService
from syntony.controller.fleet import AddressOwners, Fleet
from syntony.controller.fleet_time import FleetTime
from syntony.controller.gateway_roster import GatewayRoster
from syntony.controller.gateways import Gateways
from syntony.controller.hello_check import prefixes
from syntony.controller.incident_evaluation import IncidentEvaluation
from syntony.controller.incidents import IncidentService
from syntony.controller.ingest import BatchOutcome, Ingest
from syntony.controller.job_diagnosis import JobDiagnosis
from syntony.controller.job_flows import JobFlowRecorder
from syntony.controller.job_takeovers import LostRanks
from syntony.controller.last_reports import TICK_NS, LastReports
from syntony.controller.leadership import Leadership
from syntony.controller.lease import CHECK_NS, DOUBT_CHECK_NS, LeaseWatch
from syntony.controller.locating import LocateLoop
from syntony.controller.loops import Loops, storing
from syntony.controller.metrics import Exporter
from syntony.controller.open_state import open_state
from syntony.controller.placement import Placement
from syntony.controller.placement_steps import PlacementSteps
from syntony.controller.ports import ControllerPorts
from syntony.controller.probe_keys import ProbeKeyDistribution
from syntony.controller.queue_pairs import PAIR_INTERVAL_NS, QueuePairService
from syntony.controller.recorded_paths import RecordedPaths
from syntony.controller.retention import keep, sum_up_minutes
from syntony.controller.segments import SegmentService
from syntony.controller.service import FleetService
from syntony.controller.services import Services
from syntony.controller.sessions import AgentSession
from syntony.controller.sla import SlaService
from syntony.controller.solve import Solved, SolveLoop
from syntony.controller.stored_past import AGAIN_NS, StoredPast
from syntony.controller.stored_rows import StoredRows
from syntony.controller.timeline import TimelineKeeper
from syntony.controller.traffic import TrafficService
from syntony.errors import StateError, StoreError
from syntony.io.clocks import KernelClock, SyntheticClock
from syntony.io.credentials import civil_now
from syntony.io.descriptors import DescriptorWatch
from syntony.mesh.stats import hold_ns
from syntony.model import MS, S, format_ns, parse_duration_ns
from syntony.state import LeaseLostError
from syntony.state.document import Document
from syntony.store import Store
from syntony.wire.messages import ControllerMessage

_log = logging.getLogger(__name__)

SOLVE_CHECK_NS = PLAN_CHECK_NS = 200 * MS
SECOND_CHECK_NS = 100 * MS
"""Interval of checks whether a second is complete; once a second there is work."""
KEYS_CHECK_NS = 500 * MS
PLACE_INTERVAL_NS = 250 * MS
"""Agents' windows are half a second: new data is seen soon, and twice."""
READ_PATHS_NS = 1 * S
"""Interval of reading learnt paths from the store."""
JUDGE_INTERVAL_NS = 2 * S
"""Interval of evaluations of the rules: a tenth of the time that it takes to read a page."""
TELL_INTERVAL_NS = 1 * S
LOOK_INTERVAL_NS = 10 * S
"""Interval of evaluating the latency of the past minute."""
LOOK_REST = 9
"""… with at most a tenth of the time: an evaluation takes seconds for a large fleet."""
KEEP_INTERVAL_NS = 10 * S
"""Interval of storing the fleet timeline; after a crash, its rate bridges the gap to a few ns."""
EXPIRE_INTERVAL_NS = 600 * S
MINUTES_INTERVAL_NS = 30 * S
"""Interval of checks for completed minutes."""


class Controller:
    """A controller that leads.

    Args:
        config: where to listen, certificates, mesh.
        store: open; its opener closes it.
        open_api: `syntony.api.serve.leader_api`; None: no API, whatever is configured.

    Raises:
        ConfigError: a state directory that cannot be used.
    """

    def __init__(
        self, config: ControllerConfig, store: Store, open_api: OpenApi | None = None
    ) -> None:
        self._config, self._open_api = config, open_api
        self._store = store
        self._state = open_state(config)
        self._lease = LeaseWatch(self._state, self._end, self._release)
        self._stop = asyncio.Event()
        self._ended_by: StateError | None = None
        self._fleet = Fleet(config)
        self._owners = Document(self._state, "NIC addresses", AddressOwners)
        self._stored_owners: dict[str, str] = {}
        anchors = [Anchor(x.node, x.bound_ns, x.reported) for x in config.anchors]
        self._solving = SolveLoop(
            AnchoredSolver(anchors, config.utc_step_ns),
            self._fleet.is_clock,
            [SyntheticClock(host, spec) for host, spec in config.true_clocks.items()],
        )
        self._solved: Solved | None = None
        self._time, self._past = FleetTime(), StoredPast(store)
        self._timeline = TimelineKeeper(self._state, self._solving)
        self._locating = LocateLoop(store, config.topology, self._state)
        paths = RecordedPaths(self._fleet.probe_ports, self._locating.links)
        self._jobs = JobDiagnosis(store, paths, self._fleet_now)
        lost_ranks = LostRanks(store)
        buffer = self._locating.rows
        self._rows = StoredRows((buffer.put, self._jobs.put, lost_ranks.put), buffer.put_probed)
        self._ingest = Ingest(store, self._fleet_now, self._stored)
        self._hold_ns = hold_ns(config.probe_interval_ns)
        self._detail_ns = config.detail_ns
        self._alerts = IncidentService(config.alerts, self._state, store)
        self._slas = SlaService(config.sla, store, self._fleet, self._locating)
        self._clock = KernelClock("controller")
        self._traffic = TrafficService(self._state)
        self._last_reports = LastReports(time.monotonic_ns())
        self._queue_pairs = QueuePairService()
        self._sessions: dict[str, AgentSession] = {}
        self._membership = EnrolmentService(config, self._state, self._sessions, self._fleet)
        self._leadership = Leadership(self._state)
        enrolment = self._membership.enrolment
        self._gateways = Gateways(
            GatewayRoster(self._state),
            self._last_reports,
            self._leadership.follow,
            lambda relayed: self._count(self._rows.take_relayed(relayed)),
            lambda: enrolment.revocations,
        )
        self._keys = ProbeKeyDistribution(
            self._state,
            self._sessions,
            parse_duration_ns(config.probe_key_period) if config.probe_key_period else 0,
            clock=self._clock.now_ns,
            awake=time.monotonic_ns,
        )
        self._evaluation = IncidentEvaluation(
            alerts=self._alerts,
            fleet=self._fleet,
            keys=self._keys,
            last_reports=self._last_reports,
            solving=self._solving,
            locating=self._locating,
            slas=self._slas,
            traffic=self._traffic,
            queue_pairs=self._queue_pairs,
            jobs=self._jobs,
            lost_ranks=lost_ranks,
            enrolment=enrolment,
            gateways=self._gateways,
            fleet_now=self._fleet_now,
            local_now=self._clock.now_ns,
        )
        self._placement = Placement(
            store, config.placement, config.pacing, self._locating.topology, self._state
        )
        self._placing = PlacementSteps(
            self._placement, self._fleet, self._locating, self._ingest.put_local, self._send
        )
        self._job_flows = JobFlowRecorder(self._fleet_now, self._placement.flows)
        self._segments = SegmentService(self._fleet_now, self._placement.flows)
        self._audits = AuditRuns(self._state)
        self._loops = Loops()
        self._services = Services(
            store=store,
            state=self._state,
            fleet=self._fleet,
            solving=self._solving,
            locating=self._locating,
            slas=self._slas,
            alerts=self._alerts,
            traffic=self._traffic,
            placement=self._placement,
            queue_pairs=self._queue_pairs,
            jobs=self._jobs,
            paths=paths,
            audits=self._audits,
            keys=self._keys,
            membership=self._membership,
            access=AccessControl(self._state, civil_now),
            leadership=self._leadership,
            gateways=self._gateways,
            sessions=self._sessions,
            put_local=self._ingest.put_local,
        )
        self._dispatcher = Dispatcher(self._services, self._instant)
        self.hub = AgentHub(
            services=self._services,
            sessions=self._sessions,
            ingest=self._ingest,
            last_reports=self._last_reports,
            job_flows=self._job_flows,
            segments=self._segments,
            dispatcher=self._dispatcher,
            fleet_now=self._fleet_now,
        )
        self.port = 0
        """Port to which agents attach, once serving: the configured port, or the assigned one for
        0."""

    async def serve(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT, or until cancelled.

        Args:
            ready: called once connections are accepted.

        Raises:
            ConfigError, MissingError: certificates or addresses that cannot be used.
            StateError: another controller has taken over, or control state is gone.
        """
        certificate, joining = self._membership.open(self._now)
        service = FleetService(self.hub, prefixes(self._config.nic_prefixes))
        ports = ControllerPorts(self._config, service, certificate, joining)
        self.port = ports.port
        exporter = Exporter(
            self._services,
            self._last_reports,
            self._ingest,
            self._rows,
            self._loops,
            self._fleet_now,
        )
        await self.begin(certificate.name)
        await ports.open(exporter, self._open_api, self._hub())
        self.hub.served_api = ports.api
        _log.info("controller up listen=%s port=%d", self._config.listen, self.port)
        if ready is not None:
            ready()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        try:
            await self.work(ports.close)
        finally:
            _log.info("controller down")

    async def begin(self, name: str) -> None:
        """Continue from a predecessor's state; before the first agent attaches.

        Args:
            name: in this controller's certificate.
        """
        if kept_ns := await self._timeline.load():
            self._time.remember(kept_ns, time.monotonic_ns())
        await self._past.begin()
        if (stored := await asyncio.to_thread(self._owners.load)) is not None:
            self._fleet.owners = self._stored_owners = stored.hosts
        self._leadership.name = name
        self._fleet.await_return(self._keys.hosts, time.monotonic_ns())

    async def work(self, close_doors: Callable[[], Awaitable[None]]) -> None:
        """Run everything except the ports, until stopped or cancelled. Raises `StateError`: another
        controller has taken over, or control state is gone."""
        try:
            await self._work()
        finally:
            self._gateways.close()
            for session in self._sessions.values():
                session.outbox.close()
            await close_doors()
            self._dispatcher.close()
            await self._jobs.close()
            await self._keep()
            self._state.close()
        if self._ended_by is not None:
            raise self._ended_by

    def _end(self, error: StateError) -> None:
        self._ended_by = error
        self._stop.set()

    def _release(self) -> None:
        """Another controller may lead: agents and gateways look for it."""
        self._gateways.release()
        for session in self._sessions.values():
            if not session.opening.via:
                session.outbox.close()

    async def _work(self) -> None:
        now, put = self._fleet_now, self._ingest.put_local
        async with asyncio.TaskGroup() as group:
            loops = (
                (SOLVE_CHECK_NS, self._solve), (PLAN_CHECK_NS, self._plan),
                (KEYS_CHECK_NS, self._rotate_keys), (SECOND_CHECK_NS, self._locate),
                (SECOND_CHECK_NS, self._look_at_losses),
                (PLACE_INTERVAL_NS, self._placing.place),
                (PAIR_INTERVAL_NS, storing("pair", now, self._queue_pairs.step, put)),
                (SECOND_CHECK_NS, storing("store_flows", now, self._job_flows.step, put)),
                (PLACE_INTERVAL_NS, storing("store_segments", now, self._segments.step, put)),
                (SECOND_CHECK_NS, self._jobs.judge_jobs), (READ_PATHS_NS, self._placing.read_paths),
                (KEEP_INTERVAL_NS, self._keep), (EXPIRE_INTERVAL_NS, self._expire),
                (AGAIN_NS, self._past.learn_past), (MINUTES_INTERVAL_NS, self._sum_up_minutes),
                (TICK_NS, self._evaluation.listen), (JUDGE_INTERVAL_NS, self._evaluation.judge),
                (TELL_INTERVAL_NS, self._tell), (TELL_INTERVAL_NS, self._tell_gateways),
                (ENFORCE_INTERVAL_NS, self._enforce), (TELL_INTERVAL_NS, self._record_stop),
                (LOOK_INTERVAL_NS, self._evaluation.look, LOOK_REST),
                (CHECK_NS, self._lease.check_lease), (DOUBT_CHECK_NS, self._lease.doubt_lease),
                (TELL_INTERVAL_NS, DescriptorWatch().watch_descriptors),
            )  # fmt: skip
            tasks = [
                group.create_task(self._ingest.run()),
                *(group.create_task(self._loops.every(*each)) for each in loops),
            ]
            await self._stop.wait()
            for task in tasks:
                task.cancel()

    def _fleet_now(self) -> int | None:
        """Solved clocks are current. Rows belong to the past, those of a backlog to the distant
        past, and those stamped before a step of fleet time even to the future."""
        now_ns = time.monotonic_ns()
        return self._solving.now(now_ns) or self._time.now(now_ns)

    def _hub(self) -> ApiHub:
        loop = asyncio.get_running_loop()
        return ApiHub(self._config, self._services, loop, self._dispatcher.respond, self._now)

    def _instant(self) -> Instant:
        return Instant(self._fleet_now() or self._past.now(time.monotonic_ns()), self._now())

    def _now(self) -> int:
        """Fleet time, or this host's time if that is unknown."""
        return self._fleet_now() or self._clock.now_ns()

    # --- loops ---

    def _stored(self, outcomes: list[BatchOutcome], pieces: list[BatchPiece]) -> None:
        self._count(self._rows.take(outcomes, pieces))
        for host in {outcome.host for outcome in outcomes}:
            if (session := self._sessions.get(host)) is not None:
                session.acknowledge()

    def _count(self, outcomes: list[BatchOutcome]) -> None:
        """Results of batches that have been stored, or refused, here or by a gateway."""
        now_ns = time.monotonic_ns()
        for outcome in outcomes:
            # The host may have left the fleet since.
            if (member := self._fleet.members.get(outcome.host)) is not None:
                member.count(outcome)
            if not outcome.refused:
                self._time.observe(outcome.host, outcome.newest_ns, now_ns)
            if outcome.paths_from_ns is not None:
                self._locating.path_window.stored(outcome.paths_from_ns)
                self._placement.path_window.stored(outcome.paths_from_ns)

    async def _solve(self) -> None:
        now_ns = time.monotonic_ns()
        if not self._solving.due(now_ns):
            return
        timelines = await asyncio.to_thread(self._solving.step, now_ns)
        if len(timelines) > self._timeline.clocks:
            await self._keep()  # before agents get it: a successor continues from it
        if self._solving.stepped_ns:
            _log.warning("fleet time stepped to UTC by=%s", format_ns(self._solving.stepped_ns))
        rows = self._solving.rows(now_ns)
        if rows is not None:
            self._ingest.put_local(rows)
        solved = self._solved = Solved(
            timelines, self._solving.utc, self._solving.last_step, self._solved
        )
        for host, clocks in self._fleet.mesh.clocks.items():
            if (session := self._sessions.get(host)) is not None:
                session.send_timelines(solved, clocks, now_ns)

    async def _look_at_losses(self) -> None:
        self._locating.look_at_losses(self._fleet_now())

    async def _locate(self) -> None:
        fleet_now_ns = self._fleet_now()
        if fleet_now_ns is None:
            return
        last = last_complete(self._rows.probed, fleet_now_ns, self._hold_ns)
        if not self._locating.due(last):
            return
        try:
            pieces = await asyncio.to_thread(
                self._locating.step, fleet_now_ns, last, self._fleet.probe_ports()
            )
        except StoreError as error:
            _log.error("localisation failed reason=%s", error)
            return
        for piece in pieces:
            self._ingest.put_local(piece)
        await self._evaluation.findings_changed()

    def _send(self, host: str, message: ControllerMessage) -> None:
        if (session := self._sessions.get(host)) is not None:
            session.outbox.put(message)

    async def _keep(self) -> None:
        await self._timeline.keep(self._fleet_now() or 0)

    async def _plan(self) -> None:
        now_ns = time.monotonic_ns()
        if not self._fleet.due(now_ns):
            return
        try:
            generation = await asyncio.to_thread(self._state.take_number, "plan")
        except StateError as error:  # new hosts are probed nevertheless
            generation = 0
            _log.error("plan's generation not recorded reason=%s", error)
        # Takes seconds for a large fleet: not on the event loop.
        plans = self._fleet.mesh.plans
        mesh = await asyncio.to_thread(self._fleet.replan, now_ns, generation)
        if (owners := self._fleet.owners) != self._stored_owners:
            try:
                await asyncio.to_thread(self._owners.save, AddressOwners(owners))
                self._stored_owners = owners
            except StateError as error:
                _log.error("addresses of NICs not recorded reason=%s", error)
        flows = sum(map(len, mesh.flows.values()))
        _log.info("plan generation=%d hosts=%d flows=%d", mesh.generation, len(mesh.plans), flows)
        for ref, address in self._fleet.contested.items():
            _log.warning("NIC excluded nic=%s reason=another host claims %s too", ref, address)
        for ref, each in self._fleet.withheld.items():
            _log.warning("addresses excluded nic=%s reason=another host claims %s too", ref, each)
        self._keys.plan(mesh)
        for host, plan in mesh.plans.items():
            if plan is not plans.get(host):
                self._send(host, plan)

    async def _rotate_keys(self) -> None:
        try:
            await self._keys.step(self._membership.enrolment.removed)
        except StateError as error:
            _log.error("probe keys not rotated, retrying reason=%s", error)

    async def _enforce(self) -> None:
        try:
            await asyncio.to_thread(self._services.access.refresh)
        except StateError as error:
            _log.error("access tokens not read, keeping the known ones reason=%s", error)
        await self._membership.enforce()

    async def _record_stop(self) -> None:
        if self._traffic.is_unrecorded:
            try:
                await asyncio.to_thread(self._traffic.record)
            except LeaseLostError as error:
                _log.error("stop of traffic control not recorded, repeat it reason=%s", error)
            except StateError:
                pass  # the one who ordered it knows

    async def _tell_gateways(self) -> None:
        enrolment = self._membership.enrolment
        access = self._services.access.live()
        self._gateways.send_state(self._fleet_now(), enrolment.refusal, enrolment.removed, access)
        if not self._gateways.roster.changed:
            return
        try:
            await asyncio.to_thread(self._gateways.roster.keep)
        except StateError as error:
            _log.error("gateways not saved, retrying reason=%s", error)

    async def _tell(self) -> None:
        now_ns = time.monotonic_ns()
        if self._alerts.has_rows and (rows := await asyncio.to_thread(self._alerts.rows)):
            self._ingest.put_local(rows)
        await asyncio.to_thread(self._alerts.deliver, now_ns, self._now(), self._clock.now_ns())

    async def _sum_up_minutes(self) -> None:
        if (fleet_now_ns := self._fleet_now()) is not None:
            await asyncio.to_thread(sum_up_minutes, self._store, fleet_now_ns)

    async def _expire(self) -> None:
        if (fleet_now_ns := self._fleet_now()) is not None:
            await asyncio.to_thread(keep, self._store, fleet_now_ns, self._detail_ns)
