"""The majority rule for expected values: one vote per voter, more than half decide. Pure.

Voters are hosts where readings of hosts are compared, leaves where uplinks are, devices where
routing tables are. Fewer than `MIN_VOTERS` decide nothing; neither does a tie or a plurality.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

MIN_VOTERS = 3
"""If two voters differ, neither can be preferred."""
_NAMED = 4
"""Voters of a candidate that are named."""
_Value = TypeVar("_Value", bound="Hashable")


class MajorityVote(NamedTuple, Generic[_Value]):
    """What the voters decided."""

    value: _Value | None
    """None where they did not decide."""
    why: str
    """``5 of 6 hosts``; if undecided, the two candidates and their voters."""
    disputed: bool = False
    """Undecided because voters differ; otherwise undecided because there are too few."""


def own_vote(values: Iterable[_Value]) -> _Value | None:
    """The one vote of a voter that has several readings: what more than half of them are."""
    often = Counter(values)
    for value, count in often.most_common(1):
        if 2 * count > often.total():
            return value
    return None


def majority(values: Iterable[_Value]) -> _Value | None:
    """What more than half of at least `MIN_VOTERS` voters say; None if undecided."""
    votes = Votes[_Value]()
    for value in values:
        votes.add("", value)
    return votes.decide().value


class Votes(Generic[_Value]):
    """One vote of each voter, counted as they come.

    Args:
        what: the voters are, for people.
    """

    __slots__ = ("_counts", "_named", "_what", "total")

    def __init__(self, what: str = "hosts") -> None:
        self._what = what
        self._counts: Counter[_Value] = Counter()
        self._named: defaultdict[_Value, list[str]] = defaultdict(list)
        self.total = 0
        """Voters, also those whose own readings disagree."""

    def add(self, voter: str, value: _Value | None) -> None:
        """One voter's vote; None if its own readings disagree: it counts, for no value."""
        self.total += 1
        if value is None:
            return
        self._counts[value] += 1
        if voter and len(self._named[value]) < _NAMED:
            self._named[value].append(voter)

    def decide(
        self, min_voters: int = MIN_VOTERS, absent: tuple[_Value, int] | None = None
    ) -> MajorityVote[_Value]:
        """The value of more than half of the voters.

        Args:
            min_voters: fewer decide nothing.
            absent: what those vote for who were not counted, and how many there are.
        """
        counts, total = self._counts, self.total
        if absent is not None and absent[1] > 0:
            counts = counts + Counter({absent[0]: absent[1]})
            total += absent[1]
        ranked = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
        if not ranked:
            return self._none()
        (value, count), *others = ranked[:2]
        if total < min_voters:
            return self._too_few(total, min_voters, ranked, disputed=count < total)
        if 2 * count > total:
            return MajorityVote(value, f"{count} of {total} {self._what}")
        return MajorityVote(None, self._undecided(total, [(value, count), *others]), True)

    def decide_amount(self, within: float, min_voters: int = MIN_VOTERS) -> MajorityVote[float]:
        """The amount that more than half of the voters are near to.

        Args:
            within: relative; the amounts from ``v·(1 - within)`` to ``v·(1 + within)`` are near v.
            min_voters: fewer decide nothing.
        """
        numbers = [
            (float(value), count)
            for value, count in self._counts.items()
            if isinstance(value, int | float)
        ]
        clusters = _clusters(sorted(numbers), within)
        if not clusters:
            return self._none()
        (value, count) = clusters[0]
        if self.total < min_voters:
            return self._too_few(self.total, min_voters, clusters, disputed=count < self.total)
        if 2 * count > self.total:
            said = f"{count} of {self.total} {self._what} are within {100 * within:g} %"
            return MajorityVote(value, said)
        return MajorityVote(None, self._undecided(self.total, clusters), True)

    def _none(self) -> MajorityVote[Any]:
        why = f"undecided: each of {self.total} {self._what} has several values"
        return MajorityVote(None, why, True)

    def _too_few(
        self, total: int, wanted: int, ranked: Iterable[tuple[object, int]], *, disputed: bool
    ) -> MajorityVote[Any]:
        if disputed:
            return MajorityVote(None, self._undecided(total, ranked), True)
        return MajorityVote(None, f"not compared: {total} of at least {wanted} {self._what}")

    def _undecided(self, total: int, ranked: Iterable[tuple[object, int]]) -> str:
        candidates = ", ".join(
            f"{value!r} on {count}{self._who(value)}"
            for value, count in itertools.islice(ranked, 2)
        )
        return f"undecided: {candidates} of {total} {self._what}"

    def _who(self, value: Any) -> str:
        named = self._named.get(value)
        if not named:
            return ""
        more = " …" if self._counts[value] > len(named) else ""
        return f" ({', '.join(named)}{more})"


def _clusters(numbers: list[tuple[float, int]], within: float) -> list[tuple[float, int]]:
    """The amount that most are near to, and the one of the rest: each with how many are.

    Of several with as many, the middle one.
    """
    found: list[tuple[float, int]] = []
    left = numbers
    while left and len(found) < 2:
        values = [value for value, _ in left]
        sums = [0, *itertools.accumulate(count for _, count in left)]
        windows = [_window(value, within) for value in values]
        near = [
            sums[bisect.bisect_right(values, high)] - sums[bisect.bisect_left(values, low)]
            for low, high in windows
        ]
        best = [at for at, count in enumerate(near) if count == max(near)]
        middle = best[(len(best) - 1) // 2]
        found.append((values[middle], near[middle]))
        low, high = windows[middle]
        left = [(value, count) for value, count in left if not low <= value <= high]
    return found


def _window(value: float, within: float) -> tuple[float, float]:
    slack = within * abs(value)
    return value - slack, value + slack
