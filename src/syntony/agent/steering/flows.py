"""Samples the connections that leave by our NICs: often, but reports only relevant changes.

Every flow is sampled every `SAMPLE_NS`, all in one call; Python processes a flow when it has made
no progress for a while, and all of them every `ALL_NS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.io.tcp_flows import TcpFlows, goes_to, is_sending
from syntony.model import MS, US, S
from syntony.model.paths import FlowSample, PathEvent
from syntony.traffic.pairs import ConnectionProgress

SAMPLE_NS = 15 * MS
"""A quarter of the silence that makes a flow stalled."""
SUSPECT_NS = 30 * MS
"""A flow without progress for this long is reported at every sample."""
ALL_NS = 500 * MS
"""Interval of listings of all flows: rates, and new connections."""
NONE_NS = 1 * S
"""… while none is sampled often: a listing walks the kernel's whole table of connections."""
MOST_PROGRESS = 256
"""Maximum flows to check before a path is given up, those with the newest acknowledgements: each
costs 14 µs, and any flow shows whether the path works."""
TICKS_NS = 10 * MS
"""The kernel accounts for a flow's busy time in ticks: two of 4 ms (250 Hz), and a margin."""
STALL_NS = 10 * MS
"""If a sample is later than planned by more than this, this process was not scheduled."""


