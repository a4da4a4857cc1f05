"""Reports of jobs' processes about their queue pairs, converted to fleet time."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.agent.job_peers import JobPeers, Peer
from syntony.io.job_socket import Process
from syntony.io.queue_pair_page import QueuePairPage
from syntony.model import MS, Timeline
from syntony.traffic.queue_pair_page import STAMP_RECORD, Owner, shifted, thinned
from syntony.wire.queue_pairs import (
    MAX_BOUND_NS,
    MAX_QUEUE_PAIRS,
    MAX_STAMPS,
    QueuePairFigures,
    QueuePairsReport,
)

STEP_NS = 1 * MS
"""If fleet time moves by more between two reports, it was stepped."""


_Instants = TypeVar("_Instants", np.int64, NDArray[np.int64])


class FleetOffset(NamedTuple):
    """Fleet time minus CLOCK_MONOTONIC, at one instant."""

    at_ns: int
    """CLOCK_MONOTONIC."""
    offset_ns: int
    bound_ns: int
    """Bound of the error of fleet time."""


def fleet_offset(line: Timeline | None, local_ns: int, now_ns: int) -> FleetOffset | None:
    """The offset at one instant; None: fleet time is not known well enough.

    Args:
        line: of the host's clock; None: there is none yet.
        local_ns: that clock.
        now_ns: CLOCK_MONOTONIC.
    """
    bound_ns = math.inf if line is None else line.bound_ns(local_ns)
    if line is None or bound_ns > MAX_BOUND_NS:
        return None
    return FleetOffset(now_ns, line.to_fleet_ns(local_ns) - now_ns, math.ceil(bound_ns))


class QueuePairSocket(JobPeers[QueuePairPage]):
    """Receives jobs' reports on their queue pairs, on fleet time.

    One per agent; `report` is for one thread.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._before: FleetOffset | None = None
        self.malformed = 0
        """Total of invalid records."""
        self.queue_pairs = 0
        """Number reported by processes at the last reading."""
        self.left_out = 0
        """Number not reported then: beyond the limit of one report, or for which a process had no
        place."""

    def _make(self, connection: socket.socket, process: Process) -> QueuePairPage:
        owner = Owner(process.job, process.program, process.pid, process.uid)
        return QueuePairPage(connection, owner)

    def report(self, offset: Callable[[], FleetOffset | None]) -> QueuePairsReport | None:
        """Current reports of processes; None without fleet time, or without a process.

        Args:
            offset: reads the clocks; None: there is no fleet time.
        """
        refused = self.refused()
        if not self._peers and self._before is None and not refused:
            return None
        found = self._read()
        before, now = self._before, offset()
        self._before = now if self._peers else None
        if now is None:
            return None
        if before is None or abs(now.offset_ns - before.offset_ns) > STEP_NS:
            before = now
        return QueuePairsReport(
            at_ns=now.at_ns + now.offset_ns,
            queue_pairs=tuple(on_fleet_time(each, before, now) for each in found),
            left_out=self.left_out,
            refused=refused,
            malformed=self.malformed,
            bound_ns=max(before.bound_ns, now.bound_ns),
        )

    def _read(self) -> list[QueuePairFigures]:
        self.left_out = 0

        def read(peer: Peer[QueuePairPage]) -> list[QueuePairFigures]:
            before = peer.page.malformed
            reported = peer.page.read()
            self.malformed += peer.page.malformed - before
            self.left_out += peer.page.left_out
            return reported

        found = [each for reported in self._of_each(read) for each in reported]
        self.left_out += len(found[MAX_QUEUE_PAIRS:])
        self.queue_pairs = len(found[:MAX_QUEUE_PAIRS])
        return found[:MAX_QUEUE_PAIRS]


def on_fleet(at_ns: _Instants, before: FleetOffset, now: FleetOffset) -> _Instants:
    """Convert instants of CLOCK_MONOTONIC to fleet time.

    Between `before` and `now` the offset is assumed to change linearly: clocks drift apart by
    microseconds a second. If both are the same, it is constant.
    """
    rate = 0.0
    if now.at_ns > before.at_ns:
        rate = (now.offset_ns - before.offset_ns) / (now.at_ns - before.at_ns)
    return at_ns + now.offset_ns + ((at_ns - now.at_ns) * rate).astype(np.int64)


def on_fleet_time(
    figures: QueuePairFigures, before: FleetOffset, now: FleetOffset
) -> QueuePairFigures:
    """The report with instants in fleet time, and with few distinct timestamps."""

    def shift(stamps: bytes) -> bytes:
        few = thinned(stamps, MAX_STAMPS)
        at_ns = np.frombuffer(few, STAMP_RECORD)["at_ns"]
        return shifted(few, on_fleet(at_ns, before, now) - at_ns)

    def instant(at_ns: int) -> int:
        return int(on_fleet(np.int64(at_ns), before, now)) if at_ns else 0

    return msgspec.structs.replace(
        figures,
        began_ns=instant(figures.began_ns),
        first_sent_ns=instant(figures.first_sent_ns),
        sent_stamps=shift(figures.sent_stamps),
        received_stamps=shift(figures.received_stamps),
        round_trips=shift(figures.round_trips),
    )
