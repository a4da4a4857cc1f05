"""The suspects of a search for losses: what else explains the same losses, and how surely. Pure.

After the search, findings that the data contradict or that others may replace are compared with
the alternatives, everything refitted. What remains (nearly) as good is named as an alternative.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from syntony.fabric import loss_pairs
from syntony.fabric.effort import CUT
from syntony.fabric.loss_bursts import are_independent
from syntony.fabric.loss_gains import SOME_FLOWS_PRICE
from syntony.fabric.loss_pairs import Pair
from syntony.fabric.loss_search import BLACKHOLE_LOSS, CLOSE_NATS, Search
from syntony.fabric.tally import NO_CANDIDATES, Floats, Index

OVERSTATED = 1.5
"""By this factor the evidence between suspects, in nats, is overstated: probes of a window are not
independent and their paths not exactly known. With it, as many names of drawn faults at 0.5 to
0.995 are right as are said to be."""
LIKELIER = 2.0
"""A finding has the name of a suspect that is this many times as likely as the component found."""
MAX_REFITTED = 4
"""Rivals of a finding that are compared with all other rates refitted, at most."""
MAX_DOUBTED = 6
"""With more findings, none is doubted because of the fit of all: each costs a search."""
MIN_MISFITS = 2
"""From this number of paths on, what they lose beyond explanation outweighs another finding."""
COVERING = 0.9
"""A component that this share of a finding's affected paths may cross could replace it alone."""
_CLOSE = float(np.exp(-CLOSE_NATS))
_NEVER = 1e6
"""Log-odds against what is impossible."""


class LossFinding(NamedTuple):
    """One component that loses packets."""

    candidate: int
    loss: float
    """Probability that it loses a packet, most likely value."""
    nats: float
    """Log-likelihood gained beyond the threshold."""
    confidence: float
    """Posterior probability against the alternatives and against nothing being wrong."""
    lost: float
    """Number of lost probes that it explains."""
    paths: int
    """Number of paths that crossed it and lost something."""
    alternatives: tuple[int, ...]
    """Other candidates that explain (nearly) the same, best first."""
    probabilities: tuple[float, ...]
    """Posterior probability of each of these."""
    parts: tuple[int, ...] = ()
    """Two parts of it that together explain (nearly) the same."""
    parts_probability: float = 0.0
    """Posterior probability of these two."""
    flows: float = 1.0
    """Share of the paths across it that are affected; 1 for a fault of all flows."""
    fitted: int = -1
    """The candidate that the search found, if this one is a likelier name for it; else -1."""


