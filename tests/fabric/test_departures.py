"""Which switches are down, by the paths that left them, although some may still cross them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from syntony.fabric.book import Way
from syntony.fabric.departures import LEFT_NS, Departures
from syntony.model import S

T0 = 10_000 * S


def left(pairs: Iterable[tuple[str, str]], instead: int, at_ns: int = T0) -> Departures:
    """Paths between these leaves that left spine0 for several other spines by turns."""
    departures = Departures()
    departures.crossed(("h/rail0", "leaf0", "spine0", "leaf1"), at_ns - S)
    for number, (near, far) in enumerate(pairs):
        way = Way(f"h-{near}/rail0", f"h-{far}/rail0", 61_000 + number, 8620)
        other = f"spine{1 + number % instead}"
        departures.turned(way, (way.src, near, "spine0", far), (way.src, near, other, far), at_ns)
    return departures


@pytest.mark.parametrize(("last", "is_down"), [(5, False), (7, True)])
def test_a_sample_of_few_paths_shows_nothing_whichever_cables_they_took(
    last: int, is_down: bool
) -> None:
    """Half of all paths may take the one other spine by chance: 13 prove nothing, 15 do."""
    pairs = [("a", "b")] * 4 + [("c", "d")] * 4 + [("e", "f")] * last
    found = left(pairs, 1).down(["h--spine0"], T0)
    assert found == ({"spine0": ()} if is_down else {})


def test_of_three_cables_any_may_be_the_one_that_is_lost() -> None:
    pairs = [("a", "b")] * 9 + [("b", "c")] * 8 + [("a", "c")] * 8
    assert left(pairs, 2).down(["a--spine0"], T0) == {}
    assert left([("a", "b")] * 25, 2).down(["a--spine0"], T0) == {
        "spine0": ("a--spine0", "b--spine0")
    }


def test_a_departure_that_is_told_late_makes_none_old() -> None:
    departures = left([("a", "b")], 1, T0 + S)
    way = Way("h-a/rail0", "h-b/rail0", 62_000, 8620)
    before, now = ((way.src, "a", spine, "b") for spine in ("spine0", "spine1"))
    departures.turned(way, before, now, T0 + S // 2)
    departures.down((), T0 + LEFT_NS + S - 1)
    assert "spine0" in departures
    departures.down((), T0 + LEFT_NS + S)
    assert "spine0" not in departures
