"""The act "nobody noticed": a NIC dies under a real job."""

from __future__ import annotations

from collections.abc import Sequence

from syntony.demo.claims import DemoClaim
from syntony.demo.stage import Stage
from syntony.lab.drill import nic_flap, scenarios
from syntony.lab.drill.figures import RunFigures, figures
from syntony.lab.drill.fleet import wait_ready
from syntony.lab.drill.trial import NicFlapTimes
from syntony.lab.jobs.torch_build import torch_or_plain_sockets
from syntony.model import MS, S

FAULT = "link-down"
OUTAGE_NS = 3 * S
TIMES = NicFlapTimes(before_ns=3 * S // 2, after_ns=3 * S, limit_ns=20 * S)
"""Three runs within a minute, PyTorch's start included."""
NOTICED_NS = 1_000 * MS
"""Claimed longest pause beyond an ordinary step, on a busy machine of two cores. Figures of an idle
one are in docs/reference/figures.md."""
FELT = 0.8
"""Share of the outage for which the job without Syntony must stall: otherwise the fault had no
effect."""
RETURNED = 0.5
"""Share of the earlier throughput that must be restored. Low, because the act measures for three
seconds only and the hold-down takes two of them; the drill itself waits longer."""


def nobody_noticed(stage: Stage) -> tuple[DemoClaim, ...]:
    """Nobody noticed: the same job three times; a NIC dies under the second and third.

    PyTorch DDP where it is installed, otherwise an all-reduce over plain sockets.
    """
    framework, kind, python = torch_or_plain_sockets(stage.screen.say)
    options = nic_flap.NicFlapOptions(
        framework=framework,
        kind=kind,
        python=python,
        fault=FAULT,
        outage_ns=OUTAGE_NS,
        times=TIMES,
    )
    wait_ready(stage.lab)
    job = "PyTorch DDP" if framework == "gloo" else "all-reduce over plain sockets"
    stage.screen.say(f"{job} on {options.spec.hosts} hosts, every result checked; three runs")
    trials = nic_flap.drill(options, stage.screen.say, lab=stage.lab)
    runs = [figures(trial) for trial in trials]
    return claims(runs, job, scenarios.meaning(FAULT), OUTAGE_NS)


def claims(
    runs: Sequence[RunFigures], job: str, meaning: str, outage_ns: int
) -> tuple[DemoClaim, ...]:
    """Claims on the three runs, in order: no failure, today, Syntony. Pure."""
    _calm, today, ours = runs
    felt = today.longest_step_s is None or today.longest_step_s >= FELT * outage_ns / S
    pause_s = None
    if ours.longest_step_s is not None and ours.step_p50_s is not None:
        pause_s = ours.longest_step_s - ours.step_p50_s
    return (
        DemoClaim(
            text=f"{meaning} under {job}: it finishes, every result right",
            measured=f"{ours.outcome}, {ours.steps} steps, {ours.wrong} wrong, "
            f"{ours.resets} connections lost",
            held=ours.outcome == "finished" and ours.wrong == ours.resets == 0 < ours.steps,
        ),
        DemoClaim(
            text=f"nobody notices: no pause beyond {NOTICED_NS // MS} ms "
            f"where the job stalls for {outage_ns / S:.0f} s today",
            measured=f"longest step {_seconds(ours)} (median {_median(ours)}), "
            f"today {_seconds(today)}{'' if today.outcome == 'finished' else f', {today.outcome}'}",
            held=felt and pause_s is not None and pause_s * S <= NOTICED_NS,
        ),
        DemoClaim(
            text=f"it returns: at least {RETURNED:.0%} of the throughput when the NIC is back",
            measured=f"steps/s before {ours.throughput_before:.1f}, "
            f"during {ours.throughput_during:.1f}, after {ours.throughput_after:.1f}",
            held=ours.throughput_after >= RETURNED * ours.throughput_before > 0,
        ),
    )


def _seconds(run: RunFigures) -> str:
    return "unknown" if run.longest_step_s is None else f"{run.longest_step_s:.2f} s"


def _median(run: RunFigures) -> str:
    return "unknown" if run.step_p50_s is None else f"{run.step_p50_s * 1000:.0f} ms"
