"""Measurements of links, flows and paths, each with its instant. Pure.

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
    was on at the time (empty: the one that the mover assumes)."""

    at_ns: int
    bps: float
    path_id: str = ""


@dataclass(frozen=True, slots=True)
class PathDelay:
    """One-way delay of one path of a flow; `owd_ns` less `base_ns` is queueing delay."""

    at_ns: int
    owd_ns: int
    base_ns: int
    """Least delay of the path when nothing queues."""

    @property
    def queue_ns(self) -> int:
        """Queueing delay, never negative."""
        return max(0, self.owd_ns - self.base_ns)


@dataclass(frozen=True, slots=True)
class Measurements:
    """All measurements at one instant. What is not measured is absent."""

    loads: Mapping[str, LinkLoad] = field(default_factory=dict)
    """By link."""
    rates: Mapping[str, MeasuredRate] = field(default_factory=dict)
    """By flow."""
    delays: Mapping[tuple[str, str], PathDelay] = field(default_factory=dict)
    """By (flow, path)."""
    capacities: Capacities = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FreshMeasurements:
    """The measurements that are no older than `stale_ns`."""

    measured: Measurements
    now_ns: int
    stale_ns: int

    def load(self, link: str) -> float | None:
        """Bits per second."""
        load = self.measured.loads.get(link)
        return None if load is None or self._old(load.at_ns) else load.bps

    def rate(self, flow_id: str) -> MeasuredRate | None:
        rate = self.measured.rates.get(flow_id)
        return None if rate is None or self._old(rate.at_ns) else rate

    def queue_ns(self, flow_id: str, path_id: str) -> int | None:
        delay = self.measured.delays.get((flow_id, path_id))
        return None if delay is None or self._old(delay.at_ns) else delay.queue_ns

    def _old(self, at_ns: int) -> bool:
        return self.now_ns - at_ns > self.stale_ns
