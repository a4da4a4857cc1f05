"""Faults that hit some flows only, switches that never answer, cables whose directions differ."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fabric import foreign
from tests.fabric.rugged import draw
from tests.fabric.test_loss import SMALL, named, run
from tests.fabric.test_rugged import found_in, graded

from syntony.fabric.candidates import Listing
from syntony.fabric.locate import WindowCounts, locate
from syntony.fabric.numbering import make_candidates


@pytest.mark.parametrize("seed", [1151, 1312])
def test_a_nic_that_loses_by_port_is_named_and_nothing_at_it(seed: int) -> None:
    """A link or a cable that most of the lossy paths cross was named, the others were odd ones."""
    case = draw(seed, faults=1)
    assert graded(case).verdict == "right"
    (found,) = found_in(case)
    hit = case.lost[[case.truth in path.true for path in case.paths]] > 0
    assert found.flows == pytest.approx(hit.mean(), abs=0.1)
    assert found.flows < 0.95


def test_a_fault_of_all_flows_says_so() -> None:
    found = found_in(draw(1183, faults=1))
    assert [each.flows for each in found] == [1.0]


def test_one_of_parallel_cables_of_which_no_topology_tells_is_the_cable() -> None:
    case = foreign.draw(33_033)
    (found,) = locate(
        make_candidates(Listing.of([path.listed for path in case.paths])),
        [WindowCounts("now", case.sent, case.lost)],
    )
    assert found.component == case.truth


def test_bursts_at_a_nic_are_no_fault_of_some_flows_of_its_switch() -> None:
    """What is claimed of some flows says nothing of how even the losses of all are."""
    (found,) = found_in(draw(800_006, faults=1))
    assert found.component == "n1-1/rail0"


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_spine_that_loses_every_other_flow_is_named(share: float) -> None:
    spine = SMALL.kinds["spine"].first + 1
    well, bad = run(SMALL, {}, 7), run(SMALL, {spine: share}, 7)
    lost = np.where(np.arange(len(bad.lost)) % 2, bad.lost, well.lost)
    assert set(named(SMALL, bad._replace(lost=lost))) == {spine}


def test_a_few_odd_paths_of_a_nic_are_no_fault_of_some_of_its_flows() -> None:
    counts = run(SMALL, {}, 5)
    nic = SMALL.kinds["nic-up"].first + 5
    across = np.flatnonzero((counts.crossings == nic).any(axis=1))
    lost = counts.lost.copy()
    chosen = across[:: len(across) // 5]
    assert len(chosen) < len(across) / 8
    lost[chosen] = counts.sent[chosen]
    assert nic not in named(SMALL, counts._replace(lost=lost))


@pytest.mark.parametrize("seed", [1183, 1285])
def test_a_switch_that_never_answers_is_not_taken_for_another(seed: int) -> None:
    """Only groups list it, of every two leaves another one: `*..*` stands for all of these."""
    (found,) = found_in(draw(seed, faults=1))
    assert (found.component, found.both_ways) == ("*..*", True)


@pytest.mark.parametrize("seed", [1180, 1262])
def test_two_directions_at_different_rates_are_one_cable(seed: int) -> None:
    case = draw(seed, faults=1)
    found = found_in(case)
    assert [each.component for each in found if "spine0" in each.component] == [case.truth]


@pytest.mark.parametrize("seed", [1182, 1376])
def test_no_name_has_a_likelier_single_rival(seed: int) -> None:
    """Each exchange changes what the others explain: they are compared once more."""
    for found in found_in(draw(seed, faults=1)):
        rivals = found.probabilities[found.twins :]
        assert found.confidence >= max(rivals, default=0.0)
