"""Evaluates the rules: periodically, and at once when findings change."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from syntony.alerts.observations import Observation
from syntony.controller.enrolment import Enrolment
from syntony.controller.extra_probes import ExtraProbeService
from syntony.controller.fleet import Fleet
from syntony.controller.gateways import Gateways
from syntony.controller.incident_inputs import EvaluationInputs, LatencyInputs
from syntony.controller.incidents import IncidentService
from syntony.controller.job_diagnosis import JobDiagnosis
from syntony.controller.job_takeovers import LostRanks
from syntony.controller.last_reports import LastReports
from syntony.controller.locating import LocateLoop
from syntony.controller.probe_keys import ProbeKeyDistribution
from syntony.controller.queue_pairs import QueuePairService
from syntony.controller.silent_agents import Refused, gateway_subject, of_gateways
from syntony.controller.sla import SlaService, with_flows
from syntony.controller.solve import SolveLoop
from syntony.controller.traffic import TrafficService
from syntony.errors import StateError, StoreError
from syntony.fabric.extra_probes import ExtraProbe, Pair, separating
from syntony.fabric.names import ARROW
from syntony.model import S, format_ns

T = TypeVar("T")
LOCATED_NS = 3 * S
"""Findings that are older are neither confirmed nor over: normally there are new ones every
second."""
WITHOUT_TIME_NS = 60 * S
STORE_NS = 1 * S
"""An evaluation does not wait longer for the store."""
_log = logging.getLogger(__name__)


def evaluation_time(
    fleet_ns: int | None, waited_ns: int, local_now: Callable[[], int]
) -> int | None:
    """Fleet time; this host's if there is none after `WITHOUT_TIME_NS`: a fleet without fleet time
    may still have silent hosts and dead ports."""
    return local_now() if fleet_ns is None and waited_ns > WITHOUT_TIME_NS else fleet_ns


class IncidentEvaluation:
    """Evaluates the rules periodically, and at once when findings change.

    One per controller; on its event loop.

    Args:
        fleet_now: fleet time, None while unknown.
        local_now: this host's time.
    """

    def __init__(
        self,
        *,
        alerts: IncidentService,
        fleet: Fleet,
        keys: ProbeKeyDistribution,
        enrolment: Enrolment,
        gateways: Gateways,
        last_reports: LastReports,
        solving: SolveLoop,
        locating: LocateLoop,
        slas: SlaService,
        traffic: TrafficService,
        queue_pairs: QueuePairService,
        jobs: JobDiagnosis,
        lost_ranks: LostRanks,
        fleet_now: Callable[[], int | None],
        local_now: Callable[[], int],
    ) -> None:
        self._alerts = alerts
        self._fleet = fleet
        self._keys, self._enrolment = keys, enrolment
        self._gateways = gateways
        self._last_reports = last_reports
        self._solving = solving
        self._locating = locating
        self._slas = slas
        self._traffic = traffic
        self._queue_pairs, self._jobs, self._lost_ranks = queue_pairs, jobs, lost_ranks
        self._fleet_now, self._local_now = fleet_now, local_now
        self._started_ns = time.monotonic_ns()
        self._one = asyncio.Lock()
        """Allows one evaluation at a time: two would count as two in a row."""
        self._extra_probes = ExtraProbeService(self._separating)
        self._questions: dict[str, asyncio.Task[Any]] = {}
        """Questions to the store that it has not answered yet."""
        self._blamed: set[tuple[str, str]] = set()
        """(component, fault) of the findings at the last call, and components that are gone."""
        self._located_ns = -LOCATED_NS
        """When localisation last answered, CLOCK_MONOTONIC."""

    async def listen(self) -> None:
        """Record that the controller is running: often, so that pauses are detected."""
        paused_ns = self._last_reports.tick(time.monotonic_ns())
        if paused_ns:
            _log.warning(
                "this controller was not running for=%s; agents' silence before that is ignored",
                format_ns(paused_ns),
            )

    async def look(self) -> None:
        """Evaluate latency against its objectives."""
        if (fleet_now_ns := self._fleet_now()) is None:
            return
        try:
            await asyncio.to_thread(self._slas.look, fleet_now_ns)
        except StoreError as error:
            _log.error("latency not judged reason=%s", error)

    async def judge(self) -> None:
        """One evaluation; skipped for what was known before this controller paused. A fleet without
        fleet time is given a while to find it, then evaluated by this host's time."""
        await self.listen()
        waited_ns = time.monotonic_ns() - self._started_ns
        fleet_now_ns = evaluation_time(self._fleet_now(), waited_ns, self._local_now)
        if fleet_now_ns is None or not self._last_reports.settled:
            return
        async with self._one:
            silent_ns = self._last_reports.silent(self._expected_hosts())
            answer = self._locating.answer
            try:
                inputs = EvaluationInputs(
                    silent_ns,
                    self._solving.timelines,
                    answer.findings,
                    await self._latency_inputs(fleet_now_ns),
                    expected_clocks=self._fleet.mesh.probed,
                    fabric=self._locating.changes.status,
                    homes=await asyncio.to_thread(self._locating.homes),
                    agent_parts=self._fleet.parts(time.monotonic_ns()),
                    answering=self._locating.answering,
                    in_band=self._fleet.in_band(),
                    heirs=self._fleet.heirs(),
                    refused=Refused(dict(self._enrolment.refused), self._enrolment.removed),
                    notes=self._extra_probes.notes(time.monotonic_ns()),
                    gateways=self._absent_gateways(silent_ns),
                    pairs=self._fleet.probe_ports().keys(),
                    answered_ns=self._locating.changes.answered_ns,
                    findings_ns=answer.ts_ns,
                    located=time.monotonic_ns() - self._located_ns < LOCATED_NS,
                )
                links = await self._ask_store(self._alerts.read_links, fleet_now_ns)
                await asyncio.to_thread(self._alerts.judge, fleet_now_ns, inputs, links)
            except (StateError, StoreError) as error:
                _log.error("rules not evaluated reason=%s", error)

    def _expected_hosts(self) -> list[str]:
        """All that have attached once, to any controller, and were not removed."""
        known = dict.fromkeys((*self._fleet.members, *self._keys.known_hosts))
        return [host for host in known if host not in self._enrolment.removed]

    def _absent_gateways(self, silent_ns: Mapping[str, int]) -> list[Observation]:
        subjects = {gateway_subject(name): name for name in sorted(self._gateways.roster.names)}
        absent_ns = self._last_reports.silent(subjects)
        return of_gateways(
            {subjects[each]: age_ns for each, age_ns in absent_ns.items()},
            self._gateways.ever_connected,
            {host: member.via for host, member in self._fleet.members.items()},
            silent_ns,
            self._locating.answering,
        )

    async def findings_changed(self) -> None:
        """Localisation has new results: new components at fault are evaluated at once."""
        findings = self._locating.answer.findings
        now_ns = self._located_ns = time.monotonic_ns()
        planned = self._fleet.probe_ports().keys()
        self._fleet.set_extra_pairs(
            await asyncio.to_thread(self._extra_probes.step, findings, planned, now_ns), now_ns
        )
        status = self._locating.changes.status
        blamed = {(found.component, found.fault) for found in findings}
        blamed |= {(switch, "gone") for switch in (status.gone if status is not None else ())}
        if blamed != self._blamed:
            self._blamed = blamed
            await self.judge()

    def _separating(
        self, suspects: Collection[str], planned: Collection[Pair], limit: int
    ) -> ExtraProbe:
        crossed = self._locating.crossings().values()
        links = {name for each in crossed for name in each.components if ARROW in name}
        probed = {nic for pair in planned for nic in pair}
        homes = {nic: at for nic, at in self._locating.homes().items() if nic in probed}
        return separating(suspects, links, homes, planned=planned, limit=limit)

    async def _latency_inputs(self, fleet_now_ns: int) -> LatencyInputs:
        queues, flows = self._locating.queues, self._traffic.flows(time.monotonic_ns())
        jobs = self._traffic.used(time.monotonic_ns())
        crossed = await asyncio.to_thread(self._locating.crossings)
        return LatencyInputs(
            self._slas.rows,
            None if queues is None else with_flows(queues, flows),
            {pair: each.components for pair, each in crossed.items()},
            jobs,
            self._slas.planes,
            self._queue_pairs.stalls,
            self._fleet.nic_names(),
            self._jobs.known(time.monotonic_ns()),
            await self._ask_store(self._lost_ranks.observations, fleet_now_ns),
        )

    async def _ask_store(self, ask: Callable[[int], T | None], fleet_now_ns: int) -> T | None:
        """The answer; None: there is none yet. Each question is asked, and waited for, once."""
        name, wait_s = ask.__name__, 0.0
        if name not in self._questions:
            self._questions[name] = asyncio.create_task(asyncio.to_thread(ask, fleet_now_ns))
            wait_s = STORE_NS / S
        done, _ = await asyncio.wait((self._questions[name],), timeout=wait_s)
        return self._questions.pop(name).result() if done else None
