"""Handlers of requests: answers from the store and the controller's own state."""

from __future__ import annotations

import time
from collections import defaultdict

import msgspec

from syntony import cost
from syntony.clock.truth import compare
from syntony.controller.audit_view import audit_view
from syntony.controller.containment import NameContainment
from syntony.controller.fleet import Member
from syntony.controller.job_report import job_report
from syntony.controller.questions import ORDER, READ, RequestContext, Runs, question
from syntony.controller.recordings import recording
from syntony.controller.sla import with_flows
from syntony.errors import UsageError
from syntony.io.true_clocks import true_clocks
from syntony.mesh.planes import disagreements
from syntony.model import DAY_NS, MS, S
from syntony.store import Store
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
from syntony.wire.tables import CLOCK
from syntony.wire.traffic import MoveList, MovesQuery, Traffic, TrafficQuery

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
def matrix(context: RequestContext, query: MatrixQuery) -> Matrix:
    store, end_ns = context.services.store, query.end_ns
    if query.newest and not end_ns:
        end_ns = _stored_end_ns(store, query.over)
    window = context.window(query.window_ns, end_ns)
    cells = store.matrix(*window, query.over)
    lag_ns = max(0, (context.fleet_ns or 0) - window[1]) if query.newest else 0
    return Matrix(cells=cells, lag_ns=lag_ns)


@question(PlanesQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS, shared=True)
def planes(context: RequestContext, query: PlanesQuery) -> Planes:
    store = context.services.store
    end_ns = _stored_end_ns(store, *Plane) if query.newest else 0
    window, latency = context.window(query.window_ns, end_ns), store.latency
    verbs = latency.classes(Plane.VERBS, *window)
    udp = latency.classes(Plane.UDP, *window) if verbs else {}
    found = disagreements(udp, verbs)
    return Planes(
        disagreements=tuple(PlaneDisagreement(**each._asdict()) for each in found),
        compared=sum((*place[:2], 0) in udp or place in udp for place in verbs),
        end_ns=window[1],
    )


def _stored_end_ns(store: Store, *planes: Plane) -> int:
    """The end of the newest second that is stored of each of these planes; a plane of which nothing
    is stored does not count. 0: nothing is stored."""
    newest = [newest_ns for plane in planes if (newest_ns := store.latest_ns(plane))]
    return min(newest) // S * S + S if newest else 0


