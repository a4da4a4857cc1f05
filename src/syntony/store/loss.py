"""Attribute failed round trips to a direction, by the counts of both ends. Pure.

A prober that gets no reply does not know in which direction the probe was lost. Its target does: it
counts the authentic requests that it received. Requests neither received nor known to be lost were
lost on the way to the target; the other failed round trips were lost on the way back. If the target
reports nothing (it is dead, or cut off), all of them count as lost on the way to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

Direction = tuple[str, str]
Second = tuple[str, str, int]
_Key = TypeVar("_Key", Direction, Second)


class BrokenSecond(NamedTuple):
    """A second with failed round trips of one prober to one target, over all paths."""

    src: str
    dst: str
    second: int
    sent: int
    lost: int
    """Known to be lost on the way to the target."""
    unresolved: int
    heard: int
    """Requests that the target received from the prober in that second; 0 without a report."""


class Attribution(NamedTuple):
    """Unresolved round trips by the direction in which they were lost."""

    there: int
    back: int


def attribute(unresolved: int, missing: int) -> Attribution:
    """Split failed round trips, if `missing` requests (may be negative) did not arrive.

    The two ends' counters are read at slightly different instants, so `missing` can be out of range
    and is clamped.
    """
    there = min(unresolved, max(missing, 0))
    return Attribution(there, unresolved - there)


class Correction(NamedTuple):
    """Correction of the sums of one direction by attribution."""

    lost: int = 0
    """Losses to add."""
    unsent: int = 0
    """Replies counted as sent although their requests never arrived."""


def _correct(
    corrections: dict[_Key, Correction], there: _Key, back: _Key, split: Attribution
) -> None:
    forward, reverse = (corrections.get(key, Correction()) for key in (there, back))
    corrections[there] = forward._replace(lost=forward.lost + split.there)
    corrections[back] = Correction(reverse.lost + split.back, reverse.unsent + split.there)


def correct_directions(broken: Iterable[BrokenSecond]) -> dict[Direction, Correction]:
    """Corrections per direction over all the given seconds.

    Counts are summed before they are split, so that a request sent at the end of one second and
    received at the start of the next does not count as lost.
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
    """Corrections for each direction and second."""
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
