"""Gains of candidates for loss at trial rates, in addition to the findings. Pure.

Each candidate is tried at dozens of rates. Values that do not depend on the rate (its paths, their
losses, the likelihood without it) are gathered once for all of them. Paths for which all of these
are equal form one row: most lost one or two of the same number of probes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

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

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Mask = NDArray[np.bool_]

SOME_FLOWS_PRICE = 5.0
"""Nats that a fault of some flows costs in addition: about 1 in 150 faults is one."""
MIN_SHARE = 0.25
"""… and the minimum share of the paths that it affects: fewer are outliers."""
HIT_NATS = 3.0
"""A path whose likelihood at the rates of the findings is lower by this than at its own rate has
another fault."""
NEARLY_ALL = 2.3
"""At this rate (nine probes in ten are lost) a path shows no further fault."""
NEAR_NATS = 5.0
"""Explanations of a candidate's losses that are further behind the best one, at the best trial
rates, are not refined …"""
NEAR_SHARE = 0.1
"""… by more than this share of what the best one gains in addition."""
_WIDTH = 4
_FINE = np.arange(-_WIDTH, _WIDTH + 1) / _WIDTH
"""Between the trial rates on both sides of the best one."""
with np.errstate(divide="ignore"):
    _LOG_SHARES, _LOG_OTHERS = np.log(SHARES), np.log1p(-SHARES)
FEW = 128
"""Up to so many paths it is cheaper to treat each by itself than to look for equal ones."""
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
    alike: Ints
    """A number for each, equal for paths with equal counts and floor."""


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
    able: Mask
    """Which candidates may affect some flows only."""
    known: dict[tuple[int, bytes], bool]
    """Cache: candidate and affected paths → whether these are those of another component. A search
    repeats the same questions."""


class _Rows:
    """Lossy paths of candidates, (entries,), sorted by candidate. Paths that are equal to the
    search are one *kind*, for which all values that do not depend on the trial rate are kept."""

    def __init__(self, entries: Entries, candidates: Index, path_losses: PathLosses) -> None:
        rows, owner, times = entries.all_of(candidates)
        self._is_by_itself = len(rows) <= FEW
        if self._is_by_itself:
            self.owner, self.kind = owner, np.arange(len(rows))
            self.count = np.ones((len(rows), 1))
            self.times = times[:, None]
        else:
            rates = path_losses.rates[rows]
            same = alike(path_losses.alike[rows] * _TIMES + times.astype(np.int64), rates)
            key = owner * (len(rows) + 1) + same
            _, some, count = np.unique(key, return_index=True, return_counts=True)
            self.owner, self.kind = owner[some], same[some]
            self.count = count[:, None].astype(np.float64)
            first = np.zeros(int(same.max()) + 1, dtype=np.intp)
            first[same] = np.arange(len(rows))
            rows, self.times = rows[first], times[first, None]
        self._begins = _begins(self.owner)
        self.lost, self.arrived, self.rates, self.low = (
            each[rows, None] for each in path_losses[:4]
        )
        self.plain = likelihood(self.lost, self.arrived, self.rates)
        self.base = np.maximum(self.plain, self.low)

    def of_kinds(self, grid: Floats) -> Floats:
        """Likelihood of each kind with these additional losses, (kinds, trial rates)."""
        return likelihood(self.lost, self.arrived, self.rates + grid * self.times)

    def at(self, grid: Floats) -> Floats:
        """Likelihood of each entry if its candidate has these, (candidates, trial rates), or all of
        them the same, (1, trial rates): (entries, trial rates)."""
        if len(grid) == 1:
            return self.of_kinds(grid)[self.kind]
        kind = self.kind
        more = grid[self.owner] * self.times[kind]
        return likelihood(self.lost[kind], self.arrived[kind], self.rates[kind] + more)

    def sums(self, values: Floats, owners: int) -> Floats:
        """Sums over all paths of each candidate: (…, entries, trial rates) → (…, owners, trial
        rates). Changes `values`."""
        found = np.zeros((*values.shape[:-2], owners, values.shape[-1]))
        if len(self._begins):
            values *= self.count
            sums = np.add.reduceat(values, self._begins, axis=-2)
            found[..., self.owner[self._begins], :] = sums
        return found

    def sums_of_kinds(self, values: Floats, owners: int) -> Floats:
        """As `sums`, of values of each kind, (…, kinds, trial rates)."""
        if self._is_by_itself:
            return self.sums(values, owners)
        kinds, rates = values.shape[-2:]
        flat = np.moveaxis(values, -2, 0).reshape(kinds, -1)
        sums = np.asarray(self._counts(owners) @ flat)
        sums = sums.reshape(owners, *values.shape[:-2], rates)
        return np.moveaxis(sums, 0, -2)

    def _counts(self, owners: int) -> csr_array[np.float64]:
        """How many paths of each kind cross each candidate, (owners, kinds)."""
        if self._matrix is None:
            from scipy.sparse import csr_array

            ends = np.searchsorted(self.owner, np.arange(owners + 1))
            shape = owners, len(self.lost)
            self._matrix = csr_array((self.count[:, 0], self.kind, ends), shape=shape)
        return self._matrix

    _matrix: csr_array[np.float64] | None = None


def _begins(owner: Index) -> Index:
    """Where each owner's entries begin; they are sorted by owner."""
    return np.flatnonzero(np.concatenate((owner[:1] >= 0, owner[1:] != owner[:-1])))


