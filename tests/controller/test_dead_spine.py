"""A spine dies without losing a packet: one page, soon, by the right name, on random fabrics; and
what only looks like it pages for no switch."""

from __future__ import annotations

import random

import pytest
from tests.cases import mostly_slow
from tests.controller.judged import Control
from tests.controller.probed import Probed
from tests.controller.traced import World

from syntony.fabric.names import OR
from syntony.model import S

KNOWN_S = 45
"""All paths are learnt, and the first look at the fabric is over."""
SOON_NS = 10 * S


def world(control: Control, case: int, leaves: int = 0) -> World:
    seed = case if case < 2 else random.randrange(100_000)
    made = World(control, seed, leaves)
    print(f"seed {seed}: {made.shape}")
    made.run(KNOWN_S)
    assert control.pages() == []
    return made


@pytest.mark.parametrize("case", mostly_slow(range(6), {0, 2}))
def test_a_dead_spine_is_one_page_within_seconds(control: Control, case: int) -> None:
    fabric = world(control, case)
    spine = fabric.rng.choice(fabric.spines)
    fabric.dead, died_ns = {spine}, fabric.now_ns
    fabric.run(40)
    assert control.pages() == [f"switch-down {spine}"]
    assert fabric.paged_ns[0] - died_ns <= SOON_NS
    print(f"told after {(fabric.paged_ns[0] - died_ns) / S:.1f} s")
    fabric.dead = set()
    fabric.run(60)
    assert control.pages() == [f"switch-down {spine}"]
    assert control.live() == {}


@pytest.mark.parametrize("case", mostly_slow(range(4), {1, 3}))
def test_packets_lost_as_it_dies_and_answers_lost_at_all_times_make_it_no_second_page(
    control: Control, case: int
) -> None:
    """Paths that were being asked for as it died are learnt later, one half from before."""
    fabric = world(control, case)
    spine = fabric.rng.choice(fabric.spines)
    fabric.lost, died_ns = 0.05 * case, fabric.now_ns
    fabric.black = {spine}
    fabric.run(2)
    fabric.dead, fabric.black = {spine}, set()
    fabric.run(60)
    assert control.pages() == [f"switch-down {spine}"]
    assert fabric.paged_ns[0] - died_ns <= 2 * SOON_NS
    print(f"told after {(fabric.paged_ns[0] - died_ns) / S:.1f} s")


@pytest.mark.parametrize("case", mostly_slow(range(3), {0, 1}))
def test_a_fifth_of_all_answers_lost_and_hosts_short_of_processor_time(
    control: Control, case: int
) -> None:
    """Ways that come to be known late, one now and then, do not put off what is known of others."""
    seed = (3, 14)[case] if case < 2 else random.randrange(100_000)
    print(f"seed {seed}")
    fabric = World(control, seed)
    fabric.lost, fabric.stalls = 0.2, bool(case)
    fabric.run(60)
    assert control.pages() == []
    spine = fabric.rng.choice(fabric.spines)
    fabric.dead, died_ns = {spine}, fabric.now_ns
    fabric.run(60)
    assert control.pages() == [f"switch-down {spine}"]
    took_ns = fabric.paged_ns[0] - died_ns
    print(f"told after {took_ns / S:.1f} s")
    assert took_ns <= (3 * SOON_NS if case == 2 else SOON_NS)


@pytest.mark.parametrize("case", mostly_slow(range(2), {0}))
def test_a_spine_that_dies_before_the_first_look_is_over(control: Control, case: int) -> None:
    fabric = World(control, case)
    fabric.run(15)
    assert fabric.service.status is None
    spine = fabric.rng.choice(fabric.spines)
    fabric.dead = {spine}
    fabric.run(12)
    assert control.pages() == [f"switch-down {spine}"]
    fabric.dead = set()
    fabric.run(120)
    assert control.pages() == [f"switch-down {spine}"]
    assert control.live() == {}


