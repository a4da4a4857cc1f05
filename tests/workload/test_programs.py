"""Programs that do not train in step name nothing but their fault: inference, a parameter server,
experts, checkpoints, restarts, evaluation, rollouts (`bench.diagnosis`, the fifth generator)."""

from __future__ import annotations

import pytest
from bench.diagnosis.case import bundle_of
from bench.diagnosis.programs import PROGRAMS, make_case

from syntony.workload import diagnose


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_a_program_does_itself_is_no_fault(kind: str) -> None:
    assert diagnose(bundle_of(make_case("", 2, kind))).verdicts == ()


@pytest.mark.parametrize(
    ("kind", "fault", "seed"),
    [
        ("evaluation", "straggler", 1),  # the wide scatter of four evaluations hid it
        ("evaluation", "gpu-throttle", 1),
    ],
)
def test_a_fault_of_a_program_is_named_and_nothing_else(kind: str, fault: str, seed: int) -> None:
    case = make_case(fault, seed, kind)
    (found,) = diagnose(bundle_of(case)).verdicts
    assert (found.fault, found.subjects) == (fault, (case.truth.subject,))