def alike(*values: Ints | Floats) -> Ints:
    """A number for each place, equal for places with equal values, (n,) each."""
    order = np.lexsort(values)
    changes = np.zeros(max(len(order) - 1, 0), dtype=np.bool_)
    for each in values:
        sorted_values = each[order]
        changes |= sorted_values[1:] != sorted_values[:-1]
    found = np.zeros(len(order), dtype=np.int64)
    found[order[1:]] = np.cumsum(changes)
    return found


class Gains:
    """Nats gained by candidates at trial rates. An unexplained path costs `outlier` of them, a
    fault of some flows `some_flows`. Trial rates are (candidates, n), or (1, n) for all."""

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
        self._known_of_another: dict[int, bool] = {}

    @cached_property
    def _sure(self) -> _Rows:
        return _Rows(self._paths.sure, self._candidates, self._path_losses)

    @cached_property
    def _may(self) -> _Rows:
        return _Rows(self._paths.may, self._candidates, self._path_losses)

    @property
    def entries(self) -> int:
        """Number of different paths of all candidates."""
        return len(self._sure.owner) + len(self._may.owner)

    def at(self, grid: Floats) -> Floats:
        """Gain over all paths, with the most likely share of those that may cross. (candidates,
        trial rates)."""
        if not len(self._may.owner):
            return self.sure(grid)
        return np.asarray(self.sure(grid) + np.maximum(self.may(grid).max(axis=0), 0.0))

    def fitted(self, grid: Floats) -> tuple[Floats, Floats]:
        """Nats gained by each candidate at its most likely rate, and that rate.

        Args:
            grid: geometric trial rates, ascending. The best one is refined.
        """
        each, step = np.arange(self._owners), np.log(grid[1] / grid[0])
        every, some = self.of_all_or_some(grid[None])
        value, may = np.maximum(every, some), self.may(grid[None])
        value += np.maximum(may.max(axis=0), 0.0)
        place = np.argmax(value, axis=1)
        beside = np.clip(place[:, None] + [-1, 0, 1], 0, len(grid) - 1)
        near = each[:, None], beside
        shares = _close(may[:, *near], may[:, *near].max(axis=0, initial=0.0))
        able = _close(some[near], np.maximum(every[near], some[near]))
        rates = grid[place][:, None] * np.exp(step * _FINE)
        rates = np.clip(rates, grid[0], grid[-1])
        fine = np.empty_like(rates)
        fine[:, ::_WIDTH], between = value[near], np.arange(len(_FINE)) % _WIDTH > 0
        fine[:, between] = self._at_some(rates[:, between], able, shares)
        place = np.argmax(fine, axis=1)
        rate, best = rates[each, place], fine[each, place]
        top = rate * np.exp(step / _WIDTH * _vertex(fine, place))
        last = self._at_some(top[:, None], able, shares)[:, 0]
        return np.maximum(best, last), np.where(last > best, top, rate)

    def _at_some(self, grid: Floats, able: Mask, shares: Mask) -> Floats:
        """As `at`, with these shares of the paths that may cross, (SHARES, candidates), and with a
        fault of some flows only where it is `able` to be one, (candidates,)."""
        value = np.maximum(*self.of_all_or_some(grid, able))
        return np.asarray(value + np.maximum(self.may(grid, shares).max(axis=0), 0.0))

    def sure(self, grid: Floats) -> Floats:
        """Gain of paths that certainly cross, (candidates, trial rates)."""
        return np.asarray(np.maximum(*self.of_all_or_some(grid)))

    def of_all_or_some(self, grid: Floats, able: Mask | None = None) -> tuple[Floats, Floats]:
        """The larger gain of two: all of these paths are affected, or only a share of them. A fault
        may affect some flows by their ports, or by the lane or buffer that a hash selects. (It is
        -inf where it is not `able` to, and where it affects no fewer than all.)"""
        of, clean = self._sure, self._clean
        each = np.minimum(grid * self._probes, self._outlier) * clean.paths[:, None]
        if len(grid) == 1:
            there = of.of_kinds(grid)
            harmed = np.maximum(there, of.low) - of.base
            every = of.sums_of_kinds(harmed, self._owners) - each
            there = there[of.kind]
        else:
            there, kind = of.at(grid), of.kind
            harmed = np.maximum(there, of.low[kind]) - of.base[kind]
            every = of.sums(harmed, self._owners) - each
        some = np.full_like(every, -np.inf)
        chosen = self.may_be_some if able is None else able & self.may_be_some
        if chosen.any():
            some[chosen] = self._of_some(there, grid, chosen)
            for place in np.flatnonzero(some.max(axis=1) > np.maximum(every.max(axis=1), 0)):
                if self._is_of_another(int(place)):
                    some[place] = -np.inf
        return every, some

    def _of_some(self, there: Floats, grid: Floats, chosen: Mask) -> Floats:
        """Gain of the chosen candidates if some of the flows are affected.

        Args:
            there: likelihood of each entry, (entries, trial rates).
        """
        of, paths = self._sure, self._clean.paths[chosen, None]
        rows = np.flatnonzero(chosen[of.owner])
        owner, count, kind = of.owner[rows], of.count[rows], of.kind[rows]
        there = there[rows]
        begins = _begins(owner)
        likelier = np.add.reduceat((there > of.plain[kind]) * count, begins)
        share = self.share_of_flows[chosen]
        log_share, spared = np.log(share), np.log1p(-share)
        place = np.searchsorted(owner[begins], owner)
        there += log_share[place]
        np.maximum(there, spared[place] + of.plain[kind], out=there)
        np.maximum(there, of.low[kind], out=there)
        there -= of.base[kind]
        there *= count
        each = grid if len(grid) == 1 else grid[chosen]
        well = np.log(1 - share + share * np.exp(-each * self._probes[chosen]))
        some = np.add.reduceat(there, begins) + paths * np.maximum(well, -self._outlier)
        some -= self._some_flows
        some[likelier < MIN_SHARE * self._crossed[chosen]] = -np.inf
        return np.asarray(some)

    @cached_property
    def _probes(self) -> Floats:
        """Probes of each of the paths that lost nothing, on average, (candidates, 1)."""
        return np.asarray((self._clean.probes / np.maximum(self._clean.paths, 1))[:, None])

    @cached_property
    def may_be_some(self) -> Mask:
        """Which candidates may have a fault of some flows: some, not all, of the paths across them
        lost anything, (candidates,)."""
        share = self.share_of_flows[:, 0]
        return np.asarray((share >= MIN_SHARE) & (share < 1) & self._paths.able)

    def _is_of_another(self, place: int) -> bool:
        """For the candidate at this place: whether the affected paths are those of another
        component."""
        if place not in self._known_of_another:
            self._known_of_another[place] = self._are_of_another(place)
        return self._known_of_another[place]

    def _are_of_another(self, place: int) -> bool:
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
        lost, arrived, rates = self._path_losses[:3]
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
        each = np.bincount(self._sure.owner, self._sure.count[:, 0], minlength=self._owners)
        return np.asarray(each[:, None])

    @cached_property
    def _crossed(self) -> Floats:
        """Number of paths that certainly cross each, at least 1, (candidates, 1)."""
        return np.maximum(self._lossy + self._clean.paths[:, None], 1)

    def may(self, grid: Floats, shares: Mask | None = None) -> Floats:
        """Gain of paths that may cross, by the share that does: (SHARES, candidates, trial rates);
        -inf for shares that are not among `shares`, (SHARES, candidates)."""
        of = self._may
        gains = np.zeros((len(SHARES), self._owners, grid.shape[1]))
        if not len(of.owner) or (shares is not None and not shares.any()):
            return gains
        chosen = slice(None) if shares is None else np.flatnonzero(shares.any(axis=1))
        elsewhere, share = self._elsewhere[chosen], SHARES[chosen, None, None]
        if len(grid) == 1:
            there, sums = of.of_kinds(grid) - of.base, of.sums_of_kinds
        else:
            there, sums = of.at(grid) - of.base[of.kind], of.sums
            elsewhere = elsewhere[:, of.kind]
        lossy = there + _LOG_SHARES[chosen, None, None]
        np.maximum(lossy, elsewhere, out=lossy)
        probes = self._clean.partly_probes / np.maximum(self._clean.partly_paths, 1)
        come = np.exp(-grid * probes[:, None])
        with np.errstate(divide="ignore"):
            clean = np.maximum(np.log(1 - share + share * come), -self._outlier)
        gains[chosen] = sums(lossy, self._owners) + self._clean.partly_paths[:, None] * clean
        gains[self._paths.partly.impossible(self._candidates)] = -np.inf
        if shares is not None:
            gains[~shares] = -np.inf
        return gains

    @cached_property
    def _elsewhere(self) -> Floats:
        """Nats gained by a path that may cross and does not, by the share that does: (SHARES,
        kinds, 1)."""
        of = self._may
        plain = _LOG_OTHERS[:, None, None] + of.plain
        return np.asarray(np.maximum(plain, of.low) - of.base)


def _close(values: Floats, best: Floats) -> Mask:
    """Of (…, candidates, trial rates): where any comes near the best one, (…, candidates)."""
    margin = NEAR_NATS + NEAR_SHARE * np.abs(best)
    return np.asarray((values > best - margin).any(axis=-1))


def _vertex(values: Floats, place: Index) -> Floats:
    """Where a parabola through the values at a place and on both sides of it is largest, in steps
    from the place, -1 to 1; 0 at the ends of the values, (n, points)."""
    each, last = np.arange(len(values)), values.shape[1] - 1
    middle = np.clip(place, 1, last - 1)
    left, top, right = (values[each, middle + side] for side in (-1, 0, 1))
    bend = left - 2 * top + right
    inside = (place == middle) & (bend < 0)
    shift = 0.5 * (left - right) / np.where(inside, bend, 1.0)
    return np.where(inside, np.clip(shift, -1.0, 1.0), 0.0)