class SuspectSearch(Search):
    """A search with its findings as suspects; arguments as `Search`."""

    _flows_now: dict[int, float]
    """Share of flows of each finding, valid while the findings do not change."""
    _instead: dict[int, dict[int, float]]
    """For each finding, replacements that are possible if another finding is replaced too → odds.
    """
    _search_steps: float
    """Steps that the first search took."""
    _refitted: dict[int, dict[int, float]]
    """For each finding, rivals → nats gained if one replaces it and all else is refitted."""

    def run(self, known: Index = NO_CANDIDATES) -> list[LossFinding] | None:
        """The findings; None: the unevenness of paths exceeds `at_most`.

        Args:
            known: earlier findings, which are kept if the search is cut, (n,).
        """
        self._instead, self._refitted = {}, {}
        if not self._search() or self._is_uneven():
            return None
        self._search_steps = self._effort.spent
        if self.is_cut:
            self._keep(known)
        self._doubt()
        self._drop_strays()
        self._settle()
        if self._is_uneven():
            return None
        self._compare_refitted()
        for pair in self._switch_pairs():
            if self._is_spent():
                break
            for candidate, odds in loss_pairs.instead(self._rivals_of(pair)).items():
                self._instead.setdefault(candidate, {}).update(odds)
        findings = [_by_likeliest(self._finding(candidate)) for candidate in self._found]
        return sorted(findings, key=lambda finding: -finding.nats)

    def _keep(self, known: Index) -> None:
        """Add what was found before and still reaches its threshold, the strongest first."""
        rest = known[~np.isin(known, list(self._found)) & np.isfinite(self.price[known])]
        gains, _ = self._score(rest)
        able = rest[np.argsort(-gains, kind="stable")][: np.count_nonzero(gains > 0)]
        for candidate in able[: self._max_found - len(self._found)].tolist():
            gain, rate = self._score(np.array([candidate], dtype=np.intp))
            if gain[0] > 0:
                self._take(candidate, float(rate[0]), self._rates)
                self._set_background()
        self._refit()
        self._prune(newest=-1)

    @property
    def unexplained(self) -> float:
        """Number of lost probes that neither the findings nor chance explain."""
        off = self._likelihood(self._rates) < self._best - self._outlier
        lost = self._counted.lost + self._counted.sent * np.expm1(-self._rates)
        return float(np.maximum(lost, 0.0)[off].sum())

    def _doubt(self) -> None:
        """Search again without each finding that is one of some flows, or that the evidence
        contradicts. Then, if paths across any of them lose otherwise than they
        all together explain: as a search adds one finding at a time, it can end at a set that
        explains the losses worse than another set. Larger sets are not considered: they explain
        uneven losses of one component better, too."""
        for candidate in list(self._found):
            if candidate in self._found and self._flows(candidate) < 1:
                self._search_without(candidate, some_flows=np.inf)
            elif candidate in self._found and self._is_doubtful(candidate):
                self._search_without(candidate)
        for candidate in list(self._found) if len(self._found) <= MAX_DOUBTED else ():
            if candidate in self._found and self._unexplained() >= MIN_MISFITS:
                self._search_without(candidate, more=0)

    def _unexplained(self) -> int:
        """Number of lossy paths across findings that their rates do not explain."""
        off = self._likelihood(self._rates) < self._best - self._outlier
        return int(np.count_nonzero(off & (self._rates > self._background)))

    def _drop_strays(self) -> None:
        """Drop findings that explain no more than what befalls single paths of this window, or
        than a burst on one path beside other findings."""
        for candidate in reversed(list(self._found)):
            if len(self._found) > 1 and self._may_be_burst(candidate):
                self._drop(candidate)
                self._refit()
        for candidate in list(self._found):
            outlier = self._outlier
            self._outlier = self._outlier_beside(candidate)
            gain, _ = self._score(np.array([candidate], dtype=np.intp), without=candidate)
            self._outlier = outlier
            if gain[0] + (candidate in self._paired) * self.price[candidate] <= 0:
                self._drop(candidate)
                self._refit()

    def _may_be_burst(self, candidate: int) -> bool:
        """Whether a single path shows a finding that no path certainly crosses, and neither it nor
        other findings show that packets are not lost in bursts: a dead path does."""
        (rows, _), (sure, _) = self._held[candidate], self._entries.of(candidate)
        is_dead = -np.expm1(-self._found[candidate]) > BLACKHOLE_LOSS
        one = len(rows) == 1 and not len(sure)
        return one and not is_dead and not are_independent(self.counts())

    def _flows(self, candidate: int) -> float:
        """Of the paths across a finding, the share that is affected."""
        if candidate not in self._flows_now:
            self._flows_now[candidate] = self._share_hit(candidate)
        return self._flows_now[candidate]

    def _changed(self) -> None:
        super()._changed()
        self._flows_now = {}

    def _is_doubtful(self, candidate: int) -> bool:
        """Whether the evidence against a finding would justify two others instead."""
        rate = self._found[candidate]
        clean = self._clean_of(np.array([candidate], dtype=np.intp))
        each = min(rate * clean.probes[0] / max(clean.paths[0], 1), self._outlier)
        return float(each * clean.paths[0]) > 2 * float(self.price[candidate])

    def _search_without(
        self, candidate: int, *, some_flows: float = SOME_FLOWS_PRICE, more: int = 1
    ) -> None:
        """Search again without one finding (`_covering`) and keep the better result: two other
        components may explain more, though each of the two explains less than it does. If neither
        is clearly better, the others of the new result are alternatives.

        Args:
            more: by so many findings the new result may be larger.
            some_flows: nats that a fault of some flows costs; infinite for none. It explains any
                losses near it.
        """
        single = self._covering(candidate)
        rivals, gains, _ = self._rivals(candidate)
        if not may_exceed(gains[~np.isin(rivals, single)], float(gains[rivals == candidate][0])):
            return
        if self._effort.left < self._search_steps:
            self.is_cut = True
            return
        before, worth, max_found = self._state(), self._worth(), self._max_found
        price = self.price[single]
        self._found, self._held = {}, {}
        self._set_background()
        self.price[single], self._max_found = np.inf, len(before.found) + more
        self._some_flows = some_flows
        self._search()
        self.price[single], self._max_found = price, max_found
        self._some_flows = SOME_FLOWS_PRICE
        self._changed()
        gain, others = self._worth() - worth, self._found.keys() - before.found.keys()
        if gain >= CLOSE_NATS:
            self._search()
        else:
            self._restore(before)
            if gain > -CLOSE_NATS * OVERSTATED:
                self._instead[candidate] = dict.fromkeys(others, float(np.exp(min(gain, 0.0))))

    def _covering(self, candidate: int) -> Index:
        """A finding, and each one of parallel cables that could replace it alone: that too affects
        some of the flows across a place."""
        rows, _ = self._held[candidate]
        near = self._near(candidate)
        several = near[self._partly.impossible(near)[0]]
        found = [
            each
            for each in several[~np.isin(several, list(self._found))].tolist()
            if np.count_nonzero(np.isin(rows, self._may.of(each)[0])) >= COVERING * len(rows)
        ]
        return np.array([candidate, *found], dtype=np.intp)

    def _compare_refitted(self) -> None:
        """Compare each finding with its closest rivals, and two findings at one switch with the
        switch, all other rates refitted: paths may have moved onto a rival as well, and what it
        explains of another finding changes that one's rate."""
        for pair in self._switch_pairs():
            if self._is_spent():
                return
            if pair.switch not in self._found and self._found.keys() >= {*pair.parts}:
                self._refit_instead(pair.parts, [pair.switch])
        for candidate in list(self._found):
            if self._is_spent():
                return
            if rivals := self._close_rivals(candidate):
                self._refit_instead((candidate,), rivals)

    def _close_rivals(self, candidate: int) -> list[int]:
        """Those that may turn out better once all else is refitted, best first."""
        rivals, gain, _ = self._rivals(candidate)
        close = gain > gain[rivals == candidate][0] - self._outlier
        order = rivals[close][np.argsort(-gain[close], kind="stable")].tolist()
        return [rival for rival in order if rival != candidate][:MAX_REFITTED]

    def _refit_instead(self, found: tuple[int, ...], rivals: list[int]) -> None:
        """Note what each rival gains over these findings if it replaces them."""
        before = self._state()
        for candidate in found:
            self._drop(candidate)
        self._refit()
        without, worth = self._state(), []
        for choice in (found, *((rival,) for rival in rivals)):
            for candidate in choice:
                _, rate = self._score(np.array([candidate], dtype=np.intp))
                self._take(candidate, float(rate[0]), self._rates)
                self._refit()
            worth.append(self._worth())
            self._restore(without)
        self._restore(before)
        for rival, each in zip(rivals, worth[1:], strict=True):
            for candidate in found:
                self._refitted.setdefault(candidate, {})[rival] = each - worth[0]

    def _finding(self, candidate: int) -> LossFinding:
        rivals, gain, _ = self._rivals(candidate)
        gain = gain.copy()
        own = float(gain[np.flatnonzero(rivals == candidate)[0]])
        for rival, more in self._refitted.get(candidate, {}).items():
            # Where the two comparisons disagree, neither makes the other name the likelier one.
            before = gain[rivals == rival] - own
            refitted = min(more, 0.0)
            gain[rivals == rival] = own + np.where(
                before > 0, refitted, np.maximum(before, refitted)
            )
        if (beside := self._hidden_beside(candidate)) is not None:
            gain[rivals == beside] = own
        rate = self._found[candidate]
        rows, times = self._held[candidate]
        prior = np.maximum(self.price[candidate] - self.price[rivals], -_NEVER)
        evidence = np.maximum(gain - own, -_NEVER) - prior
        likelier = np.exp(np.minimum(evidence / OVERSTATED + prior, 50))
        odds = dict(zip(rivals.tolist(), likelier.tolist(), strict=True))
        near = {*rivals[gain > own - CLOSE_NATS].tolist()}
        for rival, share in self._instead.get(candidate, {}).items():
            odds[rival] = max(odds.get(rival, 0.0), min(share, 1.0) ** (1 / OVERSTATED))
            near |= {rival} if share > _CLOSE else set()
        pair = self._pair_now(candidate)
        parts_odds = float(np.exp(min(pair.nats / OVERSTATED, 50))) if pair is not None else 0.0
        total = sum(odds.values()) + float(np.exp(-max(own, 0.0) - 1.0)) + parts_odds
        order = sorted(odds, key=lambda rival: -odds[rival])
        close = [each for each in order if each in near and each != candidate]
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
            flows=self._flows(candidate),
        )

    def _pair_now(self, candidate: int) -> Pair | None:
        """As `_pair`; none if no steps are left to find it."""
        if self._effort.left > 0:
            return self._pair(candidate)
        self.is_cut |= candidate not in self._pairs_now
        return self._pairs_now.get(candidate)

    def _hidden_beside(self, candidate: int) -> int | None:
        """What is unknown next to a switch, if each lossy path across the switch crosses that too:
        then the fault may as well be there."""
        beside = self._structure.unknown_beside(candidate)
        rows, _ = self._entries.of(candidate)
        if beside is None or not len(rows) or not np.isin(rows, self._may.of(beside)[0]).all():
            return None
        return beside


