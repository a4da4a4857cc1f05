"""Losses of the second under way, before it becomes rows. Pure.

A probe may be unanswered because its target was paused, or was not running. A target answers in
order of arrival. So if a probe sent at most `2 * SLOT_NS` later was answered within `PROMPT_NS`,
the lost one waited there for less than 0.7 s, of the second after which it counts as lost: no pause
explains it. Losses are counted where that is so in every slot; not those in a second's first slot,
before which a target may have been starting.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from syntony.model import MS, S
from syntony.model.names import host_of
from syntony.model.probes import LOST, PROBE_TIMEOUT_NS, STALLED
from syntony.wire.probes import LossReport, PairLosses, ProbeFlow

STEP_NS = 200 * MS
"""Losses are reported at multiples of it in fleet time, so that reports of all agents are of the
same probes."""
SETTLED_NS = PROBE_TIMEOUT_NS + 100 * MS
"""Probes sent so long ago have been answered or are lost: the engine looks every 50 ms."""
SLOT_NS = 200 * MS
PROMPT_NS = 300 * MS
LASTING_S = 3
"""Losses that last longer are reported once a second: where all agents lose packets, all report."""
MAX_PAIRS = 16
"""In one report, those that lost most: it is about whether packets are lost, not about all."""


def second_of(at_ns: int) -> int:
    """The second that a report at this instant is of."""
    return (at_ns - SETTLED_NS) // S


class LossReportPace:
    """How often an agent reports losses."""

    def __init__(self) -> None:
        self._first = self._last = -2
        """Seconds with losses, one after the other: the first and the newest."""

    def allows(self, report: LossReport) -> bool:
        second = second_of(report.at_ns)
        if second > self._last + 1:
            self._first = second
        self._last = second
        return second < self._first + LASTING_S or report.at_ns % S == 0


def fresh_losses(
    records: NDArray[np.void],
    sent_ns: NDArray[np.int64],
    flow: NDArray[np.intp],
    flows: Sequence[tuple[str, ProbeFlow]],
    at_ns: int,
) -> LossReport | None:
    """What was lost in the second under way, as far as it has settled; None: nothing.

    Args:
        records: finished probes, shape (n,).
        sent_ns: when each was sent, fleet time, (n,).
        flow: the place of the flow of each, (n,).
        flows: source NIC and flow.
        at_ns: now, a multiple of `STEP_NS` in fleet time.
    """
    start_ns, end_ns = second_of(at_ns) * S, at_ns - SETTLED_NS
    lost = (records["flags"] & int(LOST)) != 0
    ours = (records["flags"] & int(STALLED)) != 0
    counted = flow[lost & ~ours & (sent_ns >= start_ns + SLOT_NS) & (sent_ns < end_ns)]
    if not len(counted):
        return None
    counts: dict[tuple[str, str], list[int]] = {}
    for place, number in zip(*np.unique(counted, return_counts=True), strict=True):
        src, probed = flows[place]
        counts.setdefault((src, probed.dst), []).append(int(number))
    stamped = (records["t1_ns"] != 0) & (records["t4_ns"] != 0)
    prompt = stamped & ~lost & (records["t4_ns"] - records["t1_ns"] < PROMPT_NS)
    slot, slots = (sent_ns - start_ns) // SLOT_NS, (end_ns - 1 - start_ns) // SLOT_NS + 2
    prompt &= (slot >= 0) & (slot < slots)
    hosts, host = np.unique([host_of(probed.dst) for _, probed in flows], return_inverse=True)
    answered = np.zeros((len(hosts), slots), dtype=np.bool_)
    answered[host[flow[prompt]], slot[prompt]] = True
    pairs = [
        PairLosses(src=src, dst=dst, lost=sum(each), paths=len(each))
        for (src, dst), each in counts.items()
    ]
    return LossReport(
        at_ns=at_ns,
        pairs=tuple(sorted(pairs, key=lambda pair: -pair.lost)[:MAX_PAIRS]),
        prompt=tuple(hosts[answered.all(axis=1)].tolist()),
    )
