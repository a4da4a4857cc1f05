"""Which jobs and ranks a fault affects, and what it costs."""

from __future__ import annotations

import numpy as np

from syntony.model import HOUR_NS
from syntony.workload.facts import BundleFacts
from syntony.workload.verdict import BlastRadius, FaultClass, RuleFinding

MIN_STEPS = 3
"""Minimum steps of a rank before the onset, and after it, for a comparison."""


def blast_radius(facts: BundleFacts, finding: RuleFinding) -> BlastRadius:
    """Jobs and ranks that wait for what the finding affects, and GPU time lost since its onset.

    A rank that shares a communicator with an affected one waits for it.
    """
    touched = finding.ranks | facts.ranks_of(finding.flows)
    waiting = _waiting(facts, touched)
    jobs = {facts.flows.jobs[each] for each in finding.flows} if facts.flows is not None else set()
    if facts.ranks is not None:
        jobs |= {comm.job for comm in facts.ranks.comms_of(touched)}
    slowdown, lost_ns = _cost(facts, finding, waiting)
    return BlastRadius(
        jobs=tuple(sorted(jobs - {""})) or ((facts.bundle.manifest.job,)
                                            if facts.bundle.manifest.job else ()),
        ranks=len(waiting), hosts=tuple(sorted(finding.hosts - {""})),
        gpu_hours=None if lost_ns is None else round(lost_ns / HOUR_NS, 6),
        slowdown=None if slowdown is None else round(slowdown, 3),
    )  # fmt: skip


def _waiting(facts: BundleFacts, touched: frozenset[int]) -> frozenset[int]:
    if facts.ranks is None or not touched:
        return touched
    members = {int(rank) for comm in facts.ranks.comms_of(touched) for rank in comm.ranks}
    return frozenset(members | touched)


def _cost(
    facts: BundleFacts, finding: RuleFinding, waiting: frozenset[int]
) -> tuple[float | None, float | None]:
    """Ratio of step time after to before, and time lost by all waiting ranks, in ns."""
    if finding.fault is FaultClass.HANG:
        return None, float(len(waiting) * max(0, facts.end_ns - finding.onset_ns))
    steps = facts.steps
    rank, begin, end = steps.ints("rank"), steps.ints("begin_ns"), steps.ints("end_ns")
    mine = np.isin(rank, list(waiting)) if waiting else np.ones(steps.rows, dtype=bool)
    length = (end - begin).astype(float)
    before, after = mine & (end <= finding.onset_ns), mine & (
        (begin >= finding.onset_ns) & (end <= finding.last_ns))  # fmt: skip
    members = max(1, len(np.unique(rank[mine]))) if mine.any() else 1
    if before.sum() < MIN_STEPS * members or after.sum() < MIN_STEPS * members:
        return None, None
    usual, now = float(np.median(length[before])), float(np.mean(length[after]))
    return now / max(usual, 1.0), max(0.0, float((length[after] - usual).sum()))
