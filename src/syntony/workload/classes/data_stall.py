"""Data loader or checkpoint: all ranks wait for storage, and no network operation is pending."""

from __future__ import annotations

import numpy as np

from syntony.model import format_ns
from syntony.workload.bundle import Floats, Gap, Ints
from syntony.workload.classes._weigh import weigh
from syntony.workload.facts import BundleFacts
from syntony.workload.grid import Episode, Flags, episodes, median
from syntony.workload.verdict import ALIKE, Evidence, FaultClass, RuleFinding, confidence

MUCH = 0.15
"""Share of the time of steps, over several of them, that waiting for storage may take."""
TIMES = 2.0
"""… and the ratio of that to the share before."""
SOME, MANY_TIMES = 0.1, 5.0
"""Likewise, if no step waited before."""
STRETCH = 5
"""Number of steps that are evaluated together: checkpoints come every so many steps."""
LEAST = 3
"""Minimum number of steps that wait: one long pause, for a checkpoint for example, is no stall."""
NEW = 1.5
"""… but two are enough if so many times the steps between them precede the first, without a wait: a
checkpoint that the job has always written would have been seen."""
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
    stretch, least = _together(share, max(MUCH, TIMES * low if low < MUCH else MUCH)), MUCH
    if stretch is None:
        stretch, least = _together(share, SOME), SOME
    if stretch is None:
        return None
    begins = steps.ints("begin_ns")[known]
    part = slice(stretch.first, stretch.last + 1)
    level = float(np.nansum(wait[:, part]) / np.nansum(whole[:, part]))
    usual: Floats = np.nanmedian(wait, axis=0)
    heavy = np.flatnonzero(usual > 0.5 * level * np.nanmedian(whole, axis=0))
    heavy = heavy[(heavy >= stretch.first) & (heavy <= stretch.last)]
    new = _is_new(heavy, usual, ALIKE if least == MUCH else 1 / MANY_TIMES)
    if len(heavy) < LEAST and not (new and _comes_again(heavy, len(usual))):
        longest = format_ns(float(usual[heavy].max(initial=0.0)))
        reason = f"{len(heavy)} of {len(numbers)} steps wait for {text}, up to {longest}"
        facts.gaps.append(Gap("steps", reason, "whether they will again, or the job always does"))
        return None
    between = slice(int(heavy[0]), int(heavy[-1]))
    little = np.nansum(wait[:, between]) <= least * np.nansum(whole[:, between])
    if little or (least < MUCH and not new):
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


def _together(share: Floats, limit: float) -> Episode | None:
    """The steps in which most ranks wait for more than a share of the time."""
    every = np.isfinite(share).any(axis=0)
    with np.errstate(invalid="ignore"):
        enough = (share > limit).sum(axis=0) >= MOST * np.isfinite(share).sum(axis=0)
    return episodes(np.atleast_2d(enough & every), np.atleast_2d(every)).get(0)


def _is_new(heavy: Ints, usual: Floats, most: float) -> bool:
    """Whether no step waited for `most` of that before the first that does: what a job always
    writes comes at its usual distance."""
    if len(heavy) < 2:
        return False
    before = usual[: heavy[0]]
    enough = len(before) >= max(STRETCH, NEW * np.diff(heavy).max())
    return bool(enough and (before < most * usual[heavy].min()).all())


def _comes_again(heavy: Ints, steps: int) -> bool:
    """Whether one of two steps that wait comes after others that do not, and no third is due."""
    apart = int(heavy[-1] - heavy[0])
    return apart >= 2 and steps <= heavy[-1] + apart


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
