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


@pytest.mark.parametrize("both_die", [True, False])
def test_a_switch_of_two_addresses_is_down_as_one(both_die: bool) -> None:
    fabric, now_ns = FabricMap(), S

    def take(address: str, ways: range) -> None:
        for n in ways:
            way = Way(f"h{n % 4}/r", f"g{n % 4}/r", n, 1)
            fabric.take(way, (way.src, f"l{n % 4}", address, f"m{n // 4 % 4}"), now_ns)

    half, other = range(24), range(24, 48)
    take("a", half)
    take("b", other)
    take("c", range(48, 96))
    now_ns += LOOK_NS
    fabric.settle(now_ns)
    for a, b in (("b", "a"), ("a", "b"), ("a", "b")):
        now_ns += 5 * S
        take(a, half)
        take(b, other)
        fabric.settle(now_ns)
    now_ns += 5 * S
    take("c", half)
    take("c" if both_die else "b", other)
    fabric.settle(now_ns)
    if both_die:
        assert [*joined(fabric.down)] == [("a", "b")]
    else:
        assert fabric.down == {"a": ()}
