"""Requests of the telemetry process to the reactor, and its answers. Pure.

Both come from one installation, so these are types of this package and not of `syntony.wire`.
Messages of the controller (plans, keys, orders) are forwarded unchanged.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from syntony.agent.steering.path_log import PathCounters
from syntony.agent.steering.rows import PathRow
from syntony.model.probes import DeviceClockReading
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.moving import Outcome
from syntony.traffic.process_rates import PacedPath
from syntony.wire.failover import PathsReport, Switch
from syntony.wire.messages import NicInfo
from syntony.wire.parts import PartStatus
from syntony.wire.probes import Plan, ProbeKeys
from syntony.wire.traffic import Moves

PROTOCOL = 1
"""Changes if a process of the previous version could misunderstand a message. Fields may be added
without: processes that do not know them skip them."""


class ProcessPace(NamedTuple):
    """The rate limit of one process between two addresses."""

    path: PacedPath
    bps: int
    """Of payload."""


class ProcessPaces(msgspec.Struct, frozen=True, kw_only=True, tag="process-paces"):
    """All rate limits of processes; processes not listed have none."""

    paces: tuple[ProcessPace, ...]
    expires_ns: int
    """CLOCK_MONOTONIC from which on there are no limits, unless they are repeated."""


Reported = Plan | ProbeKeys | Switch | Moves
"""Messages of the controller that the reactor obeys."""


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """First request of a connection, answered by `Began` or `Failed`."""

    protocol: int
    version: str


class Look(msgspec.Struct, frozen=True, kw_only=True, tag="look"):
    """Request news. Answered by `Seen`; sent several times a second."""

    flows: bool
    """Include jobs' flows."""


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag="drain"):
    """Probe records since the last call; answered by `Records`."""


class StateQuery(msgspec.Struct, frozen=True, kw_only=True, tag="state"):
    """Request the state; answered by `ReactorState`, sent once a second."""

    rows: int
    """Rows before this number are stored by the requester and need not be reported again."""


class ProbingQuery(msgspec.Struct, frozen=True, kw_only=True, tag="probing"):
    """Request what is probed; answered by `Probing`."""


class Obey(msgspec.Struct, frozen=True, kw_only=True, tag="obey"):
    """An order of the controller, or derived from one; answered by `Obeyed` or `Failed`."""

    said: Reported | ProcessPaces
    fleet_minus_monotonic_ns: int | None
    """Fleet time minus CLOCK_MONOTONIC; None: there is no fleet time here."""


Request = Begin | Look | Drain | StateQuery | ProbingQuery | Obey


class Began(msgspec.Struct, frozen=True, kw_only=True, tag="began"):
    version: str
    record_bytes: int
    """Of one probe record."""


class ReactorUpdate(msgspec.Struct, frozen=True, kw_only=True, tag="seen"):
    pending: int
    """Number of waiting probe records."""
    probing: int
    """Changes when the set of probed flows changes."""
    outcome: str
    """The newest order that is completed; empty: none."""
    has_flows: bool
    """Whether any job's flow is managed."""
    flows: tuple[ReportedFlow, ...] = ()
    outcomes: tuple[Outcome, ...] = ()


class Records(msgspec.Struct, frozen=True, kw_only=True, tag="records"):
    records: bytes
    """An array of `syntony.io.probe_records.RECORD`."""
    verbs: bytes = b""
    """The same, of probes over verbs."""


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    processes: int
    connected: int
    malformed: dict[str, int]
    torn: int


class ReactorState(msgspec.Struct, frozen=True, kw_only=True, tag="state"):
    nics: tuple[NicInfo, ...]
    """Description for the controller. A NIC that has gone keeps its last one, so that it keeps its
    place in the plan; peers detect it as dead."""
    clocks: dict[str, tuple[int, int]]
    """NICs that stamp with their own clock: its number N in ``/dev/ptpN``, and a number that
    changes whenever the NIC is attached."""
    parts: tuple[PartStatus, ...]
    engine: dict[str, int]
    """`syntony.io.probe_records.Counters`."""
    heard: bytes
    """An array of `syntony.io.probe_records.HEARD`."""
    flows: int
    """Number of probed flows."""
    plan_faults: int
    """Number of plans and flows of plans that were rejected."""
    unsent: int
    """Probe records that were lost between the two processes."""
    report: PathsReport
    counters: PathCounters
    rows: tuple[PathRow, ...]
    first_row: int
    """Number of the first of these."""
    jobs: JobCounts
    cpu_ns: int
    rss_bytes: int
    connections: int
    """Number of connections of a telemetry process so far."""
    verbs: dict[str, int] = {}
    """`syntony.io.probe_records.Counters` of the engine over verbs; empty: there is none."""
    verbs_heard: bytes = b""
    """As `heard`."""
    verbs_flows: int = 0
    """Number of flows probed over verbs."""
    verbs_clocks: dict[str, DeviceClockReading] = {}
    """NIC → its RDMA device's clock, for those that stamp probes over verbs."""


class Probing(msgspec.Struct, frozen=True, kw_only=True, tag="probing"):
    number: int
    """As in `Seen`."""
    plan: Plan | None
    """With the flows that are probed; None: there is none yet."""
    tell_from_ns: int
    """Probes sent before, by the host's clock, are used for clocks only: peers may not have had
    keys."""


class Obeyed(msgspec.Struct, frozen=True, kw_only=True, tag="obeyed"):
    """The order is in force."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The order is not in force, and why."""

    reason: str


Answer = Began | ReactorUpdate | Records | ReactorState | Probing | Obeyed | Failed
