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

A path that is learnt only in part *may* cross a candidate (`PartlyLearnt`). A fault of the
candidate then hits an unknown share of such paths, tried from `SHARES`; with a share of nothing
they say nothing for or against a candidate that other paths cross for sure.

The sparse search follows Flock (Harsh et al. 2021) in its greedy form; the rate model is that of
network tomography (Vardi 1996; Cáceres et al. 1999).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from syntony.fabric import loss_gains, loss_pairs
from syntony.fabric.loss_gains import Gains, Paths, entropy, likelihood
from syntony.fabric.loss_pairs import Beside, Pair, RivalPairs
from syntony.fabric.tally import SHARES, Entries, Floats, Index, Structure, Tally
from syntony.fabric.unevenness import unevenness, weights

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
_CLOSE = float(np.exp(-CLOSE_NATS))
BLACKHOLE_LOSS = 0.9
"""Above this a component is called a black hole: stale paths keep it from being exactly 1."""
MAX_RATE = 18.0
"""λ of a black hole: so large that a fleet's worth of lost probes gains nothing by more."""
_GRID = np.geomspace(MIN_LOSS, MAX_RATE, 36)
_FINE = np.linspace(-1.0, 1.0, 9)
_STEP = float(np.log(_GRID[1] / _GRID[0]))
_SWEEPS = 12
_SETTLED = 0.1
"""The background holds some of what a newly found component loses, and gives it back sweep by
sweep: until it changes by less, a further candidate would be found for the rest."""
_ENOUGH = 2
"""From more findings on, each further one may only explain that paths are uneven."""
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
    probabilities: tuple[float, ...]
    """Posterior probability of each of these."""
    parts: tuple[int, ...] = ()
    """Two parts of it that together explain (nearly) the same."""
    parts_probability: float = 0.0
    """Posterior probability of these two."""


