"""Data loader or checkpoint: all ranks wait for storage, and no network operation is pending."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from syntony.model import format_ns
from syntony.workload.bundle import Gap
from syntony.workload.classes._weigh import weigh
from syntony.workload.grid import Flags, episodes, median
from syntony.workload.verdict import ALIKE, Evidence, FaultClass, RuleFinding, confidence

if TYPE_CHECKING:
    from syntony.workload.bundle import Floats
    from syntony.workload.facts import BundleFacts

MUCH = 0.15
"""Share of the time of steps, over several of them, that waiting for storage may take."""
TIMES = 2.0
"""… and the ratio of that to the share before."""
STRETCH = 5
"""Number of steps that are evaluated together: checkpoints come every so many steps."""
LEAST = 3
"""Minimum number of steps that wait: one long pause, for a checkpoint for example, is no stall."""
NEW = 1.5
"""… but two are enough if so many times the steps between them precede the first: a checkpoint that
the job has always written would have been seen."""
MOST = 0.8
"""Minimum share of ranks that wait; if only a few do, storage is not the cause, and their peers
wait in collectives."""
ACTIONS = {
    "data_ns": "look at storage, data-loader workers and their CPUs; prefetch more",
    "checkpoint_ns": "write checkpoints asynchronously, or more rarely; look at storage",
}


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Jobs whose steps wait for storage."""
    if not facts.steps.rows:
        return []
    found = []
    for name, text in (("data_ns", "data"), ("checkpoint_ns", "its checkpoint")):
        finding = _judge(facts, name, text)
        if finding is not None:
            found.append(finding)
    return found[:1] if len(found) < 2 else [max(found, key=lambda each: each.confidence)]


def _judge(facts: BundleFacts, name: str, text: str) -> RuleFinding | None:
    steps = facts.steps
    waited, length = steps.numbers(name), (steps.ints("end_ns") - steps.ints("begin_ns"))
    known = np.isfinite(waited) & (length > 0) & _newest(facts)
    if not known.any():
        return None
    ranks, rank = np.unique(steps.ints("rank")[known], return_inverse=True)
    numbers, step = np.unique(steps.ints("step")[known], return_inverse=True)
    if len(numbers) < STRETCH:
        return None
    shape = len(ranks), len(numbers)
    wait, whole = np.full(shape, np.nan), np.full(shape, np.nan)
    wait[rank, step], whole[rank, step] = waited[known], length[known]
    share = _rolling(wait) / _rolling(whole)
    low = float(np.nanquantile(share, 0.1))
    with np.errstate(invalid="ignore"):
        bad: Flags = np.asarray(share > max(MUCH, TIMES * low if low < MUCH else MUCH))
    every = np.isfinite(share).any(axis=0)
    enough = bad.sum(axis=0) >= MOST * np.isfinite(share).sum(axis=0)
    together: Flags = np.atleast_2d(enough & every)
    stretch = episodes(together, np.atleast_2d(every)).get(0)
    if stretch is None:
        return None
    begins = steps.ints("begin_ns")[known]
    part = slice(stretch.first, stretch.last + 1)
    level = float(np.nansum(wait[:, part]) / np.nansum(whole[:, part]))
    usual: Floats = np.nanmedian(wait, axis=0)
    heavy = np.flatnonzero(usual > 0.5 * level * np.nanmedian(whole, axis=0))
    heavy = heavy[(heavy >= stretch.first) & (heavy <= stretch.last)]
    if len(heavy) < LEAST and not _is_new(heavy.tolist(), usual):
        longest = format_ns(float(usual[heavy].max(initial=0.0)))
        reason = f"{len(heavy)} of {len(numbers)} steps wait for {text}, up to {longest}"
        facts.gaps.append(Gap("steps", reason, "whether they will again, or the job always does"))
        return None
    between = slice(int(heavy[0]), int(heavy[-1]))
    if np.nansum(wait[:, between]) <= MUCH * np.nansum(whole[:, between]):
        return None
    first = int(heavy[0])
    onset_ns = int(begins[step == first].min())
    last_ns = int(steps.ints("end_ns")[known][step == stretch.last].max())
    comm = steps.numbers("comm_ns")
    pending = None if not np.isfinite(comm).any() else float(
        median(comm / np.maximum(length, 1))) < 0.5  # fmt: skip
    return RuleFinding(
        fault=FaultClass.DATA_STALL, subjects=(facts.bundle.manifest.job or _job(facts),),
        onset_ns=onset_ns, last_ns=last_ns,
        confidence=confidence(stretch.share, pending or None, len(heavy) >= LEAST or None),
        evidence=(Evidence(name, f"{len(ranks)} ranks wait for {text} {level:.0%} of their time,"
                           f" {low:.0%} at best", level, low),),
        alternatives=(
            weigh(FaultClass.STRAGGLER, True, "all ranks wait at the same time"),
            weigh(FaultClass.CONTENTION, pending, "collectives take less than half of the time"
                  if pending else "collectives take most of the time as well", "comm_ns"),
        ),
        action=ACTIONS[name], ranks=frozenset(int(each) for each in ranks),
    )  # fmt: skip


def _is_new(heavy: list[int], usual: Floats) -> bool:
    """Whether two steps wait, with others between them, in a job in which none did before: what a
    job always writes comes at its usual distance. No further one is due."""
    if len(heavy) != 2:
        return False
    first, second = heavy
    apart = second - first
    before = usual[:first]
    rare = len(before) >= max(STRETCH, NEW * apart) and len(usual) <= second + apart
    return rare and apart >= 2 and bool((before < ALIKE * usual[heavy].min()).all())


def _newest(facts: BundleFacts) -> Flags:
    """Rows of steps that their rank did not go back to later, (rows,): a job that goes on from a
    checkpoint, or is started again, repeats the numbers of its steps."""
    steps = facts.steps
    rank, step = steps.ints("rank"), steps.ints("step")
    order = np.lexsort((steps.ints("begin_ns"), rank))
    kept = np.ones(steps.rows, dtype=bool)
    for rows in np.split(order, np.flatnonzero(np.diff(rank[order])) + 1):
        least = np.minimum.accumulate(step[rows][::-1])[::-1]
        kept[rows[:-1]] = step[rows[:-1]] < least[1:]
    return kept


def _job(facts: BundleFacts) -> str:
    return str(facts.steps.codes("job").at(0) or "")


def _rolling(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> np.ndarray[
        tuple[int, ...], np.dtype[np.float64]]:  # fmt: skip
    """Sums over each step and the following ones that are evaluated together."""
    filled = np.nan_to_num(values)
    sums = np.cumsum(np.pad(filled, ((0, 0), (1, 0))), axis=1)
    ends = np.minimum(np.arange(values.shape[1]) + STRETCH, values.shape[1])
    result: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = (
        sums[:, ends] - sums[:, : values.shape[1]]
    )
    known = np.isfinite(values)
    # A step that a rank has not ended yet is not one without a wait.
    last = values.shape[1] - np.argmax(known[:, ::-1], axis=1)
    return np.where(known & (ends <= last[:, None]), result, np.nan)
