"""The controller's metrics for Prometheus: fleet, store, controller."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from syntony.alerts.incidents import Incident, IncidentState
from syntony.controller.audits import AuditRuns
from syntony.controller.config import ControllerConfig, PlacementMode
from syntony.controller.enrolment_service import EnrolmentService
from syntony.controller.fleet import Fleet
from syntony.controller.gateways import Gateways
from syntony.controller.incidents import IncidentService
from syntony.controller.ingest import MAX_QUEUED_BYTES, Ingest
from syntony.controller.job_diagnosis import JOB_RESULTS, JobDiagnosis
from syntony.controller.last_reports import LastReports
from syntony.controller.leadership import Leadership
from syntony.controller.locating import LocateLoop
from syntony.controller.loops import LoopCount, Loops
from syntony.controller.placing import PlacementService
from syntony.controller.services import Services
from syntony.controller.sla import with_flows
from syntony.controller.solve import SolveLoop
from syntony.controller.stored_rows import StoredRows
from syntony.controller.traffic import TrafficService
from syntony.errors import StateError
from syntony.io import descriptors
from syntony.io.credentials import civil_now
from syntony.io.scrape import ScrapeServer, ServerTls, put_process, serve
from syntony.metrics.sheet import Sheet
from syntony.metrics.text import render
from syntony.model import ClockState, S
from syntony.model.findings import Finding, Queue
from syntony.model.sla import SlaRow, SlaStatus

MOVE_RESULTS = (
    "ordered", "would-move", "no-port", "helped", "kept", "no-gain", "undone", "ended", "late",
    "failed",
)  # fmt: skip
PATIENCE_S = 4.0
"""Time limit for the event loop to answer a scrape."""


class MetricsSource(Protocol):
    async def sheet(self) -> Sheet:
        """One page; on the event loop."""


class Exporter(NamedTuple):
    services: Services
    last_reports: LastReports
    ingest: Ingest
    rows: StoredRows
    loops: Loops
    fleet_now: Callable[[], int | None]

    async def sheet(self) -> Sheet:
        """One page; on the event loop."""
        sheet, services = new_sheet(), self.services
        put_fleet(sheet, services.fleet, self.last_reports)
        put_clocks(sheet, services.solving, self.fleet_now())
        put_traffic(sheet, services.traffic)
        put_ingest(sheet, self.ingest)
        sheet.put("gateway_repeated_batches_total", self.rows.repeated)
        put_loops(sheet, self.loops.counts)
        put_findings(sheet, services.locating.answer.findings)
        put_slas(sheet, services.slas.rows)
        put_fabric(sheet, services.locating)
        put_queues(sheet, services.locating.queues, services.traffic)
        put_placement(sheet, services.placement.service)
        put_jobs(sheet, services.jobs)
        put_audits(sheet, services.audits)
        sheet.put("state_failures_total", services.state.database.failures)
        put_identities(sheet, services.membership, services.leadership)
        put_gateways(sheet, services.gateways)
        await asyncio.to_thread(put_incidents, sheet, services.alerts)
        return sheet


def open_metrics(config: ControllerConfig, exporter: MetricsSource) -> ScrapeServer | None:
    """Listen for Prometheus, if configured; called on the event loop. Raises `ConfigError`."""
    settings = config.metrics
    if not settings.listen:
        return None
    answer = partial(_page, asyncio.get_running_loop(), exporter)
    tls = ServerTls(config.tls, settings.clients) if settings.tls else None
    return serve(settings.listen, answer, tls)


def _page(
    loop: asyncio.AbstractEventLoop, exporter: MetricsSource, accept: str
) -> tuple[str, str] | None:
    """The answer to one scrape, from another thread; None if the loop does not answer in time."""
    if loop.is_closed():
        return None
    waiting = asyncio.run_coroutine_threadsafe(exporter.sheet(), loop)
    try:
        return render(waiting.result(PATIENCE_S), accept)
    except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
        waiting.cancel()
        return None


def new_sheet(role: str = "controller") -> Sheet:
    sheet = Sheet({"role": role, "host": ""})
    put_process(sheet)
    sheet.put("open_files", descriptors.count_open())
    sheet.put("open_files_limit", descriptors.limit())
    sheet.put("api_connections_refused_total", descriptors.count_refused(descriptors.Share.API))
    return sheet


def put_fleet(sheet: Sheet, fleet: Fleet, last_reports: LastReports) -> None:
    """Agents and the plan."""
    members = sorted(fleet.members.items())
    connected = sum(member.connected for _, member in members)
    sheet.put("agents", connected, state="connected")
    sheet.put("agents", len(members) - connected, state="absent")
    silent_ns = last_reports.silent(fleet.members, grace_ns=0)
    sheet.put("controller_away_seconds_total", last_reports.paused_ns / S)
    for host, member in members:
        sheet.put("agent_connected", member.connected, host=host)
        sheet.put("agent_silent_seconds", silent_ns[host] / S, host=host)
        sheet.put("agent_dropped_total", member.dropped, host=host)
    sheet.put("agents_refused_total", fleet.refused)
    unused = sum(len(member.faults) for _, member in members) + len(fleet.contested)
    sheet.put("agent_unused_nics", unused)
    sheet.put("plan_generation", fleet.mesh.generation)
    sheet.put("plan_flows", sum(map(len, fleet.mesh.flows.values())))
    sheet.put("ingest_batches_total", sum(member.batches for _, member in members))
    sheet.put("ingest_rows_total", sum(member.rows for _, member in members))
    sheet.put("ingest_refused_rows_total", sum(member.refused_rows for _, member in members))


def put_clocks(sheet: Sheet, solving: SolveLoop, fleet_ns: int | None) -> None:
    """Clocks by state, and the largest error of synchronized ones."""
    states = Counter(line.state for line in solving.timelines)
    for state in ClockState:
        sheet.put("fleet_clocks", states[state], state=state.value)
    sigmas = [line.sigma_ns for line in solving.timelines if line.state is ClockState.SYNCHRONIZED]
    sheet.put("fleet_clock_error_seconds", max(sigmas) / S if sigmas else None)
    sheet.put("fleet_time_known", fleet_ns is not None)
    sheet.put("fleet_time_steps_total", solving.steps)


def put_ingest(sheet: Sheet, ingest: Ingest) -> None:
    sheet.put("ingest_queued_bytes", ingest.queued_bytes)
    sheet.put("ingest_queue_limit_bytes", MAX_QUEUED_BYTES)
    sheet.put("ingest_own_tables_shed_total", ingest.local_shed)
    sheet.put("store_up", not ingest.failing)
    sheet.put("store_inserts_total", ingest.inserts)
    sheet.put("store_insert_seconds_total", ingest.insert_ns / S)
    sheet.put("store_failures_total", ingest.failures)


def put_loops(sheet: Sheet, loops: Mapping[str, LoopCount]) -> None:
    """Delays and counters of the controller's loops."""
    for name, count in loops.items():
        sheet.put("loop_runs_total", count.runs, loop=name)
        sheet.put("loop_seconds_total", count.spent_ns / S, loop=name)
        sheet.put("loop_failures_total", count.failures, loop=name)


