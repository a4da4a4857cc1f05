"""Sparse tomography of delay: the fewest components that explain which paths became slower. Pure.

The input is a *change*: a path's median one-way delay minus its baseline. A constant one-way delay
cannot be separated from a clock offset learnt from the same probes, so none is ever reported. A
clock that jumped has its own pattern: later on every path towards it and earlier on every path away
from it. Such a finding is of kind ``clock`` and blames no component.

The search is that of `syntony.fabric.loss_search`, with Gaussian residuals, and with paths that may
be outliers. The probability of an outlier is estimated from the early side, where no fault ever
puts a path: if one path in ten jitters, a few late ones are no evidence. Of partly learnt paths
that may cross a candidate, an unknown share does.

The work is limited (`syntony.fabric.effort`): at the limit no more findings are added.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.fabric.crossed import PathCrossings
from syntony.fabric.effort import FINDING_STEPS, Effort
from syntony.fabric.tally import SHARES, Floats, Index

Mask = NDArray[np.bool_]

MIN_DELAY_NS = 2_000.0
"""Smaller changes are ignored: one full-size packet queueing at 10 Gb/s is 1.2 µs."""
MIN_SIGMA_NS = 250.0
"""A median of kernel timestamps is assumed to be no more precise than this."""
LATE_SIGMAS = 4.0
MIN_PATHS = 3
"""Fewer late paths than this are never a finding."""
MIN_EARLY = 2
"""From this many early paths on, others jitter as well, and may be late by chance."""
OUTLIER_MARGIN = 3.0
MAX_FOUND = 20
MIN_LEFT_SHARE = 0.1
"""If this share of the late paths remains unexplained, another first finding is tried."""
CLOSE_NATS = 3.0
_NOTHING_NATS = 745.0
"""From this difference in log-likelihood on, a probability is zero in floating point."""
_UNLIKELY_NATS = 10.0
"""Rivals that are less likely than a finding by so much are left out if the search was cut."""
SLACK_NATS = 1e-3
"""Rounding error of sums over a fleet's paths is below this."""
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_LOWER_QUANTILES = (0.10, 0.25)
_LOWER_SIGMAS = 0.607
"""Distance of these quantiles on a Gaussian, in sigmas."""


class _State(NamedTuple):
    """Findings and what they leave, to return to."""

    found: dict[int, float]
    held: dict[int, Mask]
    rest: Floats
    outlier: float


class DelayFinding(NamedTuple):
    """One component that became slower, or one clock that jumped."""

    candidate: int
    delay_ns: float
    """Increase of delay; for a clock, how far it jumped ahead (negative: back)."""
    nats: float
    confidence: float
    paths: int
    """Late paths that it explains."""
    alternatives: tuple[int, ...]
    probabilities: tuple[float, ...]
    """Posterior probability of each alternative."""


