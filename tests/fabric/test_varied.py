"""Faults of a third generator: no healthy part is named as sure, and where none is, nothing is."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fabric import rugged
from tests.fabric.outcomes import SURE, located, outcome
from tests.fabric.varied import Drawn, Way, draw

from syntony.fabric.candidates import Listing
from syntony.fabric.some_flows import is_of_another
from syntony.fabric.tally import Clean, Index, PartlyLearnt


def rugged_case(seed: int) -> Drawn:
    """A case of the second generator, to be graded as those of the third."""
    case = rugged.draw(seed)
    ways = (Way(frozenset(p.true), p.listed, (p.listed[0], p.listed[-1])) for p in case.paths)
    truths = tuple(each for each in (case.truth, case.also) if each)
    return Drawn(
        seed, tuple(ways), case.parallel(), truths, frozenset(),
        case.sent, case.lost, case.change_ns,
    )  # fmt: skip


@pytest.mark.parametrize("seed", [41_111, 41_158])
def test_paths_of_another_part_are_not_some_flows_of_a_healthy_one(seed: int) -> None:
    """A leaf, or a link, was named of which the paths across one other part suffer."""
    case = draw(seed)
    assert outcome(case, located(case)) in {"right", "twin", "vague", "missed"}, case.truths


@pytest.mark.parametrize("seed", [41_066, 41_155])
def test_a_path_may_take_what_others_list_between_its_ends(seed: int) -> None:
    case = draw(seed)
    assert outcome(case, located(case)) in {"right", "twin", "vague", "missed"}, case.truths


@pytest.mark.parametrize("seed", [41_092, 41_217, 61_132, 71_249])
def test_two_faults_are_not_some_flows_of_a_switch_between_them(seed: int) -> None:
    """A switch was named at 1.0, though its two faulty links explain the losses better."""
    case = draw(seed)
    assert outcome(case, located(case)) == "right", case.truths


def test_a_suspect_nearly_as_likely_leaves_no_name_sure() -> None:
    """A switch was named at 0.72 for one of its cables, on a nat of evidence."""
    case = draw(61_006)
    assert outcome(case, located(case)) == "twin", case.truths


def test_a_host_does_not_answer_some_flows_late() -> None:
    """Replies of a NIC were named at 0.84 for a link: half of the paths to it lost nothing."""
    case = draw(706_000_301)
    assert outcome(case, located(case)) == "right", case.truths


@pytest.mark.parametrize("seed", range(43_000, 43_003))
def test_no_fault_is_no_finding(seed: int) -> None:
    case = draw(seed, faults=0)
    assert outcome(case, located(case)) == "right", case.excused


@pytest.mark.parametrize("seed", range(42_000, 42_003))
def test_a_delay_has_no_wrong_name(seed: int) -> None:
    case = draw(seed, faults=1, delay=True)
    assert outcome(case, located(case, delays=True)) in {"right", "twin", "vague", "missed"}


def of_another(
    inside: int, outside: int, *, clean_inside: int, clean: int, may: int = 0, explained: int = 0
) -> bool:
    """Of so many paths across part 0 that suffer, inside and outside part 1; `may` of those
    outside may cross it. So many more inside suffer from something else."""
    amiss = inside + outside
    crossings = np.full((amiss, 2), -1, dtype=np.int32)
    crossings[:, 0], crossings[:inside, 1] = 0, 1
    combo = np.full(amiss, -1, dtype=np.int64)
    combo[inside : inside + may] = 0

    def clean_of(candidates: Index) -> Clean:
        paths = np.array([clean, clean_inside], dtype=np.float64)[candidates]
        return Clean(paths, paths, 0 * paths, 0 * paths)

    both = np.tile(np.array([0, 1], dtype=np.int32), (explained, 1))
    return is_of_another(crossings, PartlyLearnt.of(combo, [[1]]), clean, clean_of, both)


def test_whether_paths_that_suffer_are_those_of_another_part() -> None:
    assert of_another(20, 0, clean_inside=0, clean=30)
    assert of_another(18, 2, clean_inside=4, clean=60)
    # About the same share inside and outside; a larger one outside.
    assert not of_another(10, 10, clean_inside=15, clean=30)
    assert not of_another(2, 18, clean_inside=30, clean=40)
    # All clean ones may cross the other part, too; or there are few at all.
    assert not of_another(20, 0, clean_inside=40, clean=30)
    assert not of_another(3, 0, clean_inside=0, clean=3)
    assert not of_another(0, 0, clean_inside=0, clean=30)


def test_paths_with_another_fault_only_are_spared_by_this_one() -> None:
    """Half of the flows at a leaf suffer, also those of a NIC of which all paths lose some."""
    assert of_another(20, 20, clean_inside=0, clean=20)
    assert not of_another(20, 20, clean_inside=0, clean=20, explained=20)


@pytest.mark.parametrize("seed", [9_500_007, 9_500_141])
def test_a_faulty_nic_does_not_hide_some_flows_of_its_leaf(seed: int) -> None:
    """Cables of the leaf or spine were named, as all paths of the NIC suffer."""
    case = rugged_case(seed)
    assert outcome(case, located(case)) == "right", case.truths


def test_one_of_parallel_cables_is_no_better_than_some_flows_of_a_switch() -> None:
    """A switch between two faulty cables was named: without it, one of two parallel cables that
    the same paths cross was found first."""
    case = draw(9_100_000)
    assert outcome(case, located(case)) == "right", case.truths


@pytest.mark.parametrize("seed", [11_000_113, 11_000_175, 11_000_115])
def test_what_is_as_good_with_all_else_refitted_is_told(seed: int) -> None:
    """Other parts were named at 0.78 to 0.85, as paths that moved onto the faulty one only counted
    for what was found, or the two links at a switch for the whole of it."""
    case = draw(seed)
    assert outcome(case, located(case)) == "twin", case.truths


def test_no_exchange_makes_all_together_worth_less() -> None:
    """A dead link of a core switch was exchanged for the whole switch."""
    case = draw(9_400_011)
    (found,) = located(case)
    assert found.component in case.truths


def test_what_is_unknown_beside_a_switch_is_told_with_it() -> None:
    """A healthy core switch was named at 1.0; each path across it also crosses an aggregation
    switch that never answers."""
    case = draw(11_000_182)
    found = next(each for each in located(case) if each.component == "core2-0")
    assert {"core2-0..*", "*..core2-0"} <= {*found.alternatives}
    assert found.confidence < SURE


def test_paths_that_surely_cross_a_part_do_not_also_perhaps_do() -> None:
    """They counted twice against a cable, and its switch was named at 0.96."""
    case = draw(9_400_105)
    assert outcome(case, located(case)) == "twin", case.truths


def test_a_path_that_may_lead_down_elsewhere_does_not_clear_a_switch() -> None:
    """A cable was named at 1.0 instead of its switch: paths from a core switch to another pod
    counted as such that may cross the switch."""
    case = draw(9_400_137)
    assert outcome(case, located(case)) == "right", case.truths


def test_paths_that_may_cross_another_part_count_as_its_own() -> None:
    assert not of_another(2, 10, clean_inside=0, clean=30)
    assert of_another(2, 10, clean_inside=0, clean=30, may=10)


def test_what_paths_list_between_two_devices() -> None:
    listing = Listing.of([
        ("leaf0", "leaf0..core0", "core0", "core0->agg1", "agg1", "agg1->leaf1", "leaf1"),
        ("leaf0", "leaf0..leaf1", "leaf1"),
        ("leaf0", "leaf0->agg0", "agg0", "agg0..leaf1", "leaf1"),
    ])  # fmt: skip
    pair = ("leaf0", "leaf1")
    assert listing.between({pair}, (0, 1)) == {
        pair: {"leaf0..core0", "core0", "core0->agg1", "agg1", "agg1->leaf1", "leaf0..leaf1"}
    }
    assert listing.between({("leaf1", "leaf0")}, range(3)) == {}
