"""Handlers of requests: answers from the store and the controller's own state."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from syntony import cost
from syntony.clock.truth import compare
from syntony.controller.audit_view import audit_view
from syntony.controller.job_report import job_report
from syntony.controller.places import Names
from syntony.controller.questions import DAY_NS, ORDER, READ, Requested, Runs, question
from syntony.controller.recordings import recording
from syntony.controller.sla import with_flows
from syntony.errors import UsageError
from syntony.io.true_clocks import true_clocks
from syntony.mesh.planes import disagreements
from syntony.model import MS, S
from syntony.store.queries import MINUTE_NS
from syntony.wire.access_tokens import AccessTokens, AccessTokensQuery
from syntony.wire.audit import AuditReports, AuditReportsQuery, AuditView, AuditViewQuery
from syntony.wire.clocks import (
    ClockHistory,
    ClockHistoryQuery,
    ClockQuery,
    Clocks,
    ClockTruthQuery,
    ClockTruths,
    Pairs,
    PairsQuery,
)
from syntony.wire.control import (
    CHANGES_LIMIT,
    Changes,
    ChangesQuery,
    ControllerQuery,
    ControllerStatus,
)
from syntony.wire.cost import CostQuery, CostReport
from syntony.wire.enrol import Identities, IdentitiesQuery, Issued, RenewQuery
from syntony.wire.fabric import (
    FabricChanges,
    FabricChangesQuery,
    FabricMap,
    Findings,
    FindingsQuery,
    LearntPaths,
    PathsQuery,
    TopologyQuery,
)
from syntony.wire.failover import (
    ConnectionsQuery,
    FailoverLog,
    FailoverLogQuery,
    FailoverStatus,
    FailoverStatusQuery,
    FleetConnections,
)
from syntony.wire.incidents import IncidentsQuery, IncidentsReply, RulesQuery, RulesReply
from syntony.wire.jobs import (
    JobReport,
    JobReportQuery,
    Jobs,
    JobsQuery,
    Recording,
    RecordingQuery,
)
from syntony.wire.links import LinkHistory, LinkHistoryQuery, Links, LinksQuery
from syntony.wire.messages import AgentStatus, Fleet, FleetQuery
from syntony.wire.probes import (
    KeysQuery,
    KeysStatus,
    Matrix,
    MatrixQuery,
    Plane,
    PlaneDisagreement,
    Planes,
    PlanesQuery,
    PlanQuery,
    ProbePlan,
    Series,
    SeriesQuery,
)
from syntony.wire.queue_pairs import QueuePairs, QueuePairsQuery
from syntony.wire.roles import Role
from syntony.wire.sla import (
    Queues,
    QueuesQuery,
    SlaChecked,
    SlaCheckQuery,
    SlaReport,
    SlaReportQuery,
)
from syntony.wire.traffic import MoveList, MovesQuery, Traffic, TrafficQuery

if TYPE_CHECKING:
    from syntony.controller.fleet import Member

MAX_WINDOW_NS = 7 * DAY_NS
MAX_HISTORY_NS = 90 * DAY_NS
"""Events and clocks: everything stored can be queried."""
MAX_RECORDING_NS = DAY_NS
"""Of one job; its rows are limited in addition (`syntony.store.jobs.MAX_ROWS`)."""
MAX_REPORT_NS = 600 * S
"""Of one job, evaluated here: the rules take seconds for long recordings of large jobs."""
MAX_CHANGES_NS = 365 * DAY_NS
CLOCK_SAMPLES = 60_000
"""Maximum samples in one answer."""
MAX_LOG_ROWS = 10_000
MAX_MOVES = 1_000

# --- from the store ---


@question(MatrixQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS, shared=True)
def matrix(requested: Requested, query: MatrixQuery) -> Matrix:
    window = requested.window(query.window_ns, query.end_ns)
    return Matrix(cells=requested.services.store.matrix(*window, query.over))


@question(PlanesQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS, shared=True)
def planes(requested: Requested, query: PlanesQuery) -> Planes:
    window, latency = requested.window(query.window_ns), requested.services.store.latency
    verbs = latency.classes(Plane.VERBS, *window)
    udp = latency.classes(Plane.UDP, *window) if verbs else {}
    found = disagreements(udp, verbs)
    return Planes(
        disagreements=tuple(PlaneDisagreement(**each._asdict()) for each in found),
        compared=sum((*place[:2], 0) in udp or place in udp for place in verbs),
    )


@question(SeriesQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS, shared=True)
def series(requested: Requested, query: SeriesQuery) -> Series:
    if query.step_ns < 0 or query.step_ns % S:
        raise UsageError(f"a step of {query.step_ns} ns; give whole seconds, or 0")
    step = max(query.step_ns // S, 1)
    first_ns, last_ns = requested.window(query.window_ns, query.end_ns)
    if step * S % MINUTE_NS == 0:  # whole minutes: the edges need no seconds
        first_ns -= first_ns % (step * S)
    points = requested.services.store.series(first_ns, last_ns, query.src, query.dst, step)
    return Series(points=points)


@question(LinksQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS, shared=True)
def links(requested: Requested, query: LinksQuery) -> Links:
    ports = requested.services.store.links.ports(*requested.window(query.window_ns))
    return Links(ports=ports, now_ns=requested.fleet_ns or 0)


@question(LinkHistoryQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS, shared=True)
def link_history(requested: Requested, query: LinkHistoryQuery) -> LinkHistory:
    rows, window = requested.services.store.links, requested.window(query.window_ns)
    return LinkHistory(
        events=rows.events(*window, query.nic),
        counters=rows.counters(*window, query.nic),
        now_ns=requested.fleet_ns or 0,
    )


@question(ClockTruthQuery, READ, Runs.LOOP)
def clock_truth(requested: Requested, _: ClockTruthQuery) -> ClockTruths:
    solving = requested.services.solving
    return ClockTruths(clocks=tuple(compare(true_clocks(solving.true), solving.timelines)))


@question(ClockHistoryQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS)
def clock_history(requested: Requested, query: ClockHistoryQuery) -> ClockHistory:
    if query.step_ns < 0:
        raise UsageError(f"a step of {query.step_ns} ns; give a positive one, or 0")
    clocks = 1 if query.node else max(1, len(requested.services.solving.timelines))
    finest_ns = -(-clocks * query.window_ns // CLOCK_SAMPLES)
    step_ns = max(query.step_ns, finest_ns, MS)
    window = requested.window(query.window_ns, query.end_ns)
    samples = requested.services.store.clock_history(*window, query.node, step_ns)
    return ClockHistory(samples=samples, step_ns=step_ns)


@question(
    FailoverLogQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS, most=MAX_LOG_ROWS, shared=True
)
def failover_log(requested: Requested, query: FailoverLogQuery) -> FailoverLog:
    window = requested.window(query.window_ns, query.end_ns)
    found = requested.services.store.path_events(
        *window, job=query.job, host=query.host, limit=query.limit
    )
    return FailoverLog(events=found)


@question(FabricChangesQuery, READ, Runs.STORE, longest_ns=MAX_CHANGES_NS, shared=True)
def fabric_changes(requested: Requested, query: FabricChangesQuery) -> FabricChanges:
    return FabricChanges(
        changes=requested.services.store.fabric.changes(*requested.window(query.window_ns))
    )


@question(SlaReportQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS)
def sla_report(requested: Requested, query: SlaReportQuery) -> SlaReport:
    pairs = requested.services.traffic.pairs(time.monotonic_ns())
    return requested.services.slas.report(query.by, query.window_ns, requested.measured_ns(), pairs)


@question(SlaCheckQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS)
def sla_check(requested: Requested, query: SlaCheckQuery) -> SlaChecked:
    about = [
        (each.subject, each.summary)
        for each in requested.services.alerts.live()
        if each.subject == query.host or Names.holds(query.host, each.subject)
    ]
    return requested.services.slas.check(
        query.host, query.window_ns, requested.measured_ns(), about
    )


@question(JobsQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS, shared=True)
def jobs(requested: Requested, query: JobsQuery) -> Jobs:
    found = requested.services.store.jobs.jobs(*requested.window(query.window_ns))
    return Jobs(now_ns=requested.fleet_ns or 0, jobs=found)


@question(RecordingQuery, READ, Runs.STORE, longest_ns=MAX_RECORDING_NS, shared=True)
def job_recording(requested: Requested, query: RecordingQuery) -> Recording:
    return recording(requested.services.store, query, requested.measured_ns())


@question(JobReportQuery, READ, Runs.STORE, longest_ns=MAX_REPORT_NS, shared=True)
def report_of_job(requested: Requested, query: JobReportQuery) -> JobReport:
    return job_report(requested.services.store, query, requested.measured_ns())


@question(AuditViewQuery, READ, Runs.STORE)
def view_of_audit(requested: Requested, query: AuditViewQuery) -> AuditView:
    return audit_view(requested.services.audits, query)


# --- large, from memory ---


@question(TopologyQuery, READ, Runs.STORE)
def fabric_map(requested: Requested, _: TopologyQuery) -> FabricMap:
    return requested.services.locating.fabric_map()


@question(PlanQuery, READ, Runs.STORE)
def probe_plan(requested: Requested, _: PlanQuery) -> ProbePlan:
    fleet = requested.services.fleet
    return ProbePlan(
        generation=fleet.mesh.generation, flows=fleet.flows(), verbs=fleet.verbs_flows()
    )


@question(PathsQuery, READ, Runs.STORE)
def learnt_paths(requested: Requested, _: PathsQuery) -> LearntPaths:
    return LearntPaths(paths=requested.services.locating.paths())


# --- from control state ---


@question(FleetQuery, READ, Runs.DISK)
def fleet(requested: Requested, _: FleetQuery) -> Fleet:
    contested: dict[str, list[str]] = defaultdict(list)
    for ref, address in requested.services.fleet.contested.items():
        contested[ref.host].append(f"nic={ref.nic} reason=another host claims {address} too")
    for ref, addresses in requested.services.fleet.withheld.items():
        contested[ref.host] += [
            f"nic={ref.nic} without={each} reason=another host claims it too" for each in addresses
        ]
    agents = tuple(
        _agent(host, member, contested.get(host, ()))
        for host, member in sorted(requested.services.fleet.members.items())
    )
    return Fleet(
        agents=agents,
        rows_stored=requested.services.store.count_rows(),
        probes_per_s=sum(agent.probes_per_s for agent in agents),
    )


def _agent(host: str, member: Member, contested: list[str] | tuple[()]) -> AgentStatus:
    return AgentStatus(
        host=host,
        connected=member.connected,
        nics=member.hello.nics,
        version=member.hello.version,
        last_batch_ns=member.newest_ns,
        batches=member.batches,
        rows=member.rows,
        dropped=member.dropped + member.refused_rows,
        probes_per_s=member.probes_per_s if member.connected else 0.0,
        faults=(*member.faults, *contested),
        parts=member.parts(time.monotonic_ns()),
    )


@question(IncidentsQuery, READ, Runs.DISK)
def incidents(requested: Requested, query: IncidentsQuery) -> IncidentsReply:
    return requested.services.alerts.incidents(query, requested.now_ns)


@question(ControllerQuery, READ, Runs.LOOP)
def controller_status(requested: Requested, _: ControllerQuery) -> ControllerStatus:
    services = requested.services
    gateways = services.gateways.statuses()
    return services.leadership.status(len(services.sessions), gateways)


@question(CostQuery, READ, Runs.DISK)
def costs(requested: Requested, query: CostQuery) -> CostReport:
    """Failures in this fleet, in addition to the assumptions."""
    if not query.history_ns:
        return cost.cost(query)
    cost.check(query)
    if query.history_ns > MAX_HISTORY_NS:
        raise UsageError(f"a history of {query.history_ns} ns; ask for up to 90 days")
    asked = IncidentsQuery(resolved=True, since_ns=query.history_ns)
    known = requested.services.alerts.incidents(asked, requested.now_ns).incidents
    return cost.cost(query, cost.observed(known, query.history_ns, requested.now_ns))


@question(ChangesQuery, READ, Runs.DISK, longest_ns=MAX_CHANGES_NS, most=CHANGES_LIMIT)
def changes(requested: Requested, query: ChangesQuery) -> Changes:
    found = requested.services.state.changes(requested.now_ns - query.window_ns, query.limit)
    return Changes(changes=found)


@question(AuditReportsQuery, ORDER, Runs.DISK)
def audit_reports(requested: Requested, query: AuditReportsQuery) -> AuditReports:
    return requested.services.audits.reports(query)


@question(IdentitiesQuery, READ, Runs.DISK)
def identities(requested: Requested, _: IdentitiesQuery) -> Identities:
    sessions = list(requested.services.sessions.values())
    return requested.services.membership.enrolment.listing(
        {session.certificate.serial for session in sessions}
    )


@question(AccessTokensQuery, READ, Runs.DISK)
def access_tokens(requested: Requested, _: AccessTokensQuery) -> AccessTokens:
    return requested.services.access.listing()


@question(RenewQuery, frozenset(Role) - {Role.CONTROLLER}, Runs.DISK)
def renew(requested: Requested, query: RenewQuery) -> Issued:
    return requested.services.membership.enrolment.renew(query, requested.who)


# --- as things are now ---


@question(ClockQuery, READ, Runs.LOOP)
def clocks(requested: Requested, _: ClockQuery) -> Clocks:
    return Clocks(
        timelines=requested.services.solving.timelines, utc=requested.services.solving.utc
    )


@question(PairsQuery, READ, Runs.LOOP)
def clock_pairs(requested: Requested, _: PairsQuery) -> Pairs:
    return Pairs(edges=requested.services.solving.edges())


@question(FindingsQuery, READ, Runs.LOOP)
def findings(requested: Requested, _: FindingsQuery) -> Findings:
    return requested.services.locating.answer


@question(QueuesQuery, READ, Runs.LOOP)
def queues(requested: Requested, _: QueuesQuery) -> Queues:
    requested.measured_ns()
    found = requested.services.locating.queues
    flows = requested.services.traffic.flows(time.monotonic_ns())
    return Queues(queues=with_flows(found or (), flows), looked=found is not None)


@question(RulesQuery, READ, Runs.LOOP)
def rules(requested: Requested, _: RulesQuery) -> RulesReply:
    return requested.services.alerts.reported_rules()


@question(ConnectionsQuery, READ, Runs.LOOP)
def connections(requested: Requested, query: ConnectionsQuery) -> FleetConnections:
    return requested.services.traffic.paths(query, time.monotonic_ns())


@question(FailoverStatusQuery, READ, Runs.LOOP)
def failover_status(requested: Requested, _: FailoverStatusQuery) -> FailoverStatus:
    return requested.services.traffic.status(time.monotonic_ns())


@question(TrafficQuery, READ, Runs.LOOP)
def traffic(requested: Requested, query: TrafficQuery) -> Traffic:
    return requested.services.placement.traffic(query, time.monotonic_ns())


@question(QueuePairsQuery, READ, Runs.LOOP)
def queue_pairs(requested: Requested, query: QueuePairsQuery) -> QueuePairs:
    return requested.services.queue_pairs.answer(query, requested.measured_ns())


@question(MovesQuery, READ, Runs.LOOP, most=MAX_MOVES)
def moves(requested: Requested, query: MovesQuery) -> MoveList:
    return MoveList(moves=requested.services.placement.service.moves(query.job, query.limit))


@question(KeysQuery, READ, Runs.LOOP)
def probe_keys(requested: Requested, _: KeysQuery) -> KeysStatus:
    return requested.services.keys.status()
