"""Programs that do not train in step name nothing but their fault: inference, a parameter server,
experts, checkpoints, restarts, evaluation, rollouts (`bench.diagnosis`, the fifth generator)."""

from __future__ import annotations

import pytest
from bench.diagnosis import queued
from bench.diagnosis.case import bundle_of
from bench.diagnosis.programs import PROGRAMS, make_case

from syntony.workload import diagnose


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        *((kind, 2) for kind in PROGRAMS),
        ("server", 9),  # most directions wait: the shortest of a NIC looked like a wrong clock
        ("", 7_018),  # an expert is asked less, so that a flow to it has less to send
        ("", 731_900_406),  # … and one has always had less
        ("", 7_053),  # … and the links at which flows wait change with that
    ],
)
def test_what_a_program_does_itself_is_no_fault(kind: str, seed: int) -> None:
    assert diagnose(bundle_of(make_case("", seed, kind))).verdicts == ()


def test_channels_that_share_a_nic_by_turns_are_not_slow() -> None:
    """One of 16 channels had a low rate in three windows."""
    assert diagnose(bundle_of(queued.make_case("", 731_900_416))).verdicts == ()


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
