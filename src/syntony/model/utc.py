"""UTC: readings of anchors, and the offset of UTC from fleet time."""

from __future__ import annotations

import math

import msgspec

from syntony.model.clocks import ClockState, grown_bound_ns


class UtcReading(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says of UTC: ``utc = local + utc_minus_ns`` at `local_ns`, within `bound_ns`."""

    node: str
    local_ns: int
    utc_minus_ns: int
    bound_ns: float


class Utc(msgspec.Struct, frozen=True, kw_only=True):
    """Where UTC is: ``utc = fleet + offset_ns + drift_ppb·1e-9·(fleet - ref_ns)``."""

    ref_ns: int
    """Fleet time."""
    offset_ns: float
    drift_ppb: float
    error_ns: float
    """Bound of the error at `confirmed_ns`, as the anchors agreed on."""
    confirmed_ns: int
    """Fleet time when anchors last agreed; from there the bound grows."""
    drift_sigma_ppb: float
    state: ClockState = ClockState.UNKNOWN
    anchors: tuple[str, ...] = ()
    """Those whose word counted last."""
    reason: str = ""
    """For a person: why the state is not SYNCHRONIZED, or who was left out."""

    def to_utc_ns(self, fleet_ns: int) -> int:
        """UTC at an instant of fleet time."""
        drift_ns = self.drift_ppb * 1e-9 * (fleet_ns - self.ref_ns)
        return fleet_ns + round(self.offset_ns + drift_ns)

    def bound_ns(self, fleet_ns: int) -> float:
        """How far `to_utc_ns(fleet_ns)` may be from UTC, an instant of fleet time given exactly.

        A host adds its own timeline's bound. Grows as `Timeline.bound_ns` does, the fleet's rate
        being no better than one clock's; infinite in state UNKNOWN.
        """
        if self.state is ClockState.UNKNOWN:
            return math.inf
        away_ns = abs(fleet_ns - self.confirmed_ns)
        return self.error_ns + grown_bound_ns(away_ns, self.drift_sigma_ppb)
