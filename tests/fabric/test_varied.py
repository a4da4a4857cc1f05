"""Faults of a third generator: no healthy part is named as sure, and where none is, nothing is."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fabric.outcomes import located, outcome
from tests.fabric.varied import draw

from syntony.fabric.candidates import Listing
from syntony.fabric.some_flows import is_of_another
from syntony.fabric.tally import Clean, Index, PartlyLearnt


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


@pytest.mark.parametrize("seed", range(43_000, 43_003))
def test_no_fault_is_no_finding(seed: int) -> None:
    case = draw(seed, faults=0)
    assert outcome(case, located(case)) == "right", case.excused


@pytest.mark.parametrize("seed", range(42_000, 42_003))
def test_a_delay_has_no_wrong_name(seed: int) -> None:
    case = draw(seed, faults=1, delay=True)
    assert outcome(case, located(case, delays=True)) in {"right", "twin", "vague", "missed"}


def of_another(inside: int, outside: int, *, clean_inside: int, clean: int, may: int = 0) -> bool:
    """Of so many paths across part 0 that suffer, inside and outside part 1; `may` of those
    outside may cross it."""
    amiss = inside + outside
    crossings = np.full((amiss, 2), -1, dtype=np.int32)
    crossings[:, 0], crossings[:inside, 1] = 0, 1
    combo = np.full(amiss, -1, dtype=np.int64)
    combo[inside : inside + may] = 0

    def clean_of(candidates: Index) -> Clean:
        paths = np.array([clean, clean_inside], dtype=np.float64)[candidates]
        return Clean(paths, paths, 0 * paths, 0 * paths)

    return is_of_another(crossings, PartlyLearnt.of(combo, [[1]]), clean, clean_of)


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
