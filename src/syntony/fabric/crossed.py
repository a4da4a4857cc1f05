"""What every path of a map crosses, and the other way round: of what is asked for only. Pure.

A fleet has half a million paths, of which nearly all are well. The paths that cross a candidate are
looked up where something speaks against it.
"""

from __future__ import annotations

from functools import cached_property

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

Mask = NDArray[np.bool_]

MANY = 1000
"""Paths across one candidate."""


class Crossed:
    """What paths cross, and which paths cross a candidate.

    Args:
        crossings: what each path crosses, (paths, width), -1 for nothing.
        times: how many times each path crosses each, (paths, width).
        candidates: how many there are.
        partly: what paths may cross beside that; None: nothing.
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

    @cached_property
    def surely(self) -> Entries:
        """Of every candidate the paths that cross it."""
        rows, columns = np.nonzero(self.crossings >= 0)
        candidate = self.crossings[rows, columns].astype(np.int64)
        return Entries(rows, candidate, self.times[rows, columns], self.candidates)

    @cached_property
    def maybe(self) -> Entries:
        """Of every candidate the paths that may cross it, and do not surely do so."""
        rows, candidate = self.partly.pairs(self.crossings)
        return Entries(rows, candidate, np.ones(len(rows), np.int8), self.candidates)

    def by(self, candidate: int) -> Mask:
        """Which paths surely cross it, (paths,)."""
        found = np.zeros(len(self.crossings), dtype=np.bool_)
        found[self.surely.of(candidate)[0]] = True
        return found

    def entries_of(self, paths: Index) -> tuple[Index, Ints, Times]:
        """What these paths cross or may cross: places among `paths`, candidates, how many times."""
        across = self.crossings[paths]
        place, column = np.nonzero(across >= 0)
        may_place, may_candidate = self.partly.chosen(paths).pairs(across)
        once = np.ones(len(may_place), dtype=np.int8)
        return (
            np.concatenate((place, may_place)),
            np.concatenate((across[place, column].astype(np.int64), may_candidate)),
            np.concatenate((self.times[paths[place], column], once)),
        )


class PathTally:
    """One window's losses, counted of lossy paths and of candidates that are asked about.

    Args:
        crossed: of all paths.
        sent: probes that entered each path, (paths,).
        lost: of these, how many did not come out, (paths,).
    """

    def __init__(self, crossed: Crossed, sent: Ints, lost: Ints) -> None:
        self._crossed = crossed
        self._all_sent, self._all_lost = sent, lost
        # Most windows have lost little: what was sent is looked at only there.
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
            # No copy of what a large part of all paths crosses.
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
        """By each path that lost nothing; 0 for the others, (paths,)."""
        return np.where(self._all_lost > 0, 0, np.maximum(self._all_sent, 0)).astype(np.float64)

    @cached_property
    def _partly_clean(self) -> Floats:
        """Of every candidate the paths that may cross it and lost nothing, and their probes."""
        sent, partly = self._clean_sent, self._crossed.partly
        return np.stack(
            [spread(partly, sent > 0, each, self.candidates) for each in (np.ones(len(sent)), sent)]
        )
