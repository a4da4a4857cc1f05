"""The act's claims hold when, and only when, what they say was measured."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from syntony.demo import nobody_noticed
from syntony.lab.drill.figures import RunFigures
from syntony.model import S

GOOD = RunFigures(
    name="Syntony",
    mode="syntony",
    outcome="finished",
    steps=100,
    step_p50_s=0.09,
    longest_step_s=0.2,
    stalled_s=0.0,
    throughput_before=11.0,
    throughput_during=9.0,
    throughput_after=10.9,
    resumed_after_s=0.05,
    return_gap_s=0.01,
    detect_ms=None,
    resets=0,
    wrong=0,
)
TODAY = msgspec.structs.replace(GOOD, longest_step_s=3.4)
ALL = (True, True, True)


@pytest.mark.parametrize(
    ("ours", "today", "held"),
    [
        ({}, {}, ALL),
        ({}, {"outcome": "hung", "longest_step_s": 40.0}, ALL),
        ({"wrong": 1}, {}, (False, True, True)),
        ({"resets": 1, "outcome": "died"}, {}, (False, True, True)),
        ({"outcome": "hung", "longest_step_s": 23.0}, {}, (False, False, True)),
        ({"longest_step_s": 1.2}, {}, (True, False, True)),
        ({"step_p50_s": None}, {}, (True, False, True)),
        ({"throughput_after": 5.0}, {}, (True, True, False)),
        ({"steps": 0}, {}, (False, True, True)),
        ({}, {"longest_step_s": 0.3}, (True, False, True)),  # the fault was none
    ],
)
def test_claims(ours: dict[str, Any], today: dict[str, Any], held: tuple[bool, ...]) -> None:
    runs = (GOOD, msgspec.structs.replace(TODAY, **today), msgspec.structs.replace(GOOD, **ours))
    found = nobody_noticed.claims(runs, "PyTorch DDP", "h1/rail0 goes down on the host", 3 * S)
    assert tuple(claim.held for claim in found) == held
