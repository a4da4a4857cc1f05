"""What the act about a lost rank claims of its two runs, and that it cannot run without PyTorch."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from syntony.demo import rank_lost
from syntony.demo.stage import Stage
from syntony.errors import MissingError
from syntony.lab.drill.rank_loss_report import RankLossRunFigures

CALM = RankLossRunFigures(
    name="no failure", exit_code=0, total_s=60.0, step_ms=120.0, killed_at_step=None, stall_s=None,
    steps_again=0, same=True, digest_equal=None,
)  # fmt: skip
GOOD = msgspec.structs.replace(CALM, killed_at_step=70, stall_s=0.9, digest_equal=True)


@pytest.mark.parametrize(
    ("ours", "held"),
    [
        ({}, (True, True, True)),
        ({"same": False}, (False, True, True)),
        ({"killed_at_step": None}, (False, True, True)),
        ({"digest_equal": False}, (True, False, True)),
        ({"digest_equal": None}, (True, False, True)),
        ({"stall_s": None}, (True, True, False)),
        ({"stall_s": 5.0}, (True, True, False)),
        ({"steps_again": 1}, (True, True, False)),
    ],
)
def test_claims(ours: dict[str, Any], held: tuple[bool, ...]) -> None:
    found = rank_lost.claims(CALM, msgspec.structs.replace(GOOD, **ours))
    assert tuple(each.held for each in found) == held


def test_an_undisturbed_job_that_fails_proves_nothing() -> None:
    calm = msgspec.structs.replace(CALM, exit_code=1)
    assert [each.held for each in rank_lost.claims(calm, GOOD)] == [False, True, True]


def test_without_pytorch_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise MissingError("PyTorch is not installed")

    monkeypatch.setattr(rank_lost, "find_torch", missing)
    with pytest.raises(MissingError):
        rank_lost.rank_lost(cast("Stage", None))
