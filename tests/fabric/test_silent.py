"""The death of a switch that never answers, from the paths that took it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable

import pytest

from syntony.fabric.book import Way, reply
from syntony.fabric.departures import ENOUGH, FEW
from syntony.fabric.names import MAX_AROUND, silent_at
from syntony.fabric.silence import MEMORY_NS, ROUNDS_NS
from syntony.fabric.silent import DROP_NS, HOLD_NS, KNOWN_NS, STEADY_NS, SilentSwitches
from syntony.model import S

PORTS = 8
T0, STEP_NS = 1_000 * S, 10 * S
DIED_NS = T0 + STEADY_NS + 2 * STEP_NS
LAST_NS = DIED_NS - STEP_NS
"""When all paths were traced last before."""
LATER_NS = DIED_NS + HOLD_NS
ALL = ("leaf0", "leaf1", "leaf2")
Spine = Callable[[Way], str | None]


def usual(way: Way) -> str | None:
    """Half of all flows go over a spine that never answers, the others over two that do."""
    return None if way.sport % 2 else f"spine{way.sport // 2 % 2}"


def other(way: Way) -> str:
    """Where they go instead."""
    return f"spine{way.sport // 4 % 2}"


class Fabric:
    """A host at each leaf; all flows are traced every ten seconds until one spine dies."""

    def __init__(
        self, leaves: int = 3, ports: int = PORTS, spine: Spine = usual, until_ns: int = DIED_NS
    ) -> None:
        self.map = SilentSwitches()
        self.known: dict[Way, str | None] = {}
        self.ways = [
            Way(f"h{a}/rail0", f"h{b}/rail0", 61_000 + port, 8620)
            for a, b in itertools.permutations(range(leaves), 2)
            for port in range(ports)
        ]
        self.over = [way for way in self.ways if usual(way) is None]
        self.run(spine, T0, until_ns)

    def run(self, spine: Spine, from_ns: int, until_ns: int) -> None:
        for at_ns in range(from_ns, until_ns, STEP_NS):
            self.trace(self.ways, spine, at_ns)

    def trace(self, ways: Iterable[Way], spine: Spine, at_ns: int, known: bool = True) -> None:
        """
        Args:
            known: paths become known as traced; else a hop that does not answer may have before.
        """
        for way in ways:
            near, far = (f"leaf{nic[1 : nic.index('/')]}" for nic in way[:2])
            now = spine(way)
            same = self.known.get(way, "") == now or not known
            (self.map.confirm if same else self.map.take)(way, (way.src, near, now, far), at_ns)
            if known:
                self.known[way] = now
        self.map.settle()

    def leave(self, ways: list[Way], spine: Spine = other, at_ns: int = DIED_NS) -> None:
        """These go elsewhere, all others are traced as before."""
        gone = {*ways}
        self.trace([way for way in self.ways if self.known[way]], self.known.__getitem__, at_ns)
        self.trace((way for way in self.ways if way in gone), spine, at_ns)
        self.hold(at_ns)

    def hold(self, at_ns: int = DIED_NS) -> None:
        """Answered paths are traced once more."""
        answered = [way for way in self.ways if self.known[way]]
        self.trace(answered, self.known.__getitem__, at_ns + HOLD_NS)

    def down(self) -> list[tuple[str, ...]]:
        return list(self.map.down)


@pytest.fixture
def dead() -> Fabric:
    """Its silent spine died, and all paths are traced elsewhere."""
    fabric = Fabric()
    fabric.leave(fabric.over)
    assert fabric.down() == [ALL]
    return fabric


def test_paths_that_leave_for_other_switches_show_its_death(dead: Fabric) -> None:
    assert dead.map.down[ALL].since_ns == DIED_NS
    assert list(SilentSwitches(dead.map.down.values()).down) == [ALL], "over a restart"


def test_nearly_all_of_its_paths_are_enough() -> None:
    """The others have not been traced again. If many are still silent, all paths may have been
    distributed anew."""
    fabric = Fabric(ports=2 * PORTS)
    late = len(fabric.over) // 8
    fabric.leave(fabric.over[late:])
    assert fabric.down() == []
    fabric.leave(fabric.over[1:late])
    assert fabric.down() == [ALL]


def test_paths_that_join_it_show_that_all_are_distributed_anew() -> None:
    fabric = Fabric()
    joining = [way for way in fabric.ways if usual(way)][:FEW]
    for way in fabric.over:
        fabric.trace([way], other, DIED_NS)
    fabric.trace(joining, lambda _: None, DIED_NS + S, known=False)
    fabric.trace([w for w in fabric.ways if w not in joining], fabric.known.__getitem__, LATER_NS)
    assert fabric.down() == []
    fabric.trace(joining, usual, LATER_NS + S)
    assert fabric.down() == [ALL]


def test_one_path_that_is_traced_across_it_since_shows_that_it_is_there() -> None:
    fabric = Fabric(ports=4 * PORTS)
    fabric.trace(fabric.over[-1:], usual, DIED_NS + S)
    fabric.leave(fabric.over[:-1])
    assert fabric.down() == []


def test_paths_of_one_cable_are_not_its_death() -> None:
    fabric = Fabric(ports=4 * PORTS)
    fabric.leave([way for way in fabric.over if "h0/rail0" in way[:2]])
    assert fabric.down() == []


def test_on_two_leaves_either_cable_may_be_the_cause() -> None:
    fabric = Fabric(2, 4 * PORTS)
    fabric.leave(fabric.over)
    assert fabric.map.down["leaf0", "leaf1"].cables_of == ("leaf0", "leaf1")


# --- what else may have been silent ---


def test_a_switch_that_begins_to_answer_is_not_down() -> None:
    """Its address was never seen, or not for a while."""
    fabric = Fabric()
    fabric.leave(fabric.over, lambda way: f"spine{2 + way.sport // 4 % 2}")
    assert fabric.down() == []
    fabric = Fabric(until_ns=LAST_NS - 3 * STEP_NS)
    answered = [way for way in fabric.ways if usual(way)]
    for at_ns in (LAST_NS - STEP_NS, LAST_NS):
        fabric.trace(fabric.over, usual, at_ns)
    fabric.trace(answered, usual, LAST_NS)
    fabric.leave(fabric.over)
    assert fabric.down() == []


def limited(quiet: Callable[[Way], bool]) -> Spine:
    """All switches answer, but two not to some."""
    return lambda way: None if quiet(way) else f"spine{way.sport // 2 % 3}"


def at_leaf2(way: Way) -> bool:
    return way.src == "h2/rail0" and way.sport // 2 % 3 < 2


def test_a_switch_that_answers_some_senders_again_is_not_down() -> None:
    fabric = Fabric(ports=4 * PORTS, spine=limited(at_leaf2))
    fabric.trace(fabric.ways, limited(lambda _: False), DIED_NS)
    fabric.hold()
    assert fabric.down() == []


def at_two_leaves(way: Way) -> bool:
    return way.src != "h0/rail0" and way.sport // 2 % 3 == 1


def test_nor_one_that_did_not_answer_them_and_loses_its_cables_to_them() -> None:
    """It answers others."""
    fabric = Fabric(ports=4 * PORTS, spine=limited(at_two_leaves))
    fabric.trace(
        fabric.ways, lambda way: limited(at_two_leaves)(way) or f"spine{way.sport // 6 % 2 * 2}",
        DIED_NS,
    )  # fmt: skip
    fabric.hold()
    assert fabric.down() == []


def beside_others(nics: Container[str], quiet: Container[int]) -> Fabric:
    """At each leaf is a NIC that is answered, and at some one that these spines do not answer."""
    fabric = Fabric(until_ns=T0)
    ways = [way for way in Fabric(ports=4 * PORTS, until_ns=T0).ways if way.src in nics]
    fabric.ways = [
        *ways,
        *(way._replace(src=way.src.replace("rail0", "rail1")) for way in fabric.ways),
    ]
    fabric.over = [way for way in ways if way.sport // 2 % 3 in quiet]
    fabric.run(limited({*fabric.over}.__contains__), T0, DIED_NS)
    return fabric


def test_nor_one_that_answers_other_nics_there() -> None:
    fabric = beside_others([f"h{n}/rail0" for n in range(3)], (1, 2))
    fabric.trace(fabric.ways, limited(lambda _: False), DIED_NS)
    fabric.hold()
    assert fabric.down() == []


def test_nor_one_that_did_not_answer_one_side_and_loses_its_cable() -> None:
    fabric = beside_others(["h1/rail0"], (1,))
    fabric.leave(fabric.over, lambda way: f"spine{way.sport // 6 % 2 * 2}")
    assert fabric.down() == []


def test_nor_one_that_answers_flows_the_other_way_only() -> None:
    fabric = Fabric()
    fabric.map = SilentSwitches()
    fabric.known = {}
    fabric.ways = [way for each in fabric.ways for way in (each, reply(each))]

    def no_servers(way: Way) -> str | None:
        return None if way.sport < way.dport else f"spine{way.sport % 2}"

    fabric.run(no_servers, T0, DIED_NS)
    fabric.trace(fabric.ways, lambda way: f"spine{(way.sport + way.dport) % 2}", DIED_NS)
    fabric.hold()
    assert fabric.down() == []


def test_nor_one_of_several_that_all_paths_turn_to() -> None:
    """Chance does not send all of them to one: it answers what it did not answer before."""
    fabric = Fabric()
    fabric.leave(fabric.over, lambda _: "spine1")
    assert fabric.down() == []


def test_nor_one_that_dies_with_all_its_answers() -> None:
    """Another switch there has not answered since: paths that it did not answer may leave it."""

    def three(way: Way) -> str | None:
        return None if way.sport % 2 else f"spine{way.sport // 2 % 3}"

    fabric = Fabric(spine=three)
    fabric.trace((way for way in fabric.ways if three(way) in {"spine1", "spine2"}), three, DIED_NS)
    fabric.trace(fabric.over, lambda way: f"spine{1 + way.sport // 4 % 2}", DIED_NS)
    up = [way for way in fabric.ways if fabric.known[way] != "spine0"]
    fabric.trace(up, fabric.known.__getitem__, LATER_NS)
    assert fabric.down() == []
    fabric.hold()
    assert fabric.down() == [ALL]


def test_where_answers_are_lost_nothing_is_down() -> None:
    fabric = Fabric()
    answered = [way for way in fabric.ways if usual(way)]
    fabric.trace(answered, lambda _: None, LAST_NS, known=False)
    fabric.leave(fabric.over)
    assert fabric.down() == []


def test_answers_were_lost_also_if_their_paths_go_elsewhere_now() -> None:
    fabric = Fabric()
    answered = [way for way in fabric.ways if usual(way)]
    fabric.trace(answered, lambda _: None, LAST_NS, known=False)
    fabric.trace(answered, other, DIED_NS)
    fabric.leave(fabric.over)
    assert fabric.down() == []


@pytest.mark.parametrize("lost", [1, 2])
def test_more_than_a_tenth_of_all_answers_lost_may_be_what_made_paths_silent(lost: int) -> None:
    """However many paths seem to have left."""

    def mostly(way: Way) -> str | None:
        return None if way.sport % 8 else f"spine{way.sport // 8 % 2}"

    fabric = Fabric(ports=8 * PORTS, spine=mostly)
    over = [way for way in fabric.ways if mostly(way) is None]
    answered = [way for way in fabric.ways if mostly(way)]
    for number in range(lost):
        fabric.trace(answered, lambda _: None, LAST_NS + number, known=False)
    assert lost * len(answered) < len(over)
    fabric.leave(over)
    assert fabric.down() == ([ALL] if lost == 1 else [])


def test_few_paths_and_those_silent_for_a_moment_show_nothing() -> None:
    fabric = Fabric(2, 2 * PORTS)
    fabric.leave(fabric.over[: ENOUGH - 1])
    assert fabric.down() == []
    fabric = Fabric(until_ns=T0 + KNOWN_NS)
    fabric.leave(fabric.over, at_ns=T0 + KNOWN_NS)
    assert fabric.down() == [], "the part"

    def late(way: Way) -> str | None:
        return usual(way) if way == few[0] else usual(way) or other(way)

    few = Fabric().over
    fabric = Fabric(spine=late, until_ns=LAST_NS)
    fabric.run(usual, LAST_NS, DIED_NS)
    fabric.leave(fabric.over)
    assert fabric.down() == [], "its paths"


@pytest.mark.parametrize("lost", [0, 3])
def test_one_that_has_not_been_known_for_long_is_down_if_hardly_any_answer_was_lost(
    lost: int,
) -> None:
    died_ns = T0 + KNOWN_NS + STEP_NS
    fabric = Fabric(until_ns=died_ns)
    answered = [way for way in fabric.ways if usual(way)]
    fabric.trace(answered[:lost], lambda _: None, died_ns - STEP_NS, known=False)
    fabric.leave(fabric.over, at_ns=died_ns)
    assert fabric.down() == ([] if lost else [ALL])


def test_paths_that_are_no_longer_traced_have_not_left() -> None:
    fabric = Fabric()
    for way in fabric.over:
        fabric.map.take(way, (), DIED_NS)
    fabric.map.settle()
    assert fabric.down() == []
    fabric = Fabric()
    left, later = fabric.over[: ENOUGH - 1], fabric.over[ENOUGH - 1 : 2 * ENOUGH - 2]
    fabric.leave(left)
    fabric.ways = [way for way in fabric.ways if way in later or usual(way)]
    for way in {*fabric.over} - {*later}:
        fabric.map.take(way, (), DIED_NS + S)
    fabric.leave(later, at_ns=DIED_NS + 2 * S)
    assert fabric.down() == []


def test_paths_that_are_not_traced_have_not_stayed_either() -> None:
    fabric = Fabric()
    gone = fabric.over[::3]
    fabric.ways = [way for way in fabric.ways if way not in gone]
    fabric.over = fabric.over[1::3] + fabric.over[2::3]
    died_ns = DIED_NS + MEMORY_NS + STEP_NS
    fabric.run(usual, DIED_NS, died_ns)
    fabric.leave(fabric.over, at_ns=died_ns)
    assert fabric.down() == [ALL]


def test_what_is_not_traced_for_long_is_forgotten() -> None:
    fabric = Fabric()
    fabric.leave(fabric.over[: ENOUGH - 1])
    for number in (1, 2):
        at_ns = DIED_NS + number * (MEMORY_NS + DROP_NS)
        fabric.trace(fabric.ways, lambda way: usual(way) or other(way), at_ns)
    assert fabric.down() == []
    kept = fabric.map._left, fabric.map._silent, fabric.map._hop
    assert kept == ({}, {}, {})


# --- its end ---


def test_it_is_back_once_several_paths_are_silent_there_in_two_rounds(dead: Fabric) -> None:
    back = dead.over[:FEW]
    dead.trace(back, usual, DIED_NS + 20 * S)
    dead.trace(back, usual, DIED_NS + 19 * S + ROUNDS_NS)
    assert dead.down() == [ALL]
    dead.trace(back[1:], usual, DIED_NS + 20 * S + ROUNDS_NS)
    assert dead.down() == [ALL]
    dead.trace(back, usual, DIED_NS + 21 * S + ROUNDS_NS)
    assert dead.down() == []


def test_it_is_back_over_devices_that_had_no_path_across_it(dead: Fabric) -> None:
    new = [Way("h0/rail0", "h9/rail0", 61_000 + port, 8620) for port in range(FEW)]
    for at_ns in (DIED_NS + 20 * S, DIED_NS + 20 * S + ROUNDS_NS):
        dead.trace(new, lambda _: None, at_ns)
    assert dead.down() == []


def test_paths_that_lose_an_answer_before_they_are_traced_elsewhere_are_not_its_return() -> None:
    fabric = Fabric(ports=4 * PORTS)
    left, late = fabric.over[FEW:], fabric.over[:FEW]
    fabric.leave(left)
    assert fabric.down() == [ALL]
    fabric.trace(late, usual, DIED_NS + S)
    fabric.trace(late, other, DIED_NS + 30 * S)
    fabric.trace(late, usual, DIED_NS + 2 * S + ROUNDS_NS)
    assert fabric.down() == [ALL]


def test_it_is_not_back_while_as_many_answers_are_lost(dead: Fabric) -> None:
    for at_ns in (DIED_NS + 20 * S, DIED_NS + 20 * S + ROUNDS_NS):
        dead.trace(dead.over[FEW:], lambda _: None, at_ns - 2 * S, known=False)
        dead.trace(dead.over[FEW:], other, at_ns - S)
        dead.trace(dead.over[:FEW], usual, at_ns)
    assert dead.down() == [ALL]


# --- what is one part ---


def test_paths_that_are_found_to_have_left_later_are_of_the_same_death() -> None:
    """… when the part seems smaller, as other pairs have been forgotten."""
    fabric = Fabric(4, ports=8 * PORTS)
    late = [way for way in fabric.over if "h3/rail0" not in way[:2] and way.sport % 32 in {9, 13}]
    fabric.leave([way for way in fabric.over if way not in late])
    assert fabric.down() == [(*ALL, "leaf3")]
    others = [way for way in fabric.ways if way not in late]
    for at_ns in range(DIED_NS, DIED_NS + MEMORY_NS + 3 * DROP_NS, STEP_NS):
        fabric.trace(others, lambda way: usual(way) or other(way), at_ns)
    fabric.leave(late, at_ns=DIED_NS + MEMORY_NS + 3 * DROP_NS)
    assert fabric.down() == [(*ALL, "leaf3")]


def test_parts_that_share_no_device_are_apart() -> None:
    fabric = Fabric()
    pods = [Way("h8/rail0", "h9/rail0", 61_000 + port, 8620) for port in range(32)]
    for at_ns in (*range(T0, DIED_NS, STEP_NS), DIED_NS + S, LATER_NS):
        fabric.trace(pods, lambda _: None, at_ns)
    fabric.leave(fabric.over)
    assert fabric.down() == [ALL]


def test_switches_that_answer_with_an_address_of_each_port() -> None:
    """Without a topology each is a device: that of the last switch changes with the path."""
    found = SilentSwitches()
    flows = [Way("h0/rail0", "h1/rail0", 61_000 + port, 8620) for port in range(4 * PORTS)]
    known = dict[Way, tuple[str | None, ...]]()
    for at_ns in (*range(T0, DIED_NS, STEP_NS), DIED_NS, LATER_NS):
        for way in (*flows, *map(reply, flows)):
            near, far = (f"leaf{nic[1]}" for nic in way[:2])
            silent = (way.sport + way.dport) % 2 and at_ns < DIED_NS
            spine, behind = (None, "spine1") if silent else (f"spine0 {near}", "spine0")
            hops = (way.src, near, spine, f"{far} {behind}")
            (found.confirm if known.get(way) == hops else found.take)(way, hops, at_ns)
            known[way] = hops
    found.settle()
    assert len(found.down) == 1


def test_a_name_lists_few_devices() -> None:
    assert silent_at(ALL) == "silent switch at leaf0, leaf1, leaf2"
    many = [f"leaf{k}" for k in range(MAX_AROUND + 5)]
    assert silent_at(many).endswith("leaf3, 5 more")
