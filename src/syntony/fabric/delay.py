"""Sparse tomography of delay: the fewest components that explain which paths became slower. Pure.

What is explained is a *change*: a path's median one-way delay less what it used to be. A constant
one-way delay cannot be told from a clock offset learnt from the same probes, so none is ever
claimed. A clock that jumped shows as its own pattern, later on every path towards it and earlier on
every path away from it; such a finding is of kind ``clock`` and blames no component.

The search is that of `syntony.fabric.loss`: Gaussian residuals, and a path may be an outlier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.fabric.tally import Crossings, Floats

Index = NDArray[np.intp]

MIN_DELAY_NS = 2_000.0
"""Smaller changes are not looked for: one full-size packet waiting at 10 Gb/s is 1.2 µs."""
MIN_SIGMA_NS = 250.0
"""A median of kernel stamps is never trusted further than this."""
LATE_SIGMAS = 4.0
MIN_PATHS = 3
"""Fewer late paths than this are never a finding."""
STRICTNESS = 6.0
"""As `syntony.fabric.loss.STRICTNESS`; higher, because medians have heavier tails than counts."""
OUTLIER_MARGIN = 3.0
MAX_FOUND = 20
CLOSE_NATS = 3.0
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_LOWER_QUANTILES = (0.10, 0.25)
_LOWER_SIGMAS = 0.607
"""How far apart these are on a Gaussian, in sigmas."""


class DelayFinding(NamedTuple):
    """One component that became slower, or one clock that jumped."""

    candidate: int
    delay_ns: float
    """How much slower; of a clock, how far it jumped ahead (negative: back)."""
    nats: float
    confidence: float
    paths: int
    """Late paths that it explains."""
    alternatives: tuple[int, ...]


def find_delays(
    crossings: Crossings,
    signs: NDArray[np.int8],
    change_ns: Floats,
    sigma_ns: Floats,
    price: Floats,
    *,
    strictness: float = STRICTNESS,
) -> list[DelayFinding]:
    """The components that explain the changes, most certain first.

    Args:
        crossings: what each path crosses, (paths, width), -1 for nothing.
        signs: 1 for a component; for a clock 1 on paths towards it, -1 on paths from it.
        change_ns: median delay less the path's own baseline; NaN where not measured. (paths,)
        sigma_ns: 1-sigma of each change by measurement alone (clock error), (paths,).
        price: as `find_losses`; (candidates,).
        strictness: as `find_losses`.
    """
    known = np.isfinite(change_ns)
    if np.count_nonzero(known) < MIN_PATHS:
        return []
    search = _Search(
        crossings[known], signs[known], change_ns[known], sigma_ns[known], price + strictness
    )
    return search.run()


class _Search:
    def __init__(
        self,
        crossings: Crossings,
        signs: NDArray[np.int8],
        change_ns: Floats,
        sigma_ns: Floats,
        price: Floats,
    ) -> None:
        spread = _lower_spread(change_ns)
        self._sigma = np.hypot(np.maximum(sigma_ns, MIN_SIGMA_NS), spread)
        self._change = change_ns
        self._price = price
        finite = price[np.isfinite(price)]
        self._outlier = float(finite.max(initial=0.0)) + OUTLIER_MARGIN
        rows, columns = np.nonzero(crossings >= 0)
        candidate = crossings[rows, columns].astype(np.intp)
        order = np.argsort(candidate, kind="stable")
        self._row, self._owner = rows[order], candidate[order]
        self._sign = signs[rows, columns][order].astype(np.float64)
        counts = np.bincount(candidate, minlength=len(price))
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts
        self._signed = np.zeros(len(price), dtype=np.bool_)
        self._signed[self._owner[self._sign < 0]] = True
        self._found: dict[int, float] = {}
        self._rest = change_ns.copy()

    def run(self) -> list[DelayFinding]:
        for _ in range(MAX_FOUND):
            candidates = self._promising()
            gain, delay_ns = self._score(candidates, self._rest)
            if not len(gain) or gain.max() <= 0:
                break
            best = int(np.argmax(gain))
            self._found[int(candidates[best])] = float(delay_ns[best])
            self._refit()
            if not self._prune(int(candidates[best])):
                break
        findings = [self._finding(candidate) for candidate in self._found]
        return sorted(findings, key=lambda finding: -finding.nats)

    def _promising(self) -> Index:
        """Candidates with enough late paths; a clock's may also be early."""
        high = self._rest[self._row] * self._sign / self._sigma[self._row]
        late = (high > LATE_SIGMAS) | (self._signed[self._owner] & (high < -LATE_SIGMAS))
        count = np.bincount(self._owner[late], minlength=len(self._price))
        able = (count >= MIN_PATHS) & np.isfinite(self._price)
        able[list(self._found)] = False
        return np.flatnonzero(able)

    def _score(self, candidates: Index, rest: Floats) -> tuple[Floats, Floats]:
        """Gain beyond its price and most likely delay of each candidate, given what is left."""
        gains, delays = np.full(len(candidates), -np.inf), np.zeros(len(candidates))
        for place, candidate in enumerate(candidates.tolist()):
            rows, sign = self._of(candidate)
            value, sigma = rest[rows] * sign, self._sigma[rows]
            tried = np.quantile(value, _QUANTILES)
            late = value[np.abs(value) > LATE_SIGMAS * sigma]
            if len(late):
                tried = np.concatenate((tried, np.quantile(late, _QUANTILES)))
            tried = self._polished(tried, value, sigma)
            allowed = np.abs(tried) if self._signed[candidate] else tried
            tried = tried[allowed >= MIN_DELAY_NS]
            if not len(tried):
                continue
            gain = self._gain(tried, value, sigma)
            best = int(np.argmax(gain))
            gains[place], delays[place] = gain[best], tried[best]
        others = max(len(self._found), 0)
        return gains - self._price[candidates] + np.log1p(others), delays

    def _polished(self, tried: Floats, value: Floats, sigma: Floats) -> Floats:
        """Each trial moved to the mean of the paths that agree with it."""
        near = np.abs(value[:, None] - tried) < LATE_SIGMAS * sigma[:, None]
        weight = near / sigma[:, None] ** 2
        total = weight.sum(axis=0)
        mean = (weight * value[:, None]).sum(axis=0) / np.maximum(total, 1e-30)
        return np.asarray(np.where(total > 0, mean, tried))

    def _gain(self, tried: Floats, value: Floats, sigma: Floats) -> Floats:
        def cost(off: Floats, scale: Floats) -> Floats:
            return np.asarray(np.minimum(off**2 / (2 * scale**2), self._outlier))

        before = cost(value, sigma).sum()
        after = cost(value[:, None] - tried, sigma[:, None]).sum(axis=0)
        return np.asarray(before - after)

    def _of(self, candidate: int) -> tuple[Index, Floats]:
        part = slice(self._starts[candidate], self._ends[candidate])
        return self._row[part], self._sign[part]

    def _left_by(self, without: int | None) -> Floats:
        rest = self._change.copy()
        for candidate, delay_ns in self._found.items():
            if candidate != without:
                rows, sign = self._of(candidate)
                rest[rows] -= sign * delay_ns
        return rest

    def _refit(self) -> None:
        for _ in range(2 if len(self._found) > 1 else 0):
            for candidate in list(self._found):
                only = np.array([candidate], dtype=np.intp)
                gain, delay_ns = self._score(only, self._left_by(candidate))
                if np.isfinite(gain[0]):
                    self._found[candidate] = float(delay_ns[0])
        self._rest = self._left_by(None)

    def _prune(self, newest: int) -> bool:
        for candidate in list(self._found):
            only = np.array([candidate], dtype=np.intp)
            gain, _ = self._score(only, self._left_by(candidate))
            if gain[0] <= 0:
                del self._found[candidate]
                self._refit()
                if candidate == newest:
                    return False
        return True

    def _finding(self, candidate: int) -> DelayFinding:
        rest = self._left_by(candidate)
        rows, sign = self._of(candidate)
        late = rest[rows] * sign / self._sigma[rows]
        size = np.sign(self._found[candidate])
        hit = late * size > LATE_SIGMAS
        near = np.unique(self._owner[np.isin(self._row, rows[hit])])
        rivals = near[~np.isin(near, [c for c in self._found if c != candidate])]
        gain, _ = self._score(rivals, rest)
        own = float(gain[np.flatnonzero(rivals == candidate)[0]])
        weight = np.exp(np.clip(gain - own, -700, 50))
        order = np.argsort(-gain, kind="stable")
        close = [int(rivals[i]) for i in order if gain[i] > own - CLOSE_NATS]
        return DelayFinding(
            candidate=candidate,
            delay_ns=self._found[candidate],
            nats=own,
            confidence=float(1.0 / (weight.sum() + np.exp(-max(own, 0.0) - 1.0))),
            paths=int(np.count_nonzero(hit)),
            alternatives=tuple(rival for rival in close if rival != candidate),
        )


def _lower_spread(change_ns: Floats) -> float:
    """1-sigma of undisturbed paths: faults only ever make paths slower, so the lower tail tells."""
    low, high = np.quantile(change_ns, _LOWER_QUANTILES)
    return float(high - low) / _LOWER_SIGMAS
