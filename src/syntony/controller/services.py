"""The parts of a controller that handlers of requests use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from syntony.controller.access_tokens import AccessControl
    from syntony.controller.audits import AuditRuns
    from syntony.controller.batches import BatchPiece
    from syntony.controller.enrolment_service import EnrolmentService
    from syntony.controller.fleet import Fleet
    from syntony.controller.gateways import Gateways
    from syntony.controller.incidents import IncidentService
    from syntony.controller.job_diagnosis import JobDiagnosis
    from syntony.controller.leadership import Leadership
    from syntony.controller.locating import LocateLoop
    from syntony.controller.placement import Placement
    from syntony.controller.probe_keys import ProbeKeyDistribution
    from syntony.controller.queue_pairs import QueuePairService
    from syntony.controller.recorded_paths import ProbePaths, RecordedPaths
    from syntony.controller.sessions import AgentSession
    from syntony.controller.sla import SlaService
    from syntony.controller.solve import SolveLoop
    from syntony.controller.traffic import TrafficService
    from syntony.state import ControlState
    from syntony.store import Store


class StoreOnly(NamedTuple):
    """The part of `Services` that a gateway has: enough for `shared` questions."""

    store: Store
    paths: ProbePaths


class Services(NamedTuple):
    """The parts of one controller that requests refer to."""

    store: Store
    state: ControlState
    fleet: Fleet
    solving: SolveLoop
    locating: LocateLoop
    slas: SlaService
    alerts: IncidentService
    traffic: TrafficService
    placement: Placement
    queue_pairs: QueuePairService
    jobs: JobDiagnosis
    paths: RecordedPaths
    audits: AuditRuns
    keys: ProbeKeyDistribution
    membership: EnrolmentService
    access: AccessControl
    leadership: Leadership
    gateways: Gateways
    sessions: Mapping[str, AgentSession]
    """Host → its attached agent."""
    put_local: Callable[[BatchPiece], None]
    """Queues rows of telemetry about an order."""
