"""What is probed, and the delays that came of it; part of `syntony.wire.messages`."""

from __future__ import annotations

import msgspec


class ProbeFlow(msgspec.Struct, frozen=True, kw_only=True):
    """One probed path: local NIC → remote NIC with one entropy."""

    flow_id: int
    """Unique within its agent, and the same in every plan that holds the path."""
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


class Plan(msgspec.Struct, frozen=True, kw_only=True, tag="plan"):
    """Whom to probe. Replaces the previous plan; flows with a known id keep their state."""

    generation: int
    nic_ids: dict[str, int]
    """The agent's own NICs to their numbers on the wire."""
    nic_names: dict[int, str]
    """Every NIC that may probe this agent: number → ``host/nic``."""
    clocks: dict[str, str]
    """NIC (``host/nic``) → clock node, for every NIC in the flows."""
    key_id: int
    key: bytes
    """16 bytes: authenticates probe packets."""
    flows: tuple[ProbeFlow, ...]
    others: dict[str, tuple[str, ...]] = {}
    """NIC (``host/nic``) in the flows → addresses it has beside the probed one."""


class MatrixQuery(msgspec.Struct, frozen=True, kw_only=True, tag="matrix"):
    """The delay matrix over the last `window_ns` of fleet time."""

    window_ns: int = 10_000_000_000


class SeriesQuery(msgspec.Struct, frozen=True, kw_only=True, tag="series"):
    """Per-second history of one NIC pair, or of every pair when `src`/`dst` are empty."""

    src: str = ""
    dst: str = ""
    window_ns: int = 60_000_000_000


class PlanQuery(msgspec.Struct, frozen=True, kw_only=True, tag="probe-plan"):
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


class SeriesPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One second of one direction of one NIC pair."""

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


class Series(msgspec.Struct, frozen=True, kw_only=True, tag="series"):
    points: tuple[SeriesPoint, ...]


class ProbePlan(msgspec.Struct, frozen=True, kw_only=True, tag="probe-plan"):
    generation: int
    flows: tuple[tuple[str, ProbeFlow], ...]
    """(source as ``host/nic``, flow)."""