class FlowWatch:
    """Samples TCP connections; a `Source` without a file, polled by its deadline.

    Args:
        addresses: returns the current ones of our NICs.
        plain: inodes of the managed plain connections: these and MPTCP's subflows are sampled
            often, all others are only listed. None: plain ones are left out.
    """

    def __init__(
        self,
        addresses: Callable[[], Collection[str]],
        plain: Callable[[], Collection[int]] | None = None,
    ) -> None:
        self._flows = TcpFlows()
        self._addresses = addresses
        self._plain = plain
        self._rows: NDArray[np.void] = self._flows.find(addresses())
        self._since = np.zeros(len(self._rows), np.int64)
        self._baseline = self._rows.copy()
        self._reported = np.zeros(len(self._rows), bool)
        self._acked = np.zeros(len(self._rows), np.int64)
        """When bytes were last acknowledged, upper bound; 0: unknown."""
        self._idle = np.zeros(len(self._rows), np.int64)
        self._idle_us = self._rows["busy_us"].astype(np.int64)
        """Since when data have been in flight all the time, upper bound, and the kernel's busy time
        at that instant."""
        self._next_ns = 0
        self._all_ns = 0

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._flows.close()

    @property
    def deadline_ns(self) -> int:
        """CLOCK_MONOTONIC of the next sample, or listing if no flow needs frequent ones."""
        return self._next_ns if len(self._rows) else self._all_ns

    def refresh(self) -> None:
        """List all flows at the next poll: there may be one that is not known yet."""
        self._all_ns = 0

    def progress(
        self, remotes: Collection[str], now_ns: int, *, anew: bool = False
    ) -> list[ConnectionProgress]:
        """Current progress of flows to these addresses: those with the newest progress, and those
        that wait longest.

        Args:
            remotes: addresses.
            now_ns: CLOCK_MONOTONIC.
            anew: search for unknown flows first.
        """
        if anew:
            self._find(now_ns)
        else:
            self.look(now_ns)
        waits_ns = now_ns - np.maximum(self._idle, self._acked)
        requested = np.flatnonzero(is_sending(self._rows) & goes_to(self._rows, remotes))
        newest = requested[np.argsort(-self._acked[requested], kind="stable")][:MOST_PROGRESS]
        longest = requested[np.argsort(-waits_ns[requested], kind="stable")][:MOST_PROGRESS]
        some = np.union1d(newest, longest)
        found = self._flows.samples(self._rows[some], now_ns)
        return [
            ConnectionProgress(sample.flow, acked_ns, sample.rtt_ns, waited_ns, acked_ns > idle_ns)
            for sample, acked_ns, waited_ns, idle_ns in zip(
                found,
                self._acked[some].tolist(),
                waits_ns[some].tolist(),
                self._idle[some].tolist(),
                strict=True,
            )
        ]

    def look(self, now_ns: int) -> None:
        """Sample every known flow now, in addition to the regular samples."""
        self._flows.sample(self._rows)
        self._progress(now_ns)

    def poll(self, now_ns: int) -> list[PathEvent]:
        if now_ns < self.deadline_ns:
            return []
        if now_ns - self._next_ns > STALL_NS:
            # No samples were taken meanwhile: silence in that time proves nothing.
            self._since += now_ns - self._next_ns
        self._next_ns = now_ns + SAMPLE_NS
        if now_ns >= self._all_ns:
            self._all_ns = now_ns + NONE_NS
            found = self._find(now_ns)
            if len(self._rows):
                self._all_ns = now_ns + ALL_NS
            return list(self._flows.samples(found, now_ns))
        self.look(now_ns)
        return list(self._suspects(now_ns))

    def _find(self, now_ns: int) -> NDArray[np.void]:
        """List all flows, and return what is to be reported; state of those that stay is kept."""
        if not len(self._rows):  # nothing was to be sampled: this is no stall
            self._next_ns = now_ns + SAMPLE_NS
        found = self._flows.find(self._addresses())
        rows = found[found["token"] != 0]
        if self._plain is not None:
            known = np.fromiter(self._plain(), dtype=np.uint32)
            rows = np.concatenate(
                [rows, found[(found["token"] == 0) & np.isin(found["inode"], known)]]
            )
        if not len(rows) and not len(self._rows):
            return rows if self._plain is None else found
        _, kept, before = np.intersect1d(
            rows["cookie"], self._rows["cookie"], assume_unique=True, return_indices=True
        )
        since = np.full(len(rows), now_ns, np.int64)
        baseline, reported = rows.copy(), np.zeros(len(rows), bool)
        since[kept], reported[kept] = self._since[before], self._reported[before]
        baseline[kept] = self._baseline[before]
        acked = np.zeros(len(rows), np.int64)
        acked[kept] = self._acked[before]
        idle, idle_us = np.full(len(rows), now_ns, np.int64), rows["busy_us"].astype(np.int64)
        idle[kept], idle_us[kept] = self._idle[before], self._idle_us[before]
        self._idle, self._idle_us = idle, idle_us
        self._rows, self._since, self._baseline, self._reported = rows, since, baseline, reported
        self._acked = acked
        self._progress(now_ns)
        return rows if self._plain is None else found

    def _progress(self, now_ns: int) -> None:
        rows = self._rows
        acked = rows["bytes_acked"] != self._baseline["bytes_acked"]
        self._acked[acked] = now_ns - rows["last_ack_ms"][acked].astype(np.int64) * MS
        moved = acked | (rows["unacked"] == 0)
        # A closed window is the peer's wish, not a fault of the path.
        moved |= rows["window_probes"] > 0
        busy_us = rows["busy_us"].astype(np.int64)
        idle = (rows["unacked"] == 0) | (rows["window_probes"] > 0)
        idle |= now_ns - self._idle - (busy_us - self._idle_us) * US > TICKS_NS
        self._idle[idle], self._idle_us[idle] = now_ns, busy_us[idle]
        self._since[moved] = now_ns
        self._baseline[moved] = rows[moved]
        self._reported[moved] = False

    def _suspects(self, now_ns: int) -> list[FlowSample]:
        suspect = now_ns - self._since >= SUSPECT_NS
        if not suspect.any():
            return []
        fresh = suspect & ~self._reported
        self._reported |= suspect
        # First its state when it last made progress, so that readers know since when.
        before = zip(
            self._flows.samples(self._baseline[fresh], now_ns),
            self._since[fresh].tolist(),
            strict=False,
        )
        return [
            *(
                msgspec.structs.replace(each, at_ns=since_ns, unacked=0, last_ack_ns=0)
                for each, since_ns in before
            ),
            *self._flows.samples(self._rows[suspect], now_ns),
        ]
