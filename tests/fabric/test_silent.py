"""The death of a switch that never answers, from the paths that took it."""

from __future__ import annotations

import itertools

from syntony.fabric.book import Way
from syntony.fabric.departures import ENOUGH
from syntony.fabric.fault_locator import reply
from syntony.fabric.names import MAX_AROUND, silent_at
from syntony.fabric.silent import STEADY_NS, SilentSwitches
from syntony.model import S

LEAVES, PORTS = 3, 8
T0 = 1_000 * S
DIED_NS = T0 + STEADY_NS + 20 * S
Devices = tuple[str | None, ...]


class Fabric:
    """A host at each leaf; half of all flows go over a spine that never answers."""

    def __init__(self, leaves: int = LEAVES, ports: int = PORTS) -> None:
        self.map = SilentSwitches()
        self.ways = [
            Way(f"h{a}/rail0", f"h{b}/rail0", 61_000 + port, 8620)
            for a, b in itertools.permutations(range(leaves), 2)
            for port in range(ports)
        ]
        self.over = [way for way in self.ways if way.sport % 2]
        for at_ns in range(T0, DIED_NS, 10 * S):
            for way in self.ways:
                self.learn(way, "spine0" if way not in self.over else None, at_ns)

    def learn(self, way: Way, spine: str | None, at_ns: int) -> None:
        near, far = (f"leaf{nic[1 : nic.index('/')]}" for nic in way[:2])
        self.map.take(way, (way.src, near, spine, far), at_ns)

    def leave(self, ways: list[Way], spine: str = "spine0", at_ns: int = DIED_NS + S) -> None:
        for way in ways:
            self.learn(way, spine, at_ns)
        self.map.settle()

    def down(self) -> list[tuple[str, ...]]:
        return list(self.map.down)


ALL = ("leaf0", "leaf1", "leaf2")


def test_paths_that_leave_for_another_switch_show_its_death_until_one_takes_it_again() -> None:
    fabric = Fabric()
    fabric.map.settle()
    assert fabric.down() == []
    fabric.leave(fabric.over)
    assert fabric.down() == [ALL]
    assert fabric.map.down[ALL].since_ns == DIED_NS + S
    later = SilentSwitches(fabric.map.down.values())
    assert list(later.down) == [ALL], "over a restart"
    fabric.map = later
    fabric.learn(fabric.over[0], None, DIED_NS)
    assert fabric.down() == [ALL], "that was before its death"
    fabric.learn(fabric.over[0], None, DIED_NS + 30 * S)
    assert fabric.down() == []


def test_a_sample_of_all_pairs_is_enough() -> None:
    """The others have not been traced again."""
    fabric = Fabric(ports=2 * PORTS)
    fabric.leave([way for way in fabric.over if way.sport % 4 == 1])
    assert fabric.down() == [ALL]


def test_one_path_that_is_traced_across_it_since_shows_that_it_is_there() -> None:
    fabric = Fabric()
    fabric.leave(fabric.over[1:])
    fabric.map.down.clear()
    fabric.learn(fabric.over[0], None, DIED_NS + 2 * S)
    fabric.map.settle()
    assert fabric.down() == []


def test_paths_of_one_cable_are_not_its_death() -> None:
    fabric = Fabric(ports=4 * PORTS)
    fabric.leave([way for way in fabric.over if "h0/rail0" in way[:2]])
    assert fabric.down() == []


def test_on_two_leaves_either_cable_may_be_the_cause() -> None:
    fabric = Fabric(2, 4 * PORTS)
    fabric.leave(fabric.over)
    assert fabric.map.down["leaf0", "leaf1"].cables_of == ("leaf0", "leaf1")


def test_a_switch_that_begins_to_answer_is_not_down() -> None:
    """Its address was never seen."""
    fabric = Fabric()
    fabric.leave(fabric.over, "spine1")
    assert fabric.down() == []


def test_few_paths_and_those_silent_for_a_moment_show_nothing() -> None:
    fabric = Fabric(2, 2 * PORTS)
    fabric.leave(fabric.over[: ENOUGH - 1])
    assert fabric.down() == []
    fabric = Fabric()
    for way in fabric.ways:
        fabric.learn(way, "spine0", DIED_NS)
    fabric.map = SilentSwitches()
    for way in fabric.over:
        fabric.learn(way, None, DIED_NS + 10 * S)
    fabric.leave(fabric.over, at_ns=DIED_NS + 20 * S)
    assert fabric.down() == [], "answers were lost for a while"


def test_paths_that_are_no_longer_traced_have_not_left() -> None:
    fabric = Fabric()
    for way in fabric.over:
        fabric.map.take(way, (), DIED_NS + S)
    fabric.map.settle()
    assert fabric.down() == []


def test_parts_that_share_no_device_are_apart() -> None:
    fabric = Fabric()
    pods = [Way("h8/rail0", "h9/rail0", 61_000 + port, 8620) for port in range(32)]
    for at_ns in range(T0, DIED_NS, 10 * S):
        for way in pods:
            fabric.learn(way, None, at_ns)
    fabric.leave(fabric.over)
    assert fabric.down() == [ALL]


def test_switches_that_answer_with_an_address_of_each_port() -> None:
    """Without a topology each is a device: that of the last switch changes with the path."""
    found = SilentSwitches()
    flows = [Way("h0/rail0", "h1/rail0", 61_000 + port, 8620) for port in range(4 * PORTS)]
    for at_ns in (*range(T0, DIED_NS, 10 * S), DIED_NS + S):
        for way in (*flows, *map(reply, flows)):
            near, far = (f"leaf{nic[1]}" for nic in way[:2])
            silent = (way.sport + way.dport) % 2 and at_ns < DIED_NS
            spine, behind = (None, "spine1") if silent else (f"spine0 {near}", "spine0")
            found.take(way, (way.src, near, spine, f"{far} {behind}"), at_ns)
    found.settle()
    assert len(found.down) == 1


def test_a_name_lists_few_devices() -> None:
    assert silent_at(ALL) == "silent switch at leaf0, leaf1, leaf2"
    many = [f"leaf{k}" for k in range(MAX_AROUND + 5)]
    assert silent_at(many).endswith("leaf3, 5 more")
