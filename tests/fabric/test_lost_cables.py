"""A cable is lost by what a sample of its paths shows; the others may be stale."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from tests.fabric.test_changes import LEAVES, SOON_NS, Fabric

from syntony.fabric.aliases import ROUND_NS
from syntony.fabric.book import Way
from syntony.fabric.changes import HOLD_NS
from syntony.fabric.departures import ENOUGH, LEFT_NS
from syntony.fabric.names import cable_name
from syntony.model import S

CABLE = "leaf0--spine1"


def known(seed: int) -> Fabric:
    """A fabric that is known, of which paths are traced in random order."""
    print(f"seed {seed}")
    fabric = Fabric()
    random.Random(seed).shuffle(fabric.ways)
    fabric.look()
    fabric.salt = seed
    fabric.learn()
    fabric.now_ns += S
    return fabric


def some(fabric: Fabric, crosses: Callable[[Way], bool], share: float) -> list[Way]:
    """A share of the paths that satisfy a condition."""
    found = [way for way in fabric.ways if crosses(way)]
    return found[: int(share * len(found))]


def trace(fabric: Fabric, ways: list[Way]) -> None:
    """Trace these; later, some others across both switches of the cable."""
    for way in ways:
        fabric.map.take(way, fabric.heard(way), fabric.now_ns)
    fabric.now_ns += S
    for way in fabric.ways:
        if way not in ways and fabric.heard(way) == fabric.map._ways[way]:
            fabric.map.confirm(fabric.heard(way), fabric.now_ns)


def takes(fabric: Fabric, part: str) -> Callable[[Way], bool]:
    def crosses(way: Way) -> bool:
        hops = fabric.heard(way)
        names = {*hops, *(cable_name(a, b) for a, b in pairwise(hops[1:]))}
        return part in names

    return crosses


@pytest.mark.parametrize("seed", range(5))
def test_a_cable_is_lost_although_stale_paths_list_it(seed: int) -> None:
    fabric = known(seed)
    left = some(fabric, takes(fabric, CABLE), 0.5)
    fabric.dead = {CABLE}
    trace(fabric, left)
    assert fabric.wait(S) == []
    assert fabric.wait(SOON_NS) == [("removed", CABLE)]
    assert fabric.map.state().twins == {CABLE: ()}
    fabric.dead = set()
    fabric.map.confirm(fabric.heard(some(fabric, takes(fabric, CABLE), 1.0)[-1]), fabric.now_ns)
    reported = [*fabric.wait(S), *fabric.wait(SOON_NS)]
    assert ("added", CABLE) in reported
    assert not fabric.map.lost


@pytest.mark.parametrize("seed", range(5))
def test_paths_that_are_distributed_anew_show_no_lost_cable(seed: int) -> None:
    fabric = known(seed)
    crossed = some(fabric, takes(fabric, CABLE), 0.5)
    fabric.salt += 100
    trace(fabric, crossed)
    assert {*fabric.wait(SOON_NS), *fabric.wait(SOON_NS)} == set()


@pytest.mark.parametrize("seed", range(5))
def test_a_sample_to_one_leaf_does_not_tell_which_cable_is_lost(seed: int) -> None:
    """The lost cable is at that leaf, or at the one that they come from."""
    fabric = known(seed)
    between = {"leaf0", "leaf1"}

    def both(way: Way) -> bool:
        return takes(fabric, CABLE)(way) and between <= {*fabric.heard(way)}

    left = some(fabric, both, 0.9)
    fabric.dead = {CABLE}
    trace(fabric, left)
    assert fabric.wait(SOON_NS) == []


@pytest.mark.parametrize("seed", range(5))
def test_while_its_switch_answers_nobody_the_cable_is_not_blamed(seed: int) -> None:
    """A host traces its own paths first: they all left one cable of the dead spine."""
    fabric = known(seed)
    left = some(fabric, takes(fabric, CABLE), 0.7)
    fabric.dead = {f"leaf{number}--spine1" for number in range(LEAVES)}
    trace(fabric, left)
    assert fabric.wait(HOLD_NS) == []
    fabric.wait(ROUND_NS)
    assert not fabric.map.lost


def test_of_two_lost_cables_of_a_spine_each_is_named_and_no_third() -> None:
    fabric = known(1)
    lost = {CABLE, "leaf1--spine1"}
    left = [way for way in fabric.ways for each in lost if takes(fabric, each)(way)]
    left = left[: int(0.8 * len(left))]
    fabric.dead = lost
    trace(fabric, left)
    assert {*fabric.wait(S), *fabric.wait(SOON_NS)} == {("removed", each) for each in lost}


def test_a_cable_that_only_paths_of_a_lost_one_crossed_is_not_lost() -> None:
    """Of the paths to one leaf, those to the leaf with the lost cable were the only ones."""
    fabric = known(2)
    fabric.ways = [
        way for way in fabric.ways
        if "leaf3" not in {*fabric.heard(way)} or "leaf0" in {*fabric.heard(way)}
    ]  # fmt: skip
    fabric.map = Fabric().map
    fabric.look()
    fabric.learn()
    fabric.dead = {CABLE}
    fabric.learn()
    reported = {*fabric.wait(S), *fabric.wait(SOON_NS)}
    assert reported == {("removed", CABLE), ("unseen", "leaf3--spine1")}
    assert set(fabric.map.lost) == {CABLE}


@pytest.mark.parametrize("lost", [False, True])
def test_departures_are_forgotten_some_time_after_the_last_unless_the_cable_is_lost(
    lost: bool,
) -> None:
    fabric = known(3)
    left = some(fabric, takes(fabric, CABLE), 0.5)
    fabric.dead = {CABLE}
    trace(fabric, left if lost else left[: ENOUGH - 1])
    departures = fabric.map._departures
    fabric.wait(S)
    assert (("removed", CABLE) in fabric.wait(LEFT_NS - 3 * S)) is lost
    assert CABLE in departures._left_cables
    assert fabric.wait(2 * S) == []
    assert (CABLE in departures._left_cables) is lost
