"""Faults that end: named while they last, and by no longer window's memory of them afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.cases import mostly_slow
from tests.fabric.test_fault_locator import PER_SECOND, PORTS, Fabric

from syntony.fabric import history
from syntony.fabric.book import PathBook, reply
from syntony.fabric.candidates import Listing
from syntony.fabric.endings import Ending, Endings
from syntony.fabric.fault_locator import OBSERVATIONS
from syntony.fabric.history import FlowHistory, SecondCounts
from syntony.fabric.locate import WindowCounts, search
from syntony.fabric.numbering import make_candidates

FLOWS = 3
UNKNOWN = np.full((2, FLOWS), np.nan)


def never(_paths: NDArray[np.bool_], _others: NDArray[np.bool_]) -> None:
    """As `Endings.take` asks, where all paths are known."""


@pytest.mark.parametrize(
    ("hurt", "share", "seconds"),
    [
        (("spine0->leaf1",), 0.05, 10),
        (("h3/rail0->leaf1",), 0.05, 8),
        (("h3/rail0",), 0.3, 3),
    ],
)
def test_a_fault_that_is_over_does_not_come_back(
    hurt: tuple[str, ...], share: float, seconds: int
) -> None:
    """Windows of 10, 30 and 60 s go on over its last second long after it."""
    fabric = Fabric()
    for _ in range(20):
        fabric.second()
    for _ in range(seconds):
        fabric.second(dict.fromkeys(hurt, share))
        fabric.named()
    assert fabric.named()
    for _ in range(8):
        fabric.second()
        fabric.named()
    for after in range(25):
        fabric.second()
        assert fabric.named() == [], f"{after + 9} s after the end"


@pytest.mark.slow
def test_a_fault_that_goes_on_is_not_forgotten() -> None:
    fabric = Fabric()
    for _ in range(20):
        fabric.second()
    for _ in range(10):
        fabric.second({"spine0->leaf1": 0.02})
        fabric.named()
    reported = 0
    for _ in range(30):
        fabric.second({"spine0->leaf1": 0.02})
        reported += fabric.named() == ["spine0->leaf1"]
    assert reported >= 28, f"{reported} of 30 s"


def muted(seed: int) -> Fabric:
    """A fabric of which spine1 answers no path learner."""
    fabric = Fabric(seed)
    truth, fabric.watch.book = fabric.book, PathBook()
    for flow in fabric.flows:
        for way in (flow, reply(flow)):
            switches = [each for each in truth.components(way) if each.isalnum()]
            hops = ["*" if each == "spine1" else each for each in switches]
            fabric.watch.book.learn(way, hops)
    return fabric


CABLE = ("leaf0->spine1", "spine1->leaf0")
DEAD = ("h4/rail0",)


@pytest.mark.parametrize(
    "faults",
    mostly_slow(
        [(hurt, dead) for hurt in (CABLE, CABLE[:1]) for dead in (DEAD, ())], [(CABLE, DEAD)]
    ),
)
def test_a_fault_on_paths_that_are_partly_learnt_is_over_as_soon(
    faults: tuple[tuple[str, ...], tuple[str, ...]],
) -> None:
    """Even while another fault on some of them goes on."""
    hurt, dead = faults
    fabric = muted(3)
    for _ in range(10):
        fabric.second(dict.fromkeys(dead, 1.0))
    for _ in range(5):
        fabric.second(dict.fromkeys(hurt, 0.2) | dict.fromkeys(dead, 1.0))
        fabric.named()
    assert any(name.startswith("leaf0..") for name in fabric.named())
    named = []
    for _ in range(14):
        fabric.second(dict.fromkeys(dead, 1.0))
        named += [name for name in fabric.named() if ".." in name]
    assert len(named) <= 8, f"{len(named)} s: {set(named)}"
    assert [*dead] == fabric.named()


def test_suspects_that_no_window_tells_apart_are_named_by_the_newest_seconds() -> None:
    """One NIC of a host, and a spine that does not answer: the host is as likely."""
    fabric = muted(5)
    for _ in range(12):
        fabric.second()
    for _ in range(6):
        fabric.second({"h1/rail0": 0.05})
        (found,) = fabric.watch.findings()
        assert {found.component, *found.alternatives} >= {"h1/rail0", "h1"}
    assert (found.window, round(found.loss, 2)) == ("1s", 0.05)


def test_the_end_of_one_fault_gives_a_group_no_second_name() -> None:
    fabric = muted(5)
    for _ in range(20):
        fabric.second()
    for after in range(20):
        fabric.second({"leaf0->spine1": 0.2} | ({"leaf3->h6/rail0": 0.3} if after < 5 else {}))
        assert after < 6 or fabric.named() == ["leaf0..*"], after


@pytest.mark.parametrize("share", mostly_slow([0.02, 0.2], always=[0.02]))
def test_a_fault_on_paths_that_are_partly_learnt_goes_on(share: float) -> None:
    fabric = muted(4)
    for _ in range(20):
        fabric.second()
    for _ in range(15):
        fabric.second({"leaf0->spine1": share})
        fabric.named()
    reported = 0
    for _ in range(20):
        fabric.second({"leaf0->spine1": share})
        reported += fabric.named() == ["leaf0..*"]
    assert reported >= 18, f"{reported} of 20 s"


def test_a_fault_that_eases_is_told_at_its_new_size() -> None:
    fabric = Fabric()
    for share in (0.5,) * 4 + (0.02,) * 15:
        fabric.second({"spine0->leaf1": share})
        fabric.named()
    (found,) = fabric.watch.findings()
    assert found.component == "spine0->leaf1"
    assert 0.01 < found.loss < 0.04


def test_an_end_takes_no_other_faults_evidence() -> None:
    """A weaker fault on other pairs is found as if nothing had been."""
    fabric = Fabric()
    for second in range(30):
        hurt = {"leaf3->h6/rail0": 0.008}
        fabric.second(hurt | ({"h1/rail0": 0.5} if second < 5 else {}))
        fabric.named()
    assert fabric.named() == ["leaf3->h6/rail0"]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 80), st.integers(1, 60), st.lists(st.booleans(), min_size=FLOWS, max_size=FLOWS),
    st.integers(0, 20),
)  # fmt: skip
def test_forgetting_is_as_if_nothing_had_been_counted(
    total: int, keep_s: int, which: list[bool], more: int
) -> None:
    flows = np.array(which)
    forgetful, ignorant = FlowHistory(), FlowHistory()
    for second in range(total + more):
        if second == total:
            forgetful.forget(flows, keep_s)
        counts = np.full((history.FIELDS, FLOWS), PER_SECOND + second, dtype=np.int64)
        known = counts.copy()
        if second < total - keep_s:
            known[:, flows] = 0
        for each, reported in ((forgetful, counts), (ignorant, known)):
            each.add(SecondCounts(reported, UNKNOWN, UNKNOWN, np.zeros(FLOWS)))
    if not more:
        forgetful.forget(flows, keep_s)
    for one, other in zip(forgetful.windows(FLOWS), ignorant.windows(FLOWS), strict=True):
        assert np.array_equal(one.counts, other.counts), one.name


@pytest.mark.parametrize("total", [20, 24, 29])
def test_what_is_kept_when_something_is_forgotten_leaves_the_longest_window_in_its_turn(
    total: int,
) -> None:
    """Each second is of the ten that it was counted in, not of those that run."""
    forgetful, ignorant = FlowHistory(), FlowHistory()
    flows = np.array([True, False, True])
    for second in range(total + 320):
        if second == total:
            forgetful.forget(flows, 15)
        counts = np.full((history.FIELDS, FLOWS), 1 + second, dtype=np.int64)
        known = counts.copy()
        if second < total - 15:
            known[:, flows] = 0
        for each, reported in ((forgetful, counts), (ignorant, known)):
            each.add(SecondCounts(reported, UNKNOWN, UNKNOWN, np.zeros(FLOWS)))
        if second > total + 260:
            one, other = (each.windows(FLOWS)[-1].counts for each in (forgetful, ignorant))
            assert np.array_equal(one, other), second


def test_a_fault_of_which_a_part_goes_on_is_not_over() -> None:
    """What its paths have lost is evidence against that part still."""
    paths = [["in", "part", "whole"]] * 3 + [["on", "whole"]] * 9 + [["other"]] * 30
    candidates = make_candidates(Listing.of(paths))
    sent, nothing = np.full(42, 400), np.full(42, np.nan)
    endings = Endings()
    over = []
    for lossy in (12, 3, 0):
        lost = np.where(np.arange(42) < lossy, 20, 0)
        window = WindowCounts("1s", sent, lost, nothing, nothing, overlaps=True)
        found = search(candidates, [window])
        ended = endings.take(candidates, found.findings, found.searches, [1], never)
        over.append(sorted(int(each.paths.sum()) for each in ended))
    assert over == [[], [], [3, 12]]


def ended(*seconds: tuple[int, int]) -> list[list[int]]:
    """How many paths have ended after each second, of (probes lost by each of 9 paths over one
    component, probes sent by each); 30 other paths lose nothing."""
    paths = [["hit", "in"]] * 5 + [["hit", "out"]] * 4 + [["other"]] * 30
    candidates, endings = make_candidates(Listing.of(paths)), Endings()
    nothing = np.full(39, np.nan)
    over = []
    for each, probes in seconds:
        lost = np.where(np.arange(39) < 9, each, 0)
        sent = np.full(39, probes)
        found = search(
            candidates, [WindowCounts("1s", sent, lost, nothing, nothing, overlaps=True)]
        )
        gone = endings.take(candidates, found.findings, found.searches, [1], never)
        over.append([int(ending.paths.sum()) for ending in gone])
    return over


def test_newer_seconds_are_held_against_a_fault_as_it_was_when_it_was_plainest() -> None:
    # 180 probes arrive: too many for a loss of a tenth, too few to speak against one of 0.5 %.
    assert ended((2, 400), (0, 20)) == [[], []]
    assert ended((40, 400), (0, 20)) == [[], [9]]
    assert ended((40, 400), (2, 400), (0, 20)) == [[], [], [9]]


def test_what_has_ended_ends_once() -> None:
    assert ended((40, 400), (0, 400), (0, 400)) == [[], [9], []]


def test_of_a_fault_that_is_over_all_flows_of_the_pairs_that_crossed_it_are_forgotten() -> None:
    """Whichever of their ways it was on: requests heard are counted by pairs."""
    fabric = Fabric()
    fabric.second()
    flows = len(fabric.flows)
    for observation in range(OBSERVATIONS):
        crossed = np.zeros((OBSERVATIONS, flows), dtype=bool)
        crossed[observation, 3] = True
        chosen = fabric.watch._of_pairs(Ending(crossed.ravel(), 1))
        pairs = {
            (flow.src, flow.dst) for flow, own in zip(fabric.flows, chosen, strict=True) if own
        }
        assert pairs == {(fabric.flows[3].src, fabric.flows[3].dst)}
        assert chosen.sum() == PORTS


def test_of_a_cable_that_is_named_both_directions_are_over() -> None:
    """One of two parallel cables lost everything for a second; the next is free of losses."""
    paths = [["leaf0", "leaf0->spine0", "spine0"]] * 10
    paths += [["spine0", "spine0->leaf0", "leaf0"]] * 10
    paths += [[f"leaf{k}", f"leaf{k}->spine1", "spine1"] for k in range(9)] * 9
    paths += [[f"leaf{k}", f"leaf{k}->spine0", "spine0"] for k in range(1, 9)] * 9
    candidates = make_candidates(Listing.of(paths))
    sent = np.full(len(paths), 40)
    lost = np.array([40] * 7 + [0] * 3 + [40] * 3 + [0] * (len(paths) - 13))
    before = search(candidates, [WindowCounts("1s", sent, lost, overlaps=True)])
    (found,) = before.findings
    assert (found.component, found.kind) == ("leaf0--spine0", "cable")
    endings = Endings()
    assert endings.take(candidates, before.findings, before.searches, [1], never) == []
    quiet = search(candidates, [WindowCounts("1s", sent, 0 * lost, overlaps=True)])
    (over,) = endings.take(candidates, (), quiet.searches, [1], never)
    assert over.paths.tolist() == [n < 20 for n in range(len(paths))]
