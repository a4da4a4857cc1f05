"""Sparse tomography of loss: the fewest components that explain who lost what. Pure.

A path that crosses components with loss probabilities p loses a probe with probability
``1 - exp(-Σλ)``, λ = -ln(1-p), plus a background that everything shares. The search adds the
candidate whose own most likely λ gains most likelihood, refits all, exchanges a candidate for a
better one, drops what is not needed any more, and stops when no gain pays for a further component.

Two things make it robust where plain Poisson tomography is not. A path may be an *outlier*: its map
is stale, or what hurts it is no component at all. That explanation costs `cost of an outlier` nats,
so no single path can convict (or acquit) a component by more than that; once a component is found,
a path may also have been moved onto it since its map was learnt, at a cost that follows from how
many such paths there seem to be. And what a candidate must
gain depends on how many candidates there are and how many were found already, which bounds the
share of false ones (the step-up idea of Benjamini and Hochberg 1995).

The sparse search follows Flock (Harsh et al. 2021) in its greedy form; the rate model is that of
network tomography (Vardi 1996; Cáceres et al. 1999).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.fabric.tally import Floats, LossTally

Index = NDArray[np.intp]

MIN_LOSS = 2e-4
"""Smaller losses are not looked for: at 50 probes a second, 0.02 % is one probe in 100 s."""
MIN_LOST = 3
"""Fewer lost probes than this are never a finding, however unlikely."""
STRICTNESS = 4.0
"""Nats beyond the logarithm of the number of candidates that a first finding must gain. The chance
that a quiet fabric yields one is below e^-strictness/10 per window (chi-square tail)."""
OUTLIER_MARGIN = 3.0
"""An outlier costs so many nats more than a finding: one path alone can carry a finding only if
nothing that crosses the component speaks against it."""
MAX_FOUND = 32
CLOSE_NATS = 3.0
"""Candidates within this of the best (20 to 1) are named as alternatives."""
_MAX_RATE = 18.0
"""λ of a black hole: so large that a fleet's worth of lost probes gains nothing by more."""
_GRID = np.geomspace(MIN_LOSS, _MAX_RATE, 36)
_FINE = np.linspace(-1.0, 1.0, 9)
_STEP = float(np.log(_GRID[1] / _GRID[0]))
_SWEEPS = 3
_MIN_BACKGROUND, _MAX_BACKGROUND = 1e-7, 1e-2
_MAX_MOVED = 0.3


class LossFinding(NamedTuple):
    """One component that loses packets."""

    candidate: int
    loss: float
    """Probability that it loses a packet, most likely value."""
    nats: float
    """Log-likelihood gained beyond what a finding must gain."""
    confidence: float
    """Posterior probability against the alternatives and against nothing being wrong."""
    lost: float
    """Lost probes that it explains."""
    paths: int
    """Paths that crossed it and lost something."""
    alternatives: tuple[int, ...]
    """Other candidates that explain (nearly) the same, best first."""


def find_losses(
    tally: LossTally, price: Floats, *, strictness: float = STRICTNESS, max_found: int = MAX_FOUND
) -> list[LossFinding]:
    """The components that explain the window's losses, most certain first; none if all is well.

    Args:
        tally: the window's counts.
        price: per candidate, nats that its kind costs in advance, usually the logarithm of how
            many of its kind there are; infinite for one that must not be found. (candidates,)
        strictness: see `STRICTNESS`; grows with the logarithm of the number of windows looked at.
        max_found: stop there; more faults than this are not sparse.
    """
    return LossSearch(tally, price, strictness=strictness, max_found=max_found).findings


class LossSearch:
    """One search and what it found; arguments as `find_losses`."""

    def __init__(
        self,
        tally: LossTally,
        price: Floats,
        *,
        strictness: float = STRICTNESS,
        max_found: int = MAX_FOUND,
    ) -> None:
        self._tally = tally
        self._search: _Search | None = None
        self.findings: list[LossFinding] = []
        if len(tally.lost):
            self._search = _Search(tally, price + strictness, max_found)
            self.findings = self._search.run()

    def gain_at(self, candidate: int, loss: float) -> float:
        """Nats gained (lost, if negative) by `candidate` losing so much beside what was found."""
        rate = min(float(-np.log1p(-min(loss, 1 - 1e-9))), _MAX_RATE)
        if self._search is not None:
            return self._search.gain_at(candidate, rate)
        clean = self._tally.clean_probes[candidate]
        return -min(float(rate * clean), OUTLIER_MARGIN * float(self._tally.clean_paths[candidate]))


