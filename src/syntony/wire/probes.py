"""Probe plans and measured delays; part of `syntony.wire.messages`."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from syntony.model import MS
from syntony.wire.bounds import MAX_VIEWS, Number, Signed, Word
from syntony.wire.query import Query


class ProbeFlow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One probed path: local NIC → remote NIC with one entropy."""

    flow_id: int
    """Unique within its agent, and the same in every plan with this path."""
    src: str
    """Local NIC's name."""
    dst: str
    """Remote NIC as ``host/nic``."""
    dst_nic_id: int
    dst_addr: str
    dst_port: int
    src_port: int
    flow_label: int = 0
    dscp: int = 0
    interval_ns: int
    """One probe pair per interval."""
    sl: int = 0
    """Over verbs: service level (InfiniBand), priority (RoCE). There a source port is a queue pair,
    and the address is that at which the remote NIC's host is asked for its own."""


class Plane(enum.StrEnum):
    """The transport of probes."""

    UDP = "udp"
    VERBS = "verbs"
    """Datagrams of queue pairs, over RoCE v2 or InfiniBand."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, tag="plan"):
    """The flows to probe. Replaces the previous plan; flows with a known id keep their state."""

    generation: int
    nic_ids: dict[str, int]
    """The agent's own NICs to their numbers on the wire."""
    nic_names: dict[int, str]
    """Every NIC that may probe this agent: number → ``host/nic``."""
    clocks: dict[str, str]
    """NIC (``host/nic``) → clock node, for every NIC in the flows."""
    flows: tuple[ProbeFlow, ...]
    others: dict[str, tuple[str, ...]] = {}
    """NIC (``host/nic``) in the flows → its addresses other than the probed one."""
    verbs: tuple[ProbeFlow, ...] = ()
    """Flows probed over verbs, between NICs of `clocks`."""
    verbs_clocks: dict[str, str] = {}
    """NIC (``host/nic``) → clock node over verbs, if it is not its host's."""
    device_stamps: bool = False
    """Whether probes over verbs may be stamped by RDMA devices' own clocks: all agents of hosts
    with RDMA can read such stamps."""
    first_trace_ns: int = 20 * MS
    """Interval of the packets with which an agent learns paths for the first time: shorter in small
    fleets."""


class PairKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Keys that only the receiving host and one other host have."""

    host: str
    nics: tuple[int, ...]
    """The other's NICs, by their numbers on the wire."""
    keys: tuple[bytes, ...]
    """16 bytes for each of `ProbeKeys.epochs`."""


class ProbeKeys(msgspec.Struct, frozen=True, kw_only=True, tag="probe-keys"):
    """Authentication of probe packets. Replaces what was sent before, but a peer that is not
    listed keeps its keys as long as one of them is of the epoch to send with."""

    epochs: tuple[int, ...]
    """Accepted epochs, as numbered in packets: one, or two while keys are rotated."""
    sending: int
    """Which of them to send with."""
    pairs: tuple[PairKeys, ...]
    number: int = 0
    """Number of this message to this host; `KeysHeld` repeats it."""


class KeysHeld(msgspec.Struct, frozen=True, kw_only=True, tag="keys-held"):
    """The agent has carried out `ProbeKeys`."""

    epochs: tuple[int, ...]
    sending: int
    number: int = 0
    """Number of the message; 0 from agents of the previous version."""