class DelaySearch:
    """The search: adds findings and drops those that are no longer needed.

    Args:
        crossed: as `syntony.fabric.delay.find_delays`; `change_ns` and `sigma_ns` too.
        penalty: nats that each candidate must gain.
        uneven: relative spread of a delay between paths across one component.
        effort: limit on its work.
    """

    def __init__(
        self,
        crossed: PathCrossings,
        change_ns: Floats,
        sigma_ns: Floats,
        penalty: Floats,
        uneven: float,
        *,
        effort: Effort | None = None,
    ) -> None:
        self._crossed = crossed
        self._effort = effort or Effort()
        self._search_steps = 0.0
        """What the longest search took so far."""
        self.is_cut = False
        """Whether the limit of its work changed the result."""
        self._known = np.isfinite(change_ns)
        known_ns = change_ns[self._known]
        self._measured = len(known_ns)
        spread = _lower_spread(known_ns)
        self._measured_sigma = np.hypot(np.maximum(sigma_ns, MIN_SIGMA_NS), spread)
        self._uneven = uneven
        self._change = np.where(self._known, change_ns, np.nan)
        self._price = penalty
        finite = penalty[np.isfinite(penalty)]
        self._dearest = float(finite.max(initial=0.0)) + OUTLIER_MARGIN
        self._entries: dict[int, tuple[Index, Floats, Mask]] = {}
        self._found: dict[int, float] = {}
        self._held: dict[int, Mask] = {}
        """For each found component the rows that cross it, or probably do."""
        self._instead: dict[int, dict[int, float]] = {}
        """For each, those of another result that explains as much → nats gained by that."""
        self._rest = self._change
        self._sigma_of: tuple[Floats, Floats] = self._change, self._measured_sigma
        """The last evaluated residual, and its possible error."""
        self._outlier = self._dearest
        self._set_outlier()

    @property
    def found(self) -> int:
        return len(self._found)

    def findings(self) -> list[DelayFinding]:
        """Findings, most certain first; without those that later ones have left nothing to
        explain."""
        findings = [self._finding(candidate) for candidate in self._found]
        left = [finding for finding in findings if np.isfinite(finding.nats)]
        return sorted(left, key=lambda finding: -finding.nats)

    def search(self, most: int = MAX_FOUND) -> None:
        """Add the component that explains most, one after the other."""
        # Adding and dropping can return to an earlier state: then the search ends.
        seen: set[frozenset[int]] = set()
        before = self._effort.spent
        while len(self._found) < most and frozenset(self._found) not in seen:
            seen.add(frozenset(self._found))
            candidates = self._promising()
            if len(candidates) and self._is_spent():
                break
            gain, delay_ns = self._score(candidates, self._rest)
            if not len(gain) or gain.max() <= 0:
                break
            best = int(np.argmax(gain))
            self._take(int(candidates[best]), float(delay_ns[best]), self._rest)
            self._refit()
            if not self._prune(int(candidates[best])):
                break
        self._search_steps = max(self._search_steps, self._effort.spent - before)

    def left_over(self) -> bool:
        """Whether a considerable share of the late paths is unexplained."""
        return self.unexplained >= max(MIN_PATHS, MIN_LEFT_SHARE * self._off(self._change))

    @property
    def unexplained(self) -> int:
        """How many paths are late, or early, for which no finding is the reason."""
        return self._off(self._rest)

    def _off(self, rest: Floats) -> int:
        return int(np.count_nonzero(np.abs(rest) > LATE_SIGMAS * self._sigma(rest)))

    def _is_spent(self) -> bool:
        """Whether only the steps are left that comparing the findings takes: the search is cut."""
        spent = self._effort.left < FINDING_STEPS * (len(self._found) + 1)
        self.is_cut |= spent
        return spent

    def may_search(self) -> bool:
        """Whether the steps are left for another search; if not, this one is cut."""
        enough = self._effort.left >= self._search_steps
        self.is_cut |= not enough
        return enough

    def _state(self) -> _State:
        return _State(dict(self._found), dict(self._held), self._rest, self._outlier)

    def _restore(self, state: _State) -> None:
        """Return to a state as it was: refitted in another order, delays may end elsewhere."""
        self._found, self._held = dict(state.found), dict(state.held)
        self._rest, self._outlier = state.rest, state.outlier

    def _restart(self) -> None:
        """Begin without findings."""
        self._found, self._held, self._rest = {}, {}, self._change
        self._set_outlier()

    def _worth(self) -> float:
        """Nats that the findings explain, minus their penalties."""
        most = np.where(self._known, self._dearest, 0.0)
        costs = [
            np.minimum(
                np.where(self._known, each, 0.0) ** 2 / (2 * self._sigma(each) ** 2), most
            ).sum()
            for each in (self._change, self._rest)
        ]
        return float(costs[0] - costs[1] - self._price[list(self._found)].sum())

    def _set_outlier(self) -> None:
        """Set the cost of an outlier from the number of early paths; late ones may be faults."""
        early = int(np.count_nonzero(self._rest < -LATE_SIGMAS * self._sigma(self._rest)))
        self._outlier = self._dearest
        if early >= MIN_EARLY:
            self._outlier = min(self._dearest, -float(np.log(early / self._measured)))

    def _take(self, candidate: int, delay_ns: float, rest: Floats) -> None:
        """Add a candidate to the findings. `rest`: changes of all paths that others do not
        explain."""
        sure, value, sigma = self._per_crossing(candidate, rest)
        tried = np.array([delay_ns])
        gains = self._may_gains(candidate, tried, value[~sure], sigma[~sure])[:, 0]
        share = float(SHARES[int(np.argmax(gains))]) if gains.max() > 0 else 0.0
        with np.errstate(divide="ignore"):
            stays = np.log1p(-share) - self._cost(value, sigma)
            comes = np.log(share) - self._cost(value - delay_ns, self._wider(sigma, delay_ns))
        self._found[candidate] = delay_ns
        self._held[candidate] = sure | (comes > stays)

    def _promising(self) -> Index:
        """Candidates with enough late paths; for a clock also early ones."""
        moved = np.flatnonzero(np.abs(self._rest) > LATE_SIGMAS * self._sigma(self._rest))
        place, owner, times = self._crossed.entries_of(moved)
        late = self._rest[moved][place] * np.sign(times) > 0
        size = len(self._price)
        count = np.bincount(owner[late], minlength=size)
        early = np.bincount(owner[~late], minlength=size)
        for clock in np.flatnonzero((early > 0) & (count + early >= MIN_PATHS)).tolist():
            count[clock] += early[clock] if self._is_signed(clock) else 0
        able = (count >= MIN_PATHS) & np.isfinite(self._price)
        able[list(self._found)] = False
        return np.flatnonzero(able)

    def _is_signed(self, candidate: int) -> bool:
        """Whether it is a clock: some paths begin at it."""
        return bool((self._of(candidate)[1] < 0).any())

    def _score(
        self, candidates: Index, rest: Floats, *, least: float | None = None
    ) -> tuple[Floats, Floats]:
        """Gain beyond its penalty and most likely delay of each candidate, given the remaining
        changes.

        Args:
            candidates: numbers, (n,).
            rest: changes that others do not explain, (paths,).
            least: candidates that cannot gain this much are skipped, with a gain of -inf. None:
                only the best is needed.
        """
        gains, delays = np.full(len(candidates), -np.inf), np.zeros(len(candidates))
        rebate = np.log1p(len(self._found))
        most = np.full(len(candidates), np.inf)
        if len(candidates) > 1:
            most = self._room(rest)[candidates] - self._price[candidates] + rebate + SLACK_NATS
        for place in np.argsort(-most, kind="stable").tolist():
            if most[place] < (gains.max() if least is None else least):
                break
            if least is None and len(candidates) > 1 and self._effort.left <= 0:
                # What is best is not known.
                self.is_cut = True
                return np.full(len(candidates), -np.inf), delays
            candidate = int(candidates[place])
            gain, delays[place] = self._best(candidate, rest)
            gains[place] = gain - self._price[candidate] + rebate
        return gains, delays

    def _room(self, rest: Floats) -> Floats:
        """Upper bound of each candidate's gain: as if it explained all of its paths."""
        cost = np.where(self._known, self._cost(rest, self._sigma(rest)), 0.0)
        return self._crossed.surely.sums(cost) + self._crossed.maybe.sums(cost)

    def _best(self, candidate: int, rest: Floats) -> tuple[float, float]:
        """Most likely delay of a candidate and the nats that it gains; -inf for none."""
        gain, tried = self._tried(candidate, rest)
        if not len(tried):
            return -np.inf, 0.0
        best = int(np.argmax(gain))
        return float(gain[best]), float(tried[best])

    def _tried(self, candidate: int, rest: Floats) -> tuple[Floats, Floats]:
        """Possible delays of a candidate, and the nats gained by each."""
        sure, value, sigma = self._per_crossing(candidate, rest)
        self._effort.spend(len(value))
        tried = np.quantile(value, _QUANTILES)
        late = value[np.abs(value) > LATE_SIGMAS * sigma]
        if len(late):
            tried = np.concatenate((tried, np.quantile(late, _QUANTILES)))
        tried = self._polished(tried, value, sigma)
        allowed = np.abs(tried) if self._is_signed(candidate) else tried
        tried = tried[allowed >= MIN_DELAY_NS]
        gain = self._gain(tried, value[sure], sigma[sure])
        may = self._may_gains(candidate, tried, value[~sure], sigma[~sure])
        return gain + np.maximum(may.max(axis=0), 0.0), tried

    def _polished(self, tried: Floats, value: Floats, sigma: Floats) -> Floats:
        """Move each trial value to the mean of the paths that agree with it."""
        wider = self._wider(sigma[:, None], tried)
        near = np.abs(value[:, None] - tried) < LATE_SIGMAS * wider
        weight = near / wider**2
        total = weight.sum(axis=0)
        mean = (weight * value[:, None]).sum(axis=0) / np.maximum(total, 1e-30)
        return np.asarray(np.where(total > 0, mean, tried))

    def _cost(self, off: Floats, sigma: Floats) -> Floats:
        return np.asarray(np.minimum(off**2 / (2 * sigma**2), self._outlier))

    def _gain(self, tried: Floats, value: Floats, sigma: Floats) -> Floats:
        """Nats gained by paths that certainly cross, (tried,)."""
        before = self._cost(value, sigma).sum()
        wider = self._wider(sigma[:, None], tried)
        after = self._cost(value[:, None] - tried, wider).sum(axis=0)
        return np.asarray(before - after)

    def _may_gains(self, candidate: int, tried: Floats, value: Floats, sigma: Floats) -> Floats:
        """Nats gained by paths that may cross, (shares, tried)."""
        before = self._cost(value, sigma)[:, None]
        after = self._cost(value[:, None] - tried, self._wider(sigma[:, None], tried))
        gains = np.zeros((len(SHARES), len(tried)))
        for place, share in enumerate(SHARES.tolist()):
            with np.errstate(divide="ignore"):
                mixed = np.maximum(np.log1p(-share) - before, np.log(share) - after)
            gains[place] = (mixed + before).sum(axis=0)
        only = np.array([candidate], dtype=np.intp)
        gains[self._crossed.partly.impossible(only)[:, 0]] = -np.inf
        return gains

    def _of(self, candidate: int) -> tuple[Index, Floats, Mask]:
        """Measured rows, how many times each crosses, and which of them certainly do."""
        if candidate not in self._entries:
            parts = [part.of(candidate) for part in (self._crossed.surely, self._crossed.maybe)]
            rows, times = (np.concatenate(each) for each in zip(*parts, strict=True))
            sure = np.arange(len(rows)) < len(parts[0][0])
            known = self._known[rows]
            self._entries[candidate] = rows[known], times[known], sure[known]
        return self._entries[candidate]

    def _per_crossing(self, candidate: int, rest: Floats) -> tuple[Mask, Floats, Floats]:
        """Rows that certainly cross, with the delay per crossing that each suggests, and its
        sigma."""
        rows, times, sure = self._of(candidate)
        sigma = self._sigma_at(rest, rows)
        return sure, rest[rows] / times, sigma / np.abs(times)

    def _sigma(self, rest: Floats) -> Floats:
        """Sigma of the remaining change of all paths. A fleet has many paths, and a delay was
        subtracted from few of them."""
        if self._sigma_of[0] is not rest:
            explained = np.flatnonzero((rest != self._change) & self._known)
            sigma = self._measured_sigma.copy()
            sigma[explained] = self._sigma_at(rest, explained)
            self._sigma_of = rest, sigma
        return self._sigma_of[1]

    def _sigma_at(self, rest: Floats, rows: Index) -> Floats:
        """Sigma of the remaining change of these paths, given the delays already subtracted from
        it."""
        explained = np.nan_to_num(self._change[rows] - rest[rows])
        return self._wider(self._measured_sigma[rows], explained)

    def _wider(self, sigma: Floats, delay_ns: Floats | float) -> Floats:
        """Sigma widened by the spread of a delay that paths do not share exactly."""
        return np.asarray(np.hypot(sigma, self._uneven * delay_ns))

    def _left_by(self, without: int | None) -> Floats:
        rest = self._change.copy()
        for candidate, delay_ns in self._found.items():
            if candidate != without:
                rows, times, _ = self._of(candidate)
                held = self._held[candidate]
                rest[rows[held]] -= times[held] * delay_ns
        return rest

    def _refit(self) -> None:
        for _ in range(2 if len(self._found) > 1 else 0):
            for candidate in list(self._found):
                only = np.array([candidate], dtype=np.intp)
                rest = self._left_by(candidate)
                gain, delay_ns = self._score(only, rest)
                if np.isfinite(gain[0]):
                    self._take(candidate, float(delay_ns[0]), rest)
        self._rest = self._left_by(None)
        self._set_outlier()

    def _prune(self, newest: int) -> bool:
        for candidate in list(self._found):
            only = np.array([candidate], dtype=np.intp)
            gain, _ = self._score(only, self._left_by(candidate))
            if gain[0] <= 0:
                del self._found[candidate], self._held[candidate]
                self._refit()
                if candidate == newest:
                    return False
        return True

    def _finding(self, candidate: int) -> DelayFinding:
        rest = self._left_by(candidate)
        rows, times, _ = self._of(candidate)
        rows, times = rows[self._held[candidate]], times[self._held[candidate]]
        late = rest[rows] * np.sign(times) / self._sigma_at(rest, rows)
        size = np.sign(self._found[candidate])
        hit = late * size > LATE_SIGMAS
        near = np.unique(self._crossed.entries_of(rows[hit])[1])
        near = np.union1d(near, [candidate])
        rivals = near[~np.isin(near, [c for c in self._found if c != candidate])]
        only, _ = self._score(np.array([candidate], dtype=np.intp), rest)
        own = float(only[0])
        unlikely = _UNLIKELY_NATS if self.is_cut else _NOTHING_NATS
        gain, _ = self._score(rivals, rest, least=own - unlikely)
        for other, more in self._instead.get(candidate, {}).items():
            gain[rivals == other] = np.maximum(gain[rivals == other], own + more)
        weight = np.exp(np.minimum(gain - own, 50)) if np.isfinite(own) else np.zeros(len(gain))
        total = float(weight.sum() + np.exp(-max(own, 0.0) - 1.0))
        order = np.argsort(-gain, kind="stable")
        close = [i for i in order if gain[i] > own - CLOSE_NATS and rivals[i] != candidate]
        return DelayFinding(
            candidate=candidate,
            delay_ns=self._found[candidate],
            nats=own,
            confidence=1.0 / total,
            paths=int(np.count_nonzero(hit)),
            alternatives=tuple(int(rivals[i]) for i in close),
            probabilities=tuple(float(weight[i]) / total for i in close),
        )


def _lower_spread(change_ns: Floats) -> float:
    """1-sigma of undisturbed paths, from the lower tail: faults only make paths slower."""
    low, high = np.quantile(change_ns, _LOWER_QUANTILES)
    return float(high - low) / _LOWER_SIGMAS
