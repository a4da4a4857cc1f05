"""Which hops of known paths are doubtful beside a switch that never answers."""

from __future__ import annotations

import random

import pytest

from syntony.fabric.book import SILENT, PathBook, Way
from syntony.fabric.doubts import KEPT_NS, MANY, NEARBY_NS, SURE_NS
from syntony.fabric.names import GROUP
from syntony.model import S

OVER_SILENT = [Way("h0/rail0", "h1/rail0", 62_000 + k, 8620) for k in range(MANY)]
WAY, BESIDE, THIRD = (Way("h0/rail0", "h1/rail0", 61_000 + k, 8620) for k in range(3))
KNOWN, QUIET, OTHER = (["leaf0", hop, "leaf1"] for hop in ("spine0", SILENT, "spine1"))
T0 = 1_000 * S


def book(silent: int = MANY) -> PathBook:
    """Three paths across a spine that answers, and some across one that does not."""
    made = PathBook()
    for way in OVER_SILENT[:silent]:
        assert made.learn(way, QUIET, T0 - SURE_NS)
        for ago_ns in (S, 0):
            made.learn(way, QUIET, T0 - ago_ns)
    for way in (WAY, BESIDE, THIRD):
        assert made.learn(way, KNOWN, T0)
    return made


def crosses(known: PathBook, way: Way) -> bool:
    """Whether a path is known to cross the spine; else it lists a group there."""
    components = known.components(way)
    assert ("spine0" in components) != (f"leaf0{GROUP}leaf1" in components)
    assert {"leaf0", "leaf1"} <= {*components}
    return "spine0" in components


@pytest.mark.parametrize("hops", [QUIET, ["leaf0"], ["leaf0", SILENT]])
def test_a_hop_that_answers_others_but_not_this_path_is_doubtful(hops: list[str]) -> None:
    """The path ends early if the switch that it moved to loses everything."""
    known = book()
    version = known.version
    assert not known.learn(WAY, hops, T0 + 5 * S)
    assert crosses(known, WAY), "the spine has answered nobody since"
    known.learn(BESIDE, KNOWN, T0 + 6 * S)
    assert not crosses(known, WAY)
    assert known.links(WAY) == ()
    assert crosses(known, BESIDE)
    assert known.version > version
    version = known.version
    known.learn(WAY, KNOWN, T0 + 9 * S)
    assert crosses(known, WAY)
    assert known.version > version


def test_a_hop_that_answers_nobody_is_doubtful_when_packets_pass_it_twice() -> None:
    known = book()
    for second, doubtful in ((5, False), (9, True)):
        known.learn(WAY, QUIET, T0 + second * S)
        assert crosses(known, WAY) is not doubtful
    for second in (5, 9, 14):
        known.learn(BESIDE, ["leaf0"], T0 + second * S)
    assert crosses(known, BESIDE), "nothing passes: the spine itself may be dead"


def test_without_a_switch_that_never_answers_nothing_is_doubtful() -> None:
    known = book(MANY - 1)
    for second in (5, 9):
        known.learn(WAY, QUIET, T0 + second * S)
        known.learn(BESIDE, KNOWN, T0 + (second + 1) * S)
    assert crosses(known, WAY)


def test_it_is_remembered_while_no_path_takes_it() -> None:
    known = book()
    for way in OVER_SILENT:
        known.learn(way, OTHER, T0 + 100 * S)
    known.learn(WAY, QUIET, T0 + 200 * S)
    known.learn(BESIDE, KNOWN, T0 + 201 * S)
    assert not crosses(known, WAY)


def test_paths_that_crossed_what_another_has_left_are_doubtful_for_a_while() -> None:
    known = book()
    assert known.learn(WAY, OTHER, T0 + 60 * S)
    assert not crosses(known, BESIDE)
    assert not crosses(known, THIRD)
    known.learn(BESIDE, KNOWN, T0 + 61 * S)
    assert not crosses(known, BESIDE), "paths that lose packets are traced first"
    version = known.version
    known.learn(BESIDE, KNOWN, T0 + 60 * S + NEARBY_NS)
    assert crosses(known, BESIDE)
    assert crosses(known, THIRD), "its agent would have found it elsewhere"
    assert known.version > version


