"""The questions: what command lines are told, from the store and the controller's own state."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from syntony.controller.places import Names
from syntony.controller.questions import DAY_NS, ORDER, READ, Asked, Runs, question
from syntony.controller.recordings import recording
from syntony.controller.sla import with_flows
from syntony.errors import UsageError
from syntony.mesh.planes import disagreements
from syntony.model import MS
from syntony.wire.audit import AuditReports, AuditReportsQuery
from syntony.wire.clocks import (
    ClockHistory,
    ClockHistoryQuery,
    ClockQuery,
    Clocks,
    Pairs,
    PairsQuery,
)
from syntony.wire.control import CHANGES_LIMIT, Changes, ChangesQuery
from syntony.wire.enrol import Identities, IdentitiesQuery, Issued, RenewQuery
from syntony.wire.fabric import (
    FabricChanges,
    FabricChangesQuery,
    Findings,
    FindingsQuery,
    LearntPaths,
    PathsQuery,
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
from syntony.wire.jobs import Jobs, JobsQuery, Recording, RecordingQuery
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
"""Events and clocks: all that are kept may be asked for."""
MAX_RECORDING_NS = DAY_NS
"""Of one job; its rows are limited besides (`syntony.store.jobs.MAX_ROWS`)."""
MAX_CHANGES_NS = 365 * DAY_NS
CLOCK_SAMPLES = 60_000
"""Of one answer."""
MAX_LOG_ROWS = 10_000
MAX_MOVES = 1_000

# --- from the store ---


@question(MatrixQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS)
def matrix(asked: Asked, query: MatrixQuery) -> Matrix:
    window = asked.window(query.window_ns)
    return Matrix(cells=asked.desks.store.matrix(*window, query.over))


@question(PlanesQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS)
def planes(asked: Asked, query: PlanesQuery) -> Planes:
    window, latency = asked.window(query.window_ns), asked.desks.store.latency
    verbs = latency.classes(Plane.VERBS, *window)
    udp = latency.classes(Plane.UDP, *window) if verbs else {}
    found = disagreements(udp, verbs)
    return Planes(
        disagreements=tuple(PlaneDisagreement(**each._asdict()) for each in found),
        compared=sum((*place[:2], 0) in udp or place in udp for place in verbs),
    )


@question(SeriesQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS)
def series(asked: Asked, query: SeriesQuery) -> Series:
    window = asked.window(query.window_ns)
    return Series(points=asked.desks.store.series(*window, query.src, query.dst))


@question(LinksQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS)
def links(asked: Asked, query: LinksQuery) -> Links:
    ports = asked.desks.store.links.ports(*asked.window(query.window_ns))
    return Links(ports=ports, now_ns=asked.fleet_ns or 0)


@question(LinkHistoryQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS)
def link_history(asked: Asked, query: LinkHistoryQuery) -> LinkHistory:
    rows, window = asked.desks.store.links, asked.window(query.window_ns)
    return LinkHistory(
        events=rows.events(*window, query.nic),
        counters=rows.counters(*window, query.nic),
        now_ns=asked.fleet_ns or 0,
    )


@question(ClockHistoryQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS)
def clock_history(asked: Asked, query: ClockHistoryQuery) -> ClockHistory:
    if query.step_ns < 0:
        raise UsageError(f"a step of {query.step_ns} ns; give a positive one, or 0")
    clocks = 1 if query.node else max(1, len(asked.desks.solving.timelines))
    finest_ns = -(-clocks * query.window_ns // CLOCK_SAMPLES)
    step_ns = max(query.step_ns, finest_ns, MS)
    window = asked.window(query.window_ns)
    samples = asked.desks.store.clock_history(*window, query.node, step_ns)
    return ClockHistory(samples=samples, step_ns=step_ns)


@question(FailoverLogQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS, most=MAX_LOG_ROWS)
def failover_log(asked: Asked, query: FailoverLogQuery) -> FailoverLog:
    window = asked.window(query.window_ns)
    found = asked.desks.store.path_events(
        *window, job=query.job, host=query.host, limit=query.limit
    )
    return FailoverLog(events=found)


@question(FabricChangesQuery, READ, Runs.STORE, longest_ns=MAX_CHANGES_NS)
def fabric_changes(asked: Asked, query: FabricChangesQuery) -> FabricChanges:
    return FabricChanges(changes=asked.desks.store.fabric.changes(*asked.window(query.window_ns)))


@question(SlaReportQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS)
def sla_report(asked: Asked, query: SlaReportQuery) -> SlaReport:
    pairs = asked.desks.traffic.pairs(time.monotonic_ns())
    return asked.desks.slas.report(query.by, query.window_ns, asked.measured_ns(), pairs)


@question(SlaCheckQuery, READ, Runs.STORE, longest_ns=MAX_WINDOW_NS)
def sla_check(asked: Asked, query: SlaCheckQuery) -> SlaChecked:
    about = [
        (each.subject, each.summary)
        for each in asked.desks.alerts.live()
        if each.subject == query.host or Names.holds(query.host, each.subject)
    ]
    return asked.desks.slas.check(query.host, query.window_ns, asked.measured_ns(), about)


@question(JobsQuery, READ, Runs.STORE, longest_ns=MAX_HISTORY_NS)
def jobs(asked: Asked, query: JobsQuery) -> Jobs:
    found = asked.desks.store.jobs.jobs(*asked.window(query.window_ns))
    return Jobs(now_ns=asked.fleet_ns or 0, jobs=found)


@question(RecordingQuery, READ, Runs.STORE, longest_ns=MAX_RECORDING_NS)
def job_recording(asked: Asked, query: RecordingQuery) -> Recording:
    return recording(asked.desks.store, query, asked.measured_ns())


# --- large, from memory ---


@question(PlanQuery, READ, Runs.STORE)
def probe_plan(asked: Asked, _: PlanQuery) -> ProbePlan:
    fleet = asked.desks.fleet
    return ProbePlan(
        generation=fleet.mesh.generation, flows=fleet.flows(), verbs=fleet.verbs_flows()
    )


@question(PathsQuery, READ, Runs.STORE)
def learnt_paths(asked: Asked, _: PathsQuery) -> LearntPaths:
    return LearntPaths(paths=asked.desks.locating.paths())


# --- from control state ---


@question(FleetQuery, READ, Runs.DISK)
def fleet(asked: Asked, _: FleetQuery) -> Fleet:
    contested: dict[str, list[str]] = defaultdict(list)
    for ref, address in asked.desks.fleet.contested.items():
        contested[ref.host].append(f"nic={ref.nic} reason=another host claims {address} too")
    agents = tuple(
        _agent(host, member, contested.get(host, ()))
        for host, member in sorted(asked.desks.fleet.members.items())
    )
    return Fleet(
        agents=agents,
        rows_stored=asked.desks.store.count_rows(),
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
def incidents(asked: Asked, query: IncidentsQuery) -> IncidentsReply:
    return asked.desks.alerts.incidents(query, asked.now_ns)


@question(ChangesQuery, READ, Runs.DISK, longest_ns=MAX_CHANGES_NS, most=CHANGES_LIMIT)
def changes(asked: Asked, query: ChangesQuery) -> Changes:
    found = asked.desks.state.changes(asked.now_ns - query.window_ns, query.limit)
    return Changes(changes=found)


@question(AuditReportsQuery, ORDER, Runs.DISK)
def audit_reports(asked: Asked, query: AuditReportsQuery) -> AuditReports:
    return asked.desks.audits.reports(query)


@question(IdentitiesQuery, READ, Runs.DISK)
def identities(asked: Asked, _: IdentitiesQuery) -> Identities:
    return asked.desks.membership.enrolment.listing()


@question(RenewQuery, frozenset(Role) - {Role.CONTROLLER}, Runs.DISK)
def renew(asked: Asked, query: RenewQuery) -> Issued:
    return asked.desks.membership.enrolment.renew(query, asked.who)


# --- as things are now ---


@question(ClockQuery, READ, Runs.LOOP)
def clocks(asked: Asked, _: ClockQuery) -> Clocks:
    return Clocks(timelines=asked.desks.solving.timelines, utc=asked.desks.solving.utc)


@question(PairsQuery, READ, Runs.LOOP)
def clock_pairs(asked: Asked, _: PairsQuery) -> Pairs:
    return Pairs(edges=asked.desks.solving.edges())


@question(FindingsQuery, READ, Runs.LOOP)
def findings(asked: Asked, _: FindingsQuery) -> Findings:
    return asked.desks.locating.answer


@question(QueuesQuery, READ, Runs.LOOP)
def queues(asked: Asked, _: QueuesQuery) -> Queues:
    asked.measured_ns()
    found = asked.desks.locating.queues
    flows = asked.desks.traffic.flows(time.monotonic_ns())
    return Queues(queues=with_flows(found or (), flows), looked=found is not None)


@question(RulesQuery, READ, Runs.LOOP)
def rules(asked: Asked, _: RulesQuery) -> RulesReply:
    return asked.desks.alerts.told_rules()


@question(ConnectionsQuery, READ, Runs.LOOP)
def connections(asked: Asked, query: ConnectionsQuery) -> FleetConnections:
    return asked.desks.traffic.paths(query, time.monotonic_ns())


@question(FailoverStatusQuery, READ, Runs.LOOP)
def failover_status(asked: Asked, _: FailoverStatusQuery) -> FailoverStatus:
    return asked.desks.traffic.status(time.monotonic_ns())


@question(TrafficQuery, READ, Runs.LOOP)
def traffic(asked: Asked, query: TrafficQuery) -> Traffic:
    return asked.desks.placement.traffic(query, time.monotonic_ns())


@question(QueuePairsQuery, READ, Runs.LOOP)
def queue_pairs(asked: Asked, query: QueuePairsQuery) -> QueuePairs:
    return asked.desks.queue_pairs.answer(query, asked.measured_ns())


@question(MovesQuery, READ, Runs.LOOP, most=MAX_MOVES)
def moves(asked: Asked, query: MovesQuery) -> MoveList:
    return MoveList(moves=asked.desks.placement.desk.moves(query.job, query.limit))


@question(KeysQuery, READ, Runs.LOOP)
def probe_keys(asked: Asked, _: KeysQuery) -> KeysStatus:
    return asked.desks.keys.status()