class PairLosses(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Probes of one pair of NICs that were lost, or their replies."""

    src: Word
    dst: Word
    lost: Number
    paths: Number


class LossReport(msgspec.Struct, frozen=True, kw_only=True, tag="losses"):
    """An agent's losses in the second under way, before they become rows."""

    at_ns: Signed
    """Fleet time: probes of this second that were sent `SETTLED_NS` before are in it."""
    pairs: Annotated[tuple[PairLosses, ...], msgspec.Meta(max_length=MAX_VIEWS)]
    prompt: Annotated[tuple[Word, ...], msgspec.Meta(max_length=MAX_VIEWS)]
    """Hosts that answered without a pause all the while."""


class KeysQuery(Query["KeysStatus"], frozen=True, kw_only=True, tag="probe-keys-status"):
    """State of the rotation of probe keys."""


class RotateKeys(Query["KeysStatus"], frozen=True, kw_only=True, tag="rotate-probe-keys"):
    """Begin to rotate the probe keys now."""

    by: str = ""
    why: str = ""


class KeysStatus(msgspec.Struct, frozen=True, kw_only=True, tag="probe-keys-status"):
    """Epochs of probe keys, never the keys."""

    epochs: tuple[int, ...]
    sending: int
    phase: str
    """``steady``, ``spreading``, ``switching`` or ``draining``."""
    age_ns: int
    """Since this phase began."""
    waiting: tuple[str, ...]
    """Hosts whose agents have not confirmed this phase yet."""
    left_behind: tuple[str, ...] = ()
    """Hosts that did not confirm in time: they get the new keys when they reconnect."""


class MatrixQuery(Query["Matrix"], frozen=True, kw_only=True, tag="matrix"):
    """The delay matrix over the last `window_ns` of fleet time."""

    window_ns: int = 10_000_000_000
    over: Plane = Plane.UDP
    end_ns: int = 0
    """Of the window, fleet time; 0: now."""
    newest: bool = False
    """Instead of now, end at the newest stored second: a busy store has no later ones yet."""


class SeriesQuery(Query["Series"], frozen=True, kw_only=True, tag="series"):
    """History of one NIC pair, or of every pair when `src`/`dst` are empty."""

    src: str = ""
    dst: str = ""
    window_ns: int = 60_000_000_000
    step_ns: int = 0
    """Between points, whole seconds; 0: one second."""
    end_ns: int = 0
    """Of the window, fleet time; 0: now."""


class PlanesQuery(Query["Planes"], frozen=True, kw_only=True, tag="planes"):
    """Where UDP and verbs disagree over the last `window_ns` of fleet time."""

    window_ns: int = 60_000_000_000
    newest: bool = False
    """Instead of now, end at the newest second that is stored of both planes: what they show after
    it cannot be compared."""


class PlanQuery(Query["ProbePlan"], frozen=True, kw_only=True, tag="probe-plan"):
    """The probe plan in force."""


class MatrixCell(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of one NIC pair over a window; OWD fields are None when nothing arrived."""

    src: str
    dst: str
    paths: int
    sent: int
    lost: int
    owd_min_ns: int | None
    owd_p50_ns: int | None
    owd_p99_ns: int | None
    clk_err_ns: int | None
    dropped: int
    """Probes left out because an engine itself was late (own stall), not the network."""
    over: Plane = Plane.UDP


class SeriesPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One second, or one step, of one direction of one NIC pair."""

    ts_ns: int
    src: str
    dst: str
    sent: int
    lost: int
    owd_min_ns: int | None
    owd_p50_ns: int | None
    owd_p99_ns: int | None


class Matrix(msgspec.Struct, frozen=True, kw_only=True, tag="matrix"):
    cells: tuple[MatrixCell, ...]
    lag_ns: int = 0
    """How long before now the window ends, if `MatrixQuery.newest`."""


class PlaneDisagreement(msgspec.Struct, frozen=True, kw_only=True):
    """One finding (`syntony.mesh.planes.Disagreement`)."""

    what: str
    """``loss`` or ``delay`` of a direction, or ``class``: the delay of a whole class."""
    src: str
    """Empty for a class."""
    dst: str
    dscp: int
    udp: float
    """Share of the probes lost, or median delay in ns."""
    verbs: float
    usual_ns: float
    """Usual additional delay of verbs over UDP: in this class, or in the least delayed one."""


class Planes(msgspec.Struct, frozen=True, kw_only=True, tag="planes"):
    """Worst first."""

    disagreements: tuple[PlaneDisagreement, ...]
    compared: int
    """Directions in a class that both planes have probed."""
    end_ns: int = 0
    """End of the window, fleet time; 0: from a controller of the previous version."""


class Series(msgspec.Struct, frozen=True, kw_only=True, tag="series"):
    points: tuple[SeriesPoint, ...]


class ProbePlan(msgspec.Struct, frozen=True, kw_only=True, tag="probe-plan"):
    generation: int
    flows: tuple[tuple[str, ProbeFlow], ...]
    """(source as ``host/nic``, flow)."""
    verbs: tuple[tuple[str, ProbeFlow], ...] = ()
    """The same, of those over verbs."""
