"""A spine that answers no path trace dies and returns: one page, by the best name that there is."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.silent_switch import case
from tests.cases import mostly_slow
from tests.controller.judged import Control
from tests.controller.traced import World

from syntony.controller.fabric_changes import FabricChangeService
from syntony.fabric.book import SILENT, PathBook, Way
from syntony.fabric.graph import Cable, Device, make_topology
from syntony.fabric.learn import HopQuery
from syntony.fabric.names import OR, SILENT_AT
from syntony.model import S
from syntony.state import ControlState

LEAVES, SPINES = ("leaf0", "leaf1", "leaf2"), ("spine0", "spine1")
T0, STEP_NS, ROUNDS = 1_000 * S, 5 * S, 24
RIGHT_S = 60


@pytest.mark.parametrize("number", mostly_slow(range(4), {0}))
def test_a_silent_spine_dies_and_returns_as_one_page(control: Control, number: int) -> None:
    seed = 744_552 if number == 0 else random.randrange(100_000)
    print(f"seed {seed}")
    got = case(control, "map", seed)
    (page,) = control.pages()
    assert page.startswith(f"switch-down {SILENT_AT}leaf0, leaf1"), got
    assert control.live() == {}
    assert got.died_s is not None
    assert got.died_s <= 20
    assert max(got.stale_s) <= (10 if number == 0 else RIGHT_S), got


@pytest.mark.slow
@pytest.mark.parametrize("seed", [141_814, 895_117, 659_287, 914_583, 304_123])
def test_a_black_hole_there_soon_after_is_not_named_elsewhere(control: Control, seed: int) -> None:
    """… when paths are not known to have moved yet, too many are doubtful, or paths that lose
    packets are traced before others."""
    got = case(control, "hole", seed)
    assert (got.named, got.pages, got.found) == ("right", (), ()), got


def filtered(fabric: World, quiet: Callable[[str, HopQuery], bool]) -> None:
    """Its devices do not answer some."""
    answer = fabric.answer

    def filtering(ask: HopQuery) -> str:
        device = answer(ask)
        return "" if quiet(device, ask) else device

    fabric.answer = filtering  # type: ignore[method-assign]


@pytest.mark.parametrize("number", mostly_slow(range(3), {0}))
def test_a_spine_that_begins_to_answer_some_hosts_is_not_down(
    control: Control, number: int
) -> None:
    seed = 1 if number == 0 else random.randrange(100_000)
    print(f"seed {seed}")
    fabric = World(control, seed, 4)
    quiet = True
    filtered(fabric, lambda device, ask: (
        quiet and device == "spine1" and fabric.leaf[ask.flow.src] == "leaf2"
    ))  # fmt: skip
    fabric.run(200)
    quiet = False
    fabric.run(100)
    assert control.pages() == []


@pytest.mark.parametrize("number", mostly_slow(range(3), {0}))
def test_answers_that_were_limited_for_minutes_are_no_death(control: Control, number: int) -> None:
    seed = 1 if number == 0 else random.randrange(100_000)
    print(f"seed {seed}")
    fabric = World(control, seed, 4)
    fabric.lost = 0.7
    fabric.run(240)
    fabric.lost = 0.0
    fabric.run(60)
    assert control.pages() == []


@pytest.mark.parametrize("number", mostly_slow(range(3), {0}))
def test_a_death_lasts_while_a_third_of_all_answers_is_lost(control: Control, number: int) -> None:
    seed = 1 if number == 0 else random.randrange(100_000)
    print(f"seed {seed}")
    fabric = World(control, seed, 4)
    fabric.silent = {fabric.spines[0]}
    fabric.run(130)
    fabric.dead = {fabric.spines[0]}
    fabric.run(30)
    assert len(control.pages()) == 1
    fabric.lost = 0.3
    fabric.run(150)
    assert list(control.live().values()) == ["switch-down"]
    assert len(control.pages()) == 1


@pytest.mark.parametrize("number", mostly_slow(range(3), {0}))
def test_ways_dealt_out_anew_beside_a_silent_spine_are_no_death(
    control: Control, number: int
) -> None:
    seed = 1 if number == 0 else random.randrange(100_000)
    print(f"seed {seed}")
    fabric = World(control, seed, 4)
    fabric.silent = {fabric.spines[0]}
    fabric.run(150)
    fabric.salt = 1
    fabric.run(70)
    assert control.pages() == []


def told(service: FabricChangeService, book: PathBook, spine: str, leaves: int, at_ns: int) -> None:
    """Half of all flows go over `spine`, the others over spine 0."""
    for a in range(leaves):
        for b in range(leaves):
            for port in range(16) if a != b else ():
                way = Way(f"h{a}/rail0", f"h{b}/rail0", 61_000 + port, 8620)
                hops = [f"leaf{a}", spine if port % 2 else "spine0", f"leaf{b}"]
                if book.learn(way, hops, at_ns):
                    service.take(way, at_ns, at_ns)
                else:
                    service.confirm(way, hops, at_ns, at_ns)
    service.settle(at_ns)


@pytest.mark.parametrize(
    ("leaves", "also", "name"),
    [
        (3, (), "spine1"),
        (2, (), OR.join(("leaf0--spine1", "leaf1--spine1", "spine1"))),
        (3, ("spine2",), f"{SILENT_AT}leaf0, leaf1, leaf2"),
    ],
)
def test_a_topology_gives_it_its_name_if_no_other_switch_there_is_unseen(
    leaves: int, also: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    spines = (*SPINES, *also)
    cables = [Cable(a=leaf, b=spine) for leaf in LEAVES[:leaves] for spine in spines]
    devices = [Device(name=each, addresses=(each,)) for each in (*LEAVES[:leaves], *spines)]
    book = PathBook(make_topology(devices, cables))
    state = ControlState(tmp_path)
    service = FabricChangeService(book, state)
    for number in range(ROUNDS):
        told(service, book, SILENT, leaves, T0 + number * STEP_NS)
    assert service.status is None or service.status.gone == {}
    died_ns = T0 + ROUNDS * STEP_NS
    for number in range(3):
        told(service, book, "spine0", leaves, died_ns + number * STEP_NS)
    assert service.status is not None
    assert {*service.status.gone} == {name}
    service = FabricChangeService(book, state)
    assert service.status is not None
    assert {*service.status.gone} == {name}, "over a restart"
    for number in range(3, 20):
        told(service, book, SILENT, leaves, died_ns + number * STEP_NS)
    assert service.status.gone == {}
