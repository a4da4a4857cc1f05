"""Sparse tomography of loss: the fewest components that explain the losses of all paths. Pure.

A path that crosses components with loss probabilities p loses a probe with probability ``1 -
exp(-Σλ)``, λ = -ln(1-p), plus a background that all paths share. The search adds the candidate that
gains most likelihood at its most likely λ, refits all, exchanges a candidate for a better one,
drops those that are no longer needed, and stops when no gain exceeds the threshold of a further
component. `syntony.fabric.loss_suspects` then compares what was found with its alternatives.

Two extensions make it robust where plain Poisson tomography is not. First, a path may be an
*outlier*: its map is stale, or its losses have another cause. That explanation costs `cost of an
outlier` nats, so no single path can implicate (or clear) a component by more than that. Once a
component is found, a path may also have been moved onto it since its map was learnt, at a cost that
follows from how many such paths there seem to be. Second, the gain that a candidate must reach
depends on how many candidates there are and how many were found already, which bounds the share of
false findings (the step-up procedure of Benjamini and Hochberg 1995).

A path that is learnt only in part *may* cross a candidate (`PartlyLearnt`). A fault of the
candidate then affects an unknown share of such paths, tried from `SHARES`. With a share of zero
they are no evidence for or against a candidate that other paths certainly cross.

The work is limited (`syntony.fabric.effort`): at the limit no more findings are added, and those
that there are are compared with fewer alternatives.

The sparse search follows Flock (Harsh et al. 2021) in its greedy form; the rate model is that of
network tomography (Vardi 1996; Cáceres et al. 1999).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from syntony.fabric import loss_pairs
from syntony.fabric.effort import FINDING_STEPS, Effort
from syntony.fabric.loss_fit import Fit
from syntony.fabric.loss_pairs import Pair, RivalPairs, SwitchPair
from syntony.fabric.tally import Floats, Index, Structure, Tally

STRICTNESS = 4.0
"""Nats beyond the logarithm of the number of candidates that a first finding must gain. The chance
that a healthy fabric yields one is below e^-strictness/10 per window (chi-square tail)."""
MAX_FOUND = 32
CLOSE_NATS = 3.0
"""Candidates at most this far behind the best (20 to 1) are named as alternatives."""
BLACKHOLE_LOSS = 0.9
"""Above this a component is called a black hole: because of stale paths it is not exactly 1."""
_AT_ONCE = 8
"""Number of candidates that are compared before others are left out."""
_EXCHANGES = 4
"""Limit on exchanges: they can return to an earlier state, which ends the search."""
_ENOUGH = 2
"""From this number of findings on, a further one may only explain unevenness between paths."""


class _State(NamedTuple):
    """Findings and rates, to return to."""

    found: dict[int, float]
    held: dict[int, tuple[Index, Floats]]
    paired: set[int]
    background: float
    rates: Floats
    moved: float


class Search(Fit):
    """The search: adds, exchanges and drops findings, and compares pairs.

    Args:
        tally: the window's counts.
        price: nats that each candidate must gain.
        max_found: stop there.
        structure: relations between candidates.
        assumed: unevenness of losses across one component.
        at_most: give up if the unevenness exceeds this.
        dispersion: index of dispersion of all losses.
        effort: limit on its work.
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
        dispersion: float = 1.0,
        effort: Effort | None = None,
    ) -> None:
        self._rivals_now: dict[int, tuple[Index, Floats, Floats]] = {}
        self._pairs_now: dict[int, Pair | None] = {}
        """Pairs for each finding, valid while the findings do not change."""
        self._paired = set[int]()
        """Findings that are two parts of a previous finding."""
        self._max_found, self._at_most = max_found, at_most
        self.seen_uneven = 0.0
        """Unevenness of the findings, as last computed."""
        self.is_cut = False
        """Whether the limit of its work changed the result."""
        super().__init__(
            tally, price, structure, assumed=assumed, dispersion=dispersion, effort=effort
        )

    def _is_uneven(self) -> bool:
        self.seen_uneven = self.unevenness()
        return self.seen_uneven > self._at_most

    def _search(self) -> bool:
        """False if the unevenness of paths exceeds `at_most` and the search was abandoned."""
        # Adding, exchanging and dropping can return to an earlier state: then the search ends.
        seen: set[frozenset[int]] = set()
        while len(self._found) < self._max_found and frozenset(self._found) not in seen:
            seen.add(frozenset(self._found))
            if len(self._found) > _ENOUGH and self._is_uneven():
                return False
            if self._is_spent(len(self._promising())):
                break
            best, gain, rate = self._best_of(self._promising())
            if gain <= 0:
                break
            self._take(best, rate, self._rates)
            self._refit()
            self._exchange()
            self._part()
            self._recombine()
            if not self._prune(best):
                break
        return True

    def _is_spent(self, more: int = 1) -> bool:
        """Whether only the steps are left that comparing the findings takes. Then the search is
        cut, if there was more to do."""
        spent = self._effort.left < FINDING_STEPS * (len(self._found) + 1)
        self.is_cut |= spent and more > 0
        return spent

    def _state(self) -> _State:
        fit = self._background, self._rates, self._moved
        return _State(dict(self._found), dict(self._held), set(self._paired), *fit)

    def _restore(self, state: _State) -> None:
        self._found, self._held = dict(state.found), dict(state.held)
        self._paired = set(state.paired)
        self._background, self._rates, self._moved = state.background, state.rates, state.moved
        self._changed()

    def _changed(self) -> None:
        self._rivals_now.clear()
        self._pairs_now.clear()

    def _promising(self) -> Index:
        """Candidates that could reach their threshold if all evidence were in their favour."""
        able = (
            self._most(self._seen, self._rates, self._floor()) + self._threshold()
            > self.price[self._seen]
        )
        fresh = ~np.isin(self._seen, list(self._found))
        return np.asarray(self._seen[able & fresh])

    def _best_of(self, candidates: Index) -> tuple[int, float, float]:
        """Of these the one that gains most, what it gains and its rate. The most promising are
        compared first: few others can gain more than the best of them."""
        most = self._most(candidates, self._rates, self._floor())
        most += self._threshold() - self.price[candidates]
        order = np.argsort(-most, kind="stable")
        best, gain, rate = -1, 0.0, 0.0
        for first in range(0, len(order), _AT_ONCE):
            some = order[first : first + _AT_ONCE]
            some = candidates[np.sort(some[most[some] > gain])]
            if not len(some):
                break
            gains, rates = self._score(some)
            place = int(np.argmax(gains))
            if gains[place] > gain:
                best, gain, rate = int(some[place]), float(gains[place]), float(rates[place])
        return best, gain, rate

    def _settle(self) -> None:
        """Exchange until no finding has a likelier rival, since each exchange changes what the
        others explain, and drop those that no longer reach their threshold. An exchange after
        which all together is worth less is undone: paths that have moved speak for a finding, but
        not for the rival that it is compared with."""
        for _ in range(_EXCHANGES):
            before, worth = self._state(), self._worth()
            self._exchange()
            if before.found.keys() == self._found.keys():
                return
            self._prune(newest=-1)
            if self._worth() < worth:
                self._restore(before)
                return

    def _exchange(self) -> None:
        """Replace each finding by a rival that explains more, given the others."""
        for candidate in list(self._found):
            if self._is_spent():
                return
            rivals, gain, rate = self._likelier(candidate)
            best = int(np.argmax(gain))
            own = gain[np.flatnonzero(rivals == candidate)[0]]
            if rivals[best] != candidate and gain[best] > own + 1e-6:
                rest = self._rates_without(candidate)
                self._drop(candidate)
                self._take(int(rivals[best]), float(rate[best]), rest)
                self._refit()

    def _rivals(self, candidate: int) -> tuple[Index, Floats, Floats]:
        """Candidates on the same lossy paths (including itself), their gains and rates."""
        if candidate not in self._rivals_now:
            rivals = self._beside(candidate)
            self._rivals_now[candidate] = rivals, *self._score(rivals, without=candidate)
        return self._rivals_now[candidate]

    def _likelier(self, candidate: int) -> tuple[Index, Floats, Floats]:
        """As `_rivals`, only those that could gain more than the candidate."""
        if candidate in self._rivals_now:
            return self._rivals_now[candidate]
        rivals = self._beside(candidate)
        only = np.array([candidate], dtype=np.intp)
        own, _ = self._score(only, without=candidate)
        most = self._most(rivals, self._rates_without(candidate), self._floor(candidate))
        most += np.log(len(self._found)) - self.price[rivals]
        rivals = rivals[(most > own) | (rivals == candidate)]
        return rivals, *self._score(rivals, without=candidate)

    def _beside(self, candidate: int) -> Index:
        """Candidates on the same lossy paths (including itself), other findings left out."""
        near = self._near(candidate)
        taken = [other for other in self._found if other != candidate]
        return np.asarray(near[~np.isin(near, taken)])

    def _part(self) -> None:
        """Replace each finding by two of its parts where these are clearly likelier."""
        for candidate in list(self._found):
            if self._is_spent():
                return
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
        """The two parts that may replace a finding (`two_of`); None if it has no two, or loses
        everything."""
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
        """Replace each pair of findings at one switch by another pair at it that explains more."""
        for pair in self._switch_pairs():
            if not self._found.keys() >= {*pair.parts}:
                continue
            if self._is_spent():
                return
            rivals = self._rivals_of(pair)
            best = max(rivals.pairs, key=lambda pair: pair.nats, default=rivals.own)
            if best.nats > rivals.own.nats + loss_pairs.NO_GAIN:
                self._paired |= {*best.parts} if self._paired & {*pair.parts} else set()
                self._replace(pair.parts, best)

    def _switch_pairs(self) -> list[SwitchPair]:
        """Each pair of findings at one switch, at different places."""
        if len(self._found) < 2:
            return []
        found = np.array(sorted(self._found), dtype=np.intp)
        return loss_pairs.pairs_at_switches(self._structure, self._near(*self._found), found)

    def _rivals_of(self, pair: SwitchPair) -> RivalPairs:
        """Alternatives to a pair of findings at the same switch."""
        taken = self._found.keys() - {*pair.parts}
        near = self._near(*pair.parts)
        parts = self._structure.parts(pair.switch, near[~np.isin(near, list(taken))])
        if pair.switch not in taken:
            parts = loss_pairs.with_whole(parts, pair.switch)
        base, floor = self._rates_without(*pair.parts), self._best - self._outlier
        return loss_pairs.rival_pairs(self, pair, parts, base, floor)

    def _near(self, *found: int) -> Index:
        """Candidates on the lossy paths of findings, including these."""
        rows = np.isin(
            np.arange(len(self._lost)), np.concatenate([self._held[c][0] for c in found])
        )
        near = np.union1d(self._entries.owners(rows), self._may.owners(rows))
        return np.union1d(near, found).astype(np.intp)

    def _prune(self, newest: int) -> bool:
        """Drop findings that no longer reach their threshold; False if that was the newest, or
        nothing improved."""
        for candidate in list(self._found):
            if len(self._found) > 1 and not len(self._entries.of(candidate)[0]):
                self._take_last(candidate)
            gain, _ = self._score(np.array([candidate], dtype=np.intp), without=candidate)
            price = self.price[candidate]  # infinite: a pair has brought an excluded one back
            if np.isinf(price) or gain[0] + (candidate in self._paired) * price <= 0:
                self._drop(candidate)
                self._refit()
                if candidate == newest:
                    return False
        return True

    def _take_last(self, candidate: int) -> None:
        """Fit the others without a finding that no path certainly crosses, then add it again:
        losses that may be theirs are no evidence of it."""
        self._drop(candidate)
        self._refit()
        _, rate = self._score(np.array([candidate], dtype=np.intp))
        self._take(candidate, float(rate[0]), self._rates)
        self._refit()
