"""Jobs of other schedules, whose own load makes their delays, name nothing but their fault
(docs/decisions/0525 and 0526)."""

from __future__ import annotations

import random

import pytest
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
