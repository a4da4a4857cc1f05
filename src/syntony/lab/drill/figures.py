"""Computes the figures of a drill from the records of its job. Pure.

The unit is the step of the whole job: step *s* is complete when its last rank has completed it, and
lasts from the completion of the step before. Steps so defined tile the time without gaps: a stall
anywhere, in whichever rank, is one long step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.lab.drill.trial import NicFlapTrial
from syntony.lab.jobs.records import (
    RankFailed,
    Record,
    StepRecord,
    lost_connections,
    wrong_results,
)
from syntony.model import MS, S

STALL_FACTOR = 3
STALL_NS = 100 * MS
"""A step that lasts longer than three medians and longer than the median by this is a stall: ten
times what shaper queues and a busy machine add to a step."""
MIN_FAULT_STEPS = 4
"""Minimum number of whole steps within a fault for their median to be used."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Durations in s, throughputs in steps/s of the whole job."""

    name: str
    mode: str
    outcome: str
    """``finished``, ``hung`` (had to be killed) or ``died`` (a rank gave up)."""
    steps: int
    step_p50_s: float | None
    """Before the fault; None: not a single step was complete."""
    longest_step_s: float | None
    """Of a hung job at least this."""
    stalled_s: float
    """What stalls took beyond a median step."""
    throughput_before: float
    throughput_during: float
    throughput_after: float
    resumed_after_s: float | None
    """From the fault's end to the next complete step; None: there was none."""
    return_gap_s: float | None
    """Longest step that began after the fault's end, minus the median step before the fault; or
    minus the median during the fault, if that was longer and there were `MIN_FAULT_STEPS` such
    steps: on the remaining paths a step may take longer."""
    detect_ms: float | None
    resets: int
    """Ranks whose job saw a connection lost."""
    wrong: int
    """Results of one rank and step that were not what they must be."""


def completions_ns(records: Sequence[Record], ranks: int) -> NDArray[np.int64]:
    """When each step was complete everywhere, in order; steps that some rank lacks are left out."""
    ends: dict[int, list[int]] = {}
    for record in records:
        if isinstance(record, StepRecord):
            ends.setdefault(record.step, []).append(record.end_ns)
    whole = [max(ends[step]) for step in sorted(ends) if len(ends[step]) == ranks]
    return np.array(whole, dtype=np.int64)


def edges_ns(trial: NicFlapTrial) -> NDArray[np.int64]:
    """Ends of steps from the last one before measuring began; a hung job's last one is open and
    ends where it was killed. (steps + 1,)"""
    done = completions_ns(trial.records, trial.ranks)
    first = max(0, int(np.searchsorted(done, trial.began_ns, side="right")) - 1)
    found = done[first:]
    return found if trial.finished else np.append(found, max(_open_step_end_ns(trial), *found[-1:]))


def _open_step_end_ns(trial: NicFlapTrial) -> int:
    """When a step that was never completed ended: when its last rank gave up or was killed."""
    failed = [record.at_ns for record in trial.records if isinstance(record, RankFailed)]
    return trial.ended_ns if trial.hung or not failed else max(failed)


def throughput(edges: NDArray[np.int64], from_ns: int, to_ns: int) -> float:
    """Steps/s in an interval; a step that crosses its border counts in proportion."""
    if len(edges) < 2 or to_ns <= from_ns:
        return 0.0
    starts, ends = edges[:-1], edges[1:]
    inside = np.minimum(ends, to_ns) - np.maximum(starts, from_ns)
    shares = np.clip(inside, 0, None) / np.maximum(ends - starts, 1)
    return float(shares.sum() / ((to_ns - from_ns) / S))


def figures(trial: NicFlapTrial) -> RunFigures:
    edges = edges_ns(trial)
    steps = np.diff(edges)
    whole = len(steps) - (0 if trial.finished or not len(steps) else 1)
    fault_ns, healed_ns = trial.fault_ns
    before = steps[edges[1:] <= fault_ns] if len(steps) else steps
    p50_ns = float(np.median(before)) if len(before) else None
    longest_ns = int(steps.max()) if len(steps) else None
    complete = edges[1 : whole + 1]
    return RunFigures(
        name=trial.name,
        mode=trial.mode,
        outcome=_outcome(trial),
        steps=whole,
        step_p50_s=_seconds(p50_ns),
        longest_step_s=_seconds(longest_ns),
        stalled_s=stalled_ns(steps, p50_ns) / S,
        throughput_before=_steps_per_s(trial, edges, trial.began_ns, fault_ns),
        throughput_during=_steps_per_s(trial, edges, fault_ns, healed_ns),
        throughput_after=_steps_per_s(trial, edges, healed_ns, trial.wished_end_ns),
        resumed_after_s=_seconds(_next_after(complete, healed_ns)),
        return_gap_s=_seconds(_return_gap_ns(edges, steps, trial.fault_ns, p50_ns)),
        detect_ms=None if trial.detect_ns is None else trial.detect_ns / MS,
        resets=lost_connections(trial.records),
        wrong=wrong_results(trial.records),
    )


def _outcome(trial: NicFlapTrial) -> str:
    if any(isinstance(record, RankFailed) for record in trial.records):
        return "died"
    if trial.hung:
        return "hung"
    return "finished" if trial.finished else "died"


def _steps_per_s(trial: NicFlapTrial, edges: NDArray[np.int64], from_ns: int, to_ns: int) -> float:
    """A step that was never completed counts as none."""
    closed = edges if trial.finished else edges[:-1]
    return throughput(closed, from_ns, to_ns)


def stalled_ns(steps: NDArray[Any], p50_ns: float | None) -> float:
    """Total length of stalls, without a median step each.

    Args:
        steps: lengths of all steps.
        p50_ns: their median, without a fault; None: there was none.
    """
    if p50_ns is None:
        return float(steps.sum())
    long = steps[(steps > STALL_FACTOR * p50_ns) & (steps > p50_ns + STALL_NS)]
    return float((long - p50_ns).sum())


def _next_after(complete: NDArray[np.int64], at_ns: int) -> int | None:
    later = complete[complete > at_ns]
    return int(later[0]) - at_ns if len(later) else None


def _return_gap_ns(
    edges: NDArray[np.int64],
    steps: NDArray[np.int64],
    fault_ns: tuple[int, int],
    p50_ns: float | None,
) -> float | None:
    began = edges[:-1]
    after = steps[began >= fault_ns[1]]
    if not len(after) or p50_ns is None:
        return None
    within = steps[(began >= fault_ns[0]) & (edges[1:] <= fault_ns[1])]
    usual_ns = max(p50_ns, float(np.median(within))) if len(within) >= MIN_FAULT_STEPS else p50_ns
    return max(0.0, float(after.max()) - usual_ns)


def _seconds(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / S