def less_sure(found: LossFinding) -> LossFinding:
    """The finding, if the search was cut."""
    return found._replace(
        confidence=CUT * found.confidence,
        probabilities=tuple(CUT * each for each in found.probabilities),
        parts_probability=CUT * found.parts_probability,
    )


def _by_likeliest(found: LossFinding) -> LossFinding:
    """The finding, by its likeliest suspect if that is likelier than the component found: a search
    whose exchanges go in circles ends with such findings."""
    odds = dict(zip(found.alternatives, found.probabilities, strict=True))
    odds |= dict.fromkeys(found.parts, found.parts_probability / max(1, len(found.parts)))
    best = max(odds, key=lambda suspect: odds[suspect], default=found.candidate)
    if odds.get(best, 0.0) <= LIKELIER * found.confidence:
        return found
    confidence = odds.pop(best)
    odds[found.candidate] = found.confidence
    others = tuple(sorted(odds, key=lambda suspect: -odds[suspect]))
    return found._replace(
        candidate=best,
        fitted=found.candidate,
        confidence=confidence,
        alternatives=others,
        probabilities=tuple(odds[other] for other in others),
        parts=(),
        parts_probability=0.0,
    )


def may_exceed(others: Floats, own: float) -> bool:
    """Whether two of the others may gain as much together as one finding. The likelihood of a path
    is concave in its rate, so together they gain no more than the sum of each alone."""
    return 2 * float(others.max(initial=0.0)) > own