def put_traffic(sheet: Sheet, traffic: TrafficService) -> None:
    """The stop switch, and agents' modes."""
    switch = traffic.switch
    sheet.put("traffic_stopped", switch is not None and switch.stopped)
    status = traffic.status(time.monotonic_ns())
    for mode, hosts in Counter(host.report.mode for host in status.hosts).items():
        sheet.put("traffic_hosts", hosts, mode=mode)


def put_findings(sheet: Sheet, findings: Iterable[Finding]) -> None:
    """Current faults: few series, regardless of the fleet's size."""
    found = tuple(findings)
    for (kind, fault), count in Counter((each.kind, each.fault) for each in found).items():
        sheet.put("findings", count, kind=kind, fault=fault)
    for each in found:
        labels = {"component": each.component, "kind": each.kind, "fault": each.fault}
        sheet.put("finding_loss_ratio", each.loss, **labels)
        sheet.put("finding_delay_seconds", each.delay_ns / S, **labels)


def put_slas(sheet: Sheet, rows: Iterable[SlaRow] | None) -> None:
    """Verdicts on latency; absent before the first evaluation."""
    if rows is None:
        return
    statuses = Counter(row.status for row in rows)
    for status in SlaStatus:
        sheet.put("sla_pairs", statuses[status], status=status.value)


