"""A window's losses in the form that the search needs: few rows for any number of paths.

Only paths that lost something matter one by one. For all others the search needs, per candidate,
only their number and their probes. A fleet of 131,072 NICs is thus counted path by path but
searched through a few thousand rows.
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
"""Shape of `Crossings`: how many times each path crosses the candidate. A round trip crosses a
component that is on both of its directions twice. Negative for a clock at the beginning of a
path."""


NO_CANDIDATES: Index = np.zeros(0, dtype=np.intp)
"""No candidates."""
SHARES = np.array([1.0, 0.75, 0.5, 0.33, 0.25, 0.125, 0.06, 0.015])
"""Possible shares of the paths that may cross a candidate and do: at least 1 of 64 spines."""


class PartlyLearnt(NamedTuple):
    """What partly learnt paths may cross."""

    combo: Ints
    """Per path a row of `members`; -1 for a fully learnt one, (paths,)."""
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
        """All paths are fully learnt."""
        return cls.of(np.full(paths, -1, dtype=np.int64), ())

    def chosen(self, paths: NDArray[np.bool_] | Index) -> PartlyLearnt:
        """Restricted to these paths, (paths,)."""
        return self._replace(combo=self.combo[paths])

    def impossible(self, candidates: Index) -> NDArray[np.bool_]:
        """Which of `SHARES` none of these can have, (`SHARES`, n)."""
        if self.shares is None:
            return np.zeros((len(SHARES), len(candidates)), dtype=np.bool_)
        return np.asarray(~self.shares[candidates].T)

    def pairs(self, crossings: Crossings) -> tuple[Ints, Ints]:
        """(path, candidate) pairs that may cross, without those that certainly do.

        Args:
            crossings: what the same paths certainly cross, (paths, width).
        """
        rows = np.flatnonzero(self.combo >= 0)
        across = self.members[self.combo[rows]]
        place, column = np.nonzero(across >= 0)
        path, candidate = rows[place], across[place, column].astype(np.int64)
        sure = (crossings[path] == candidate[:, None]).any(axis=1)
        return path[~sure], candidate[~sure]


class Entries:
    """(row, candidate, times) triples, sorted by candidate and then in input order."""

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
        """Number of rows of each."""
        return self._ends[candidates] - self._starts[candidates]

    def all_of(self, candidates: Index) -> tuple[Index, Index, Floats]:
        """Rows of these candidates, the place of the owner of each row, and how often the row
        crosses it."""
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


class CandidateParts(NamedTuple):
    """Which of some candidates are parts of another one; (n,) each."""

    candidates: Index
    place: Ints
    """A number for each: parts with the same number are repaired together, as a cable's
    directions."""


class Structure(Protocol):
    """Relations of candidates other than the paths that cross them."""

    def parts(self, candidate: int, others: Index) -> CandidateParts:
        """Those of `others` that are parts of a candidate; empty for one without parts."""

    def is_fixed(self, candidate: int) -> bool:
        """Whether no path can have moved onto it since it was learnt."""

    def may_hit_some(self, candidates: Index) -> NDArray[np.bool_]:
        """Which of these can lose packets of some of the flows across them only."""

    def unknown_beside(self, candidate: int) -> int | None:
        """The candidate for all unknown components next to a device; None if there is none."""


class NoStructure:
    """No relations are known."""

    def parts(self, _candidate: int, others: Index) -> CandidateParts:
        """None."""
        return CandidateParts(others[:0], np.zeros(0, dtype=np.int64))

    def is_fixed(self, _candidate: int) -> bool:
        """Never."""
        return False

    def may_hit_some(self, candidates: Index) -> NDArray[np.bool_]:
        """All."""
        return np.ones(len(candidates), dtype=np.bool_)

    def unknown_beside(self, _candidate: int) -> int | None:
        """None."""
        return None


class Clean(NamedTuple):
    """The paths that lost nothing, for some candidates; (n,) each."""

    paths: Floats
    """Number that certainly cross it."""
    probes: Floats
    """… and their probes, each as many times as it crossed."""
    partly_paths: Floats
    """Number that may cross it."""
    partly_probes: Floats
    """… and their probes."""


class Tally(Protocol):
    """What the search for losses needs of one window."""

    @property
    def crossings(self) -> Crossings:
        """Candidates that each lossy path crosses."""

    @property
    def times(self) -> Times:
        """How many times each lossy path crosses each."""

    @property
    def sent(self) -> Floats:
        """Probes sent on each lossy path."""

    @property
    def lost(self) -> Floats:
        """Probes lost on each lossy path."""

    @property
    def partly(self) -> PartlyLearnt:
        """What each lossy path may cross in addition."""

    @property
    def paths(self) -> int:
        """Number of paths that sent anything, lossy ones included."""

    @property
    def total_sent(self) -> float:
        """Number of probes that these sent."""

    @property
    def candidates(self) -> int:
        """Number of candidates."""

    def clean_of(self, candidates: Index) -> Clean:
        """The paths that lost nothing, for each of these candidates."""


def spread(
    partly: PartlyLearnt, paths: NDArray[np.bool_], value: Floats, candidates: int
) -> Floats:
    """Per candidate the sum over the chosen paths that may cross it."""
    chosen = paths & (partly.combo >= 0)
    per_combo = np.bincount(partly.combo[chosen], value[chosen], minlength=len(partly.members))
    combo, column = np.nonzero(partly.members >= 0)
    member = partly.members[combo, column]
    return np.bincount(member, per_combo[combo], minlength=candidates).astype(np.float64)
