"""The learnt fabric's changes: what is reported, what is not, and what a restart remembers."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.fabric.aliases import ROUND_NS
from syntony.fabric.book import Way
from syntony.fabric.changes import (
    HOLD_NS,
    LOOK_NS,
    LOST_NS,
    MAX_REPORTED,
    MOVED_NS,
    QUIET_NS,
    FabricMap,
    MapState,
)
from syntony.fabric.departures import RECENT_NS
from syntony.model import S

HOSTS, LEAVES, SPINES, PORTS = 8, 4, 2, 8
SOON_NS = HOLD_NS + S


class Fabric:
    """Hosts on leaves and spines; every flow's way by a hash that a test can bend."""

    def __init__(self, state: MapState | None = None, *, at_ns: int = 1_000 * S) -> None:
        self.map = FabricMap(state)
        self.now_ns = at_ns
        self.dead: set[str] = set()
        self.home = {f"h{k}/rail0": f"leaf{k * LEAVES // HOSTS}" for k in range(HOSTS)}
        self.salt = 0
        self.ways = [
            Way(a, b, 61_000 + port, 8620)
            for a in self.home
            for b in self.home
            if a != b
            for port in range(PORTS)
        ]

    def heard(self, way: Way) -> tuple[str, ...]:
        near, far = self.home[way.src], self.home[way.dst]
        if near == far:
            return (way.src, near)
        able = [
            f"spine{k}"
            for k in range(SPINES)
            if not {f"{near}--spine{k}", f"{far}--spine{k}"} & self.dead
        ]
        draw = random.Random(f"{way}{self.salt}")
        return (way.src, near, draw.choice(able), far)

    def learn(self) -> None:
        for way in self.ways:
            self.map.take(way, self.heard(way), self.now_ns)

    def wait(self, ns: int) -> list[tuple[str, str]]:
        self.now_ns += ns
        return [(each.change, each.name) for each in self.map.settle(self.now_ns)]

    def look(self) -> None:
        self.learn()
        assert self.wait(LOOK_NS) == []


def test_a_map_that_was_told_nothing_tells_nothing() -> None:
    assert Fabric().map.settle(10**18) == []


def test_the_first_look_is_no_news() -> None:
    fabric = Fabric()
    fabric.look()
    assert len(fabric.map.cables) == HOSTS + LEAVES * SPINES
    assert fabric.map.homes() == fabric.home
    assert fabric.wait(SOON_NS) == []


