"""How fast one subflow goes, both ways, over its last whole window. Pure."""

from __future__ import annotations

from syntony.model import MS, S
from syntony.model.paths import FlowSample

WINDOW_NS = 400 * MS
"""Shortest window: several steps of a job, so that its beat is not taken for contention; below the
500 ms between two accounts of all flows (`agent.steering.flows.ALL_NS`)."""


class Meter:
    """Counters in, bits per second out."""

    __slots__ = ("_acked", "_began_ns", "_received", "rx_bps", "tx_bps", "windows")

    def __init__(self) -> None:
        self.tx_bps = 0
        """Acknowledged by the peer."""
        self.rx_bps = 0
        self.windows = 0
        """Whole windows so far; 0: the rates mean nothing yet."""
        self._began_ns = -1
        self._acked = self._received = 0

    @property
    def bps(self) -> int:
        """Both ways together."""
        return self.tx_bps + self.rx_bps

    def take(self, sample: FlowSample) -> None:
        """One look at the counters, whenever it is."""
        elapsed_ns = sample.at_ns - self._began_ns
        if self._began_ns >= 0 and elapsed_ns < WINDOW_NS:
            return
        if self._began_ns >= 0:
            self.tx_bps = max(0, sample.bytes_acked - self._acked) * 8 * S // elapsed_ns
            self.rx_bps = max(0, sample.bytes_received - self._received) * 8 * S // elapsed_ns
            self.windows += 1
        self._began_ns = sample.at_ns
        self._acked, self._received = sample.bytes_acked, sample.bytes_received
