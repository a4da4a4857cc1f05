"""Every class by both generators, and jobs in which nothing is wrong: none may be blamed.

`bench/diagnosis` does the same by the hundred on seeds that no rule was tuned on.
"""

from __future__ import annotations

import pytest
from bench.diagnosis import drawn, foreign
from bench.diagnosis.case import bundle_of
from bench.diagnosis.drawn_faults import FAULTS

from syntony.workload import FaultClass, diagnose

GENERATORS = {"drawn": drawn.make_case, "foreign": foreign.make_case}
SEEDS = {"drawn": (3,), "foreign": (1,)}
QUIET_SEEDS = range(100, 104)


def test_the_taxonomy_is_graded_whole() -> None:
    assert {*FAULTS, FaultClass.UNDETERMINED} == {*FaultClass}


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(generator: str, fault: str) -> None:
    for seed in SEEDS[generator]:
        case = GENERATORS[generator](fault, seed)
        verdicts = diagnose(bundle_of(case)).verdicts
        reported = [(str(each.fault), each.subjects) for each in verdicts]
        assert [name for name, _ in reported] == [fault], f"seed {seed}: {reported}"
        verdict = verdicts[0]
        assert case.truth.subject in verdict.subjects, f"seed {seed}: {reported}"
        width_ns = case.tables["flows"]["window_ns"][0]
        if (
            fault != "class-mismatch"
        ):  # its onset is the recording's where flows alone do not show it
            assert verdict.onset_ns >= case.truth.onset_ns - 12 * width_ns
        assert 0.5 <= verdict.confidence <= 1
        assert verdict.evidence
        assert verdict.alternatives
        assert verdict.action


@pytest.mark.parametrize("generator", GENERATORS)
def test_nothing_is_named_where_nothing_is_wrong(generator: str) -> None:
    for seed in QUIET_SEEDS:
        case = GENERATORS[generator]("", seed)
        verdicts = diagnose(bundle_of(case)).verdicts
        assert not verdicts, f"seed {seed} {case.truth.variant}: {verdicts[0]}"


def test_the_same_bundle_gives_the_same_verdicts() -> None:
    one, other = (diagnose(bundle_of(drawn.make_case("contention", 5))) for _ in range(2))
    assert one.verdicts == other.verdicts
