"""Parts that return and two faults at once, on drawn fabrics: some cases of `bench.incidents`."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

import pytest
from bench.fault_pairs import LOSS, PAIRS, Fault, graded, pair
from bench.incidents import returns, touches
from tests.controller.judged import Control

from syntony.model import S

DRAWN = random.randrange(1_000_000)


@pytest.mark.parametrize(
    "kind",
    ["spine", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("cable", "leaf"))],
)
def test_in_the_minute_after_a_return_nothing_healthy_is_named(control: Control, kind: str) -> None:
    seed = 948_041 if kind == "spine" else DRAWN
    print(f"seed {seed}")
    got = returns(control, kind, seed)
    assert got.is_right, got


@pytest.mark.slow
def test_a_host_at_a_leaf_that_returned_is_not_named_while_paths_change(control: Control) -> None:
    """Of its flows those are known that have not been traced again, because they lose all."""
    got = returns(control, "leaf", 422_279)
    assert got.is_right, got


def test_the_leaf_of_a_lossy_uplink_is_not_named_when_a_spine_dies(control: Control) -> None:
    got = pair(control, "lossy link, dead spine", 923_964, seconds=25)
    assert (got.alone, got.among, got.wrong) == (2, 0, ()), got


@pytest.mark.slow
def test_two_lossy_uplinks_are_not_taken_for_their_leaf(control: Control) -> None:
    """The weaker one, 9 % in both directions, is called its cable or one direction in turn."""
    got = pair(control, "two lossy links at one switch", 240_705, seconds=15)
    assert (got.alone, got.among, got.wrong, got.twice) == (2, 0, (), ()), got


@pytest.mark.slow
def test_both_cables_of_a_spine_between_two_leaves_are_named_with_it(control: Control) -> None:
    got = pair(control, "two leaves: both cables of a spine", DRAWN, seconds=50)
    assert (got.among, got.missed, got.wrong) == (2, (), ()), got


def test_a_queue_at_one_of_two_links_behind_each_other_names_both(control: Control) -> None:
    got = pair(control, "dead leaf, congested uplink", 994_541, seconds=20)
    assert (got.alone, got.among, got.wrong) == (1, 1, ()), got


def test_flows_that_take_a_returned_cable_blame_no_other(control: Control) -> None:
    """A window that begins long before hides that some flows lose everything, others nothing."""
    got = returns(control, "cable", 18_200_003)
    assert got.is_right, got


@pytest.mark.slow
def test_a_link_is_named_beside_its_lossy_switch(control: Control) -> None:
    got = pair(control, "lossy switch, lossy link of it", 18_900_003, seconds=20)
    assert (got.alone + got.noted, got.wrong) == (2, ()), got


def test_hosts_of_a_leaf_that_stop_together_are_one_page(control: Control) -> None:
    got = pair(control, "hosts of a leaf stop", 31_000_101, seconds=30)
    assert (got.alone + got.among, got.wrong, got.twice) == (1, (), ()), got
    # The leaf answers path tracing: then or later the hosts are named alone.
    (page,) = control.pages()
    named = re.fullmatch(r"switch-or-hosts (hosts at (leaf\d))(?: or \2)?", page)
    assert named is not None, page
    assert named[1] in control.live()


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAIRS)
def test_of_two_faults_nothing_healthy_pages(control: Control, kind: str) -> None:
    print(f"seed {DRAWN}")
    got = pair(control, kind, DRAWN)
    assert got.wrong == (), got
    assert got.alone + got.among, got


# --- the grading itself ---

FAULTS = [
    Fault("leaf0->spine0", LOSS, frozenset({"leaf0--spine0"})),
    Fault("spine1", frozenset({"switch-down"})),
]


class Counts(NamedTuple):
    alone: int
    among: int
    missed: int
    wrong: int
    twice: int


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        ([], Counts(0, 0, 2, 0, 0)),
        (["link-loss leaf0->spine0", "switch-down spine1"], Counts(2, 0, 0, 0, 0)),
        (["link-loss leaf0--spine0"], Counts(1, 0, 1, 0, 0)),
        (["ambiguous-loss leaf0->spine0 or leaf1"], Counts(0, 1, 1, 0, 0)),
        (["ambiguous-loss leaf0..*"], Counts(0, 1, 1, 0, 0)),
        (["switch-loss leaf0"], Counts(0, 0, 2, 1, 0)),
        (["switch-down leaf0->spine0"], Counts(0, 0, 2, 1, 0)),
        (["link-loss leaf0->spine0", "link-loss leaf0--spine0"], Counts(1, 0, 1, 0, 1)),
        (["host-silent h1"], Counts(0, 0, 2, 0, 0)),
        (["host-silent h2"], Counts(0, 0, 2, 1, 0)),
    ],
)
def test_pages_are_graded_by_name_and_rule(pages: list[str], expected: Counts) -> None:
    reported = [
        (rule, subject, 3 * S) for rule, _, subject in (page.partition(" ") for page in pages)
    ]
    got = graded(FAULTS, reported, S, "", paused={"h1"})
    counts = Counts(got.alone, got.among, len(got.missed), len(got.wrong), len(got.twice))
    assert counts == expected
    assert got.seconds == (2.0,) * (counts.alone + counts.among)


@pytest.mark.parametrize(
    ("named", "noted", "wrong"),
    [
        ("leaf0->spine0", 1, ()),
        ("leaf1->spine0", 0, ("evidence leaf1->spine0",)),
        ("leaf0->spine0 or spine0->leaf1", 1, ()),
    ],
)
def test_parts_in_the_evidence_are_noted_or_wrong(
    named: str, noted: int, wrong: tuple[str, ...]
) -> None:
    evidence = [f"{named} loses another 5% of what crosses it"]
    got = graded(FAULTS, [("switch-down", "spine1", 3 * S)], S, "", evidence=evidence)
    assert (got.noted, got.wrong, len(got.missed)) == (noted, wrong, 1 - noted)


@pytest.mark.parametrize(
    ("name", "part", "at_it"),
    [
        ("spine0", "spine0", True),
        ("leaf0->spine0", "spine0", True),
        ("leaf0--spine0", "spine0", True),
        ("leaf0->spine1", "spine0", False),
        ("leaf0", "spine0", False),
        ("spine0->leaf0", "leaf0--spine0", True),
        ("leaf0->spine1", "leaf0--spine0", False),
        ("leaf0", "leaf0--spine0", False),
        ("leaf0..*", "leaf0", True),
    ],
)
def test_what_is_at_a_part_that_returned(name: str, part: str, at_it: bool) -> None:
    assert touches(name, part) is at_it
