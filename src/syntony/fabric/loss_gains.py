"""What candidates of the search for losses gain at tried rates, beside what is found. Pure.

Each candidate is tried at dozens of rates. What does not depend on the rate (its paths, what they
lost, how likely that is without it) is gathered once for all of them, and paths of which all this
is the same are one row: most lost one or two of as many probes as the next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.fabric.some_flows import is_of_another
from syntony.fabric.tally import (
    SHARES,
    Clean,
    Crossings,
    Entries,
    Floats,
    Index,
    Ints,
    PartlyLearnt,
    sum_by_owner,
)

SOME_FLOWS_PRICE = 5.0
"""Nats that a fault of some flows only costs more than one of all: 1 in 150 faults is such."""
MIN_SHARE = 0.25
"""… which hits so large a share of the paths at least: fewer are odd ones."""
HIT_NATS = 3.0
"""A path so much less likely at the rates of what is found than at its own suffers from more."""
_TIMES = 1 << 8
"""How many values `Times` has."""


def likelihood(lost: Floats, came: Floats, rate: Floats) -> Floats:
    """Binomial log-likelihood of paths that lose at these rates λ, without the constant."""
    return np.asarray(lost * np.log(-np.expm1(-rate)) - came * rate)


def entropy(lost: Floats, sent: Floats) -> Floats:
    """The binomial log-likelihood of each path at its own best rate."""
    came = sent - lost
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = lost * np.log(lost / sent) + np.where(came > 0, came * np.log(came / sent), 0.0)
    return np.asarray(parts)


class Beside(NamedTuple):
    """Every lossy path beside what is found without the candidates; (paths,) each."""

    lost: Floats
    came: Floats
    rates: Floats
    floor: Floats
    """How unlikely it is at most."""


class Paths(NamedTuple):
    """Which paths cross candidates."""

    sure: Entries
    """Lossy ones that do …"""
    may: Entries
    """… and that may."""
    clean: Clean
    """Those that lost nothing, of the candidates asked for only."""
    partly: PartlyLearnt
    """What shares of those that may cross a candidate there can be."""
    crossings: Crossings
    """What each lossy one surely crosses, (paths, width)."""
    clean_of: Callable[[Index], Clean]
    """`clean` of any candidates."""
    known: dict[tuple[int, bytes], bool]
    """Candidate and paths that suffer there → whether these are of another part: a search asks the
    same again and again."""


class _Rows:
    """Lossy paths of candidates, sorted by candidate, with all that no tried rate changes; those
    that are alike are one row."""

    def __init__(self, entries: Entries, candidates: Index, beside: Beside, alike: Ints) -> None:
        rows, owner, times = entries.all_of(candidates)
        key = (owner * len(alike) + alike[rows]) * _TIMES + times.astype(np.int64)
        _, some, count = np.unique(key, return_index=True, return_counts=True)
        rows, self.owner, self.times = rows[some], owner[some], times[some]
        self.count = count[:, None]
        self.lost, self.came, self.rates, self.low = (each[rows, None] for each in beside)
        self.plain = likelihood(self.lost, self.came, self.rates)
        self.base = np.maximum(self.plain, self.low)

    def at(self, more: Floats) -> Floats:
        """Likelihood of each with so much more loss, (rows, rates tried)."""
        return likelihood(self.lost, self.came, self.rates + more)

    def sums(self, values: Floats, owners: int) -> Floats:
        """Over all paths of each candidate: (rows, rates tried) → (owners, rates tried)."""
        values *= self.count
        return sum_by_owner(values, self.owner, owners)


def _alike(beside: Beside) -> Ints:
    """A number for each path, the same for those of which everything is the same."""
    order = np.lexsort(beside)
    changes = [np.diff(each[order]) != 0 for each in beside]
    found = np.zeros(len(order), dtype=np.int64)
    found[order[1:]] = np.cumsum(np.any(changes, axis=0))
    return found


class Gains:
    """Nats gained by candidates at rates tried; an unexplained path costs `outlier` of them."""

    def __init__(self, candidates: Index, paths: Paths, beside: Beside, outlier: float) -> None:
        self._candidates, self._paths, self._beside = candidates, paths, beside
        self._owners, self._clean, self._outlier = len(candidates), paths.clean, outlier

    @cached_property
    def _alike(self) -> Ints:
        return _alike(self._beside)

    @cached_property
    def _sure(self) -> _Rows:
        return _Rows(self._paths.sure, self._candidates, self._beside, self._alike)

    @cached_property
    def _may(self) -> _Rows:
        return _Rows(self._paths.may, self._candidates, self._beside, self._alike)

    def at(self, grid: Floats) -> Floats:
        """Of all paths, with the most likely share of those that may cross. `grid`, and what is
        returned: (candidates, rates tried)."""
        if not len(self._may.owner):
            return self.sure(grid)
        return np.asarray(self.sure(grid) + np.maximum(self.may(grid).max(axis=0), 0.0))

    def sure(self, grid: Floats) -> Floats:
        """Of paths that surely cross, (candidates, rates tried)."""
        return np.asarray(np.maximum(*self.of_all_or_some(grid)))

    def of_all_or_some(self, grid: Floats) -> tuple[Floats, Floats]:
        """The same if all of them suffer, and if only a share of them does: a fault may hit some
        flows by their ports, or by what hashes put on one lane or buffer."""
        of, clean = self._sure, self._clean
        there = of.at(grid[of.owner] * of.times[:, None])
        probes = (clean.probes / np.maximum(clean.paths, 1))[:, None]
        share = self.share_of_flows
        with np.errstate(divide="ignore"):
            hit = np.log(share)[of.owner] + there
            mixed = np.maximum(hit, np.log1p(-share)[of.owner] + of.plain)
            well = np.log(1 - share + share * np.exp(-grid * probes))
        some = of.sums(np.maximum(mixed, of.low) - of.base, self._owners)
        some += clean.paths[:, None] * np.maximum(well, -self._outlier) - SOME_FLOWS_PRICE
        likelier = of.sums((there > of.plain).astype(np.float64), self._owners)
        some[likelier < MIN_SHARE * self._crossed] = -np.inf
        np.maximum(there, of.low, out=there)
        there -= of.base
        each = np.minimum(grid * probes, self._outlier)
        every = of.sums(there, self._owners) - clean.paths[:, None] * each
        for place in np.flatnonzero(some.max(axis=1) > np.maximum(every.max(axis=1), 0)).tolist():
            if self._is_of_another(place):
                some[place] = -np.inf
        return every, some

    def _is_of_another(self, place: int) -> bool:
        """Of the candidate at this place: whether another part's paths are those that suffer."""
        candidate, known = int(self._candidates[place]), self._paths.known
        rows, _ = self._paths.sure.of(candidate)
        rows = rows[self._hit[rows]]
        key = candidate, rows.tobytes()
        if key not in known:
            known[key] = is_of_another(
                self._paths.crossings[rows],
                self._paths.partly.chosen(rows),
                float(self._clean.paths[place]),
                self._paths.clean_of,
            )
        return known[key]

    @cached_property
    def _hit(self) -> NDArray[np.bool_]:
        """Which lossy paths suffer from more than what is found, (paths,)."""
        lost, came, rates, _ = self._beside
        return np.asarray(likelihood(lost, came, rates) < entropy(lost, lost + came) - HIT_NATS)

    @cached_property
    def share_of_flows(self) -> Floats:
        """Of the paths that surely cross each the share that a fault of some flows would hit, as
        many as lost anything, (candidates, 1)."""
        return np.asarray(self._lossy / self._crossed)

    @cached_property
    def _lossy(self) -> Floats:
        """Paths that surely cross each and lost something, (candidates, 1)."""
        return self._sure.sums(np.ones((len(self._sure.owner), 1)), self._owners)

    @cached_property
    def _crossed(self) -> Floats:
        """All that surely cross each, at least 1, (candidates, 1)."""
        return np.maximum(self._lossy + self._clean.paths[:, None], 1)

    def may(self, grid: Floats) -> Floats:
        """Of paths that may cross, by the share of them that does: (SHARES, candidates, rates
        tried)."""
        of = self._may
        gains = np.zeros((len(SHARES), *grid.shape))
        if not len(of.owner):
            return gains
        there = of.at(grid[of.owner])
        probes = self._clean.partly_probes / np.maximum(self._clean.partly_paths, 1)
        come = np.exp(-grid * probes[:, None])
        for place, share in enumerate(SHARES.tolist()):
            with np.errstate(divide="ignore"):
                mixed = np.maximum(np.log1p(-share) + of.plain, np.log(share) + there)
                clean = np.maximum(np.log(1 - share + share * come), -self._outlier)
            lossy = np.maximum(mixed, of.low) - of.base
            gains[place] = of.sums(lossy, self._owners)
            gains[place] += self._clean.partly_paths[:, None] * clean
        gains[self._paths.partly.impossible(self._candidates)] = -np.inf
        return gains