class Search:
    """The state of one search: what is selected, and every lossy path's rate under it.

    Args:
        tally: the window's counts.
        price: nats that each candidate must gain.
        max_found: stop there.
        structure: how candidates hang together.
        assumed: unevenness of what paths lose across one component.
        at_most: give up where it turns out to be larger than this.
    """

    def __init__(
        self,
        tally: Tally,
        price: Floats,
        max_found: int,
        structure: Structure,
        *,
        assumed: float = 0.0,
        at_most: float = np.inf,
    ) -> None:
        self.price = price
        self._structure = structure
        self._instead: dict[int, dict[int, float]] = {}
        """Of each found one, what may lose instead if another found one is another, too → odds."""
        self._paired = set[int]()
        """Found as two parts of one that was found before."""
        self._max_found = max_found
        finite = price[np.isfinite(price)]
        self._outlier = float(finite.max(initial=0.0)) + OUTLIER_MARGIN
        self._counted, self._at_most = tally, at_most
        weight = weights(tally.sent, tally.lost, assumed)
        self._lost, self._sent = tally.lost * weight, tally.sent * weight
        self._came = self._sent - self._lost
        self._best = entropy(self._lost, self._sent)
        rows, columns = np.nonzero(tally.crossings >= 0)
        candidate = tally.crossings[rows, columns].astype(np.int64)
        may_row, may_candidate = tally.partly.pairs(tally.crossings)
        self._entries = Entries(rows, candidate, tally.times[rows, columns], tally.candidates)
        once = np.ones(len(may_row), dtype=np.int8)
        self._may = Entries(may_row, may_candidate, once, tally.candidates)
        surely = np.bincount(candidate, tally.lost[rows], minlength=tally.candidates)
        maybe = np.bincount(may_candidate, tally.lost[may_row], minlength=tally.candidates)
        self._seen = np.flatnonzero(surely + maybe >= MIN_LOST)
        self._clean_of, self._partly = tally.clean_of, tally.partly
        self._total_sent = tally.total_sent
        self._paths = tally.paths
        self._moved = min(1.0 / tally.paths, _MAX_MOVED)
        self._found: dict[int, float] = {}
        self._held: dict[int, tuple[Index, Floats]] = {}
        """Rows of each found one, those that cross it and those that probably do; how often."""
        self._rivals_now: dict[int, tuple[Index, Floats, Floats]] = {}
        self._pairs_now: dict[int, Pair | None] = {}
        """Of each found one, as long as nothing that was found changes."""
        self._set_background()

    def run(self) -> list[LossFinding] | None:
        """What was found; None: paths are more uneven than `at_most`."""
        self._search()
        if self._is_uneven():
            return None
        for candidate in list(self._found):
            if candidate in self._found and self._is_doubtful(candidate):
                self._search_without(candidate)
        for beside in self._beside():
            self._instead |= loss_pairs.instead(self._rivals_of(beside))
        findings = [self._finding(candidate) for candidate in self._found]
        return sorted(findings, key=lambda finding: -finding.nats)

    def unevenness(self) -> float:
        """Of the paths that surely cross what was found; of those that may, each as the one that
        explains it best says: what is found for the worst of them alone is no evidence."""
        surely, maybe = np.zeros(len(self._lost)), np.zeros(len(self._lost))
        for candidate, rate in self._found.items():
            rows, times = self._entries.of(candidate)
            surely[rows] += rate * times
            rows, times = self._held[candidate]
            maybe[rows] = np.maximum(maybe[rows], rate * times)
        rates = np.where(surely > 0, surely, maybe)
        return unevenness(self._counted.sent, self._counted.lost, rates)

    def _is_uneven(self) -> bool:
        return self.unevenness() > self._at_most

    def _search(self) -> None:
        # Adding, exchanging and dropping can come back to where they were: then it is over.
        seen: set[frozenset[int]] = set()
        while len(self._found) < self._max_found and frozenset(self._found) not in seen:
            seen.add(frozenset(self._found))
            if len(self._found) > _ENOUGH and self._is_uneven():
                return
            candidates = self._promising()
            gain, rate = self._score(candidates)
            if not len(gain) or gain.max() <= 0:
                break
            best = int(np.argmax(gain))
            self._take(int(candidates[best]), float(rate[best]), self._rates)
            self._refit()
            self._exchange()
            self._part()
            self._recombine()
            if not self._prune(int(candidates[best])):
                break

    def _is_doubtful(self, candidate: int) -> bool:
        """Whether as much speaks against a whole device as would pay for two of its parts."""
        rate = self._found[candidate]
        if not self._structure.may_be_parts(candidate, float(-np.expm1(-rate))):
            return False
        clean = self._clean_of(np.array([candidate], dtype=np.intp))
        each = min(rate * clean.probes[0] / max(clean.paths[0], 1), self._outlier)
        return float(each * clean.paths[0]) > 2 * float(self.price[candidate])

    def _search_without(self, candidate: int) -> None:
        """Search anew without a found one, and keep what explains more: a part of it and something
        else may, though each of the two explains less than it does."""
        before, worth, price = self._state(), self._worth(), self.price[candidate]
        self._found, self._held = {}, {}
        self._set_background()
        self.price[candidate] = np.inf
        self._search()
        self.price[candidate] = price
        if self._worth() < worth + CLOSE_NATS:
            self._found, self._held, self._paired = before
            self._refit()

    def _state(self) -> tuple[dict[int, float], dict[int, tuple[Index, Floats]], set[int]]:
        return dict(self._found), dict(self._held), set(self._paired)

    def _worth(self) -> float:
        """Log-likelihood of all that was found, less its prices."""
        floor = self._floor()
        rates = np.full(len(self._lost), self._background)
        total = float(np.maximum(self._likelihood(rates), floor).sum())
        for place, (candidate, rate) in enumerate(self._found.items()):
            gains = self._gains_of(np.array([candidate], dtype=np.intp), rates, floor)
            total += float(gains.at(np.array([[rate]]))[0, 0])
            total += float(np.log1p(place) - self.price[candidate])
            rows, times = self._held[candidate]
            rates[rows] += rate * times
        return total

    def gain_at(self, candidate: int, rate: float, *without: int) -> float:
        only, grid = np.array([candidate], dtype=np.intp), np.array([[rate]])
        gains = self._gains_of(only, self._rates_without(*without), self._floor(*without))
        gain = gains.sure(grid)
        if not self._clean_of(only).paths[0] and not len(self._entries.of(candidate)[0]):
            gain = gain + gains.may(grid).max(axis=0)
        return float(gain[0, 0])

    def _take(self, candidate: int, rate: float, rates: Floats) -> None:
        """Take a candidate as found. `rates`: of every row without it."""
        self._changed()
        self._found[candidate] = rate
        self._held[candidate] = self.rows_of(candidate, rate, rates, self._floor(candidate))

    def rows_of(
        self, candidate: int, rate: float, rates: Floats, floor: Floats
    ) -> tuple[Index, Floats]:
        """Rows that cross it, and those that probably do if it loses at this rate; how often."""
        rows, times = self._may.of(candidate)
        if len(rows):
            only, grid = np.array([candidate], dtype=np.intp), np.array([[rate]])
            gains = self._gains_of(only, rates, floor).may(grid)[:, 0, 0]
            place = int(np.argmax(gains))
            share = float(SHARES[place])
            with np.errstate(divide="ignore"):
                there = self._likelihood(rates[rows] + rate, rows) + np.log(share)
                other = self._likelihood(rates[rows], rows) + np.log1p(-share)
            probably = (there > other) & (gains[place] > 0)
            rows, times = rows[probably], times[probably]
        sure_rows, sure_times = self._entries.of(candidate)
        return np.concatenate((sure_rows, rows)), np.concatenate((sure_times, times))

    def _drop(self, candidate: int) -> None:
        self._changed()
        del self._found[candidate], self._held[candidate]

    def _changed(self) -> None:
        self._rivals_now.clear()
        self._pairs_now.clear()

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
        self._changed()

    def _set_moved(self) -> None:
        """The share of paths that cross what was found although their map does not say so."""
        if not self._found:
            self._moved = min(1.0 / self._paths, _MAX_MOVED)
            return
        plain = self._likelihood(self._rates)
        moved = self._likelihood_moved()
        odds = np.log(self._moved / (1 - self._moved)) + moved - plain
        share = 1.0 / (1.0 + np.exp(-np.clip(odds, -50, 50)))
        self._moved = min((float(share.sum()) + 0.5) / self._paths, _MAX_MOVED)

    def _likelihood_moved(self, *without: int) -> Floats:
        """Each path's likelihood if it went through that found component which suits it best. Its
        ends do not move: one that does not begin or end at a NIC crosses nothing of it."""
        rates = [
            rate
            for candidate, rate in self._found.items()
            if candidate not in without and not self._structure.is_fixed(candidate)
        ]
        nothing = np.zeros(len(self._lost))
        each = (self._likelihood(nothing + self._background + rate) for rate in rates)
        return np.asarray(np.max([nothing - np.inf, *each], axis=0))

    def _rates_of_found(self) -> Floats:
        rates = np.zeros(len(self._lost))
        for candidate, rate in self._found.items():
            rows, times = self._held[candidate]
            rates[rows] += rate * times
        return rates

    def _rates_without(self, *candidates: int) -> Floats:
        rates = self._rates.copy()
        for candidate in candidates:
            rows, times = self._held[candidate]
            rates[rows] -= self._found[candidate] * times
        return np.asarray(np.maximum(rates, self._background, out=rates))

    def _likelihood(self, rate: Floats, rows: Index | slice = slice(None)) -> Floats:
        """Of paths at these rates, (paths,)."""
        return likelihood(self._lost[rows], self._came[rows], rate)

    def _floor(self, *without: int) -> Floats:
        """How unlikely a path can be at most: it may be an outlier, or have moved."""
        moved = self._likelihood_moved(*without) + np.log(self._moved)
        return np.asarray(np.maximum(self._best - self._outlier, moved))

    def _promising(self) -> Index:
        """Candidates that could pay their price if everything spoke for them."""
        now = np.maximum(self._likelihood(self._rates), self._floor())
        room = self._best - now
        bound = self._entries.sums(room)[self._seen] + self._may.sums(room)[self._seen]
        able = bound + self._threshold() > self.price[self._seen]
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
        left_out = () if without is None else (without,)
        rates, floor = self._rates_without(*left_out), self._floor(*left_out)
        gain, rate = self.fitted(candidates, rates, floor)
        others = len(self._found) - (without is not None)
        return gain - self.price[candidates] + np.log1p(others), rate

    def fitted(self, candidates: Index, rates: Floats, floor: Floats) -> tuple[Floats, Floats]:
        """Nats gained by each candidate at its most likely rate beside `rates`, and that rate."""
        gains = self._gains_of(candidates, rates, floor)
        grid = np.broadcast_to(_GRID, (len(candidates), len(_GRID)))
        value = gains.at(grid)
        rate = grid[np.arange(len(candidates)), np.argmax(value, axis=1)]
        for width in (_STEP, _STEP / 4, _STEP / 16):
            fine = np.clip(rate[:, None] * np.exp(_FINE * width), _GRID[0], _GRID[-1])
            value = gains.at(fine)
            place = np.argmax(value, axis=1)
            rate = fine[np.arange(len(candidates)), place]
        return value[np.arange(len(candidates)), place], rate

    def gains(self, candidates: Index, grid: Floats, rates: Floats, floor: Floats) -> Floats:
        """Nats gained by each candidate at each rate tried, (candidates, rates tried)."""
        return self._gains_of(candidates, rates, floor).at(grid)

    def _gains_of(self, candidates: Index, rates: Floats, floor: Floats) -> Gains:
        paths = Paths(self._entries, self._may, self._clean_of(candidates), self._partly)
        beside = loss_gains.Beside(self._lost, self._came, rates, floor)
        return Gains(candidates, paths, beside, self._outlier)

    def _refit(self) -> None:
        """All found rates again, each given the others, and the background, until it settles."""
        self._set_background()
        for _ in range(_SWEEPS):
            before = self._background
            for candidate in list(self._found):
                _, rate = self._score(np.array([candidate], dtype=np.intp), without=candidate)
                self._take(candidate, float(rate[0]), self._rates_without(candidate))
                self._set_background()
            if abs(self._background - before) <= _SETTLED * before:
                break

    def _exchange(self) -> None:
        """Replace each found one by a rival that explains more, once others are found."""
        for candidate in list(self._found):
            rivals, gain, rate = self._rivals(candidate)
            best = int(np.argmax(gain))
            own = gain[np.flatnonzero(rivals == candidate)[0]]
            if rivals[best] != candidate and gain[best] > own + 1e-6:
                rest = self._rates_without(candidate)
                self._drop(candidate)
                self._take(int(rivals[best]), float(rate[best]), rest)
                self._refit()

    def _rivals(self, candidate: int) -> tuple[Index, Floats, Floats]:
        """Candidates on the same lossy paths (itself among them), their gains and rates."""
        if candidate not in self._rivals_now:
            near = self._near(candidate)
            taken = [other for other in self._found if other != candidate]
            rivals = near[~np.isin(near, taken)]
            self._rivals_now[candidate] = rivals, *self._score(rivals, without=candidate)
        return self._rivals_now[candidate]

    def _part(self) -> None:
        """Replace each found one by two of its parts where these are clearly likelier."""
        for candidate in list(self._found):
            pair = self._pair(candidate)
            if pair is not None and pair.nats > CLOSE_NATS:
                self._replace((candidate,), pair)
                self._paired |= {*pair.parts}

    def _replace(self, found: tuple[int, ...], pair: Pair) -> None:
        rest = self._rates_without(*found)
        for candidate in found:
            self._drop(candidate)
        for part, rate in zip(pair.parts, pair.rates, strict=True):
            self._take(part, rate + self._found.get(part, 0.0), rest)
        self._refit()

    def _pair(self, candidate: int) -> Pair | None:
        """The two parts that may lose instead of a found one (`two_of`); None where it has no two,
        or loses everything."""
        if candidate not in self._pairs_now:
            self._pairs_now[candidate] = self._find_pair(candidate)
        return self._pairs_now[candidate]

    def _find_pair(self, candidate: int) -> Pair | None:
        if -np.expm1(-self._found[candidate]) > BLACKHOLE_LOSS:
            return None
        parts = self._structure.parts(candidate, self._near(candidate))
        if len(np.unique(parts.place)) < 2:
            return None
        base, floor = self._rates_without(candidate), self._best - self._outlier
        return loss_pairs.two_of(self, candidate, parts, base, floor)

    def _recombine(self) -> None:
        """Replace each two found at one switch by two others at it that explain more."""
        for beside in self._beside():
            if not self._found.keys() >= {*beside.parts}:
                continue
            rivals = self._rivals_of(beside)
            best = max(rivals.pairs, key=lambda pair: pair.nats, default=rivals.own)
            if best.nats > rivals.own.nats + loss_pairs.NO_GAIN:
                self._paired |= {*best.parts} if self._paired & {*beside.parts} else set()
                self._replace(beside.parts, best)

    def _beside(self) -> list[Beside]:
        """Each two found at one switch, at different places."""
        if len(self._found) < 2:
            return []
        found = np.array(sorted(self._found), dtype=np.intp)
        return loss_pairs.beside_each_other(self._structure, self._near(*self._found), found)

    def _rivals_of(self, beside: Beside) -> RivalPairs:
        """Two others at the same switch instead of two found."""
        taken = self._found.keys() - {*beside.parts}
        near = self._near(*beside.parts)
        parts = self._structure.parts(beside.switch, near[~np.isin(near, list(taken))])
        if beside.switch not in taken:
            parts = loss_pairs.with_whole(parts, beside.switch)
        base, floor = self._rates_without(*beside.parts), self._best - self._outlier
        return loss_pairs.rival_pairs(self, beside, parts, base, floor)

    def _near(self, *found: int) -> Index:
        """Candidates on the lossy paths of found ones, these among them."""
        rows = np.isin(
            np.arange(len(self._lost)), np.concatenate([self._held[c][0] for c in found])
        )
        near = np.union1d(self._entries.owners(rows), self._may.owners(rows))
        return np.union1d(near, found).astype(np.intp)

    def _prune(self, newest: int) -> bool:
        """Drop what no longer pays; False if that was the newest, or no progress was made."""
        for candidate in list(self._found):
            if len(self._found) > 1 and not len(self._entries.of(candidate)[0]):
                self._take_last(candidate)
            gain, _ = self._score(np.array([candidate], dtype=np.intp), without=candidate)
            if gain[0] + (candidate in self._paired) * self.price[candidate] <= 0:
                self._drop(candidate)
                self._refit()
                if candidate == newest:
                    return False
        return True

    def _take_last(self, candidate: int) -> None:
        """Fit the others without a found one that no path surely crosses, then this one again: what
        may be theirs is no evidence of it."""
        self._drop(candidate)
        self._refit()
        _, rate = self._score(np.array([candidate], dtype=np.intp))
        self._take(candidate, float(rate[0]), self._rates)
        self._refit()

    def _finding(self, candidate: int) -> LossFinding:
        rivals, gain, _ = self._rivals(candidate)
        own = float(gain[np.flatnonzero(rivals == candidate)[0]])
        rate = self._found[candidate]
        rows, times = self._held[candidate]
        odds = dict(zip(rivals.tolist(), np.exp(np.minimum(gain - own, 50)).tolist(), strict=True))
        for rival, each in self._instead.get(candidate, {}).items():
            odds[rival] = max(odds.get(rival, 0.0), each)
        pair = self._pair(candidate)
        parts_odds = float(np.exp(min(pair.nats, 50))) if pair is not None else 0.0
        total = sum(odds.values()) + float(np.exp(-max(own, 0.0) - 1.0)) + parts_odds
        order = sorted(odds, key=lambda rival: -odds[rival])
        close = [each for each in order if odds[each] > _CLOSE and each != candidate]
        return LossFinding(
            candidate=candidate,
            loss=float(-np.expm1(-rate)),
            nats=own,
            confidence=1.0 / total,
            lost=float((self._counted.lost[rows] * rate * times / self._rates[rows]).sum()),
            paths=len(rows),
            alternatives=tuple(close),
            probabilities=tuple(odds[each] / total for each in close),
            parts=pair.parts if pair is not None and pair.nats > -CLOSE_NATS else (),
            parts_probability=parts_odds / total,
        )
