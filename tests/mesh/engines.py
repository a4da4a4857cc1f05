"""Probe engines of some hosts and what is between them, in virtual time: when records are done.

As `native/probe` does it: pairs of probes, answers in order of arrival, a deadline of 1 s that its
own stalls prolong, a sweep each 50 ms, records that wait for the stamp in the next pair's reply,
marks of stalls. Drawn here: pauses of hosts, delays, losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations
from random import Random
from typing import NamedTuple

import numpy as np

from syntony.mesh.fresh_losses import STEP_NS
from syntony.mesh.stats import FlowInfo, PathSeconds
from syntony.model import MS, ClockState, S, Timeline
from syntony.model.probes import PROBE_TIMEOUT_NS, ProbeFlag
from syntony.wire.probes import LossReport, ProbeFlow

T0 = 1_700_000_000 * S
RECORD = np.dtype(
    [("flow_id", "<u4"), ("flags", "<u4")]
    + [(stamp, "<i8") for stamp in ("sent_ns", "t1_ns", "t2_ns", "t3_ns", "t4_ns")]
)
INTERVAL_NS = 500 * MS
SWEEP_NS = 50 * MS
LATE_NS = 5 * MS
SOCKET = 250
"""Requests that wait in a socket; what comes then is lost."""


class Trip(NamedTuple):
    """One probe on its way; instants from the beginning, ns."""

    src: str
    dst: str
    port: int
    sent_ns: int


class Physics:
    """What happens to packets and hosts. Nothing, here.

    Args:
        rng: draws.
        hosts: by name.
    """

    def __init__(self, rng: Random, hosts: list[str]) -> None:
        self.rng = rng
        self.pauses: dict[str, list[tuple[int, int]]] = {host: [] for host in hosts}
        self.report_late_ns: Callable[[], int] = lambda: 0

    def delay_ns(self, trip: Trip, at_ns: int) -> int:
        """Of one way."""
        return 20_000 + round(self.rng.expovariate(1 / 5_000))

    def lost(self, trip: Trip, at_ns: int, back: bool) -> bool:
        """Whether the request, or its reply, is lost."""
        return False

    def runs_ns(self, host: str, at_ns: int) -> int:
        """When the host's engine runs: at once, or when its pause is over."""
        return next((end for begin, end in self.pauses[host] if begin <= at_ns < end), at_ns)

    def paused_ns(self, host: str, begin_ns: int, end_ns: int) -> int:
        """For how long of this time it was paused."""
        return sum(max(0, min(b, end_ns) - max(a, begin_ns)) for a, b in self.pauses[host])

    def overdue_ns(self, host: str, sent_ns: int) -> int:
        """When the host's engine takes a probe that it sent for lost: its pauses do not count."""
        over_ns, before_ns = sent_ns + PROBE_TIMEOUT_NS, sent_ns
        while over_ns != before_ns:
            paused_ns = self.paused_ns(host, sent_ns, over_ns)
            before_ns, over_ns = over_ns, sent_ns + PROBE_TIMEOUT_NS + paused_ns
        return self.runs_ns(host, math.ceil(over_ns / SWEEP_NS) * SWEEP_NS)


class _Done(NamedTuple):
    at_ns: int
    record: tuple[int, ...]


