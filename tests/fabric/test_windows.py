"""Which window's word on a fault is taken, and what a fault is called."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from syntony.fabric.candidates import Candidates, Listing
from syntony.fabric.locate import WindowCounts, _consolidated, _Ranked, locate
from syntony.fabric.numbering import make_candidates
from syntony.model.findings import Finding

PATHS = [[f"h{k}/rail0", f"leaf{k // 4}", f"spine{k % 2}"] for k in range(16)]
"""Four NICs at each of four leaves; two spines."""
CANDIDATES = make_candidates(Listing.of(PATHS))


class Said(NamedTuple):
    name: str
    window: int
    nats: float
    sure: float = 0.99


def chosen(*said: Said, candidates: Candidates = CANDIDATES) -> list[tuple[str, int]]:
    nothing = Finding(component="", kind="", fault="loss", loss=0.0, delay_ns=0.0, window="",
                      explains=0.0, paths=0, confidence=0.0, alternatives=(), probabilities=(),
                      twins=0)  # fmt: skip
    ranked = [
        _Ranked(each.nats, each.sure, candidates.names.index(each.name), each.window, nothing)
        for each in said
    ]
    found = _consolidated(candidates, ranked)
    return [(candidates.names[each.candidate], each.window) for each in found]


@pytest.mark.parametrize(
    ("short", "long", "window"),
    [
        (Said("leaf1", 0, 41), Said("leaf1", 1, 400), 0),
        (Said("leaf1", 0, 39), Said("leaf1", 1, 400), 1),
        (Said("leaf1", 0, 400, 0.89), Said("leaf1", 1, 41, 0.91), 1),
        # No window tells the suspects apart, or the longer one does.
        (Said("leaf1", 0, 41, 0.73), Said("leaf1", 1, 400, 0.735), 0),
        (Said("leaf1", 0, 41, 0.73), Said("leaf1", 1, 400, 0.75), 1),
        (Said("leaf1", 0, 39, 0.73), Said("leaf1", 1, 400, 0.73), 1),
        (Said("leaf1", 0, 30), Said("leaf1", 1, 20), 0),
        (Said("leaf1", 0, 20), Said("leaf1", 1, 30), 1),
        (Said("leaf1", 0, 30, 0.5), Said("leaf1", 1, 20), 0),
    ],
)
def test_the_shortest_window_that_is_sure_is_taken_else_the_clearest(
    short: Said, long: Said, window: int
) -> None:
    assert chosen(short, long) == chosen(long, short) == [("leaf1", window)]


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        # Two windows: one fault where half of the smaller one's paths are the other's as well.
        (Said("leaf1", 0, 90), Said("h4/rail0", 1, 50), False),
        (Said("leaf1", 0, 90), Said("spine0", 1, 50), False),
        (Said("leaf1", 0, 90), Said("leaf2", 1, 50), True),
        (Said("leaf1", 0, 90), Said("h9/rail0", 1, 50), True),
        # One window: found beside each other.
        (Said("leaf1", 1, 90), Said("h4/rail0", 1, 50), True),
    ],
)
def test_two_windows_tell_of_one_fault_if_they_share_half_of_the_paths(
    first: Said, second: Said, both: bool
) -> None:
    names = [(first.name, first.window), (second.name, second.window)]
    assert chosen(first, second) == (names if both else names[:1])


def test_what_a_window_shows_beside_the_fault_of_a_shorter_one_is_another_fault() -> None:
    """Half of the paths of a cable at a spine cross another cable of it."""
    first, second = Said("leaf1", 0, 90), Said("spine0", 1, 50)
    assert chosen(first, second, Said("leaf1", 1, 400)) == [("leaf1", 0), ("spine0", 1)]
    nearer = Said("h4/rail0", 1, 70)
    assert chosen(first, second, nearer) == [("leaf1", 0), ("spine0", 1)], "h4 is leaf1 by a part"
    assert chosen(first, second, Said("leaf2", 1, 400)) == [("leaf1", 0), ("leaf2", 1)]


def test_a_part_beside_its_switch_is_another_fault_where_its_own_window_shows_the_switch() -> None:
    """All paths of a part cross the switch: no other is nearer to it than the switch itself."""
    switch, part = Said("leaf1", 0, 90), Said("h4/rail0", 1, 20)
    assert chosen(switch, part) == [("leaf1", 0)]
    assert chosen(switch, part, Said("leaf1", 1, 400)) == [("leaf1", 0), ("h4/rail0", 1)]


def test_a_fault_that_longer_windows_show_is_not_over_because_a_shorter_one_shows_it() -> None:
    """What is uncertain in one second is named from the three that are certain."""
    paths = [["leaf0", "spine0"]] * 10 + [["leaf0"]] + [[f"leaf{k}"] for k in range(1, 9)]
    candidates = make_candidates(Listing.of(paths))
    lost = np.array([20] * 10 + [0] * 9)
    one = WindowCounts("1s", np.array([1_000] * 10 + [0] + [1_000] * 8), lost, overlaps=True)
    three = WindowCounts("3s", np.full(19, 3_000), 3 * lost, overlaps=True)
    (uncertain,) = locate(candidates, [one])
    assert "leaf0" in {uncertain.component, *uncertain.alternatives}
    (found,) = locate(candidates, [one, three])
    assert found.window == "3s"
    assert "leaf0" not in {found.component, *found.alternatives}
    assert locate(candidates, [one._replace(lost=0 * lost), three]) == ()


def test_less_than_half_of_the_paths_is_another_fault() -> None:
    paths = [["a", "leaf0"]] * 2 + [["a", "leaf1"]] * 3 + [["b", "leaf1"]] * 9
    few = make_candidates(Listing.of(paths))
    reported = Said("leaf1", 0, 90), Said("a", 1, 50)
    assert chosen(*reported, candidates=few) == [("leaf1", 0)], "three of its five"
    paths = [["a", "leaf0"]] * 4 + paths
    more = make_candidates(Listing.of(paths))
    assert chosen(*reported, candidates=more) == [("leaf1", 0), ("a", 1)], "three of nine"


def window(share: float, bad: str, *, name: str = "10s", overlaps: bool = False) -> WindowCounts:
    sent = np.full(len(PATHS), 1_000)
    lost = np.array([int(1_000 * share) if bad in path else 0 for path in PATHS])
    nothing = np.full(len(PATHS), np.nan)
    return WindowCounts(name, sent, lost, nothing, nothing, overlaps)


@pytest.mark.parametrize(
    ("share", "fault"), [(0.5, "loss"), (0.85, "loss"), (0.95, "blackhole"), (1.0, "blackhole")]
)
def test_nearly_everything_lost_is_a_black_hole(share: float, fault: str) -> None:
    (found,) = locate(CANDIDATES, [window(share, "leaf2")])
    assert (found.component, found.fault, found.window) == ("leaf2", fault, "10s")
    assert found.loss == pytest.approx(share, abs=0.01)
    assert found.paths == 4
    assert found.explains == pytest.approx(4_000 * share, rel=0.01)


def test_newer_seconds_without_a_loss_end_a_fault_only_where_they_are_newer() -> None:
    """A later window that ends together with a quiet one tells of what is over."""
    quiet, lossy = window(0.0, "leaf2", name="3s", overlaps=True), window(0.3, "leaf2")
    assert locate(CANDIDATES, [quiet, lossy._replace(overlaps=True)]) == ()
    assert locate(CANDIDATES, [quiet._replace(overlaps=False), lossy])[0].component == "leaf2"


def test_what_a_black_hole_loses_costs_nothing_more_the_more_it_is() -> None:
    """A fleet's worth of probes, all of them lost, is explained whole."""
    paths = PATHS * 40
    sent = np.full(len(paths), 10**5)
    lost = np.array([10**5 if "leaf2" in path else 0 for path in paths])
    nothing = np.full(len(paths), np.nan)
    (found,) = locate(
        make_candidates(Listing.of(paths)), [WindowCounts("1s", sent, lost, nothing, nothing)]
    )
    assert (found.component, found.fault) == ("leaf2", "blackhole")
    assert 1 - found.loss < 1e-7
    assert found.confidence > 0.99
