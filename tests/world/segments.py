"""Segments of a job's TCP flow, each stamped at both ends by fleet time as these hosts know it.

Which bytes are sampled, when they are sent and how long they are under way follows from their
number alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from syntony.model import MS, US, S
from syntony.traffic.segment_delays import STAMP
from syntony.wire.segments import SegmentFlow, SegmentsReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.world.world import Host

    from syntony.model import Timeline

EACH_NS = 125 * MS
LEAST_NS, MOST_NS = 200 * US, 300 * US
_SHIFT = 10
_STEP_NS = (MOST_NS - LEAST_NS) // 100


class Segments:
    """What one host reports of them.

    Args:
        host: whose clock stamps.
        port: of the flow, at both ends.
    """

    def __init__(self, host: Host, port: int) -> None:
        self._host, self._port = host, port
        self._until: tuple[int, int] | None = None
        """End of the last report: true time and fleet time."""

    def report(
        self, line: Timeline, true_ns: int, step: int, ends: Sequence[str]
    ) -> SegmentsReport:
        """What was sent and received since the last report.

        Args:
            line: of this host's clock.
            step: see `SegmentsReport`.
            ends: addresses of this host, of the one that it sends to, and of the one that sends
                here.
        """
        local_ns = self._host.clock.read_ns(true_ns)
        at_ns = line.to_fleet_ns(local_ns)
        began_ns, from_ns = self._until or (true_ns, at_ns)
        if not 0 <= at_ns - from_ns < 5 * S:
            began_ns, from_ns = true_ns, at_ns
        self._until = true_ns, at_ns
        numbers = range(began_ns // EACH_NS - 1, true_ns // EACH_NS + 1)
        sent = [(each * EACH_NS, each) for each in numbers]
        received = [(at + LEAST_NS + each % 100 * _STEP_NS, each) for at, each in sent]
        own, there, back = ends
        out, into = (
            np.array(
                [
                    (line.to_fleet_ns(self._host.clock.read_ns(at)), (each << _SHIFT) % (1 << 32))
                    for at, each in passed
                    if began_ns < at <= true_ns
                ],
                STAMP,
            ).tobytes()
            for passed in (sent, received)
        )
        return SegmentsReport(
            from_ns=from_ns, at_ns=at_ns, bound_ns=math.ceil(line.bound_ns(local_ns)),
            sigma_ns=line.sigma_ns, step=step,
            flows=(self._flow(own, there, sent=out), self._flow(own, back, received=into)),
        )  # fmt: skip

    def _flow(
        self, local: str, remote: str, sent: bytes = b"", received: bytes = b""
    ) -> SegmentFlow:
        return SegmentFlow(
            job="job", nic="rail0", local=local, local_port=self._port, remote=remote,
            remote_port=self._port, sent=sent, received=received, shift=_SHIFT,
            sampled=len(sent) // STAMP.itemsize,
        )  # fmt: skip
