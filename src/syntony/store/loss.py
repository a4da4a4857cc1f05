"""In which direction a broken round trip was lost: two ends' counts put together. Pure.

A prober that gets no reply cannot say which way the probe died. Its target can: it counts the
authentic requests it heard. What was sent and neither known to be lost nor heard was lost on the
way there; the rest of the broken round trips was lost on the way back. A target that says nothing
at all (it is dead, or cut off) excuses nothing: all of it is lost on the way there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

Direction = tuple[str, str]
Second = tuple[str, str, int]
_Key = TypeVar("_Key", Direction, Second)


class BrokenSecond(NamedTuple):
    """One prober's second with broken round trips towards one target, all its paths together."""

    src: str
    dst: str
    second: int
    sent: int
    lost: int
    """Known to be lost on the way there."""
    unresolved: int
    heard: int
    """Requests the target heard from the prober in that second; 0 if it said nothing."""


class Attribution(NamedTuple):
    """Unresolved round trips by the direction in which they were lost."""

    there: int
    back: int


def attribute(unresolved: int, missing: int) -> Attribution:
    """Split broken round trips when `missing` requests (may be negative) did not get there.

    The two ends' counters are read at slightly different instants, so `missing` can stray beyond
    what is possible; it is taken within bounds.
    """
    there = min(unresolved, max(missing, 0))
    return Attribution(there, unresolved - there)


class Correction(NamedTuple):
    """What attribution changes in the plain sums of one direction."""

    lost: int = 0
    """Losses to add."""
    unsent: int = 0
    """Replies counted as sent whose requests turn out never to have arrived."""


def _correct(
    corrections: dict[_Key, Correction], there: _Key, back: _Key, split: Attribution
) -> None:
    forward, reverse = (corrections.get(key, Correction()) for key in (there, back))
    corrections[there] = forward._replace(lost=forward.lost + split.there)
    corrections[back] = Correction(reverse.lost + split.back, reverse.unsent + split.there)


def correct_directions(broken: Iterable[BrokenSecond]) -> dict[Direction, Correction]:
    """Corrections per direction over all the given seconds.

    Counts are summed before they are split, so that a request sent at the end of one second and
    heard at the start of the next does not read as lost.
    """
    unresolved: dict[Direction, int] = defaultdict(int)
    missing: dict[Direction, int] = defaultdict(int)
    for second in broken:
        way = (second.src, second.dst)
        unresolved[way] += second.unresolved
        missing[way] += second.sent - second.lost - second.heard
    corrections: dict[Direction, Correction] = {}
    for (src, dst), count in unresolved.items():
        split = attribute(count, missing[src, dst])
        _correct(corrections, (src, dst), (dst, src), split)
    return corrections


def correct_seconds(broken: Iterable[BrokenSecond]) -> dict[Second, Correction]:
    """Corrections per direction and second, each second by itself."""
    corrections: dict[Second, Correction] = {}
    for each in broken:
        split = attribute(each.unresolved, each.sent - each.lost - each.heard)
        there, back = (each.src, each.dst, each.second), (each.dst, each.src, each.second)
        _correct(corrections, there, back, split)
    return corrections


def summed(corrections: Mapping[Second, Correction], step: int) -> dict[Second, Correction]:
    """Corrections per direction and `step` seconds, under the first second of each step."""
    found: dict[Second, Correction] = {}
    for (src, dst, second), each in corrections.items():
        key = (src, dst, second // step * step)
        before = found.get(key, Correction())
        found[key] = Correction(before.lost + each.lost, before.unsent + each.unsent)
    return found