def put_fabric(sheet: Sheet, locating: LocateLoop) -> None:
    """The traced fabric; absent before its first evaluation."""
    sheet.put("fabric_ways", locating.ways)
    status = locating.changes.status
    if status is not None:
        sheet.put("fabric_cables", status.cables)
        sheet.put("fabric_cables_lost", len(status.lost))
        sheet.put("fabric_nics_misplaced", len(status.misplaced))
    for (change, what), count in list(locating.changes.counts.items()):
        sheet.put("fabric_changes_total", count, change=change, what=what)


def put_queues(sheet: Sheet, queues: Iterable[Queue] | None, traffic: TrafficService) -> None:
    """Links at which packets wait: few; absent before the first evaluation."""
    if queues is None:
        return
    reported = with_flows(queues, traffic.flows(time.monotonic_ns()))
    sheet.put("queues", len(reported))
    for each in reported:
        sheet.put("queue_delay_seconds", each.delay_ns / S, component=each.component)
        sheet.put("queue_flows", len(each.flows), component=each.component)


def put_placement(sheet: Sheet, placing: PlacementService) -> None:
    """Mode of placement and pacing, and their actions."""
    sheet.state("placement_mode", PlacementMode, placing.mode, label="mode")
    sheet.put("placement_deciding", placing.deciding[0])
    placed = sum(row.flow is not None for row in placing.rows)
    sheet.put("placement_flows", placed, state="placed")
    sheet.put("placement_flows", len(placing.rows) - placed, state="unknown")
    for result in MOVE_RESULTS:
        sheet.put("placement_moves_total", placing.counts[result], result=result)


def put_jobs(sheet: Sheet, jobs: JobDiagnosis) -> None:
    """Running jobs, and the cost of evaluating them."""
    sheet.put("jobs_running", jobs.running)
    for result in JOB_RESULTS:
        sheet.put("jobs_judged_total", jobs.counts[result], result=result)
    sheet.put("jobs_judged_seconds_total", jobs.spent_ns / S)


def put_audits(sheet: Sheet, audits: AuditRuns) -> None:
    """Audits through agents; verdicts are made where the reports are read."""
    sheet.put("audits_ordered_total", audits.ordered)
    sheet.put("audit_reports_total", audits.reported)
    sheet.put("audit_reports_waiting", audits.waiting)


def put_identities(sheet: Sheet, membership: EnrolmentService, leadership: Leadership) -> None:
    """Certificates, and whether this controller is in charge."""
    certificate = membership.certificate
    if certificate is not None:
        left_ns = max(0, certificate.validity.expires_ns - civil_now())
        sheet.put("certificate_expiry_seconds", left_ns / S)
    sheet.put("enrolment_refused_total", membership.enrolment.refusals)
    sheet.put("certificates_revoked", len(membership.enrolment.revocations.serials))
    sheet.put("controller_epoch", leadership.epoch)
    sheet.put("controller_later_epoch", leadership.seen)


def put_gateways(sheet: Sheet, gateways: Gateways) -> None:
    for each in gateways.statuses():
        if each.left:
            continue
        sheet.put("gateway_connected", each.connected, gateway=each.name)
        sheet.put("gateway_agents", each.agents, gateway=each.name)
        sheet.put("gateway_lag_seconds", each.lag_ns / S, gateway=each.name)


def put_incidents(sheet: Sheet, service: IncidentService) -> None:
    live = service.live()
    states = Counter((each.rule, each.severity.value, _state(each)) for each in live)
    for (rule, severity, state), count in states.items():
        sheet.put("incidents", count, rule=rule, severity=severity, state=state)
    for each in live:
        if not each.cause:
            sheet.put(
                "incident_firing", 1, rule=each.rule, severity=each.severity.value,
                component=each.subject,
            )  # fmt: skip
    for known in service.rules:
        labels = {"rule": known.name, "severity": known.severity.value}
        sheet.put("incidents_opened_total", service.opened[known.name], **labels)
        sheet.put("incidents_resolved_total", service.resolved[known.name], **labels)
    if service.evaluated_ns:
        sheet.put("evaluation_timestamp_seconds", service.evaluated_ns / S)
    notifier = service.notifier
    with contextlib.suppress(StateError):  # unknown: no sample
        sheet.put("messages_waiting", notifier.waiting())
    sheet.put("messages_delivered_total", notifier.delivered)
    sheet.put("messages_refused_total", notifier.refused)
    sheet.put("messages_shed_total", notifier.shed)


def _state(incident: Incident) -> str:
    if incident.cause:
        return "explained"
    if incident.silenced and incident.state is IncidentState.OPEN:
        return "silenced"
    return incident.state.value
