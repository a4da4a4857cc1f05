"""Gains of candidates for loss at trial rates, in addition to the findings. Pure.

Each candidate is tried at dozens of rates. Values that do not depend on the rate (its paths, their
losses, the likelihood without it) are gathered once for all of them. Paths for which all of these
are equal form one row: most lost one or two of the same number of probes.
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
)

SOME_FLOWS_PRICE = 5.0
"""Nats that a fault of some flows costs in addition: about 1 in 150 faults is one."""
MIN_SHARE = 0.25
"""… and the minimum share of the paths that it affects: fewer are outliers."""
HIT_NATS = 3.0
"""A path whose likelihood at the rates of the findings is lower by this than at its own rate has
another fault."""
NEARLY_ALL = 2.3
"""At this rate (nine probes in ten are lost) a path shows no further fault."""
AT_ONCE = 1 << 16
"""Number of likelihoods computed at a time, for several shares if there are few paths."""
_TIMES = 1 << 8
"""Number of different values of `Times`."""


def likelihood(lost: Floats, arrived: Floats, rate: Floats) -> Floats:
    """Binomial log-likelihood of paths that lose at these rates λ, without the constant."""
    return np.asarray(lost * np.log(-np.expm1(-rate)) - arrived * rate)


def entropy(lost: Floats, sent: Floats) -> Floats:
    """The binomial log-likelihood of each path at its own best rate."""
    arrived = sent - lost
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = lost * np.log(lost / sent) + np.where(
            arrived > 0, arrived * np.log(arrived / sent), 0.0
        )
    return np.asarray(parts)


class PathLosses(NamedTuple):
    """Every lossy path given the findings without the candidates; (paths,) each."""

    lost: Floats
    arrived: Floats
    rates: Floats
    floor: Floats
    """Lower bound of its likelihood."""


class CandidatePaths(NamedTuple):
    """Which paths cross candidates."""

    sure: Entries
    """Lossy paths that certainly cross …"""
    may: Entries
    """… and that may cross."""
    clean: Clean
    """Paths that lost nothing, only of the requested candidates."""
    partly: PartlyLearnt
    """Possible shares of those that may cross a candidate."""
    crossings: Crossings
    """What each lossy path certainly crosses, (paths, width)."""
    clean_of: Callable[[Index], Clean]
    """`clean` for any candidates."""
    known: dict[tuple[int, bytes], bool]
    """Cache: candidate and affected paths → whether these are those of another component. A search
    repeats the same questions."""


class _Rows:
    """Lossy paths of candidates, sorted by candidate, with all values that do not depend on the
    trial rate; equal paths are one row."""

    def __init__(
        self,
        entries: Entries,
        candidates: Index,
        path_losses: PathLosses,
        alike: Callable[[], Ints],
    ) -> None:
        rows, owner, times = entries.all_of(candidates)
        if len(rows) < len(path_losses.lost):
            same = _alike(PathLosses(*(each[rows] for each in path_losses)))
        else:
            same = alike()[rows]
        key = (owner * len(path_losses.lost) + same) * _TIMES + times.astype(np.int64)
        _, some, count = np.unique(key, return_index=True, return_counts=True)
        rows, self.owner, self.times = rows[some], owner[some], times[some]
        self._begins = np.flatnonzero(np.diff(self.owner, prepend=-1))
        self.count = count[:, None]
        self.lost, self.arrived, self.rates, self.low = (each[rows, None] for each in path_losses)
        self.plain = likelihood(self.lost, self.arrived, self.rates)
        self.base = np.maximum(self.plain, self.low)

    def at(self, more: Floats) -> Floats:
        """Likelihood of each with the additional loss, (rows, trial rates)."""
        return likelihood(self.lost, self.arrived, self.rates + more)

    def sums(self, values: Floats, owners: int) -> Floats:
        """Sums over all paths of each candidate: (…, rows, trial rates) → (…, owners, trial
        rates)."""
        found = np.zeros((*values.shape[:-2], owners, values.shape[-1]))
        if len(self._begins):
            values *= self.count
            sums = np.add.reduceat(values, self._begins, axis=-2)
            found[..., self.owner[self._begins], :] = sums
        return found


def _alike(path_losses: PathLosses) -> Ints:
    """A number for each path, equal for paths with equal values."""
    order = np.lexsort(path_losses)
    changes = [np.diff(each[order]) != 0 for each in path_losses]
    found = np.zeros(len(order), dtype=np.int64)
    found[order[1:]] = np.cumsum(np.any(changes, axis=0))
    return found


class Gains:
    """Nats gained by candidates at trial rates. An unexplained path costs `outlier` of them, a
    fault of some flows `some_flows`."""

    def __init__(
        self,
        candidates: Index,
        paths: CandidatePaths,
        path_losses: PathLosses,
        outlier: float,
        some_flows: float = SOME_FLOWS_PRICE,
    ) -> None:
        self._candidates, self._paths, self._path_losses = candidates, paths, path_losses
        self._some_flows = some_flows
        self._owners, self._clean, self._outlier = len(candidates), paths.clean, outlier

    @cached_property
    def _alike(self) -> Ints:
        return _alike(self._path_losses)

    @cached_property
    def _sure(self) -> _Rows:
        return _Rows(self._paths.sure, self._candidates, self._path_losses, lambda: self._alike)

    @cached_property
    def _may(self) -> _Rows:
        return _Rows(self._paths.may, self._candidates, self._path_losses, lambda: self._alike)

    def at(self, grid: Floats) -> Floats:
        """Gain over all paths, with the most likely share of those that may cross. `grid` and the
        result: (candidates, trial rates)."""
        if not len(self._may.owner):
            return self.sure(grid)
        return np.asarray(self.sure(grid) + np.maximum(self.may(grid).max(axis=0), 0.0))

    def sure(self, grid: Floats) -> Floats:
        """Gain of paths that certainly cross, (candidates, trial rates)."""
        return np.asarray(np.maximum(*self.of_all_or_some(grid)))

    def of_all_or_some(self, grid: Floats) -> tuple[Floats, Floats]:
        """The larger gain of two: all of these paths are affected, or only a share of them. A fault
        may affect some flows by their ports, or by the lane or buffer that a hash selects."""
        of, clean = self._sure, self._clean
        there = of.at(grid[of.owner] * of.times[:, None])
        probes = (clean.probes / np.maximum(clean.paths, 1))[:, None]
        share = self.share_of_flows
        with np.errstate(divide="ignore"):
            well = np.log(1 - share + share * np.exp(-grid * probes))
        likelier = of.sums((there > of.plain).astype(np.float64), self._owners)
        there -= of.base
        hit, spared = self._some
        some = of.sums(np.maximum(there + hit, spared), self._owners)
        some += clean.paths[:, None] * np.maximum(well, -self._outlier) - self._some_flows
        some[likelier < MIN_SHARE * self._crossed] = -np.inf
        np.maximum(there, of.low - of.base, out=there)
        each = np.minimum(grid * probes, self._outlier)
        every = of.sums(there, self._owners) - clean.paths[:, None] * each
        for place in np.flatnonzero(some.max(axis=1) > np.maximum(every.max(axis=1), 0)).tolist():
            if self._is_of_another(place):
                some[place] = -np.inf
        return every, some

    @cached_property
    def _some(self) -> tuple[Floats, Floats]:
        """For a fault of some flows: the logarithm of their share, and the nats gained by a path
        that it does not affect, (rows, 1) each."""
        of, share = self._sure, self.share_of_flows[self._sure.owner]
        with np.errstate(divide="ignore"):
            return np.log(share), np.maximum(np.log1p(-share) + of.plain, of.low) - of.base

    def _is_of_another(self, place: int) -> bool:
        """For the candidate at this place: whether the affected paths are those of another
        component."""
        candidate, known = int(self._candidates[place]), self._paths.known
        rows, _ = self._paths.sure.of(candidate)
        hit = self._hit[rows]
        well = rows[~hit & (self._path_losses.rates[rows] < NEARLY_ALL)]
        rows = rows[hit]
        key = candidate, rows.tobytes() + well.tobytes()
        if key not in known:
            known[key] = is_of_another(
                self._paths.crossings[rows],
                self._paths.partly.chosen(rows),
                float(self._clean.paths[place]),
                self._paths.clean_of,
                self._paths.crossings[well],
            )
        return known[key]

    @cached_property
    def _hit(self) -> NDArray[np.bool_]:
        """Which lossy paths have a fault in addition to the findings, (paths,)."""
        lost, arrived, rates, _ = self._path_losses
        return np.asarray(
            likelihood(lost, arrived, rates) < entropy(lost, lost + arrived) - HIT_NATS
        )

    @cached_property
    def share_of_flows(self) -> Floats:
        """The share of flows that a fault of some flows would affect, from the paths that certainly
        cross each candidate and lost anything, (candidates, 1)."""
        return np.asarray(self._lossy / self._crossed)

    @cached_property
    def _lossy(self) -> Floats:
        """Number of paths that certainly cross each and lost anything, (candidates, 1)."""
        return self._sure.sums(np.ones((len(self._sure.owner), 1)), self._owners)

    @cached_property
    def _crossed(self) -> Floats:
        """Number of paths that certainly cross each, at least 1, (candidates, 1)."""
        return np.maximum(self._lossy + self._clean.paths[:, None], 1)

    def may(self, grid: Floats) -> Floats:
        """Gain of paths that may cross, by the share that does: (SHARES, candidates, trial
        rates)."""
        of = self._may
        gains = np.zeros((len(SHARES), *grid.shape))
        if not len(of.owner):
            return gains
        there = of.at(grid[of.owner])
        there -= of.base
        probes = self._clean.partly_probes / np.maximum(self._clean.partly_paths, 1)
        come = np.exp(-grid * probes[:, None])
        at_once = max(1, AT_ONCE // there.size)
        for first in range(0, len(SHARES), at_once):
            some = slice(first, first + at_once)
            share = SHARES[some, None, None]
            with np.errstate(divide="ignore"):
                clean = np.maximum(np.log(1 - share + share * come), -self._outlier)
            lossy = there + np.log(share)
            np.maximum(lossy, self._elsewhere[some], out=lossy)
            gains[some] = of.sums(lossy, self._owners)
            gains[some] += self._clean.partly_paths[:, None] * clean
        gains[self._paths.partly.impossible(self._candidates)] = -np.inf
        return gains

    @cached_property
    def _elsewhere(self) -> Floats:
        """Nats gained by a path that may cross and does not, by the share that does: (SHARES, rows,
        1)."""
        of = self._may
        with np.errstate(divide="ignore"):
            plain = np.log1p(-SHARES)[:, None, None] + of.plain
        return np.asarray(np.maximum(plain, of.low) - of.base)