class _Search:
    """The state of one search: what is selected, and every lossy path's rate under it."""

    def __init__(self, tally: LossTally, price: Floats, max_found: int) -> None:
        self._price = price
        self._max_found = max_found
        finite = price[np.isfinite(price)]
        self._outlier = float(finite.max(initial=0.0)) + OUTLIER_MARGIN
        self._lost, self._sent = tally.lost, tally.sent
        self._came = tally.sent - tally.lost
        self._best = _entropy(tally.lost, tally.sent)
        rows, columns = np.nonzero(tally.crossings >= 0)
        candidate = tally.crossings[rows, columns].astype(np.intp)
        order = np.argsort(candidate, kind="stable")
        self._row = rows[order]
        counts = np.bincount(candidate, minlength=tally.candidates)
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts
        self._seen = np.flatnonzero(
            np.bincount(candidate, tally.lost[rows], minlength=tally.candidates) >= MIN_LOST
        )
        self._crossings = tally.crossings
        self._clean = tally.clean_paths
        self._clean_each = tally.clean_probes / np.maximum(tally.clean_paths, 1)
        self._total_sent = tally.total_sent
        self._paths = tally.paths
        self._moved = min(1.0 / tally.paths, _MAX_MOVED)
        self._found: dict[int, float] = {}
        self._set_background()

    def run(self) -> list[LossFinding]:
        # Adding, exchanging and dropping can come back to where they were: then it is over.
        seen: set[frozenset[int]] = set()
        while len(self._found) < self._max_found and frozenset(self._found) not in seen:
            seen.add(frozenset(self._found))
            candidates = self._promising()
            gain, rate = self._score(candidates)
            if not len(gain) or gain.max() <= 0:
                break
            best = int(np.argmax(gain))
            self._found[int(candidates[best])] = float(rate[best])
            self._refit()
            self._exchange()
            if not self._prune(int(candidates[best])):
                break
        findings = [self._finding(candidate) for candidate in self._found]
        return sorted(findings, key=lambda finding: -finding.nats)

    def gain_at(self, candidate: int, rate: float) -> float:
        rows = self._rows_of(candidate)
        floor = self._floor()[rows]
        base = np.maximum(self._likelihood(self._rates[rows], rows), floor)
        there = np.maximum(self._likelihood(self._rates[rows] + rate, rows), floor)
        each = min(rate * float(self._clean_each[candidate]), self._outlier)
        return float((there - base).sum() - each * self._clean[candidate])

    def _threshold(self) -> float:
        """What the step-up takes off the price of the next finding."""
        return float(np.log1p(len(self._found)))

    def _set_background(self) -> None:
        """The loss rate that everything shares: what is lost and neither explained nor odd."""
        found = self._rates_of_found()
        before = getattr(self, "_background", self._lost.sum() / self._total_sent)
        plain = self._likelihood(found + before) >= self._best - self._outlier
        share = before / (found + before)
        rest = float((self._lost * share)[plain].sum())
        self._background = float(
            np.clip((rest + 0.5) / self._total_sent, _MIN_BACKGROUND, _MAX_BACKGROUND)
        )
        self._rates = found + self._background
        self._set_moved()

    def _set_moved(self) -> None:
        """The share of paths that cross what was found although their map does not say so."""
        if not self._found:
            self._moved = min(1.0 / self._paths, _MAX_MOVED)
            return
        plain = self._likelihood(self._rates)
        moved = self._likelihood_moved(None)
        odds = np.log(self._moved / (1 - self._moved)) + moved - plain
        share = 1.0 / (1.0 + np.exp(-np.clip(odds, -50, 50)))
        self._moved = min((float(share.sum()) + 0.5) / self._paths, _MAX_MOVED)

    def _likelihood_moved(self, without: int | None) -> Floats:
        """Each path's likelihood if it went through that found component which suits it best."""
        rates = [rate for candidate, rate in self._found.items() if candidate != without]
        if not rates:
            return np.full(len(self._lost), -np.inf)
        return np.asarray(
            np.max(
                [self._likelihood(np.full(len(self._lost), self._background + r)) for r in rates],
                axis=0,
            )
        )

    def _rates_of_found(self) -> Floats:
        rates = np.zeros(len(self._lost))
        for candidate, rate in self._found.items():
            rates[self._rows_of(candidate)] += rate
        return rates

    def _rows_of(self, candidate: int) -> Index:
        return self._row[self._starts[candidate] : self._ends[candidate]]

    def _likelihood(self, rate: Floats, rows: Index | slice = slice(None)) -> Floats:
        """Binomial log-likelihood of paths at these rates, without the constant."""
        lost, came = self._lost[rows], self._came[rows]
        if rate.ndim > 1:
            lost, came = lost[:, None], came[:, None]
        return np.asarray(lost * np.log(-np.expm1(-rate)) - came * rate)

    def _floor(self, without: int | None = None) -> Floats:
        """How unlikely a path can be at most: it may be an outlier, or have moved."""
        moved = self._likelihood_moved(without) + np.log(self._moved)
        return np.asarray(np.maximum(self._best - self._outlier, moved))

    def _promising(self) -> Index:
        """Candidates that could pay their price if everything spoke for them."""
        now = np.maximum(self._likelihood(self._rates), self._floor())
        room = np.maximum(self._best - now, 0.0)
        sums = np.concatenate(([0.0], np.cumsum(room[self._row])))
        bound = sums[self._ends[self._seen]] - sums[self._starts[self._seen]]
        able = bound + self._threshold() > self._price[self._seen]
        fresh = ~np.isin(self._seen, list(self._found))
        return np.asarray(self._seen[able & fresh])

    def _score(self, candidates: Index, without: int | None = None) -> tuple[Floats, Floats]:
        """Gain beyond its price, and most likely rate, of each candidate added to what is found.

        Args:
            candidates: which, (n,).
            without: a found one to leave out.
        """
        if not len(candidates):
            return np.zeros(0), np.zeros(0)
        rates = self._rates.copy()
        if without is not None:
            rates[self._rows_of(without)] -= self._found[without]
            np.maximum(rates, self._background, out=rates)
        counts = self._ends[candidates] - self._starts[candidates]
        shift = np.repeat(self._starts[candidates] - np.cumsum(counts) + counts, counts)
        rows = self._row[np.arange(int(counts.sum())) + shift]
        owner = np.repeat(np.arange(len(candidates)), counts)
        floor = self._floor(without)[rows]
        base = np.maximum(self._likelihood(rates[rows], rows), floor)
        cuts = np.cumsum(counts) - counts

        def gains(grid: Floats) -> Floats:
            """(candidates, rates tried) for a grid of shape (candidates, rates tried)."""
            there = self._likelihood(rates[rows][:, None] + grid[owner], rows)
            gained = np.maximum(there, floor[:, None]) - base[:, None]
            lossy = np.add.reduceat(gained, cuts, axis=0)
            each = np.minimum(grid * self._clean_each[candidates][:, None], self._outlier)
            return np.asarray(lossy - self._clean[candidates][:, None] * each)

        grid = np.broadcast_to(_GRID, (len(candidates), len(_GRID)))
        rate = grid[np.arange(len(candidates)), np.argmax(gains(grid), axis=1)]
        for width in (_STEP, _STEP / 4):
            fine = np.clip(rate[:, None] * np.exp(_FINE * width), _GRID[0], _GRID[-1])
            value = gains(fine)
            place = np.argmax(value, axis=1)
            rate = fine[np.arange(len(candidates)), place]
        gain = value[np.arange(len(candidates)), place]
        others = len(self._found) - (without is not None)
        return gain - self._price[candidates] + np.log1p(others), rate

    def _refit(self) -> None:
        """All found rates again, each given the others, and the background."""
        self._set_background()
        if len(self._found) < 2:
            return
        for _ in range(_SWEEPS):
            for candidate in list(self._found):
                _, rate = self._score(np.array([candidate], dtype=np.intp), without=candidate)
                self._found[candidate] = float(rate[0])
                self._set_background()

    def _exchange(self) -> None:
        """Replace each found one by a rival that explains more, once others are found."""
        for candidate in list(self._found):
            rivals, gain, rate = self._rivals(candidate)
            best = int(np.argmax(gain))
            own = gain[np.flatnonzero(rivals == candidate)[0]]
            if rivals[best] != candidate and gain[best] > own + 1e-6:
                del self._found[candidate]
                self._found[int(rivals[best])] = float(rate[best])
                self._refit()

    def _rivals(self, candidate: int) -> tuple[Index, Floats, Floats]:
        """Candidates on the same lossy paths (itself among them), their gains and rates."""
        near = np.unique(self._crossings[self._rows_of(candidate)])
        taken = [other for other in self._found if other != candidate]
        rivals = near[(near >= 0) & ~np.isin(near, taken)].astype(np.intp)
        gain, rate = self._score(rivals, without=candidate)
        return rivals, gain, rate

    def _prune(self, newest: int) -> bool:
        """Drop what no longer pays; False if that was the newest, or no progress was made."""
        for candidate in list(self._found):
            gain, _ = self._score(np.array([candidate], dtype=np.intp), without=candidate)
            if gain[0] <= 0:
                del self._found[candidate]
                self._refit()
                if candidate == newest:
                    return False
        return True

    def _finding(self, candidate: int) -> LossFinding:
        rivals, gain, _ = self._rivals(candidate)
        own = float(gain[np.flatnonzero(rivals == candidate)[0]])
        rate = self._found[candidate]
        rows = self._rows_of(candidate)
        weight = np.exp(np.clip(gain - own, -700, 50))
        order = np.argsort(-gain, kind="stable")
        close = [int(rivals[i]) for i in order if gain[i] > own - CLOSE_NATS]
        return LossFinding(
            candidate=candidate,
            loss=float(-np.expm1(-rate)),
            nats=own,
            confidence=float(1.0 / (weight.sum() + np.exp(-max(own, 0.0) - 1.0))),
            lost=float((self._lost[rows] * rate / self._rates[rows]).sum()),
            paths=len(rows),
            alternatives=tuple(rival for rival in close if rival != candidate),
        )


def _entropy(lost: Floats, sent: Floats) -> Floats:
    """The binomial log-likelihood of each path at its own best rate."""
    came = sent - lost
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = lost * np.log(lost / sent) + np.where(came > 0, came * np.log(came / sent), 0.0)
    return np.asarray(parts)
