"""Which addresses may be of one switch."""

from __future__ import annotations

import pytest

from syntony.fabric.aliases import KEPT, MANY, Aliases, joined
from syntony.fabric.book import Way
from syntony.fabric.changes import LOOK_NS, FabricMap
from syntony.model import S

OLD, NEW = ("h0/r", "l0", "a", "l1"), ("h0/r", "l0", "b", "l1")
TURNED, DIED = 10, 20
"""When paths turn, and when the newest was found to have left."""


def turned(*turns: tuple[str, str], ways: int = MANY, at: int = TURNED) -> Aliases:
    found = Aliases()
    for number in range(ways):
        for left, joins in turns:
            old, new = (("h0/r", "l0", hop, "l1") for hop in (left, joins))
            found.turned((number, left), old, new, at)
    return found


@pytest.mark.parametrize("device", ["a", "b"])
def test_addresses_that_paths_turn_between_are_one_switch_if_they_die_together(device: str) -> None:
    (other,) = {"a", "b"} - {device}
    answered = {"a": DIED - 1, "b": DIED - 1}
    assert turned(("a", "b")).of(device, DIED, answered) == {other}
    assert turned(("a", "b")).of(device, DIED, answered | {other: DIED}) == frozenset()


def test_of_several_addresses_each_turns_to_some() -> None:
    answered = dict.fromkeys("abc", DIED - 1)
    found = turned(("a", "b"), ("c", "b"))
    assert found.of("a", DIED, answered) == {"b", "c"}
    assert found.of("c", DIED, answered) == {"a", "b"}


def test_switches_among_which_one_lives_are_several() -> None:
    """Paths were distributed anew over all of them, and two died."""
    found = turned(("a", "b"), ("b", "c"))
    assert found.of("a", DIED, {"a": DIED - 1, "b": DIED - 1, "c": DIED + 1}) == frozenset()


def test_a_switch_that_dies_is_not_one_with_what_takes_its_paths() -> None:
    """It answers no more: its paths had to go there."""
    found = turned(("a", "b"))
    assert found.of("a", DIED, {"a": TURNED, "b": TURNED}) == frozenset()
    assert found.of("a", DIED, {"a": TURNED + 1, "b": TURNED}) == {"b"}


def test_few_turns_are_an_accident() -> None:
    answered = {"a": DIED - 1, "b": DIED - 1}
    assert turned(("a", "b"), ways=MANY - 1).of("a", DIED, answered) == frozenset()
    found = Aliases()
    for _ in range(MANY):
        found.turned("always the same", OLD, NEW, TURNED)
    assert found.of("a", DIED, answered) == frozenset()


@pytest.mark.parametrize(
    "new",
    [
        ("h0/r", "l0", "b", "l2"), ("h0/r", "l0", "b"), ("h0/r", "l0", None, "l1"), OLD,
        ("h0/r", "l2", "b", "l1"),
    ],
)  # fmt: skip
def test_turns_of_more_than_one_hop_show_nothing(new: tuple[str | None, ...]) -> None:
    found = Aliases()
    for number in range(MANY):
        found.turned(number, OLD, new, TURNED)
    assert not found._turns


def test_turns_are_kept_up_to_a_number_the_newest() -> None:
    found = turned(("a", "b"), ways=KEPT + 5)
    (turns,) = found._turns.values()
    assert len(turns) == KEPT
    assert (KEPT + 4, "a") in turns


def test_names_that_mean_one_switch_are_one() -> None:
    down = {"a": ("b", "a--l0"), "c": (), "b": ("b--l0",), "d": ("d--l1",)}
    assert sorted(joined(down)) == [("a", "a--l0", "b", "b--l0"), ("c",), ("d", "d--l1")]
    assert len(joined({"l0": ("l0--s",), "s": ("l0--s",)})) == 2, "a cable is none"


HALF, OTHER, REST = range(24), range(24, 48), range(48, 96)
"""Paths by one address, by the other, and by another switch."""


class Turning:
    """Paths by one switch turn between its two addresses, or those of two switches."""

    def __init__(self, *named: str) -> None:
        self.map, self.now_ns = FabricMap(named=named), S
        self.take("a", HALF)
        self.take("b", OTHER)
        self.take("c", REST)
        self.settle(LOOK_NS)
        for one, other in (("b", "a"), ("a", "b"), ("a", "b")):
            self.now_ns += 5 * S
            self.take(one, HALF)
            self.take(other, OTHER)
            self.settle()

    def take(self, address: str, ways: range) -> None:
        for n in ways:
            way = Way(f"h{n % 4}/r", f"g{n % 4}/r", n, 1)
            self.map.take(
                way, (way.src, f"l{n % 4}", address, f"m{n // 4 % 4}"), self.now_ns, self.now_ns
            )

    def settle(self, after_ns: int = 0) -> list[tuple[str, ...]]:
        """What is down, under all its names."""
        self.now_ns += after_ns
        self.map.settle(self.now_ns)
        return sorted(joined(self.map.down))


@pytest.mark.parametrize("named", [(), ("a",), ("a", "b", "c")])
@pytest.mark.parametrize("both_die", [True, False])
def test_a_switch_of_two_addresses_is_down_as_one(both_die: bool, named: tuple[str, ...]) -> None:
    """Two that the topology names are two."""
    paths = Turning(*named)
    paths.now_ns += 5 * S
    paths.take("c", HALF)
    paths.take("c" if both_die else "b", OTHER)
    one = [("a", "b")] if len(named) < 2 else [("a",), ("b",)]
    assert paths.settle() == (one if both_die else [("a",)])


def test_switches_that_die_one_after_the_other_are_several() -> None:
    """Paths had turned between them while both were up."""
    paths = Turning()
    paths.now_ns += 5 * S
    paths.take("c", HALF)
    for _ in range(3):
        paths.now_ns += 60 * S
        paths.take("b", OTHER)
        assert paths.settle() == [("a",)]
    paths.now_ns += 5 * S
    paths.take("c", OTHER)
    assert paths.settle() == [("a",), ("b",)]
