"""What a window's counts say of loss, in the form the search needs: few rows, however many paths.

Only paths that lost something matter one by one. Of all others it is enough to know, per candidate,
how many there are and how many probes they carried, so a fleet of 131,072 NICs is counted path by
path but searched through a few thousand rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Index = NDArray[np.intp]
Crossings = NDArray[np.int32]
"""Shape (paths, width): the candidates each path crosses, each once, padded with -1."""
Times = NDArray[np.int8]
"""Shape of `Crossings`: how many times each path crosses the candidate. A round trip crosses what
lies on both its ways twice. Negative for a clock at the beginning of a path."""


SHARES = np.array([1.0, 0.75, 0.5, 0.33, 0.25, 0.125, 0.06, 0.015])
"""Of the paths that may cross a candidate, how many do: 1 of 64 spines at least."""


class PartlyLearnt(NamedTuple):
    """What paths may cross where they are not learnt in full."""

    combo: Ints
    """Per path a row of `members`; -1 for one that is learnt in full, (paths,)."""
    members: Crossings
    """(combos, width): candidates, each once, padded with -1."""
    shares: NDArray[np.bool_] | None = None
    """Which of `SHARES` each candidate can have, (candidates, `SHARES`); None: any."""

    @classmethod
    def of(
        cls,
        combo: Ints,
        members: Sequence[Sequence[int]],
        shares: NDArray[np.bool_] | None = None,
    ) -> PartlyLearnt:
        width = max(map(len, members), default=0)
        padded = np.full((len(members), width), -1, dtype=np.int32)
        for row, each in enumerate(members):
            padded[row, : len(each)] = each
        return cls(combo, padded, shares)

    @classmethod
    def nothing(cls, paths: int) -> PartlyLearnt:
        """All paths are learnt in full."""
        return cls.of(np.full(paths, -1, dtype=np.int64), ())

    def chosen(self, paths: NDArray[np.bool_] | Index) -> PartlyLearnt:
        """Of these paths only, (paths,)."""
        return self._replace(combo=self.combo[paths])

    def impossible(self, candidates: Index) -> NDArray[np.bool_]:
        """Which of `SHARES` none of these can have, (`SHARES`, n)."""
        if self.shares is None:
            return np.zeros((len(SHARES), len(candidates)), dtype=np.bool_)
        return np.asarray(~self.shares[candidates].T)

    def pairs(self, crossings: Crossings) -> tuple[Ints, Ints]:
        """(path, candidate) that may cross; without those that surely do.

        Args:
            crossings: what the same paths surely cross, (paths, width).
        """
        rows = np.flatnonzero(self.combo >= 0)
        across = self.members[self.combo[rows]]
        place, column = np.nonzero(across >= 0)
        path, candidate = rows[place], across[place, column].astype(np.int64)
        sure = (crossings[path] == candidate[:, None]).any(axis=1)
        return path[~sure], candidate[~sure]


class Entries:
    """(row, candidate, times) triples, sorted by candidate and then as they were given."""

    def __init__(self, rows: Ints, candidate: Ints, times: Times, candidates: int) -> None:
        order = np.argsort(candidate, kind="stable")
        self._rows, self._candidate = rows[order], candidate[order]
        self._times = times[order].astype(np.float64)
        counts = np.bincount(candidate, minlength=candidates)
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts

    def of(self, candidate: int) -> tuple[Index, Floats]:
        """Rows, and how many times each crosses it."""
        part = slice(self._starts[candidate], self._ends[candidate])
        return self._rows[part], self._times[part]

    def lengths(self, candidates: Index) -> Ints:
        """How many rows each has."""
        return self._ends[candidates] - self._starts[candidates]

    def all_of(self, candidates: Index) -> tuple[Index, Index, Floats]:
        """Rows of these, to which of them (its place) each belongs, and how often it crosses."""
        counts = self.lengths(candidates)
        shift = np.repeat(self._starts[candidates] - np.cumsum(counts) + counts, counts)
        place = np.arange(int(counts.sum())) + shift
        owner = np.repeat(np.arange(len(candidates)), counts)
        return self._rows[place], owner, self._times[place]

    def owners(self, rows: NDArray[np.bool_]) -> Ints:
        """Candidates of any of these rows, (rows,)."""
        return np.unique(self._candidate[rows[self._rows]])

    def sums(self, values: Floats) -> Floats:
        """Per candidate the sum over its rows, (candidates,)."""
        total = np.concatenate(([0.0], np.cumsum(values[self._rows])))
        return np.asarray(total[self._ends] - total[self._starts])


def sum_by_owner(values: Floats, owner: Index, owners: int) -> Floats:
    """Sums over the rows of each owner, (owners, columns); rows come sorted by owner."""
    found = np.zeros((owners, values.shape[1]))
    if len(owner):
        cuts = np.flatnonzero(np.diff(owner, prepend=-1))
        found[owner[cuts]] = np.add.reduceat(values, cuts, axis=0)
    return found


class Parts(NamedTuple):
    """Of some candidates those that are parts of another, one by one; (n,) each."""

    candidates: Index
    place: Ints
    """A number for each: what has the same one is repaired together, as a cable's directions."""


class Structure(Protocol):
    """What is known of candidates beside the paths that cross them."""

    def parts(self, candidate: int, others: Index) -> Parts:
        """Of `others` those that are parts of a candidate; none of one that has none."""

    def is_fixed(self, candidate: int) -> bool:
        """Whether no path can have moved onto it since it was learnt."""

    def may_be_parts(self, candidate: int, loss: float) -> bool:
        """Whether one that is found to lose so much may be some of its parts instead."""


class NoStructure:
    """Nothing is known."""

    def parts(self, _candidate: int, others: Index) -> Parts:
        """None."""
        return Parts(others[:0], np.zeros(0, dtype=np.int64))

    def is_fixed(self, _candidate: int) -> bool:
        """Never."""
        return False

    def may_be_parts(self, _candidate: int, _loss: float) -> bool:
        """Never."""
        return False


class Clean(NamedTuple):
    """Of some candidates, the paths that lost nothing; (n,) each."""

    paths: Floats
    """That cross it."""
    probes: Floats
    """… and what these carried, each as many times as it crossed."""
    partly_paths: Floats
    """That may cross it."""
    partly_probes: Floats
    """… and what these carried."""


class Tally(Protocol):
    """What the search for losses needs of one window."""

    @property
    def crossings(self) -> Crossings:
        """Of the lossy paths."""

    @property
    def times(self) -> Times:
        """Of the lossy paths."""

    @property
    def sent(self) -> Floats:
        """Of the lossy paths."""

    @property
    def lost(self) -> Floats:
        """Of the lossy paths."""

    @property
    def partly(self) -> PartlyLearnt:
        """Of the lossy paths."""

    @property
    def paths(self) -> int:
        """That sent anything, lossy ones included."""

    @property
    def total_sent(self) -> float:
        """By these."""

    @property
    def candidates(self) -> int:
        """How many there are."""

    def clean_of(self, candidates: Index) -> Clean:
        """The paths that lost nothing, of each of these candidates."""


def spread(
    partly: PartlyLearnt, paths: NDArray[np.bool_], value: Floats, candidates: int
) -> Floats:
    """Per candidate the sum over the chosen paths that may cross it."""
    chosen = paths & (partly.combo >= 0)
    per_combo = np.bincount(partly.combo[chosen], value[chosen], minlength=len(partly.members))
    combo, column = np.nonzero(partly.members >= 0)
    member = partly.members[combo, column]
    return np.bincount(member, per_combo[combo], minlength=candidates).astype(np.float64)
