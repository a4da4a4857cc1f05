"""Stages of a pipeline that take longer by themselves than before.

Stages have different work, so that they are not compared with each other, but each with itself.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from syntony.model import format_ns
from syntony.workload.bundle import NULL, BundleTable, Floats, Gap, Ints
from syntony.workload.grid import MAD_SIGMA, significant_episodes
from syntony.workload.ranks import LATE_MADS, LATE_SHARE, MIN_RANKS, MIN_STEPS, Ranks, SlowRank

FEWEST_STEPS = 10
"""Minimum number of steps of which the usual time of a stage is known."""
USUAL = 0.25
"""Quantile of a stage's own times that is its usual one."""
LONGER = 0.15
"""Minimum share by which a stage takes longer than usual, and than the others do."""
COSTS = 0.3
"""Minimum share of that by which steps take longer, too: else the others do not wait for it."""
UNEQUAL = 1.5
"""Ratio of a stage's own time to that of the others from which it is noted …"""
NEVER_WAITS = 0.9
"""… if its own time is this share of its steps."""


class _Stages(NamedTuple):
    ranks: list[int]
    begin: Ints
    """Of steps that all have, (ranks, steps)."""
    length: Floats
    own: Floats
    """Of which it did not wait for others."""


def late_stages(ranks: Ranks, steps: BundleTable) -> dict[int, SlowRank]:
    """Stages that take longer by themselves since some step, while the others do not, and for which
    steps take longer."""
    found = {}
    for some in _stages(ranks, steps):
        usual = np.quantile(some.own, USUAL, axis=1, keepdims=True)
        # From step to step: a stage that becomes slow does so once.
        apart = np.abs(np.diff(some.own, axis=1))
        spread = MAD_SIGMA / math.sqrt(2) * np.median(apart, axis=1, keepdims=True)
        ratio = np.sort(some.own / np.maximum(usual, 1.0), axis=0)
        common = ratio[(len(some.ranks) - 1) // 2]
        excess = some.own - usual * common
        floor = np.maximum(LATE_MADS * spread, LATE_SHARE * ranks.step_ns)
        behind = excess > np.maximum(floor, LONGER * usual)
        length = np.quantile(some.length, USUAL)
        episodes = significant_episodes(
            behind, np.ones_like(behind), tried=float(behind.size), lasting=True
        )
        for row, episode in episodes.items():
            part = slice(episode.first, episode.last + 1)
            late = behind[row, part]
            more_ns = float(np.median(excess[row, part][late])) if late.any() else 0.0
            longer_ns = float(np.median(some.length[row, part])) - length
            if late.sum() >= MIN_STEPS and longer_ns >= COSTS * more_ns:
                rank, begin = some.ranks[row], some.begin[row, part]
                last_ns = int(begin[-1] + some.length[row, part][-1])
                found[rank] = SlowRank(
                    rank, int(begin[0]), last_ns, episode.share, more_ns, float(usual[row, 0]),
                    int(late.sum()), len(late), frozenset(),
                )  # fmt: skip
    return found


def unequal_stages(ranks: Ranks, steps: BundleTable) -> list[Gap]:
    """A note for stages that always take much longer by themselves than the others."""
    gaps = []
    for some in _stages(ranks, steps):
        own, length = np.median(some.own, axis=1), np.median(some.length, axis=1)
        for row, rank in enumerate(some.ranks):
            others = float(np.median(np.delete(own, row)))
            if own[row] >= UNEQUAL * others and own[row] >= NEVER_WAITS * length[row]:
                text = (f"of each step rank {rank} computes {format_ns(round(own[row]))}, other"
                        f" stages {format_ns(round(others))}: they wait for it")  # fmt: skip
                gaps.append(Gap("steps", text, "whether it is slow, or has more of the model"))
    return gaps


def _stages(ranks: Ranks, steps: BundleTable) -> list[_Stages]:
    """Stages of each job that cannot be compared with others at the same place."""
    alike = Counter((job, place) for (job, _), place in ranks.stages.items())
    found = []
    for job in sorted({job for job, _ in ranks.stages}):
        alone = sorted(rank for (other, rank), place in ranks.stages.items()
                       if other == job and alike[job, place] < MIN_RANKS)  # fmt: skip
        if (some := _of(alone, ranks.table, steps)) is not None:
            found.append(some)
    return found


def _of(alone: list[int], operations: BundleTable, steps: BundleTable) -> _Stages | None:
    rank, number = steps.ints("rank"), steps.ints("step")
    rows = [np.flatnonzero(rank == each) for each in alone]
    if len(alone) < 2:
        return None
    common = number[rows[0]]
    for each in rows[1:]:
        common = np.intersect1d(common, number[each])
    if len(np.unique(common)) < FEWEST_STEPS:
        return None
    parts = []
    for one, mine in zip(alone, rows, strict=True):
        known = mine[np.isin(number[mine], common)]
        known = known[np.unique(number[known], return_index=True)[1]]
        begin, end = steps.ints("begin_ns")[known], steps.ints("end_ns")[known]
        parts.append((begin, (end - begin).astype(float), _own(operations, one, begin, end)))
    begins, lengths, owns = (np.stack(each) for each in zip(*parts, strict=True))
    return _Stages(alone, begins, lengths, owns)


def _own(operations: BundleTable, rank: int, begin: Ints, end: Ints) -> Floats:
    """How long a rank did not wait in an operation, ns, (steps,). It waits for a send that it began
    ahead since it last began or ended something else."""
    ops, done = operations.codes("op"), operations.ints("done_ns")
    ahead, sends = (
        [number for number, op in enumerate(ops.values) if op in some]
        for some in ({"isend", "irecv"}, {"send"})
    )
    rows = np.flatnonzero((operations.ints("rank") == rank) & (done != NULL))
    enqueue, done, kind = operations.ints("enqueue_ns")[rows], done[rows], ops.codes[rows]
    instants = np.sort(np.concatenate((enqueue, done)))
    before = instants[np.maximum(np.searchsorted(instants, done) - 1, 0)]
    since = np.where(np.isin(kind, sends), np.maximum(enqueue, before), enqueue)
    order = np.argsort(since)
    order = order[~np.isin(kind[order], ahead)]
    since, done = since[order], done[order]
    until = np.maximum.accumulate(done)
    free = np.maximum(since, np.concatenate((since[:1], until[:-1])))
    waited = np.maximum(0, done - free)
    steps = np.argsort(begin)
    place = np.searchsorted(begin[steps], since, side="right") - 1
    inside = (place >= 0) & (since < end[steps][place])
    total = np.zeros(len(begin))
    total[steps] = np.bincount(place[inside], waited[inside], len(begin))
    own: Floats = (end - begin) - total
    return own
