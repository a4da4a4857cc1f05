"""Messages about clocks; part of `syntony.wire.messages`."""

from __future__ import annotations

import msgspec

from syntony.model.clocks import ClockState, Edge, Timeline
from syntony.model.utc import Utc, UtcReading
from syntony.wire.query import Query


class Edges(msgspec.Struct, frozen=True, kw_only=True, tag="edges"):
    """Estimates of the agent's own pairs of clocks, newest window only; never spooled."""

    edges: tuple[Edge, ...]
    utc: tuple[UtcReading, ...] = ()
    """The host's reading of UTC."""
    epochs: dict[str, int] = {}
    """The present epoch of the host's clock, by node (see `Timeline.epoch`)."""


class Timelines(msgspec.Struct, frozen=True, kw_only=True, tag="timelines"):
    """The network solve's answer for the agent's clocks and its peers' clocks."""

    timelines: tuple[Timeline, ...]
    utc: Utc | None = None
    """Offset of UTC from fleet time; None: the fleet has no anchors."""
    step: int = 0
    """Number of the last step of fleet time; if it changes, served time steps too. 0: no step since
    this controller started."""


class ClockQuery(Query["Clocks"], frozen=True, kw_only=True, tag="clock"):
    """Current timelines."""


class ClockHistoryQuery(Query["ClockHistory"], frozen=True, kw_only=True, tag="clock-history"):
    """Past solutions of one clock, or of every clock when `node` is empty."""

    node: str = ""
    window_ns: int = 600_000_000_000
    step_ns: int = 0
    """At most one sample per clock and this much time; 0: as fine as fits an answer."""
    end_ns: int = 0
    """Fleet time at which the window ends; 0: now."""


class PairsQuery(Query["Pairs"], frozen=True, kw_only=True, tag="clock-pairs"):
    """The agents' last estimates of their pairs of clocks."""


class ClockTruthQuery(Query["ClockTruths"], frozen=True, kw_only=True, tag="clock-truth"):
    """True and estimated clocks of a lab; the truth is unknown in other fleets."""


class ClockTruth(msgspec.Struct, frozen=True, kw_only=True):
    """The true clock and, if the host has a timeline, its estimate."""

    host: str
    at_ns: int
    offset_ns: int
    """Offset from the machine's clock."""
    drift_ppb: float
    est_offset_ns: int | None = None
    """Offset from fleet time, whose offset from the machine's clock is arbitrary."""
    est_drift_ppb: float | None = None
    error_ns: int | None = None
    """Estimate minus truth, minus that difference's median over the host's component."""
    clk_err_ns: int | None = None
    """1-sigma claimed by the estimate at `at_ns`."""
    bound_ns: float | None = None
    """Bound of the estimate at `at_ns`; None: none."""
    state: ClockState | None = None


class ClockTruths(msgspec.Struct, frozen=True, kw_only=True, tag="clock-truths"):
    """Empty: the truth is unknown."""

    clocks: tuple[ClockTruth, ...]


class ClockSample(msgspec.Struct, frozen=True, kw_only=True):
    """One clock's solutions within one step: offset and rate of the newest, and the worst sigmas,
    bound and state of all of them."""

    ts_ns: int
    node: str
    ref_ns: int
    offset_ns: float
    drift_ppb: float
    sigma_ns: float
    drift_sigma_ppb: float | None
    bound_ns: float | None
    """None: unbounded, or stored by an earlier version without it."""
    state: ClockState
    reason: str = ""


class Clocks(msgspec.Struct, frozen=True, kw_only=True, tag="clock"):
    timelines: tuple[Timeline, ...]
    utc: Utc | None = None
    """Offset of UTC from fleet time; None: the fleet has no anchors."""


class Pairs(msgspec.Struct, frozen=True, kw_only=True, tag="clock-pairs"):
    edges: tuple[Edge, ...]


class ClockHistory(msgspec.Struct, frozen=True, kw_only=True, tag="clock-history"):
    """Samples by clock, then in order of time; `step_ns` as it was applied."""

    samples: tuple[ClockSample, ...]
    step_ns: int
    first_ns: int = 0
    """Oldest stored instant of the window, which a step's sample does not have; 0: not known."""
