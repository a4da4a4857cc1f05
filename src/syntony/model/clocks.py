"""What is said about clocks: a pair's measured edge, a node's timeline, a synthetic clock."""

from __future__ import annotations

import enum

import msgspec


class ClockState(enum.StrEnum):
    """What a timeline is worth (ClockBound's vocabulary, with holdover made visible)."""

    UNKNOWN = "UNKNOWN"
    SYNCHRONIZED = "SYNCHRONIZED"
    HOLDOVER = "HOLDOVER"
    DISRUPTED = "DISRUPTED"


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """One pair's relation over one window: clock `b` minus clock `a`.

    ``theta(t) = theta_ns + drift_ppb·1e-9·(t - ref_ns)`` with t on a's clock.
    """

    a: str
    b: str
    ref_ns: int
    theta_ns: float
    drift_ppb: float
    sigma_ns: float
    """1-sigma of theta at `ref_ns`."""
    drift_sigma_ppb: float
    rtt_floor_ns: float
    probes: int
    """Samples used, both directions together."""
    mode: str = ""
    """How the newest window was used: first, both, forward, reverse, held, rebased, stepped."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """One clock's mapping to fleet time.

    ``fleet = local + offset_ns + drift_ppb·1e-9·(local - ref_ns)``.
    """

    node: str
    ref_ns: int
    offset_ns: float
    drift_ppb: float
    sigma_ns: float
    """1-sigma of offset at `ref_ns`."""
    drift_sigma_ppb: float = 0.0
    state: ClockState = ClockState.UNKNOWN
    component: str = ""
    """First node of the connected part it belongs to: other parts are not comparable."""

    def to_fleet_ns(self, local_ns: int) -> int:
        """Fleet time of a local instant, past or future."""
        drift_ns = self.drift_ppb * 1e-9 * (local_ns - self.ref_ns)
        return local_ns + round(self.offset_ns + drift_ns)

    def to_local_ns(self, fleet_ns: int) -> int:
        """The local instant at which this clock's fleet time is `fleet_ns`."""
        local_ns = fleet_ns - round(self.offset_ns)
        drift_ns = self.drift_ppb * 1e-9 * (local_ns - self.ref_ns)
        return fleet_ns - round(self.offset_ns + drift_ns)


class SyntheticClockSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A clock whose error against the machine's CLOCK_REALTIME is known exactly.

    At ``base_ns`` it reads ``base_ns + offset_ns``; from there its frequency error is the sum of a
    constant drift, a random walk (`wander_ppb` per √s, seeded) and a sinusoidal swing, and its
    phase takes the listed steps.
    """

    base_ns: int
    offset_ns: int = 0
    drift_ppb: float = 0.0
    wander_ppb: float = 0.0
    seed: int = 0
    swing_ppb: float = 0.0
    swing_period_ns: int = 600_000_000_000
    steps: tuple[tuple[int, int], ...] = ()
    """(machine instant ns, phase step ns), ascending."""
