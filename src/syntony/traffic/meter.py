"""Rates of one subflow, in both directions, over its last whole windows. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from syntony.model import MS, S
from syntony.model.paths import FlowSample

WINDOW_NS = 400 * MS
"""Shortest window: several steps of a job, so that its rhythm is not taken for contention; below
the 500 ms between two samples of all flows (`agent.steering.flows.ALL_NS`)."""
HEADERS = 1514 / 1428
"""Ratio of bytes on the wire to acknowledged payload, for full frames with MPTCP's options."""
RECENT = 4
"""Windows that are kept: two seconds."""


class MeterWindow(NamedTuple):
    tx_bits: int
    """Acknowledged by the peer."""
    busy_ns: int
    """Time with data to send or unacknowledged."""
    elapsed_ns: int
    delivery_bps: int
    """What the path carried when the subflow last had enough to send (tcpi_delivery_rate)."""


class Meter:
    """Computes the rates of one subflow from the kernel's counters, in windows of `WINDOW_NS`."""

    __slots__ = ("_before", "_began_ns", "recent", "rx_bps", "tx_bps", "windows")

    def __init__(self) -> None:
        self.tx_bps = 0
        """Acknowledged by the peer."""
        self.rx_bps = 0
        self.windows = 0
        """Whole windows so far; 0: the rates are not valid yet."""
        self.recent: deque[MeterWindow] = deque(maxlen=RECENT)
        self._began_ns = -1
        self._before: FlowSample | None = None

    @property
    def bps(self) -> int:
        """Rate in the last window, both directions together."""
        return self.tx_bps + self.rx_bps

    @property
    def recent_bps(self) -> float:
        """Rate of bytes acknowledged by the peer, over all recent windows."""
        return _share(self.recent, sum(each.tx_bits for each in self.recent)) * S

    @property
    def busy(self) -> float:
        """Share of the recent windows with data to send or unacknowledged."""
        return min(1.0, _share(self.recent, sum(each.busy_ns for each in self.recent)))

    @property
    def capacity_bps(self) -> int:
        """Capacity of the path: the lowest delivery rate that the kernel reported at the ends of
        recent windows, for a burst through a shaper's bucket looks faster than the path is."""
        return min((each.delivery_bps for each in self.recent), default=0)

    @property
    def rtt_ns(self) -> int:
        """The kernel's smoothed round trip at the end of the last window; 0: not known."""
        return self._before.rtt_ns if self._before is not None else 0

    @property
    def retransmits(self) -> int:
        """Segments sent again since the subflow began, at the end of the last window."""
        return self._before.retransmits if self._before is not None else 0

    @property
    def window_limited_ns(self) -> int:
        """For how long data has waited for the peer's window since the subflow began, at the end of
        the last window; -1: not known."""
        return self._before.window_limited_ns if self._before is not None else -1

    @property
    def dscp(self) -> int:
        """DSCP of what this end sends, at the end of the last window; -1: not known."""
        return self._before.dscp if self._before is not None else -1

    def take(self, sample: FlowSample) -> None:
        """Take a sample of the counters, at any time."""
        elapsed_ns = sample.at_ns - self._began_ns
        if self._began_ns >= 0 and elapsed_ns < WINDOW_NS:
            return
        before = self._before
        if before is not None:
            tx_bits = max(0, sample.bytes_acked - before.bytes_acked) * 8
            self.tx_bps = tx_bits * S // elapsed_ns
            received = max(0, sample.bytes_received - before.bytes_received)
            self.rx_bps = received * 8 * S // elapsed_ns
            busy_ns = sample.busy_ns - before.busy_ns
            self.recent.append(MeterWindow(tx_bits, busy_ns, elapsed_ns, sample.delivery_bps))
            self.windows += 1
        self._began_ns, self._before = sample.at_ns, sample


def _share(windows: Iterable[MeterWindow], amount: int) -> float:
    """`amount` per ns of the windows' time; 0 without a window."""
    return amount / max(1, sum(each.elapsed_ns for each in windows))
