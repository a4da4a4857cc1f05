"""Many senders, one link: what pacing does to its queue, seeded and fluid.

One drop-tail link with finite buffer. Senders that nobody paces behave as TCP does: they speed up
steadily, and slow down by half when the buffer overflows (Chiu and Jain 1989; drops hit a flow as
often as it sends). The pacer sees what a controller would: rates averaged over 400 ms, delays as
the median over a second, both noisy and late; and its orders take a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from syntony.model import MS, S
from syntony.traffic.demand import Priority
from syntony.traffic.pacing import LinkQueue, Pacer, Sending

LINK = "leaf0-0->h0/rail0"
TICK_NS = 10 * MS
LOOK_NS = 250 * MS
"""Between two steps of the controller."""
REPORT_NS = 400 * MS
DELAY_TICKS = S // TICK_NS
SPEED_UP = 0.5
"""Of the link's rate, each second: a sender alone takes the whole link within two."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sender:
    """One flow into the link."""

    priority: Priority = Priority.STANDARD
    weight: float = 1.0
    limit: float = 1.0
    """What it would send at most, a part of the link's rate."""
    busy_ns: int = 0
    """It sends for so long, then pauses for `idle_ns`; 0: it always sends."""
    idle_ns: int = 0
    shift_ns: int = 0
    """When it starts its first turn."""

    def wants(self, at_ns: int) -> bool:
        """Whether it has something to send."""
        if at_ns < self.shift_ns:
            return False
        turn_ns = self.busy_ns + self.idle_ns
        return not self.busy_ns or (at_ns - self.shift_ns) % turn_ns < self.busy_ns


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    senders: Sequence[Sender]
    capacity_bps: int = 40_000_000
    buffer_ns: int = 50 * MS
    """What fits into the buffer, at the link's rate."""
    background: float = 0.0
    """Constant traffic that nobody knows of, a part of the link's rate."""
    act_ns: int = 5 * S
    """From when on rates are set; before, the pacer is not asked."""
    end_ns: int = 40 * S
    late_ns: int = 400 * MS
    """Age of what the pacer is reported."""
    order_ns: int = 100 * MS
    """From a decision until it is in force."""
    noise: float = 0.02
    """Relative, of rates; delays err by as much of the buffer's depth, if anything waits."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the link saw, one entry a tick of `TICK_NS`."""

    queue_ns: Floats
    """(ticks,)"""
    sent: Floats
    """Of each sender, part of the link's rate that went through, (ticks, senders)."""
    changes: list[tuple[int, float]] = field(default_factory=list)
    """When the pacer changed its mind, and by how much at most, relative."""
    dropped: int = 0
    """Ticks in which the buffer overflowed, from `act_ns` on."""


def run(case: Case, pacer: Pacer) -> Outcome:
    """The whole run."""
    link = _Link(case)
    reported: dict[str, int] = {}
    coming: list[tuple[int, dict[str, int]]] = []
    changes: list[tuple[int, float]] = []
    for tick in range(case.end_ns // TICK_NS):
        now_ns = tick * TICK_NS
        if now_ns >= case.act_ns and now_ns % LOOK_NS == 0:
            fresh = dict(pacer.step(*link.reported(now_ns), now_ns))
            if fresh != reported:
                changes.append((now_ns, _largest(reported, fresh)))
                coming.append((now_ns + case.order_ns, fresh))
                reported = fresh
        while coming and coming[0][0] <= now_ns:
            link.paced(coming.pop(0)[1])
        link.tick(now_ns)
    return Outcome(link.queue_ns, link.sent, changes, link.overflows)


def _largest(before: dict[str, int], after: dict[str, int]) -> float:
    if before.keys() != after.keys():
        return 1.0
    return max((abs(after[k] - v) / v for k, v in before.items() if v), default=0.0)


class _Link:
    def __init__(self, case: Case) -> None:
        self._case = case
        self._rng = np.random.default_rng(case.seed)
        count = len(case.senders)
        self._limit = np.array([each.limit for each in case.senders])
        self._rate = np.full(count, 1.0 / max(1, count))
        self._pace = np.full(count, np.inf)
        ticks = case.end_ns // TICK_NS
        self.queue_ns = np.zeros(ticks)
        self.sent = np.zeros((ticks, count))
        self.overflows = 0

    def paced(self, rates: dict[str, int]) -> None:
        """From now on."""
        for number in range(len(self._pace)):
            bps = rates.get(f"f{number}")
            self._pace[number] = np.inf if bps is None else bps / self._case.capacity_bps

    def tick(self, now_ns: int) -> None:
        case, tick = self._case, now_ns // TICK_NS
        wants = np.array([each.wants(now_ns) for each in case.senders])
        self._rate = np.minimum(self._rate + SPEED_UP * TICK_NS / S, self._limit)
        offered = np.where(wants, np.minimum(self._rate, self._pace), 0.0)
        before = self.queue_ns[tick - 1] if tick else 0.0
        total = float(offered.sum()) + case.background
        queue = before + (total - 1.0) * TICK_NS
        carried = min(total + before / TICK_NS, 1.0)
        self.sent[tick] = offered * (carried / total if total else 0.0)
        if queue > case.buffer_ns:
            queue = float(case.buffer_ns)
            self.overflows += now_ns >= case.act_ns
            hit = self._rng.random(len(offered)) < offered / max(offered.max(initial=0.0), 1e-9)
            self._rate = np.where(hit, np.minimum(self._rate, offered) / 2, self._rate)
        self.queue_ns[tick] = max(0.0, queue)

    def reported(
        self, now_ns: int
    ) -> tuple[list[Sending], dict[str, int], dict[str, LinkQueue]]:  # fmt: skip
        """As a controller is reported."""
        case = self._case
        seen_ns = max(0, now_ns - case.late_ns) // REPORT_NS * REPORT_NS
        last = seen_ns // TICK_NS
        rates = self.sent[max(0, last - REPORT_NS // TICK_NS) : max(1, last)].mean(axis=0)
        rates = rates * (1 + case.noise * self._rng.standard_normal(len(rates)))
        sendings = [
            Sending(
                flow_id=f"f{number}",
                links=(LINK,),
                rate_bps=max(0.0, float(rates[number])) * case.capacity_bps,
                paceable=True,
                priority=each.priority,
                weight=each.weight,
            )
            for number, each in enumerate(case.senders)
        ]
        waited = float(np.median(self.queue_ns[max(0, last - DELAY_TICKS) : max(1, last)]))
        error = case.noise * case.buffer_ns * abs(self._rng.standard_normal()) if waited else 0.0
        queue = LinkQueue(seen_ns, int(waited + error))
        return sendings, {LINK: case.capacity_bps}, {LINK: queue}
