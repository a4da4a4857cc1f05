"""Candidates on each path, and paths across each candidate, computed on demand. Pure.

A fleet has half a million paths, nearly all of them healthy. The paths that cross a candidate are
looked up only if there is evidence against it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.fabric.tally import (
    Clean,
    Crossings,
    Entries,
    Floats,
    Index,
    Ints,
    PartlyLearnt,
    Times,
    spread,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Mask = NDArray[np.bool_]

MANY = 1000
"""From this number of paths across one candidate on, no copy of them is made."""
NARROW = 3
"""Maximum candidates of a path in the narrow group: what targets answered crosses no more."""


class PathCrossings:
    """Which candidates paths cross, and which paths cross a candidate.

    Args:
        crossings: candidates that each path crosses, (paths, width), -1 for none.
        times: how many times each path crosses each, (paths, width).
        candidates: their number.
        partly: candidates that paths may cross in addition; None: none.
    """

    def __init__(
        self,
        crossings: Crossings,
        times: Times,
        candidates: int,
        partly: PartlyLearnt | None = None,
    ) -> None:
        self.crossings = crossings
        self.times = times
        self.candidates = candidates
        self.partly = partly or PartlyLearnt.nothing(len(crossings))
        self._carrying: Carrying | None = None

    @cached_property
    def surely(self) -> Entries:
        """For every candidate the paths that certainly cross it."""
        rows, columns = np.nonzero(self.crossings >= 0)
        candidate = self.crossings[rows, columns].astype(np.int64)
        return Entries(rows, candidate, self.times[rows, columns], self.candidates)

    @cached_property
    def maybe(self) -> Entries:
        """For every candidate the paths that may cross it, but not certainly."""
        rows, candidate = self.partly.pairs(self.crossings)
        return Entries(rows, candidate, np.ones(len(rows), np.int8), self.candidates)

    @cached_property
    def listed_too(self) -> tuple[Index, Index]:
        """(path, candidate) pairs of what a path certainly crosses and would otherwise count as
        something that it may cross, as one of what lies within its groups."""
        members = self.partly.members
        combo, column = np.nonzero(members >= 0)
        keys = np.unique(combo * self.candidates + members[combo, column])
        paths = self.partly_learnt
        place, column = np.nonzero(self.crossings[paths] >= 0)
        path = paths[place]
        candidate = self.crossings[path, column].astype(np.int64)
        both = np.isin(self.partly.combo[path] * self.candidates + candidate, keys)
        return path[both], candidate[both]

    @cached_property
    def widths(self) -> NDArray[np.int16]:
        """How many candidates each path certainly crosses, (paths,)."""
        return np.asarray((self.crossings >= 0).sum(axis=1, dtype=np.int16))

    @cached_property
    def partly_learnt(self) -> Index:
        """Which paths are only partly learnt."""
        return np.flatnonzero(self.partly.combo >= 0)

    def carrying(self, paths: int) -> Carrying:
        """Prepare sums over the probes of the first paths, by candidate."""
        if self._carrying is None or self._carrying.paths != paths:
            self._carrying = Carrying.of(self, paths)
        return self._carrying

    def spread(self, paths: Index, values: Ints) -> Ints:
        """Sums of `values`, (2, paths), over these paths, by candidate. The first counts once for
        each path that certainly crosses it, the second as many times as the path does."""
        sums = np.zeros((2, self.candidates))
        narrow = self.widths[paths] <= NARROW
        for chosen in (narrow, ~narrow):
            rows = paths[chosen]
            width = int(self.widths[rows].max(initial=0))
            across = self.crossings[rows, :width]
            place, column = np.nonzero(across >= 0)
            candidate = across[place, column]
            once, often = values[:, chosen][:, place]
            often = often * np.abs(self.times[rows[place], column])
            for field, each in enumerate((once, often)):
                sums[field] += np.bincount(candidate, each, minlength=self.candidates)
        return sums.astype(np.int64)

    def by(self, candidate: int) -> Mask:
        """Which paths certainly cross it, (paths,)."""
        found = np.zeros(len(self.crossings), dtype=np.bool_)
        found[self.surely.of(candidate)[0]] = True
        return found

    def entries_of(self, paths: Index) -> tuple[Index, Ints, Times]:
        """What these paths cross or may cross: places in `paths`, candidates, how many times."""
        across = self.crossings[paths]
        place, column = np.nonzero(across >= 0)
        may_place, may_candidate = self.partly.chosen(paths).pairs(across)
        once = np.ones(len(may_place), dtype=np.int8)
        return (
            np.concatenate((place, may_place)),
            np.concatenate((across[place, column].astype(np.int64), may_candidate)),
            np.concatenate((self.times[paths[place], column], once)),
        )


class Carrying(NamedTuple):
    """Sums over the first paths of a map, by candidate."""

    paths: int
    matrix: csr_array[np.int64]
    """How many times each path crosses each candidate, (paths, candidates)."""
    crossing: Ints
    """Number of paths across each, (candidates,)."""

    @classmethod
    def of(cls, crossed: PathCrossings, paths: int) -> Carrying:
        from scipy.sparse import csr_array

        real = crossed.crossings[:paths] >= 0
        candidate = crossed.crossings[:paths][real]
        times = np.abs(crossed.times[:paths][real]).astype(np.int64)
        ends = np.append(0, np.cumsum(crossed.widths[:paths], dtype=np.int64))
        matrix = csr_array((times, candidate, ends), shape=(paths, crossed.candidates))
        return cls(paths, matrix, np.bincount(candidate, minlength=crossed.candidates))

    def sums(self, sent: Ints) -> Ints:
        """From probes sent per path, (paths,), the number that crossed each candidate,
        (candidates,)."""
        return np.asarray(self.matrix.T @ sent)


class Carried(NamedTuple):
    """What the first paths of a map carried in a window, except for paths that are given
    separately."""

    sent: Ints
    """Probes per path, in path order, in any shape."""
    probes: Ints
    """Number of these that crossed each candidate, (candidates,)."""
    crossing: Ints
    """How many of the first paths cross each, (candidates,)."""


class ChangedTally:
    """One window's losses, from sums over all paths by candidate, and the paths that differ from
    these.

    Args:
        crossed: of all paths.
        carried: of the first ones, without losses; the others carried nothing.
        paths: numbers of the paths that differ, ascending.
        sent: probes that entered each of these.
        lost: number of these that were lost.
    """

    def __init__(
        self, crossed: PathCrossings, carried: Carried, paths: Index, sent: Ints, lost: Ints
    ) -> None:
        self._crossed, self._carried = crossed, carried
        self._changed = paths
        self._sent = np.maximum(sent, 0)
        self._clean_sent = np.where(lost > 0, 0, self._sent)
        lossy = (lost > 0) & (sent > 0)
        rows = paths[lossy]
        self.crossings = crossed.crossings[rows]
        self.times: Times = np.abs(crossed.times[rows])
        self.sent = sent[lossy].astype(np.float64)
        self.lost = lost[lossy].astype(np.float64)
        self.partly = crossed.partly.chosen(rows)
        self.candidates = crossed.candidates
        self._among = paths[: np.searchsorted(paths, carried.sent.size)]
        """Which of the differing paths are among the first ones."""

    @cached_property
    def _before(self) -> Ints:
        """What `carried` says of those of the first paths that differ."""
        return self._carried.sent[np.unravel_index(self._among, self._carried.sent.shape)]

    @cached_property
    def _silent(self) -> Index:
        """Those of the first paths that sent nothing and do not differ."""
        silent = (self._carried.sent <= 0).ravel()
        silent[self._among] = False
        return np.flatnonzero(silent)

    @cached_property
    def paths(self) -> int:
        """As `Tally`."""
        same = self._carried.sent.size - len(self._among) - len(self._silent)
        return same + int(np.count_nonzero(self._sent))

    @cached_property
    def total_sent(self) -> float:
        """As `Tally`."""
        same = self._carried.sent.sum() - self._before.sum() - self._silent_sent.sum()
        return float(same + self._sent.sum())

    @cached_property
    def _silent_sent(self) -> Ints:
        return self._carried.sent[np.unravel_index(self._silent, self._carried.sent.shape)]

    def clean_of(self, candidates: Index) -> Clean:
        """As `Tally`."""
        return Clean(*self._clean[:, candidates], *self._partly_clean[:, candidates])

    @cached_property
    def _clean(self) -> Floats:
        more = np.stack((self._clean_sent > 0, self._clean_sent)).astype(np.int64)
        more[:, : len(self._among)] -= np.stack((np.ones_like(self._before), self._before))
        silent = np.stack((np.ones_like(self._silent_sent), self._silent_sent))
        sums = np.stack((self._carried.crossing, self._carried.probes))
        sums += self._crossed.spread(self._changed, more)
        sums -= self._crossed.spread(self._silent, silent)
        return sums.astype(np.float64)

    @cached_property
    def _partly_clean(self) -> Floats:
        some = self._crossed.partly_learnt
        if not len(some):
            return np.zeros((2, self.candidates))
        sent = np.zeros(len(self._crossed.crossings), dtype=np.int64)
        sent[: self._carried.sent.size] = np.maximum(self._carried.sent, 0).ravel()
        sent[self._changed] = self._clean_sent
        return _partly(self._crossed, sent.astype(np.float64))


class PathTally:
    """One window's losses, counted for lossy paths and for candidates on request.

    Args:
        crossed: of all paths.
        sent: probes that entered each path, (paths,).
        lost: number of these that were lost, (paths,).
    """

    def __init__(self, crossed: PathCrossings, sent: Ints, lost: Ints) -> None:
        self._crossed = crossed
        self._all_sent, self._all_lost = sent, lost
        # Most windows have few losses: `sent` is read only there.
        lossy = np.flatnonzero(lost > 0)
        lossy = lossy[sent[lossy] > 0]
        self.crossings = crossed.crossings[lossy]
        self.times: Times = np.abs(crossed.times[lossy])
        self.sent = sent[lossy].astype(np.float64)
        self.lost = lost[lossy].astype(np.float64)
        self.partly = crossed.partly.chosen(lossy)
        self.candidates = crossed.candidates
        self._known = np.zeros(self.candidates, dtype=np.bool_)
        self._sums = np.zeros((2, self.candidates))

    @cached_property
    def paths(self) -> int:
        """As `Tally`."""
        return int(np.count_nonzero(self._all_sent > 0))

    @cached_property
    def total_sent(self) -> float:
        """As `Tally`."""
        return float(np.maximum(self._all_sent, 0).sum())

    def clean_of(self, candidates: Index) -> Clean:
        """As `Tally`."""
        fresh = np.unique(candidates[~self._known[candidates]])
        self._known[fresh] = True
        many = self._crossed.surely.lengths(fresh) > MANY
        for candidate in fresh[many].tolist():
            # Do not copy what a large share of all paths crosses.
            rows, times = self._crossed.surely.of(candidate)
            sent = self._clean_sent[rows]
            self._sums[:, candidate] = np.count_nonzero(sent), sent @ np.abs(times)
        few = fresh[~many]
        rows, owner, times = self._crossed.surely.all_of(few)
        sent = self._clean_sent[rows]
        self._sums[0, few] = np.bincount(owner, sent > 0, minlength=len(few))
        self._sums[1, few] = np.bincount(owner, sent * np.abs(times), minlength=len(few))
        paths, probes = self._sums[:, candidates]
        partly_paths, partly_probes = self._partly_clean[:, candidates]
        return Clean(paths, probes, partly_paths, partly_probes)

    @cached_property
    def _clean_sent(self) -> Floats:
        """Probes sent by each path that lost nothing; 0 for the others, (paths,)."""
        return np.where(self._all_lost > 0, 0, np.maximum(self._all_sent, 0)).astype(np.float64)

    @cached_property
    def _partly_clean(self) -> Floats:
        """For every candidate the paths that may cross it and lost nothing, and their probes."""
        return _partly(self._crossed, self._clean_sent)


def _partly(crossed: PathCrossings, sent: Floats) -> Floats:
    """Paths that may cross each candidate, but not certainly, and lost nothing; and their probes,
    (2, candidates).

    Args:
        sent: by each path that lost nothing; 0 for the others, (paths,).
    """
    values = np.stack((sent > 0, sent)).astype(np.float64)
    sums = [spread(crossed.partly, sent > 0, each, crossed.candidates) for each in values]
    path, candidate = crossed.listed_too
    surely = [np.bincount(candidate, each[path], crossed.candidates) for each in values]
    return np.stack(sums) - np.stack(surely)
