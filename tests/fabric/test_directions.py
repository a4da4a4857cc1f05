"""One direction of a cable or both, by how many paths across either suffer."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.fabric.candidates import Listing
from syntony.fabric.delay_search import DelayFinding
from syntony.fabric.directions import AffectedPaths, CableDirections, odds_of_both
from syntony.fabric.locate import _widened
from syntony.fabric.numbering import make_candidates
from syntony.fabric.tally import Floats, Index

UP, DOWN, BOTH, OTHER, ELSEWHERE = range(5)
CABLE = CableDirections(DOWN, BOTH)


def amiss(
    *, up: int, down: int, well_up: int, well_down: int, around: int = 0, plain: bool = True
) -> AffectedPaths:
    """Paths that suffer by what they cross, as many that do not; 1,000 paths elsewhere are well.

    Args:
        around: paths that cross both directions and suffer.
    """
    paths = [(UP, BOTH)] * up + [(DOWN, BOTH)] * down + [(UP, DOWN, BOTH)] * around
    crossings = np.array([(*path, -1)[:3] for path in paths], dtype=np.int32).reshape(-1, 3)
    counts = {UP: well_up, DOWN: well_down, BOTH: well_up + well_down}

    def well(candidates: Index) -> Floats:
        return np.array([counts[each] for each in candidates.tolist()], dtype=np.float64)

    return AffectedPaths(crossings, 1_000 + len(paths) + well_up + well_down, well, plain)


@pytest.mark.parametrize(
    ("up", "down", "both"),
    [
        # Of ten paths each: how many suffer.
        (7, 3, True), (5, 5, True), (5, 2, True), (10, 10, True),
        (10, 0, False), (5, 0, False), (10, 1, False),
    ],
)  # fmt: skip
def test_what_suffers_in_the_other_direction_decides(up: int, down: int, both: bool) -> None:
    seen = amiss(up=up, down=down, well_up=10 - up, well_down=10 - down)
    assert (odds_of_both(seen, UP, CABLE, {UP}) > 0) is both


def test_what_something_else_explains_says_nothing_of_the_other_direction() -> None:
    seen = amiss(up=5, down=5, well_up=5, well_down=5)
    crossings = seen.crossings.copy()
    crossings[5:, 2] = OTHER
    assert odds_of_both(seen._replace(crossings=crossings), UP, CABLE, {UP}) > 3
    assert odds_of_both(seen._replace(crossings=crossings), UP, CABLE, {UP, OTHER}) < -2


def test_paths_across_both_directions_say_nothing() -> None:
    alone = amiss(up=5, down=0, well_up=5, well_down=5)
    around = amiss(up=5, down=0, well_up=5, well_down=5, around=40)
    expected = odds_of_both(alone, UP, CABLE, {UP})
    assert odds_of_both(around, UP, CABLE, {UP}) == pytest.approx(expected, abs=0.01)


def test_one_of_parallel_cables_may_suffer_though_nothing_shows_in_its_other_direction() -> None:
    def odds(up: int, well_up: int, well_down: int, *, plain: bool = True) -> float:
        seen = amiss(up=up, down=0, well_up=well_up, well_down=well_down, plain=plain)
        return odds_of_both(seen, UP, CABLE, {UP})

    assert -3 < odds(5, 5, 4) < 0
    assert odds(5, 5, 40) < -9
    # Every path across the link suffers, so it has no parallel; of a single one that is not known.
    assert odds(5, 0, 4) == -np.inf
    assert -3 < odds(1, 0, 2) < 0
    # Of a weak loss that spares some paths by chance nothing follows.
    assert odds(5, 5, 4, plain=False) == odds(1, 0, 2, plain=False) == -np.inf


def test_where_paths_suffer_everywhere_a_few_of_the_other_direction_are_no_news() -> None:
    seen = amiss(up=9, down=2, well_up=1, well_down=8)
    crossings = np.vstack((seen.crossings, np.full((250, 3), ELSEWHERE, dtype=np.int32)))
    assert odds_of_both(seen._replace(crossings=crossings), UP, CABLE, {UP}) < 0


def test_a_cable_is_named_in_the_place_of_its_direction_if_that_is_likelier() -> None:
    ways = [["leaf0", f"spine{k}", f"leaf{n}"] for k in range(2) for n in (1, 2)]
    paths = [["h0/rail0", *way, f"h{way[-1][-1]}/rail0"] for way in ways]
    candidates = make_candidates(Listing.of([*paths, *(path[::-1] for path in paths)]))
    up = candidates.names.index("leaf0->spine0")
    cable = candidates.cable_of(up)
    assert cable is not None
    crossings = np.array([[up, cable.whole]] * 5 + [[cable.other, cable.whole]] * 5, dtype=np.int32)
    seen = AffectedPaths(crossings, 1_000, lambda each: np.full(len(each), 5.0), plain=True)
    found = DelayFinding(up, 1e5, 50.0, 0.9, 5, (), ())
    widened = _widened(candidates, found, [found], seen)
    assert widened.candidate == cable.whole
    assert widened.confidence + sum(widened.probabilities) == pytest.approx(0.9, abs=0.01)
