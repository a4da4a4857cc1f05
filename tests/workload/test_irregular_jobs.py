"""Jobs that change, pause or are unevenly loaded, and recordings with holes, name nothing but their
fault (docs/decisions/0430 to 0432)."""

from __future__ import annotations

import random

import pytest
from tests.workload.irregular import FAULTS, KINDS, NoPlace
from tests.workload.irregular_recorder import job_and_fault

from syntony.workload import FaultClass, diagnose

SEED = random.randrange(1 << 32)
BY_DELAYS = {FaultClass.SLOW_FLOW, FaultClass.CONTENTION, FaultClass.INCAST}
"""Not known of flows from and to a host whose clock is UNKNOWN."""
KNOWN = 3
"""A seed that is the same in all runs."""


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_named_in_an_irregular_job(kind: str) -> None:
    print(f"seed {SEED}")
    bundle, _ = job_and_fault(kind, "", SEED)
    assert diagnose(bundle).verdicts == ()


@pytest.mark.parametrize("seed", [3928692418, 3483347708, 3013020008, 3676899826])
def test_two_outliers_that_both_show_in_the_mean_between_them_are_two(seed: int) -> None:
    """A rank was named a straggler in jobs of six to ten operations."""
    bundle, _ = job_and_fault("accumulation", "", seed)
    assert diagnose(bundle).verdicts == ()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_of_an_irregular_job_is_named_and_nothing_else(kind: str, fault: str) -> None:
    try:
        bundle, truth = job_and_fault(kind, fault, KNOWN)
    except NoPlace:
        pytest.skip("no part of this job can have this fault, whatever is installed: NOT a case")
    found = diagnose(bundle)
    wanted = {fault}
    if kind == "unknown-clock" and fault in BY_DELAYS and not found.verdicts:
        assert any("UNKNOWN" in each.reason for each in found.gaps)
        return
    assert {each.fault for each in found.verdicts} == wanted
    assert all(truth.subject in each.subjects for each in found.verdicts)
