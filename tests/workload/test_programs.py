"""Programs that do not train in step name nothing but their fault: inference, a parameter server,
experts, checkpoints, restarts, evaluation, rollouts (`bench.diagnosis`, the fifth generator)."""

from __future__ import annotations

import pytest
from bench.diagnosis.case import bundle_of
from bench.diagnosis.programs import PROGRAMS, make_case

from syntony.workload import diagnose


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        *((kind, 2) for kind in PROGRAMS),
        ("server", 9),  # most directions wait: the shortest of a NIC looked like a wrong clock
    ],
)
def test_what_a_program_does_itself_is_no_fault(kind: str, seed: int) -> None:
    assert diagnose(bundle_of(make_case("", seed, kind))).verdicts == ()


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("evaluation", "straggler"),  # the wide scatter of four evaluations hid it
        ("evaluation", "gpu-throttle"),
        ("elastic", "slow-flow"),  # with the connection before the restart, it seemed to be a link
        ("saver", "slow-flow"),  # another flow out of its NIC carries checkpoints
    ],
)
def test_a_fault_of_a_program_is_named_and_nothing_else(kind: str, fault: str) -> None:
    case = make_case(fault, 1, kind)
    found = diagnose(bundle_of(case)).verdicts
    assert {each.fault for each in found} == {fault}
    named = {name for each in found for name in each.subjects}
    assert case.truth.subject in named
    assert named <= {each.subject for each in (case.truth, *case.also)}
