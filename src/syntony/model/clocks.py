"""Types of clocks: a pair's measured edge, a node's timeline, a synthetic clock."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, overload

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BOUND_SIGMAS = 4.0
"""fbclock's choice for its window of uncertainty; 6 in 100,000 on Gaussian errors."""
WALK_PPB = 5.0
"""Random walk of a quartz's frequency per √s, at the upper end of what servers show."""
RAMP_PPB_PER_S = 2.0
"""Fastest change of frequency with temperature: 200 ppb of swing within a 10-minute cycle."""
SWING_PPB = 400.0
"""Largest such change altogether: 20 K at 20 ppb/K."""


class ClockState(enum.StrEnum):
    """Quality of a timeline (ClockBound's states, with holdover as a separate one)."""

    UNKNOWN = "UNKNOWN"
    SYNCHRONIZED = "SYNCHRONIZED"
    HOLDOVER = "HOLDOVER"
    DISRUPTED = "DISRUPTED"


class Edge(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pair's relation over one window: clock `b` minus clock `a`.

    ``theta(t) = theta_ns + drift_ppb·1e-9·(t - ref_ns)`` with t on a's clock.
    """

    a: str
    b: str
    ref_ns: int
    theta_ns: float
    drift_ppb: float
    sigma_ns: float
    """1-sigma of theta's random error at `ref_ns`; averaging over edges reduces it."""
    drift_sigma_ppb: float
    rtt_floor_ns: float
    probes: int
    """Samples used, both directions together."""
    mode: str = ""
    """Use of the newest window: first, both, forward, reverse, held, rebased, stepped."""
    paths: int = 0
    """Number of the pair's paths that were compared; 0: there is only one."""
    path_spread_ns: float = 0.0
    """Distance of the most deviating path from the others; 0: they agree."""
    path_correction_ns: float = 0.0
    """Correction of `theta_ns` by their disagreement."""
    a_epoch: int = 0
    b_epoch: int = 0
    """Epochs of both clocks that all of the window lies in, as the prober knows them; 0: it does
    not."""
    doubt_ns: float = 0.0
    """1-sigma of a systematic error of theta that the data do not exclude: a standing queue behind
    a floor that no window has confirmed, or a floor that was learned again. Averaging does not
    reduce it."""


def grown_bound_ns(away_ns: int, drift_sigma_ppb: float, sigma_ns: float = 0.0) -> float:
    """Four sigmas of what was measured and of a drift that walks at random, and what a temperature
    ramp does, so far from the measurement; see `Timeline.bound_ns`."""
    seconds = away_ns * 1e-9
    walk_ns = WALK_PPB * seconds**1.5 / math.sqrt(3)
    ramp_ns = min(RAMP_PPB_PER_S * seconds**2 / 2, SWING_PPB * seconds)
    return BOUND_SIGMAS * math.hypot(sigma_ns, drift_sigma_ppb * seconds, walk_ns) + ramp_ns


class Timeline(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    asymmetry_ns: float = 0.0
    """Bound on the error of unequal path delays that no other path checks (half a round trip)."""
    reason: str = ""
    """The reason, as text, if the state is not SYNCHRONIZED."""
    epoch: int = 0
    """Names the last step, or change of rate, of this clock; 0: not reported. A measurement of
    another epoch is not valid for this clock."""

    @overload
    def shift_ns(self, local_ns: int) -> float: ...
    @overload
    def shift_ns(self, local_ns: NDArray[np.int64]) -> NDArray[np.floating]: ...
    def shift_ns(self, local_ns: int | NDArray[np.int64]) -> float | NDArray[np.floating]:
        """Fleet minus local, at a local instant or at each of several, past or future."""
        return self.offset_ns + self.drift_ppb * 1e-9 * (local_ns - self.ref_ns)

    def to_fleet_ns(self, local_ns: int) -> int:
        """Fleet time of a local instant, past or future."""
        return local_ns + round(self.shift_ns(local_ns))

    def bound_ns(self, local_ns: int) -> float:
        """How far `to_fleet_ns(local_ns)` may be from fleet time; infinite in state UNKNOWN.

        ``asymmetry + 4·√(σ² + (σ_drift·Δ)² + walk²·Δ³/3) + swing(Δ)`` with Δ the distance from
        `ref_ns`: four sigmas of what was measured and of a drift that walks at random, and what a
        temperature ramp does (see docs/reference/clock.md). A float cannot represent an
        offset of years to the nanosecond: its last digit is added.
        """
        if self.state is ClockState.UNKNOWN:
            return math.inf
        away_ns = abs(local_ns - self.ref_ns)
        grown_ns = grown_bound_ns(away_ns, self.drift_sigma_ppb, self.sigma_ns)
        return self.asymmetry_ns + grown_ns + math.ulp(self.offset_ns)

    def to_local_ns(self, fleet_ns: int) -> int:
        """The local instant at which this clock's fleet time is `fleet_ns`."""
        return fleet_ns - round(self.shift_ns(fleet_ns - round(self.offset_ns)))


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
    tape: str = ""
    """A file with adjustments made while the clock runs; every process with this clock follows it.
    Empty: none can be made."""