def test_it_is_forgotten_some_time_after_the_last_path_left_it() -> None:
    known = book()
    for way in OVER_SILENT:
        known.learn(way, OTHER, T0 + 1)
    known.learn(WAY, KNOWN, T0 + KEPT_NS - S)
    version = known.version
    assert known.doubts.rival("leaf0")
    known.learn(WAY, KNOWN, T0 + KEPT_NS + SURE_NS)
    assert known.doubts.rival("leaf0") == ""
    assert known.version > version


@pytest.mark.parametrize(
    "traces",
    [
        {0: QUIET, 60: KNOWN},
        {0: QUIET, 61: QUIET},
        {0: QUIET, 30: QUIET, 59: QUIET},
        {0: QUIET, 30: KNOWN, 45: QUIET, 75: QUIET, 105: QUIET},
        {0: QUIET, 30: ["leaf0"], 60: ["leaf0", SILENT], 90: [SILENT, SILENT, "leaf1"]},
    ],
)
def test_silence_is_no_switch_unless_the_same_paths_have_it_all_the_time(
    traces: dict[int, list[str]],
) -> None:
    known = book(0)
    for second, hops in traces.items():
        for way in OVER_SILENT:
            known.learn(way, hops, T0 + second * S)
    assert not known.doubts.possible
    assert known.doubts.rival("leaf0->spine0") == ""


@pytest.mark.parametrize("seed", range(3))
def test_lost_answers_change_nothing_where_every_switch_answers(seed: int) -> None:
    """Two in a hundred traces of each path, every minute, miss a spine's answer."""
    print(f"seed {seed}")
    rng, known = random.Random(seed), PathBook()
    leaves = [(a, b) for a in range(8) for b in range(8) if a != b]
    ways = {
        Way(f"h{a}/rail0", f"h{b}/rail0", 61_000 + k, 8620): (a, rng.randrange(4), b)
        for a, b in leaves for k in range(8)
    }  # fmt: skip
    versions = []
    for minute in range(10):
        for number, (way, (a, spine, b)) in enumerate(rng.sample([*ways.items()], len(ways))):
            hop = SILENT if rng.random() < 0.02 else f"spine{spine}"
            at_ns = T0 + 60 * S * minute + number * 100_000_000
            known.learn(way, [f"leaf{a}", hop, f"leaf{b}"], at_ns)
        versions.append(known.version)
    assert len({*versions[4:]}) == 1, versions
    assert not known.doubts.possible


@pytest.mark.parametrize(
    ("component", "rival"),
    [
        ("leaf0->spine0", "leaf0..*"),
        ("leaf1--spine0", "leaf1..*"),
        ("leaf0", "leaf0..*"),
        ("spine0", "*..*"),
        ("leaf2->spine0", ""),
        ("leaf0..leaf1", ""),
        ("h1/rail0->leaf1", ""),
        ("h1/rail0--leaf1", ""),
        ("h1/rail0", ""),
        ("h1", ""),
        ("hosts at leaf0", ""),
    ],
)
def test_where_flows_of_a_component_may_be_instead(component: str, rival: str) -> None:
    assert book().doubts.rival(component) == rival
    assert book(0).doubts.rival(component) == ""


def test_what_is_no_longer_traced_leaves_nothing_behind() -> None:
    known = book()
    known.learn(WAY, QUIET, T0 + 5 * S)
    known.forget(T0 + 100 * S, lambda _: False)
    assert known.learn(WAY, KNOWN, T0 + 200 * S)
    known.learn(BESIDE, KNOWN, T0 + 201 * S)
    assert crosses(known, WAY)
