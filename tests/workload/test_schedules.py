"""Jobs of other schedules, whose own load makes their delays, name nothing but their fault
(docs/decisions/0525 and 0526)."""

from __future__ import annotations

import random

import pytest
from bench.diagnosis import schedules
from bench.diagnosis.case import bundle_of
from tests.workload.schedules import KINDS, F, job_and_fault

from syntony.workload import diagnose

SEED = random.randrange(1 << 32)


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("kind", KINDS)  # outside: both recordings of one run
def test_nothing_is_named_in_a_job_of_another_schedule(kind: str, links: bool) -> None:
    print(f"seed {SEED}")
    bundle, _ = job_and_fault(kind, "", SEED, links=links)
    assert diagnose(bundle).verdicts == ()


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("alternating", 4),  # flows share a link only in every second phase
        ("alternating", 29),  # … and wait ten times as long as others
        ("alternating", 422_800_291),  # … one of them shares no other link in other phases
        ("upload", 5),  # a flow over fewer links waits as those before the same host
        ("upload", 7),
        ("evaluation", 5),  # the first rank writes a report before each barrier
    ],
)
def test_what_a_schedule_does_itself_is_no_fault(kind: str, seed: int) -> None:
    """Each of them had a name."""
    bundle, _ = job_and_fault(kind, "", seed, links=False)
    assert diagnose(bundle).verdicts == ()


@pytest.mark.parametrize(
    ("kind", "fault", "seed"),
    [
        ("evaluation", F.STRAGGLER, 1),
        ("alternating", F.CONTENTION, 1),
        ("alternating", F.CONTENTION, 885_275_918),  # … of which one waits without the others
        ("alternating", F.INCAST, 701),  # a flow of it sends in one phase only, the others in both
        ("bubbles", F.CONTENTION, 1),
        ("upload", F.SLOW_FLOW, 1),
        ("shrink", F.DATA_STALL, 1),
        ("grow", F.HOST_JITTER, 1),
        ("growing-batch", F.STRAGGLER, 1),
    ],
)
def test_a_fault_in_another_schedule_is_named_and_nothing_else(
    kind: str, fault: str, seed: int
) -> None:
    bundle, truth = job_and_fault(kind, fault, seed, links=False)
    (found,) = diagnose(bundle).verdicts
    assert found.fault == fault
    assert truth.subject in found.subjects


@pytest.mark.parametrize(
    ("seed", "named"),
    [
        (34, True),  # an error in a pipeline, whose other pairs wait as well
        (54, True),
        (160, True),
        (70, True),  # a host is gone; the neighbours in the pipeline fail one by one
        (112, True),
        (5_014, True),  # … one of them within the same two seconds, as far as is known
        (102, False),  # the host of another rank may have failed before
        (113, False),  # and flows wait where two of them send only in every second phase
        (18, False),  # statuses and instants are not visible
        (68, False),
    ],
)
def test_of_ranks_that_end_the_first_is_named_or_none(seed: int, named: bool) -> None:
    """Each had a wrong name, or another verdict besides."""
    case = schedules.make_case(F.HANG, seed)
    found = [(each.fault, each.subjects) for each in diagnose(bundle_of(case)).verdicts]
    if named:
        assert found == [(F.HANG, (case.truth.subject,))]
    else:
        assert {fault for fault, _ in found} <= {F.UNDETERMINED}


@pytest.mark.parametrize("seed", [154, 161])  # each was called a hang of a communicator
def test_a_job_that_somebody_ended_does_not_hang_afterwards(seed: int) -> None:
    assert diagnose(bundle_of(schedules.make_case("", seed))).verdicts == ()


@pytest.mark.parametrize("way", ["operator", "scheduler", "clean"])
def test_an_end_by_order_is_no_fault(way: str) -> None:
    print(f"seed {SEED}")
    assert diagnose(bundle_of(schedules.make_case("", SEED, way))).verdicts == ()
