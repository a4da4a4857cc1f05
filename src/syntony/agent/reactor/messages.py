"""What the telemetry process asks of the reactor, and is answered. Pure.

Both come from one installation, so these are types of this package and not of `syntony.wire`; what
the controller said (plans, keys, orders) goes through as the controller said it.
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
"""Another number where a process of the version before could misunderstand. Fields may be added
without: who does not know them skips them."""


class ProcessPace(NamedTuple):
    """What one process may send between two addresses."""

    path: PacedPath
    bps: int
    """Of payload."""


class ProcessPaces(msgspec.Struct, frozen=True, kw_only=True, tag="process-paces"):
    """Everything that processes are to hold back; who is not here is free."""

    paces: tuple[ProcessPace, ...]
    expires_ns: int
    """CLOCK_MONOTONIC from which on nothing is, unless it is said again."""


Reported = Plan | ProbeKeys | Switch | Moves
"""What the reactor obeys."""


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """First request of a connection, answered by `Began` or `Failed`."""

    protocol: int
    version: str


class Look(msgspec.Struct, frozen=True, kw_only=True, tag="look"):
    """What is new? Answered by `Seen`; asked several times a second."""

    flows: bool
    """Tell jobs' flows, too."""


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag="drain"):
    """Probe records since the last call; answered by `Records`."""


class StateQuery(msgspec.Struct, frozen=True, kw_only=True, tag="state"):
    """How everything is; answered by `ReactorState`, asked once a second."""

    rows: int
    """Rows before this number are kept by who asks, and need not be reported again."""


class ProbingQuery(msgspec.Struct, frozen=True, kw_only=True, tag="probing"):
    """What is probed; answered by `Probing`."""


class Obey(msgspec.Struct, frozen=True, kw_only=True, tag="obey"):
    """The controller has said this, or it follows from what it said; answered by `Obeyed` or
    `Failed`."""

    said: Reported | ProcessPaces
    fleet_minus_monotonic_ns: int | None
    """Fleet time less CLOCK_MONOTONIC; None: there is no fleet time here."""


Request = Begin | Look | Drain | StateQuery | ProbingQuery | Obey


class Began(msgspec.Struct, frozen=True, kw_only=True, tag="began"):
    version: str
    record_bytes: int
    """Of one probe record."""


class ReactorUpdate(msgspec.Struct, frozen=True, kw_only=True, tag="seen"):
    """What is new."""

    pending: int
    """Probe records waiting."""
    probing: int
    """Another number where other flows are probed than before."""
    outcome: str
    """The newest order that has come to its end; empty: none has."""
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
    """Processes at the jobs' socket."""

    processes: int
    connected: int
    malformed: dict[str, int]
    torn: int


class ReactorState(msgspec.Struct, frozen=True, kw_only=True, tag="state"):
    """How the reactor is."""

    nics: tuple[NicInfo, ...]
    """As the controller should know them: one that has gone is as it was, so that it keeps its
    place in the plan. Peers see it dead, and it is missed."""
    clocks: dict[str, tuple[int, int]]
    """NICs that stamp in a clock of their own: its number N in ``/dev/ptpN``, and another number
    whenever the NIC is attached."""
    parts: tuple[PartStatus, ...]
    engine: dict[str, int]
    """`syntony.io.probe_records.Counters`."""
    heard: bytes
    """An array of `syntony.io.probe_records.HEARD`."""
    flows: int
    """That are probed."""
    plan_faults: int
    """Plans and flows of plans that could not be taken."""
    unsent: int
    """Probe records that were lost between the two processes."""
    report: PathsReport
    counters: PathCounters
    rows: tuple[PathRow, ...]
    first_row: int
    """Number of the first of them."""
    jobs: JobCounts
    cpu_ns: int
    rss_bytes: int
    connections: int
    """Times that a telemetry process has connected."""
    verbs: dict[str, int] = {}
    """`syntony.io.probe_records.Counters` of the engine over verbs; empty: there is none."""
    verbs_heard: bytes = b""
    """As `heard`."""
    verbs_flows: int = 0
    """That are probed over verbs."""
    verbs_clocks: dict[str, DeviceClockReading] = {}
    """NIC → its RDMA device's clock, of those that stamp probes over verbs."""


class Probing(msgspec.Struct, frozen=True, kw_only=True, tag="probing"):
    number: int
    """As in `Seen`."""
    plan: Plan | None
    """With the flows that are probed; None: there is none yet."""
    tell_from_ns: int
    """Probes sent before, by the host's clock, serve clocks only: peers may not have had keys."""


class Obeyed(msgspec.Struct, frozen=True, kw_only=True, tag="obeyed"):
    """It is in force."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """It is not so, and why."""

    reason: str


Answer = Began | ReactorUpdate | Records | ReactorState | Probing | Obeyed | Failed
