"""What is measured of links, flows and paths, with the instant of each measurement. Pure.

Instants are whatever `now_ns` of the caller is; the age of a measurement is ``now_ns - at_ns``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from syntony.traffic.demand import Capacities


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Bits per second on one directional link, averaged over a window that ended at `at_ns`."""

    at_ns: int
    bps: float


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """Bits per second of one flow, averaged over a window that ended at `at_ns`, and the path it
    was on at the time (empty: as the mover believes)."""

    at_ns: int
    bps: float
    path_id: str = ""


@dataclass(frozen=True, slots=True)
class PathDelay:
    """One-way delay of one path of a flow: queueing is `owd_ns` less `base_ns`."""

    at_ns: int
    owd_ns: int
    base_ns: int
    """Least delay of the path when nothing queues."""

    @property
    def queue_ns(self) -> int:
        """Queueing delay, never negative."""
        return max(0, self.owd_ns - self.base_ns)


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything known at one instant. Whatever is not measured is absent."""

    loads: Mapping[str, LinkLoad] = field(default_factory=dict)
    """By link."""
    rates: Mapping[str, MeasuredRate] = field(default_factory=dict)
    """By flow."""
    delays: Mapping[tuple[str, str], PathDelay] = field(default_factory=dict)
    """By (flow, path)."""
    capacities: Capacities = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fresh:
    """What of it is young enough to decide anything."""

    seen: Seen
    now_ns: int
    stale_ns: int

    def load(self, link: str) -> float | None:
        """Bits per second."""
        load = self.seen.loads.get(link)
        return None if load is None or self._old(load.at_ns) else load.bps

    def rate(self, flow_id: str) -> MeasuredRate | None:
        rate = self.seen.rates.get(flow_id)
        return None if rate is None or self._old(rate.at_ns) else rate

    def queue_ns(self, flow_id: str, path_id: str) -> int | None:
        delay = self.seen.delays.get((flow_id, path_id))
        return None if delay is None or self._old(delay.at_ns) else delay.queue_ns

    def _old(self, at_ns: int) -> bool:
        return self.now_ns - at_ns > self.stale_ns
