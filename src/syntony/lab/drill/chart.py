"""Turns the trials of a drill into the lines of its chart. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syntony.lab.drill.figures import RunFigures, edges_ns, throughput
from syntony.lab.drill.trial import NicFlapTrial
from syntony.model import MS, S
from syntony.view.drill_charts import ThroughputChart, ThroughputLine

BIN_NS = 250 * MS
"""At least three steps of the default job, so that aliasing of steps and bins does not show."""


def make_chart(
    trials: Sequence[NicFlapTrial], found: Sequence[RunFigures], meaning: str
) -> ThroughputChart:
    """Lines in the order of the trials, time relative to each trial's own first fault.

    The faults drawn are those of the first trial that had any.
    """
    faulty = next((trial for trial in trials if trial.outages), None)
    first = trials[0]
    return ThroughputChart(
        title=f"{first.job}: {meaning}",
        subtitle=f"{first.ranks} hosts, {first.elements * 4 / 2**20:.3g} MiB a rank and step, "
        f"every result checked; the same fault on the same schedule",
        unit="steps per second",
        lines=tuple(
            line(trial, run) for trial, run in zip(trials, found, strict=True)
        ),
        faults_s=() if faulty is None else tuple(
            ((o.began_ns - faulty.fault_ns[0]) / S, (o.ended_ns - faulty.fault_ns[0]) / S)
            for o in faulty.outages
        ),
        fault_label="" if faulty is None else
        f"{faulty.outages[0].kind} {faulty.outages[0].target}",
    )  # fmt: skip


def line(trial: NicFlapTrial, run: RunFigures) -> ThroughputLine:
    """Throughput in bins from the start of measuring until the job was asked to end.

    If the job did not survive a stall, the line stays at zero there.
    """
    edges = edges_ns(trial)
    if not trial.finished:
        edges = edges[:-1]
    zero_ns = trial.fault_ns[0]
    last_ns = trial.wished_end_ns - (trial.wished_end_ns - trial.began_ns) % BIN_NS
    starts = np.arange(trial.began_ns, last_ns, BIN_NS)
    return ThroughputLine(
        label=run.name,
        note=verdict(run),
        at_s=tuple(float(t + BIN_NS // 2 - zero_ns) / S for t in starts),
        rate=tuple(throughput(edges, int(t), int(t) + BIN_NS) for t in starts),
        ends_s=None if trial.finished else min(trial.ended_ns, last_ns) / S - zero_ns / S,
    )


def verdict(run: RunFigures) -> str:
    if run.longest_step_s is None:
        return run.outcome
    longest = (
        f"{run.longest_step_s:.1f} s" if run.longest_step_s >= 1 else
        f"{run.longest_step_s * 1000:.0f} ms"
    )  # fmt: skip
    if run.outcome != "finished":
        return f"{run.outcome} after {longest} without a step"
    return f"longest step {longest}"
