"""How fast ports send and receive, from their byte counters. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from syntony.model import S

PEAK_NS = 10 * S
"""Window of the peaks: a job that computes between two bursts counts as one that sends."""
BUSY_SHARE = 0.005
"""Share of the line rate from which a port is busy. Probes take less; a shaper in front of a port,
as clouds and the lab have, may fill at a small share."""
BUSY_BPS = 50e6
"""The same for a port of unknown line rate, bits per second."""
WORD_BYTES = 4
"""Unit of the byte counters of RDMA ports."""


class PortBytes(NamedTuple):
    sent: int
    received: int


class PortPeaks(NamedTuple):
    """The highest rates of a port in `PEAK_NS`, bits per second."""

    tx_bps: float = 0.0
    rx_bps: float = 0.0


class TrafficMeter:
    """Derives rates from counters that are read about once a second."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, PortBytes]] = {}
        self._rates: dict[str, deque[tuple[int, PortPeaks]]] = {}

    def update(self, now_ns: int, counts: Mapping[str, PortBytes]) -> None:
        """Take the counters of all ports, read at `now_ns`. Those that are smaller than before were
        reset; a port that is not in here is forgotten."""
        self._rates = {name: self._rates.get(name) or deque() for name in counts}
        for name, count in counts.items():
            before_ns, before = self._last.get(name, (now_ns, count))
            rates = self._rates[name]
            sent, received = count.sent - before.sent, count.received - before.received
            if now_ns > before_ns and sent >= 0 and received >= 0:
                per_s = 8 * S / (now_ns - before_ns)
                rates.append((now_ns, PortPeaks(sent * per_s, received * per_s)))
            while rates and rates[0][0] <= now_ns - PEAK_NS:
                rates.popleft()
        self._last = {name: (now_ns, count) for name, count in counts.items()}

    def peaks(self, name: str) -> PortPeaks:
        """Of a port; zero before its counters were read twice."""
        rates = [rate for _, rate in self._rates.get(name, ())]
        return PortPeaks(*map(max, zip(*rates, strict=True))) if rates else PortPeaks()


def is_busy(bps: float, gbps: float | None) -> bool:
    """Whether a rate in one direction may fill the port, or what it is connected to.

    Args:
        gbps: line rate; None or 0: unknown.
    """
    return bps >= (gbps * 1e9 * BUSY_SHARE if gbps else BUSY_BPS)


def has_changed(before: PortPeaks, now: PortPeaks, gbps: float | None) -> bool:
    """Whether a port has become busy or idle, or is twice or half as busy, in either direction."""
    return any(
        max(one, other) > 2 * min(one, other) and is_busy(max(one, other), gbps)
        for one, other in zip(before, now, strict=True)
    )