def test_the_first_look_ends_when_nothing_new_comes_or_at_the_latest_then() -> None:
    fabric = Fabric()
    fabric.learn()
    looking = []
    for ns in (QUIET_NS - S, S):
        assert fabric.wait(ns) == []
        looking.append(fabric.map.looking)
    assert looking == [True, False]
    busy = Fabric()
    for way in itertools.islice(busy.ways, LOOK_NS // (10 * S)):
        assert busy.map.looking
        busy.map.take(way, busy.heard(way), busy.now_ns)
        busy.wait(10 * S)
    assert not busy.map.looking


@pytest.mark.parametrize(("share", "looking"), [(0.019, False), (0.03, True)])
def test_few_ways_that_come_to_be_known_late_do_not_keep_the_first_look(
    share: float, looking: bool
) -> None:
    fabric = Fabric()
    late = int(share * len(fabric.ways))
    fabric.ways, stragglers = fabric.ways[late:], fabric.ways[:late]
    fabric.learn()
    fabric.wait(QUIET_NS - S)
    for way in stragglers:
        fabric.map.take(way, fabric.heard(way), fabric.now_ns)
    fabric.wait(2 * S)
    assert fabric.map.looking is looking
    fabric.wait(QUIET_NS)
    assert not fabric.map.looking


def test_a_cable_that_every_way_left_is_lost_until_one_takes_it_again() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.dead = {"leaf0--spine1"}
    fabric.learn()
    assert fabric.wait(S) == [], "it may come back"
    assert fabric.wait(SOON_NS) == [("removed", "leaf0--spine1")]
    assert set(fabric.map.lost) == {"leaf0--spine1"}
    reported = fabric.wait(ROUND_NS)
    assert {change for change, _ in reported} == {"rerouted"}
    assert all("leaf0" in name for _, name in reported)
    fabric.dead = set()
    fabric.learn()
    assert ("added", "leaf0--spine1") in fabric.wait(SOON_NS)
    assert not fabric.map.lost


def test_a_cable_is_told_as_lost_after_eight_seconds() -> None:
    """Longer than routing takes to settle, shorter than a person waits."""
    fabric = Fabric()
    fabric.look()
    fabric.dead = {"leaf0--spine1"}
    fabric.learn()
    assert fabric.wait(8 * S - 1) == []
    assert fabric.wait(1) == [("removed", "leaf0--spine1")]


def test_what_was_lost_or_moved_is_remembered_for_its_time_and_no_longer() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.dead, fabric.home["h0/rail0"] = {"leaf1--spine1"}, "leaf3"
    fabric.learn()
    fabric.wait(SOON_NS)
    lost_ns, moved_ns = fabric.map.lost["leaf1--spine1"], fabric.map.moved["h0/rail0"].at_ns
    for reported, at_ns, length_ns in (("moved", moved_ns, MOVED_NS), ("lost", lost_ns, LOST_NS)):
        fabric.map.settle(at_ns + length_ns - 1)
        assert getattr(fabric.map, reported)
        fabric.map.settle(at_ns + length_ns)
        assert not getattr(fabric.map, reported)


@pytest.mark.parametrize("age_ns", [LOOK_NS + S, ROUND_NS])
def test_a_cable_that_only_paths_cross_that_are_not_traced_any_more_is_lost(age_ns: int) -> None:
    """A plan had more flows for a while."""
    fabric = Fabric()
    traced_ns: dict[Way, int] = {}
    fabric.map = FabricMap(None, lambda way: traced_ns[way])
    traced_ns = dict.fromkeys(fabric.ways, fabric.now_ns)
    fabric.look()
    fabric.now_ns += age_ns - LOOK_NS
    dropped = [way for way in fabric.ways if way.sport == 61_000]
    fabric.ways = [way for way in fabric.ways if way not in dropped]
    fabric.dead = {"leaf0--spine1"}
    traced_ns |= dict.fromkeys(fabric.ways, fabric.now_ns)
    fabric.learn()
    told = [change for _ in range(3) for change in fabric.wait(SOON_NS)]
    assert (("removed", "leaf0--spine1") in told) == (age_ns > LOOK_NS)
    assert not any(kind == "removed" and name != "leaf0--spine1" for kind, name in told)


def test_what_comes_back_at_once_is_not_told() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.dead = {"leaf0--spine1"}
    fabric.learn()
    assert fabric.wait(HOLD_NS // 2) == []
    fabric.dead = set()
    fabric.learn()
    assert fabric.wait(2 * ROUND_NS) == []


def test_a_nic_at_another_switch_has_moved_and_moves_back() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.home["h0/rail0"] = "leaf3"
    fabric.learn()
    assert fabric.wait(SOON_NS) == [("moved", "h0/rail0")]
    assert fabric.map.moved["h0/rail0"].before == "leaf0"
    assert fabric.map.homes()["h0/rail0"] == "leaf3"
    fabric.home["h0/rail0"] = "leaf0"
    fabric.learn()
    assert ("moved", "h0/rail0") in fabric.wait(SOON_NS)
    assert not fabric.map.moved


def test_a_nic_is_waited_for_while_its_old_paths_are_learnt_anew() -> None:
    """One flow a second: what is half learnt is no second cable of the NIC."""
    fabric = Fabric()
    fabric.look()
    fabric.home["h0/rail0"] = "leaf3"
    reported = []
    for way in [way for way in fabric.ways if way.src == "h0/rail0"][:56]:
        fabric.map.take(way, fabric.heard(way), fabric.now_ns)
        reported += fabric.wait(S)
    reported += fabric.wait(SOON_NS)
    assert reported == [("moved", "h0/rail0")]


def test_a_spine_that_dies_takes_its_cables_with_it() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.dead = {f"leaf{k}--spine1" for k in range(LEAVES)}
    fabric.learn()
    reported = fabric.wait(SOON_NS)
    assert set(reported) == {("removed", name) for name in {*fabric.dead, "spine1"}}


def test_a_spine_is_known_to_be_down_by_some_of_its_ways_and_over_a_restart() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.learn()
    fabric.dead = {f"leaf{k}--spine1" for k in range(LEAVES)}
    random.Random(1).shuffle(fabric.ways)
    crossing = [way for way in fabric.ways if "spine1" in fabric.map._ways[way]]
    for way in crossing[: len(crossing) // 2]:
        fabric.map.take(way, fabric.heard(way), fabric.now_ns + S)
    fabric.wait(S)
    assert fabric.map.down == {"spine1": ()}
    again = Fabric(msgspec.convert(msgspec.to_builtins(fabric.map.state()), MapState))
    assert again.map.down == {"spine1": ()}
    again.learn()
    again.wait(S)
    assert not again.map.down


def test_cables_that_all_ways_left_together_are_twins_until_one_is_back() -> None:
    fabric = Fabric()
    rail = {f"leaf{k}": k // 2 for k in range(LEAVES)}
    fabric.ways = [
        way for way in fabric.ways if rail[fabric.home[way.src]] == rail[fabric.home[way.dst]]
    ]
    fabric.look()
    for fabric.salt in range(1, 4):
        fabric.learn()
    fabric.dead = {"leaf0--spine1"}
    fabric.learn()
    both = ("leaf0--spine1", "leaf1--spine1")
    assert set(fabric.wait(SOON_NS)) == {("removed", cable) for cable in both}
    assert fabric.map.twins == {both[0]: both[1:], both[1]: both[:1]}
    assert not fabric.map.down
    assert FabricMap(fabric.map.state()).twins == fabric.map.twins
    fabric.dead = set()
    fabric.learn()
    fabric.wait(SOON_NS)
    assert not fabric.map.twins


def test_a_cable_is_lost_by_itself_where_others_are_crossed_or_left_by_other_ways() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.dead = {"leaf0--spine1"}
    fabric.learn()
    fabric.wait(SOON_NS)
    assert fabric.map.twins == {"leaf0--spine1": ()}


@pytest.mark.parametrize("number", [1, 9, 10])
def test_few_ways_that_left_a_spine_say_nothing_of_it(number: int) -> None:
    fabric = Fabric()
    fabric.look()
    fabric.learn()
    crossing = [way for way in fabric.ways if "spine1" in fabric.map._ways[way]]
    fabric.dead = {f"leaf{k}--spine1" for k in range(LEAVES)}
    for way in crossing[:number]:
        fabric.map.take(way, fabric.heard(way), fabric.now_ns + S)
    for way in crossing[number:]:
        fabric.map.take(way, (), fabric.now_ns + S)
    fabric.wait(S)
    assert bool(fabric.map.down) is (number == 10)


@pytest.mark.parametrize(("number", "reported"), [(9, "unseen"), (10, "removed")])
def test_a_cable_that_few_ways_left_for_others_is_unseen_and_not_lost(
    number: int, reported: str
) -> None:
    fabric = Fabric()
    fabric.look()
    cable = "leaf0--spine1"
    crossing = [
        way for way in fabric.ways if {"leaf0", "spine1"} <= set(fabric.map._ways[way] or ())
    ]
    fabric.dead = {cable}
    for place, way in enumerate(crossing):
        fabric.map.take(way, fabric.heard(way) if place < number else (), fabric.now_ns + S)
    assert (reported, cable) in fabric.wait(SOON_NS + S)
    assert (cable in fabric.map.lost) is (reported == "removed")


def test_ways_that_fell_silent_elsewhere_say_nothing_of_a_spine() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.learn()
    for way in fabric.ways:
        heard = fabric.heard(way)
        if "spine1" in heard:
            fabric.map.take(way, (*heard[:2], None, None, heard[-1]), fabric.now_ns + S)
    fabric.wait(S)
    assert not fabric.map.down


def test_a_spine_that_one_way_crosses_again_is_there() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.learn()
    crossing = [way for way in fabric.ways if "spine1" in fabric.map._ways[way]]
    late = fabric.heard(crossing[-1])
    fabric.dead = {f"leaf{k}--spine1" for k in range(LEAVES)}
    for way in crossing[:-1]:
        fabric.map.take(way, fabric.heard(way), fabric.now_ns + 2 * S, fabric.now_ns + S)
    fabric.map.confirm(late, fabric.now_ns + S - 1)
    fabric.wait(2 * S)
    assert set(fabric.map.down) == {"spine1"}, "asked for before the others left"
    fabric.map.confirm(late, fabric.now_ns)
    fabric.wait(S)
    assert not fabric.map.down


@pytest.mark.parametrize("began", [10, 11])
def test_a_way_that_was_under_way_as_a_spine_died_leaves_what_is_known_since(began: int) -> None:
    """Its first half is from before, and its last hop was lost and asked again."""
    fabric = Fabric()
    fabric.look()
    fabric.learn()
    crossing = [way for way in fabric.ways if "spine1" in fabric.map._ways[way]]
    late = fabric.heard(crossing[-1])
    fabric.dead = {f"leaf{k}--spine1" for k in range(LEAVES)}
    for number, way in enumerate(crossing[:20]):
        fabric.map.take(way, fabric.heard(way), fabric.now_ns + S, fabric.now_ns + number + 1)
    fabric.map.confirm(late, fabric.now_ns + began)
    for way in crossing[20:]:
        fabric.map.take(way, (), fabric.now_ns + S)
    fabric.wait(S)
    assert bool(fabric.map.down) is (began == 10), "ten ways left it after that"
    fabric.map.confirm(late, fabric.now_ns)
    fabric.wait(S)
    assert not fabric.map.down


def test_ways_that_had_left_before_another_crossed_are_told_too_late() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.learn()
    crossing = [way for way in fabric.ways if "spine1" in fabric.map._ways[way]]
    fabric.map.confirm(fabric.heard(crossing[-1]), fabric.now_ns + S)
    fabric.dead = {f"leaf{k}--spine1" for k in range(LEAVES)}
    for way in crossing:
        fabric.map.take(way, fabric.heard(way), fabric.now_ns + 2 * S, fabric.now_ns + S)
    fabric.wait(2 * S)
    assert not fabric.map.down


def test_a_way_known_in_part_at_first_has_left_once_it_is_known() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.learn()
    crossing = [way for way in fabric.ways if "spine1" in fabric.map._ways[way]]
    fabric.dead = {f"leaf{k}--spine1" for k in range(LEAVES)}
    for way in crossing:
        heard = fabric.heard(way)
        fabric.map.take(way, (*heard[:-1], None), fabric.now_ns + S)
    fabric.wait(S)
    assert not fabric.map.down
    for way in crossing:
        fabric.map.take(way, fabric.heard(way), fabric.now_ns + S)
    fabric.wait(S)
    assert set(fabric.map.down) == {"spine1"}


def test_a_way_known_in_part_left_when_it_was_known_last_not_when_it_is_again() -> None:
    """A switch that did not answer begins to: paths that moved there long ago have left others that
    were crossed since."""
    fabric = Fabric()
    fabric.look()
    fabric.learn()
    crossing = [way for way in fabric.ways if "spine1" in fabric.map._ways[way]]
    for way in crossing[:-1]:
        heard = fabric.heard(way)
        fabric.map.take(way, (*heard[:2], None, heard[-1]), fabric.now_ns + S)
    fabric.map.confirm(fabric.heard(crossing[-1]), fabric.now_ns + 2 * S)
    fabric.wait(RECENT_NS + 2 * S)
    for way in crossing[:-1]:
        heard = fabric.heard(way)
        fabric.map.take(way, (*heard[:2], "spine2", heard[-1]), fabric.now_ns)
    fabric.wait(S)
    assert not fabric.map.down
    fabric.map.confirm(fabric.heard(crossing[-1]), fabric.now_ns)
    fabric.wait(S)
    assert not fabric.map.abandoned


def test_what_nobody_asks_for_is_unseen_not_gone() -> None:
    fabric = Fabric()
    fabric.look()
    for way in fabric.ways:
        if "h0/rail0" in way[:2]:
            fabric.map.take(way, (), fabric.now_ns)
    found = fabric.map.settle(fabric.now_ns + SOON_NS)
    assert [(each.change, each.name, each.detail) for each in found] == [
        ("unseen", "h0/rail0--leaf0", ""),
        ("removed", "h0/rail0", "its last cable is gone"),
    ]
    assert not fabric.map.lost


def test_a_new_host_is_one_change() -> None:
    fabric = Fabric()
    fabric.look()
    way = Way("h9/rail0", "h0/rail0", 1, 2)
    fabric.map.take(way, ("h9/rail0", "leaf1", "spine0"), fabric.now_ns)
    assert fabric.wait(SOON_NS) == [("added", "h9/rail0")]


def test_ways_dealt_out_anew_are_one_change_for_two_switches() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.salt = 1
    fabric.learn()
    assert fabric.wait(SOON_NS) == []
    reported = fabric.wait(ROUND_NS)
    assert set(reported) == {
        ("rerouted", f"leaf{a}..leaf{b}") for a in range(LEAVES) for b in range(LEAVES) if a != b
    }


def test_a_restart_remembers_what_is_lost_and_sees_what_moved_meanwhile() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.dead = {"leaf0--spine1"}
    fabric.learn()
    fabric.wait(SOON_NS)
    again = Fabric(fabric.map.state(), at_ns=fabric.now_ns)
    again.dead = fabric.dead
    again.home["h7/rail0"] = "leaf1"
    again.learn()
    reported = again.wait(LOOK_NS)
    reported += again.wait(ROUND_NS)
    assert reported == [("moved", "h7/rail0")]
    assert set(again.map.lost) == {"leaf0--spine1"}


def test_memories_fade() -> None:
    state = MapState(cables=["a--b"], lost={"c--d": 0})
    fabric = Fabric(state, at_ns=LOST_NS)
    fabric.learn()
    fabric.wait(LOOK_NS)
    fabric.wait(MOVED_NS)
    assert not fabric.map.lost


def test_of_a_great_many_changes_only_the_number_is_told() -> None:
    fabric = Fabric()
    fabric.look()
    for number in range(3 * MAX_REPORTED):
        nic = f"n{number}/rail0"
        fabric.map.take(Way(nic, "h0/rail0", 1, 2), (nic, "leaf1"), fabric.now_ns)
    reported = fabric.wait(SOON_NS)
    assert len(reported) == MAX_REPORTED + 1
    assert reported[-1] == ("added", "*")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), st.booleans()), max_size=60))
def test_what_is_told_adds_up_to_what_is_there(steps: list[tuple[int, int, bool]]) -> None:
    """Whatever happens: after a while the map's cables are those that ways cross, each told."""
    fabric = FabricMap()
    fabric.take(Way("z/n", "y/n", 1, 1), ("z/n", "leaf0"), 0)
    fabric.settle(LOOK_NS)
    now_ns = LOOK_NS
    held: dict[Way, tuple[str, ...]] = {Way("z/n", "y/n", 1, 1): ("z/n", "leaf0")}
    for number, leaf, gone in steps:
        way = Way(f"h{number % 4}/n", "y/n", number, 1)
        heard = () if gone else (way.src, f"leaf{leaf}", f"spine{number % 2}")
        fabric.take(way, heard, now_ns)
        held[way] = heard
        now_ns += 3 * S
        fabric.settle(now_ns)
    for _ in range(3):
        now_ns += 2 * ROUND_NS
        fabric.settle(now_ns)
    pairs = (pair for heard in held.values() for pair in itertools.pairwise(heard))
    assert fabric.cables == {f"{min(a, b)}--{max(a, b)}" for a, b in pairs}