@question(SeriesQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS, shared=True)
def series(context: RequestContext, query: SeriesQuery) -> Series:
    if query.step_ns < 0 or query.step_ns % S:
        raise UsageError(f"a step of {query.step_ns} ns; give whole seconds, or 0")
    step = max(query.step_ns // S, 1)
    first_ns, last_ns = context.window(query.window_ns, query.end_ns)
    if step * S % MINUTE_NS == 0:  # whole minutes: the edges need no seconds
        first_ns -= first_ns % (step * S)
    points = context.services.store.series(first_ns, last_ns, query.src, query.dst, step)
    return Series(points=points)


@question(LinksQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS, shared=True)
def links(context: RequestContext, query: LinksQuery) -> Links:
    ports = context.services.store.links.ports(*context.window(query.window_ns))
    return Links(ports=ports, now_ns=context.fleet_ns or 0)


@question(LinkHistoryQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS, shared=True)
def link_history(context: RequestContext, query: LinkHistoryQuery) -> LinkHistory:
    rows, window = context.services.store.links, context.window(query.window_ns)
    return LinkHistory(
        events=rows.events(*window, query.nic),
        counters=rows.counters(*window, query.nic),
        now_ns=context.fleet_ns or 0,
    )


@question(ClockTruthQuery, READ, Runs.LOOP)
def clock_truth(context: RequestContext, _: ClockTruthQuery) -> ClockTruths:
    solving = context.services.solving
    return ClockTruths(clocks=tuple(compare(true_clocks(solving.true), solving.timelines)))


@question(ClockHistoryQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS)
def clock_history(context: RequestContext, query: ClockHistoryQuery) -> ClockHistory:
    if query.step_ns < 0:
        raise UsageError(f"a step of {query.step_ns} ns; give a positive one, or 0")
    clocks = 1 if query.node else max(1, len(context.services.solving.timelines))
    finest_ns = -(-clocks * query.window_ns // CLOCK_SAMPLES)
    step_ns = max(query.step_ns, finest_ns, MS)
    window = context.window(query.window_ns, query.end_ns)
    store = context.services.store
    samples = store.clock_history(*window, query.node, step_ns)
    first_ns = store.first_ns(CLOCK, *window, query.node) if samples else 0
    return ClockHistory(samples=samples, step_ns=step_ns, first_ns=first_ns)


@question(
    FailoverLogQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS, most=MAX_LOG_ROWS, shared=True
)
def failover_log(context: RequestContext, query: FailoverLogQuery) -> FailoverLog:
    window = context.window(query.window_ns, query.end_ns)
    found = context.services.store.path_events(
        *window, job=query.job, host=query.host, limit=query.limit
    )
    return FailoverLog(events=found)


@question(FabricChangesQuery, READ, Runs.STORE, longest_ns=MAX_CHANGES_NS, shared=True)
def fabric_changes(context: RequestContext, query: FabricChangesQuery) -> FabricChanges:
    return FabricChanges(
        changes=context.services.store.fabric.changes(*context.window(query.window_ns))
    )


@question(SlaReportQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS)
def sla_report(context: RequestContext, query: SlaReportQuery) -> SlaReport:
    pairs = context.services.traffic.pairs(time.monotonic_ns())
    return context.services.slas.report(query.by, query.window_ns, context.measured_ns(), pairs)


@question(SlaCheckQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS)
def sla_check(context: RequestContext, query: SlaCheckQuery) -> SlaChecked:
    about = [
        (each.subject, each.summary)
        for each in context.services.alerts.live()
        if each.subject == query.host or NameContainment.holds(query.host, each.subject)
    ]
    return context.services.slas.check(query.host, query.window_ns, context.measured_ns(), about)


@question(JobsQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS, shared=True)
def jobs(context: RequestContext, query: JobsQuery) -> Jobs:
    found = context.services.store.jobs.jobs(*context.window(query.window_ns))
    return Jobs(now_ns=context.fleet_ns or 0, jobs=found)


@question(RecordingQuery, READ, Runs.STORE, longest_ns=MAX_RECORDING_NS, shared=True)
def job_recording(context: RequestContext, query: RecordingQuery) -> Recording:
    services = context.services
    return recording(services.store, services.paths, query, context.measured_ns())


@question(JobReportQuery, READ, Runs.STORE, longest_ns=MAX_REPORT_NS, shared=True)
def report_of_job(context: RequestContext, query: JobReportQuery) -> JobReport:
    services = context.services
    return job_report(services.store, services.paths, query, context.measured_ns())


@question(AuditViewQuery, READ, Runs.STORE)
def view_of_audit(context: RequestContext, query: AuditViewQuery) -> AuditView:
    return audit_view(context.services.audits, query)


# --- large, from memory ---


@question(TopologyQuery, READ, Runs.STORE)
def fabric_map(context: RequestContext, _: TopologyQuery) -> FabricMap:
    return context.services.locating.fabric_map()


@question(PlanQuery, READ, Runs.STORE)
def probe_plan(context: RequestContext, _: PlanQuery) -> ProbePlan:
    fleet = context.services.fleet
    return ProbePlan(
        generation=fleet.mesh.generation, flows=fleet.flows(), verbs=fleet.verbs_flows()
    )


@question(PathsQuery, READ, Runs.STORE)
def learnt_paths(context: RequestContext, _: PathsQuery) -> LearntPaths:
    return LearntPaths(paths=context.services.locating.paths())


# --- from control state ---


@question(FleetQuery, READ, Runs.DISK)
def fleet(context: RequestContext, _: FleetQuery) -> Fleet:
    contested: dict[str, list[str]] = defaultdict(list)
    for ref, address in context.services.fleet.contested.items():
        contested[ref.host].append(f"nic={ref.nic} reason=another host claims {address} too")
    for ref, addresses in context.services.fleet.withheld.items():
        contested[ref.host] += [
            f"nic={ref.nic} without={each} reason=another host claims it too" for each in addresses
        ]
    agents = tuple(
        _agent(host, member, contested.get(host, ()))
        for host, member in sorted(context.services.fleet.members.items())
    )
    return Fleet(
        agents=agents,
        rows_stored=context.services.store.count_rows(),
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
def incidents(context: RequestContext, query: IncidentsQuery) -> IncidentsReply:
    return context.services.alerts.incidents(query, context.now_ns)


@question(ControllerQuery, READ, Runs.LOOP)
def controller_status(context: RequestContext, _: ControllerQuery) -> ControllerStatus:
    services = context.services
    gateways = services.gateways.statuses()
    return services.leadership.status(len(services.sessions), gateways)


@question(CostQuery, READ, Runs.DISK)
def costs(context: RequestContext, query: CostQuery) -> CostReport:
    """Failures in this fleet, in addition to the assumptions."""
    if not query.history_ns:
        return cost.cost(query)
    cost.check(query)
    if query.history_ns > MAX_HISTORY_NS:
        raise UsageError(f"a history of {query.history_ns} ns; ask for up to 90 days")
    asked = IncidentsQuery(resolved=True, since_ns=query.history_ns)
    known = context.services.alerts.incidents(asked, context.now_ns).incidents
    return cost.cost(query, cost.observed(known, query.history_ns, context.now_ns))


@question(ChangesQuery, READ, Runs.DISK, longest_ns=MAX_CHANGES_NS, most=CHANGES_LIMIT)
def changes(context: RequestContext, query: ChangesQuery) -> Changes:
    found = context.services.state.changes(context.now_ns - query.window_ns, query.limit)
    return Changes(changes=found)


@question(AuditReportsQuery, ORDER, Runs.DISK)
def audit_reports(context: RequestContext, query: AuditReportsQuery) -> AuditReports:
    return context.services.audits.reports(query)


@question(IdentitiesQuery, READ, Runs.DISK)
def identities(context: RequestContext, _: IdentitiesQuery) -> Identities:
    sessions = list(context.services.sessions.values())
    return context.services.membership.enrolment.listing(
        {session.certificate.serial for session in sessions}
    )


@question(AccessTokensQuery, READ, Runs.DISK)
def access_tokens(context: RequestContext, _: AccessTokensQuery) -> AccessTokens:
    return context.services.access.listing()


@question(RenewQuery, frozenset(Role) - {Role.CONTROLLER}, Runs.DISK)
def renew(context: RequestContext, query: RenewQuery) -> Issued:
    return context.services.membership.enrolment.renew(query, context.who)


# --- as things are now ---


@question(ClockQuery, READ, Runs.LOOP)
def clocks(context: RequestContext, _: ClockQuery) -> Clocks:
    return Clocks(timelines=context.services.solving.timelines, utc=context.services.solving.utc)


@question(PairsQuery, READ, Runs.LOOP)
def clock_pairs(context: RequestContext, _: PairsQuery) -> Pairs:
    return Pairs(edges=context.services.solving.edges())


@question(FindingsQuery, READ, Runs.LOOP)
def findings(context: RequestContext, _: FindingsQuery) -> Findings:
    locating = context.services.locating
    return msgspec.structs.replace(locating.answer, losing=locating.fresh.losing)


@question(QueuesQuery, READ, Runs.LOOP)
def queues(context: RequestContext, _: QueuesQuery) -> Queues:
    context.measured_ns()
    found = context.services.locating.queues
    flows = context.services.traffic.flows(time.monotonic_ns())
    return Queues(queues=with_flows(found or (), flows), looked=found is not None)


@question(RulesQuery, READ, Runs.LOOP)
def rules(context: RequestContext, _: RulesQuery) -> RulesReply:
    return context.services.alerts.reported_rules()


@question(ConnectionsQuery, READ, Runs.LOOP)
def connections(context: RequestContext, query: ConnectionsQuery) -> FleetConnections:
    return context.services.traffic.paths(query, time.monotonic_ns())


@question(FailoverStatusQuery, READ, Runs.LOOP)
def failover_status(context: RequestContext, _: FailoverStatusQuery) -> FailoverStatus:
    return context.services.traffic.status(time.monotonic_ns())


@question(TrafficQuery, READ, Runs.LOOP)
def traffic(context: RequestContext, query: TrafficQuery) -> Traffic:
    return context.services.placement.traffic(query, time.monotonic_ns())


@question(QueuePairsQuery, READ, Runs.LOOP)
def queue_pairs(context: RequestContext, query: QueuePairsQuery) -> QueuePairs:
    return context.services.queue_pairs.answer(query, context.measured_ns())


@question(MovesQuery, READ, Runs.LOOP, most=MAX_MOVES)
def moves(context: RequestContext, query: MovesQuery) -> MoveList:
    return MoveList(moves=context.services.placement.service.moves(query.job, query.limit))


@question(KeysQuery, READ, Runs.LOOP)
def probe_keys(context: RequestContext, _: KeysQuery) -> KeysStatus:
    return context.services.keys.status()