class Fleet:
    """Hosts with one NIC each that probe each other."""

    def __init__(self, hosts: int, ports: int = 8) -> None:
        self.names = [f"h{number}" for number in range(hosts)]
        pairs = list(permutations(self.names, 2))
        self.ids = {
            (src, dst, port): number * ports + port
            for number, (src, dst) in enumerate(pairs)
            for port in range(ports)
        }
        self.planned = {(f"{src}/rail0", f"{dst}/rail0") for src, dst in pairs}

    def infos(self, host: str) -> list[FlowInfo]:
        return [
            FlowInfo(
                ProbeFlow(
                    flow_id=number, src="rail0", dst=f"{dst}/rail0", dst_nic_id=1, dst_addr="",
                    dst_port=1, src_port=port, interval_ns=INTERVAL_NS,
                ),
                f"{src}/rail0", src, dst,
            )
            for (src, dst, port), number in self.ids.items()
            if src == host
        ]  # fmt: skip

    def done(self, physics: Physics, host: str, until_ns: int) -> list[_Done]:
        """Records of a host's engine, as they are done."""
        found = []
        for (src, dst, port), number in self.ids.items():
            if src == host:
                phase = (number * 0.618034 % 1) * INTERVAL_NS
                sends = [round(phase + k * INTERVAL_NS) for k in range(until_ns // INTERVAL_NS)]
                found += self._flow(physics, number, [
                    Trip(src, dst, port, at_ns) for at_ns in sends
                    if physics.runs_ns(src, at_ns) == at_ns for _ in range(2)
                ])  # fmt: skip
        return sorted(found)

    def _flow(self, physics: Physics, number: int, trips: list[Trip]) -> list[_Done]:
        """Records of one flow."""
        went = [_travel(physics, trip) for trip in trips]
        marks = sorted(each[3] for each in went if each[3] and each[4])
        found = []
        for place, (trip, (*answer, read_ns, _)) in enumerate(zip(trips, went, strict=True)):
            src, sent_ns = trip.src, trip.sent_ns
            over_ns, stamped = physics.overdue_ns(src, sent_ns), answer
            stalled = physics.paused_ns(src, sent_ns, min(read_ns or over_ns, over_ns)) > LATE_NS
            flags = int(ProbeFlag.STALL_LOCAL) * stalled
            if read_ns and read_ns <= over_ns:
                follow = [each[3] for each in went[place + 1 : place + 4] if each[3]]
                done_ns = max(read_ns, min(follow, default=over_ns))
            else:
                flags |= int(ProbeFlag.LOST_UNKNOWN)
                if any(sent_ns <= mark <= over_ns for mark in marks):
                    flags |= int(ProbeFlag.STALL_REMOTE)
                stamped = [0, 0, 0]
                done_ns = over_ns
            stamps = (each and T0 + each for each in (sent_ns, sent_ns, *stamped))
            found.append(_Done(done_ns, (number, flags, *stamps)))
        return found


def _travel(physics: Physics, trip: Trip) -> tuple[int, int, int, int, bool]:
    """t2, t3, t4, when the prober reads it, whether the reflector was late; 0: never."""
    t2 = trip.sent_ns + physics.delay_ns(trip, trip.sent_ns)
    if physics.lost(trip, trip.sent_ns, False):
        return 0, 0, 0, 0, False
    t3 = physics.runs_ns(trip.dst, t2)
    begun = next((a for a, b in physics.pauses[trip.dst] if a <= t2 < b), t2)
    if (t2 - begun) * 32 * (len(physics.pauses) - 1) > SOCKET * S:
        return t2, 0, 0, 0, False
    if physics.lost(trip, t3, True):
        return t2, t3, 0, 0, False
    t4 = t3 + physics.delay_ns(trip, t3)
    return t2, t3, t4, physics.runs_ns(trip.src, t4), t3 - t2 > LATE_NS


def reports(fleet: Fleet, physics: Physics, until_ns: int) -> list[tuple[int, str, LossReport]]:
    """What agents report of losses: when it arrives, from whom."""
    found = []
    for host in fleet.names:
        seconds = PathSeconds()
        seconds.plan(fleet.infos(host))
        line = Timeline(
            node=host, ref_ns=T0, offset_ns=0, drift_ppb=0.0, sigma_ns=30.0,
            state=ClockState.SYNCHRONIZED, component="h0",
        )  # fmt: skip
        done, place = fleet.done(physics, host, until_ns), 0
        for at_ns in range(0, until_ns, STEP_NS):
            turn_ns = physics.runs_ns(host, at_ns)
            if turn_ns - at_ns >= STEP_NS:
                continue  # a later turn reports
            upto = place
            while upto < len(done) and done[upto].at_ns <= turn_ns:
                upto += 1
            fresh = [each.record for each in done[place:upto]]
            seconds.add(np.array(fresh, dtype=RECORD))
            place = upto
            report = seconds.losses(line, T0 + at_ns)
            seconds.close({host: line}, line, T0 + at_ns)
            if report is not None:
                found.append((turn_ns + MS + physics.report_late_ns(), host, report))
    return sorted(found, key=lambda each: each[0])
