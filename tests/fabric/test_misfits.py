"""What is found explains the paths badly, or too few of them: no healthy component is named."""

from __future__ import annotations

import numpy as np
import pytest
from bench.tallies import tally_losses
from tests.fabric import test_delay_search as slow
from tests.fabric.foreign import Case, Grade, draw, grade
from tests.fabric.test_search import CANDIDATES, PENALTY, background, partly

from syntony.fabric.candidates import Listing
from syntony.fabric.locate import WindowCounts, locate
from syntony.fabric.loss import LossSearch
from syntony.fabric.numbering import make_candidates
from syntony.model.findings import Finding


def located(case: Case, *, delays: bool = False) -> tuple[Finding, ...]:
    candidates = make_candidates(
        Listing.of([path.listed for path in case.paths]), parallel=case.parallel()
    )
    change_ns = case.change_ns if delays else np.full(len(case.paths), np.nan)
    window = WindowCounts("now", case.sent, case.lost, change_ns, np.full(len(change_ns), 100.0))
    return locate(candidates, [window])


def graded(case: Case, found: tuple[Finding, ...]) -> Grade:
    return grade(case, [(each.component, each.confidence, each.alternatives) for each in found])


def test_two_of_three_leaves_are_not_told_as_the_third_and_a_cable() -> None:
    """The third explains the two thirds of the paths that lose least, and was found first. Nothing
    could be added that explains the others as the two lossy leaves do."""
    case = draw(63_500_003, known=1.0, also=None)
    found = located(case)
    assert graded(case, found) == Grade("twin", (), 0)
    assert {case.truth, case.also} <= {name for each in found for name in each.alternatives}
    assert not any("leaf2r0" in each.alternatives for each in found)


@pytest.mark.parametrize("uneven", [0.0, 0.1])
def test_two_slow_cables_are_not_their_leaf_if_paths_inside_it_are_on_time(uneven: float) -> None:
    case = draw(63_500_004, known=1.0, also=None, delay=True, uneven=uneven)
    assert graded(case, located(case, delays=True)) == Grade("right", (), 0)


@pytest.mark.parametrize("uneven", [0.0, 0.1])
def test_a_slow_spine_and_a_slower_cable_of_it_are_not_two_cables(uneven: float) -> None:
    case = draw(55_000_013, known=1.0, also=None, delay=True, uneven=uneven)
    found = located(case, delays=True)
    assert graded(case, found) == Grade("right", (), 0)
    assert {each.component for each in found} == {case.truth, case.also}


def test_a_comparison_with_the_whole_leaves_better_findings_as_they_are() -> None:
    case = draw(91_000_016, known=1.0, also=None, delay=True)
    assert graded(case, located(case, delays=True)) == Grade("right", (), 0)


@pytest.mark.parametrize("on_time", [0, 1, 8])
def test_how_many_paths_are_on_time_decides_between_two_slow_parts_and_the_whole(
    on_time: int,
) -> None:
    a, b, whole = 0, 1, 2
    penalty = slow.PENALTY.copy()
    penalty[[a, b]] += 1.0
    paths = [[a, whole]] * 30 + [[b, whole]] * 30 + [[whole]] * on_time
    late = [100_000.0] * 30 + [101_000.0] * 30 + [0.0] * on_time
    found = slow.search(paths, late, penalty=penalty)
    named = {each.candidate for each in found}
    alternatives = {other for each in found for other in each.alternatives}
    assert named == ({a, b} if on_time > 1 else {whole})
    assert alternatives == ({a, b} if on_time == 1 else set())


def test_a_burst_on_one_path_is_no_group_of_paths() -> None:
    """Another path of the same window lost as much, though all that it crosses is healthy."""
    case = draw(63_500_008, burst=3.0)
    assert graded(case, located(case)) == Grade("right", (), 0)


@pytest.mark.parametrize("strays", [0, 1, 2])
def test_what_befalls_single_paths_is_no_group_that_one_of_thirty_paths_shows(strays: int) -> None:
    """Paths that may cross candidate 0, and others whose components all have clean paths."""
    paths, penalty = [[-1]] * 30 + background(400), PENALTY.copy()
    penalty[0] -= 3.0
    lost = np.zeros(430, dtype=np.int64)
    lost[0] = 4
    lost[100 : 100 + strays] = 6
    crossings, sent = np.array(paths, dtype=np.int32), np.full(430, 400)
    counts = tally_losses(crossings, sent, lost, CANDIDATES, partly(430, list(range(30))))
    found = LossSearch(counts, penalty).findings
    assert [each.candidate for each in found] == ([] if strays else [0])
    lost[:3] = 4
    counts = tally_losses(crossings, sent, lost, CANDIDATES, partly(430, list(range(30))))
    assert [each.candidate for each in LossSearch(counts, penalty).findings] == [0]


def test_few_uneven_paths_name_no_direction_as_sure() -> None:
    """Six of ten paths lost anything, from 2 to 20 %."""
    case = draw(63_500_047, burst=10.0)
    found = located(case)
    assert graded(case, found).verdict == "twin"
    assert all(each.confidence < 0.5 for each in found)


def test_a_cable_and_one_of_two_parallel_to_it_are_one_finding() -> None:
    case = draw(63_500_001, uneven=0.5)
    (found,) = located(case)
    assert found.component == case.truth
    assert found.confidence > 0.99


def test_a_direction_and_one_of_two_parallel_to_it_are_no_cable() -> None:
    case = draw(64_400_027, uneven=0.5)
    (found,) = located(case)
    assert (found.component, found.alternatives) == (case.truth, ())


def test_uneven_losses_that_more_findings_explain_better_stay_one_fault() -> None:
    case = draw(98_700_005, uneven=0.5)
    assert graded(case, located(case)) == Grade("twin", (), 0)
