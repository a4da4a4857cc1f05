"""The act "rank lost": a process of a live training job is killed, and a spare takes its place."""

from __future__ import annotations

import tempfile
from pathlib import Path

from syntony.demo.claims import DemoClaim
from syntony.demo.stage import Stage
from syntony.lab.drill import rank_loss
from syntony.lab.drill.rank_loss_report import RankLossRunFigures, figures
from syntony.lab.jobs.torch_build import find_torch

STEPS, KILL_AT = 160, 60
"""A spare is ready about 20 s after the start on a slow machine: steps are left by then."""
STALL_S = 5.0
"""Claimed longest pause of the other ranks, on a busy machine of two cores. Figures of others are
in docs/reference/figures.md."""


def rank_lost(stage: Stage) -> tuple[DemoClaim, ...]:
    """A rank is lost: the same training job twice; the second time a rank is killed. Raises
    `MissingError`: PyTorch is not installed."""
    options = rank_loss.RankLossOptions(python=find_torch(), steps=STEPS, kill_at=KILL_AT)
    with tempfile.TemporaryDirectory(prefix="syntony-demo-") as place:
        trials = []
        for name in (rank_loss.CALM, rank_loss.SYNTONY):
            stage.screen.say(f"{name}: {options.ranks} ranks of PyTorch DDP, {options.steps} steps")
            trials.append(rank_loss.run(options, name, Path(place), stage.screen.say))
    return claims(*(figures(options, each, trials[0]) for each in trials))


def claims(calm: RankLossRunFigures, ours: RankLossRunFigures) -> tuple[DemoClaim, ...]:
    """Claims on the two runs. Pure."""
    stall = "never went on" if ours.stall_s is None else f"{ours.stall_s:.2f} s"
    return (
        DemoClaim(
            text="a rank is killed: every loss and all weights are those of the undisturbed job",
            measured=f"killed after step {ours.killed_at_step}, exit code {ours.exit_code}, "
            f"{'the same' if ours.same else 'another result'}",
            held=calm.exit_code == 0 and ours.killed_at_step is not None and ours.same,
        ),
        DemoClaim(
            text="all ranks agree on the parameters two steps after, by SHA-256",
            measured="equal" if ours.digest_equal else "not equal, or not compared",
            held=bool(ours.digest_equal),
        ),
        DemoClaim(
            text=f"the others wait less than {STALL_S:.0f} s and repeat no step",
            measured=f"{stall}, {ours.steps_again} steps again",
            held=ours.stall_s is not None and ours.stall_s < STALL_S and ours.steps_again == 0,
        ),
    )
