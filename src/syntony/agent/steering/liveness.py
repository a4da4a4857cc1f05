"""Chooses the probed flows that are watched for liveness, and receives their events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from syntony.io.probe_records import WatchStatus
from syntony.model import MS, S
from syntony.model.paths import LivenessEvent
from syntony.traffic.instructions import WatchPaths
from syntony.traffic.pair_timeouts import LOOKS_NS
from syntony.traffic.pairs import Pair
from syntony.wire.probes import ProbeFlow

WATCH_PPS = 1_600
"""Total rate of probes for all watched paths of a host: at about 15 µs of CPU each, 2.5 % of a core
here and as much at the peers."""
PORTS_PER_PAIR = 4
"""Source ports watched of each pair: one path of the fabric does not represent the pair. With two
equal-cost paths all four share one with probability 1/8."""
MORE_PORTS = 4
"""… and further ones for a pair that a job's flow uses, or that has fallen silent."""
SPARE_PORTS = 8
"""… and, rarely, further ones, only to learn whether any of them is answered. If one of two spines
drops everything, there or back, 4 + 4 ports are all lost for one pair in ten, 16 for one in a
hundred."""
FASTEST_NS, SLOWEST_NS = 2 * MS, 50 * MS
PORTS = PORTS_PER_PAIR + MORE_PORTS + SPARE_PORTS
AT_ONCE_NS = 10 * MS
"""Interval of probes of such a port while it is unknown whether the pair is partially reachable:
dead after 52 ms. For a moment, so not in the budget."""


class Prober(Protocol):
    """The part of `syntony.io.probe.ProbeEngine` that is needed here."""

    def watch(self, flows: Sequence[ProbeFlow]) -> None: ...

    def liveness_fd(self) -> int: ...

    def liveness(self) -> list[LivenessEvent]: ...

    def watched(self) -> list[WatchStatus]: ...


def choose(
    flows: Sequence[ProbeFlow], requested: WatchPaths, configured: Callable[[str], str]
) -> list[ProbeFlow]:
    """Choose what to watch, as often as the budget allows.

    Args:
        flows: the plan, and spare ports.
        requested: which pairs of NICs, and which of them on more ports.
        configured: a NIC's name in plans.
    """

    def planned(pairs: frozenset[Pair]) -> frozenset[Pair]:
        return frozenset((configured(nic), remote) for nic, remote in pairs)

    paths, suspect, partial = map(planned, (requested.paths, requested.suspect, requested.partial))
    ports: Counter[Pair] = Counter()
    usual: list[ProbeFlow] = []
    urgent: list[ProbeFlow] = []
    spare: list[ProbeFlow] = []
    for flow in sorted(flows, key=lambda each: each.src_port):
        pair = (flow.src, flow.dst_addr)
        if pair not in paths or ports[pair] == PORTS:
            continue
        ports[pair] += 1
        if ports[pair] <= PORTS_PER_PAIR + (MORE_PORTS if pair in partial else 0):
            usual.append(flow)
        elif pair in suspect or pair in partial:
            more = ports[pair] <= PORTS_PER_PAIR + MORE_PORTS
            (urgent if more else spare).append(flow)
    interval_ns = min(max(FASTEST_NS, len(usual) * S // WATCH_PPS), SLOWEST_NS)
    at_once_ns = min(interval_ns, AT_ONCE_NS)
    return [
        *(msgspec.structs.replace(flow, interval_ns=interval_ns) for flow in usual),
        *(msgspec.structs.replace(flow, interval_ns=at_once_ns) for flow in urgent),
        *(msgspec.structs.replace(flow, interval_ns=SLOWEST_NS) for flow in spare),
    ]


class LivenessSource:
    """A `Source` over one engine's events."""

    def __init__(self, prober: Prober) -> None:
        self._prober = prober
        self._fd = prober.liveness_fd()
        self.interval_ns = SLOWEST_NS
        """Interval of probes of one watched flow."""
        self.rung = False
        """Whether `look` has news."""
        self._look_ns: int | None = None

    def fileno(self) -> int:
        return self._fd

    @property
    def deadline_ns(self) -> int | None:
        return self._look_ns

    def poll(self, now_ns: int) -> list[LivenessEvent]:  # noqa: ARG002 - events have their own
        self.rung = True
        return self._prober.liveness()

    def watch(self, flows: Sequence[ProbeFlow]) -> None:
        self.interval_ns = max((flow.interval_ns for flow in flows), default=SLOWEST_NS)
        self._prober.watch(flows)

    def round_trips(self) -> dict[int, int]:
        """Smoothed round trip of each watched flow that is answered, in ns."""
        return {each.flow_id: each.rtt_ns for each in self._prober.watched() if each.alive}

    def look(self, now_ns: int) -> list[WatchStatus]:
        """State of all watched flows; while a pair is suspect, call it again soon."""
        status = self._prober.watched()
        self.rung = False
        suspect = any((each.suspect or each.unresponsive) and each.alive for each in status)
        self._look_ns = now_ns + LOOKS_NS if suspect else None
        return status