@pytest.mark.parametrize("case", mostly_slow(range(3), {2}))
def test_on_two_leaves_a_spine_and_its_cables_are_told_as_twins(
    control: Control, case: int
) -> None:
    fabric = world(control, case, leaves=2)
    spine = fabric.rng.choice(fabric.spines)
    twins = [f"leaf0--{spine}", f"leaf1--{spine}", spine]
    fabric.dead, died_ns = {fabric.rng.choice(twins)}, fabric.now_ns
    fabric.run(40)
    assert control.pages() == [f"switch-down {OR.join(twins)}"]
    assert fabric.paged_ns[0] - died_ns <= SOON_NS
    fabric.run(60)
    assert len(control.pages()) == 1


def test_so_are_they_beside_a_silent_spine_that_takes_some_of_the_paths(control: Control) -> None:
    """These seem to cross the dead spine still."""
    fabric = World(control, 2, 2, spines=3, hosts=6)
    fabric.silent = {"spine0"}
    fabric.run(KNOWN_S)
    fabric.dead = {"spine1"}
    fabric.run(40)
    assert control.pages() == [
        f"switch-down {OR.join(('leaf0--spine1', 'leaf1--spine1', 'spine1'))}"
    ]


@pytest.mark.parametrize("case", mostly_slow(range(3), {2}))
def test_a_cable_that_is_pulled_is_no_switch(control: Control, case: int) -> None:
    fabric = world(control, case)
    spine = fabric.rng.choice(fabric.spines)
    fabric.dead = {f"leaf{fabric.rng.randrange(fabric.leaves)}--{spine}"}
    fabric.run(120)
    assert not [page for page in control.pages() if page.startswith("switch-down")]


@pytest.mark.parametrize("case", mostly_slow(range(3), {2}))
def test_ways_dealt_out_anew_are_no_dead_switch(control: Control, case: int) -> None:
    fabric = world(control, case)
    for salt in range(1, 4):
        fabric.salt = salt
        fabric.run(30)
    assert control.pages() == []


@pytest.mark.parametrize("case", mostly_slow(range(3), {2}))
def test_a_spine_that_answers_no_more_is_not_dead(control: Control, case: int) -> None:
    fabric = world(control, case)
    fabric.silent = {fabric.rng.choice(fabric.spines)}
    fabric.run(60)
    fabric.salt = 1
    fabric.run(60)
    assert control.pages() == []


@pytest.mark.parametrize("case", mostly_slow(range(3), {0}))
def test_the_only_spine_that_answers_is_down_if_it_lost_packets_as_it_fell_silent(
    control: Control, case: int
) -> None:
    seed = case if case < 1 else random.randrange(100_000)
    fabric = Probed(control, seed)
    print(f"seed {seed}: {fabric.shape}")
    spine = fabric.rng.choice(fabric.spines)
    fabric.silent = {*fabric.spines} - {spine}
    fabric.run(KNOWN_S)
    fabric.black, died_ns = {spine}, fabric.now_ns
    fabric.run(1)
    fabric.dead, fabric.black = {spine}, set()
    fabric.run(40)
    assert control.pages() == [f"switch-down {spine}"]
    assert fabric.paged_ns[0] - died_ns <= 2 * SOON_NS
    fabric.dead = set()
    fabric.run(90)
    assert control.pages() == [f"switch-down {spine}"]
    assert control.live() == {}


@pytest.mark.parametrize("case", mostly_slow(range(3), {0}))
def test_a_spine_that_only_ceases_to_answer_or_only_loses_packets_for_a_second_is_up(
    control: Control, case: int
) -> None:
    seed = case if case < 1 else random.randrange(100_000)
    fabric = Probed(control, seed)
    print(f"seed {seed}: {fabric.shape}")
    spine, other = fabric.rng.sample(fabric.spines, 2)
    fabric.silent = {*fabric.spines} - {spine, other}
    fabric.run(KNOWN_S)
    fabric.black = {spine}
    fabric.run(1)
    fabric.black = set()
    fabric.silent = fabric.silent | {other}
    fabric.run(40)
    assert control.pages() == []
