"""The current findings of a search for losses, and each path's rate under them (`loss_search`).
Pure."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from syntony.fabric import loss_gains
from syntony.fabric.effort import Effort
from syntony.fabric.loss_bursts import Across
from syntony.fabric.loss_gains import CandidatePaths, Gains, entropy, likelihood
from syntony.fabric.tally import SHARES, Clean, Entries, Floats, Index, Structure, Tally
from syntony.fabric.unevenness import unevenness, weights

MIN_LOSS = 2e-4
"""Smaller losses are ignored: at 50 probes a second, 0.02 % is one probe in 100 s."""
MIN_LOST = 3
"""With fewer lost probes there is no finding, however improbable the losses are."""
OUTLIER_MARGIN = 3.0
"""Nats that an outlier costs more than a finding: one path alone can justify a finding only if
nothing that crosses the component contradicts it."""
MAX_RATE = 18.0
"""λ of a black hole: so large that more would gain nothing even with a fleet's lost probes."""
_GRID = np.geomspace(MIN_LOSS, MAX_RATE, 36)
_SWEEPS = 12
_SETTLED = 0.1
"""The background contains some of the loss of a newly found component and releases it sweep by
sweep. While it changes by more than this, a further candidate would be found for the rest."""
_MIN_BACKGROUND, _MAX_BACKGROUND = 1e-7, 1e-2
_MAX_MOVED = 0.3
_MOST = float(np.log(2))
"""At this rate a path loses half of its packets."""

_Key = tuple[bytes, float, float]


class Fit:
    """The findings in one window, and every lossy path's rate under them.

    Args:
        tally: the window's counts.
        price: nats that each candidate must gain.
        structure: relations between candidates.
        assumed: unevenness of losses across one component.
        dispersion: index of dispersion of all losses (`loss_bursts`).
        effort: counts each fit.
    """

    def __init__(
        self,
        tally: Tally,
        price: Floats,
        structure: Structure,
        *,
        assumed: float = 0.0,
        dispersion: float = 1.0,
        effort: Effort | None = None,
    ) -> None:
        self.price = price
        self._effort = effort or Effort()
        self._some_flows = loss_gains.SOME_FLOWS_PRICE
        self._structure = structure
        finite = price[np.isfinite(price)]
        self._outlier = float(finite.max(initial=0.0)) + OUTLIER_MARGIN
        self._counted, self._dispersion = tally, dispersion
        weight = weights(tally.sent, tally.lost, assumed, dispersion)
        self._lost, self._sent = tally.lost * weight, tally.sent * weight
        self._arrived = self._sent - self._lost
        self._best = entropy(self._lost, self._sent)
        self._alike = loss_gains.alike(self._lost, self._sent)
        _, self._first = np.unique(self._alike, return_index=True)
        rows, columns = np.nonzero(tally.crossings >= 0)
        candidate = tally.crossings[rows, columns].astype(np.int64)
        may_row, may_candidate = tally.partly.pairs(tally.crossings)
        self._entries = Entries(rows, candidate, tally.times[rows, columns], tally.candidates)
        once = np.ones(len(may_row), dtype=np.int8)
        self._may = Entries(may_row, may_candidate, once, tally.candidates)
        surely = np.bincount(candidate, tally.lost[rows], minlength=tally.candidates)
        maybe = np.bincount(may_candidate, tally.lost[may_row], minlength=tally.candidates)
        self._seen = np.flatnonzero(surely + maybe >= MIN_LOST)
        self._partly = tally.partly
        self._of_another: dict[tuple[int, bytes], bool] = {}
        self._fitted: dict[_Key, tuple[Floats, Floats]] = {}
        self._last_gains: tuple[_Key, Gains] | None = None
        self._total_sent = tally.total_sent / dispersion
        self._paths = tally.paths
        self._moved = min(1.0 / tally.paths, _MAX_MOVED)
        self._found: dict[int, float] = {}
        self._held: dict[int, tuple[Index, Floats]] = {}
        """For each finding, the rows that cross it and those that probably do, and how many
        times."""
        self._set_background()

    def unevenness(self) -> float:
        """Unevenness of the paths that certainly cross the findings. Paths that may cross one, and
        those affected by a fault of some flows, count for the finding that explains them best: a
        finding for only the worst of them proves nothing."""
        surely, maybe = np.zeros(len(self._lost)), np.zeros(len(self._lost))
        for candidate, rate in self._found.items():
            held, often = self._held[candidate]
            rows, times = self._entries.of(candidate)
            if np.isin(rows, held).all():
                surely[rows] += rate * times
            maybe[held] = np.maximum(maybe[held], rate * often)
        rates = np.where(surely > 0, surely, maybe)
        return unevenness(self._counted.sent, self._counted.lost, rates)

    def counts(self) -> list[Across]:
        """The paths that certainly cross each finding, those without loss included."""
        return [self._across(*found) for found in self._found.items()]

    def _across(self, candidate: int, rate: float) -> Across:
        """The paths that certainly cross a finding; those that lose most packets are left out,
        since bursts would overlap."""
        rows, _ = self._entries.of(candidate)
        sent, lost, rates = self._counted.sent[rows], self._counted.lost[rows], self._rates[rows]
        clean, flows = self._counted.clean_of(np.array([candidate], dtype=np.intp)), 1.0
        paths, probes = float(clean.paths[0]), float(clean.probes[0])
        if not np.isin(rows, self._held[candidate][0]).all():
            rate, flows = float(lost.sum() / (sent.sum() + probes)), len(rows) / (len(rows) + paths)
            rates = np.full(len(rows), rate)
        few = np.append(rates, rate) < _MOST
        return Across(
            np.append(rates * sent, rate * probes / max(paths, 1.0))[few],
            np.append(lost, 0.0)[few],
            np.append(np.ones(len(rows)), paths)[few],
            flows,
        )

    def _clean_of(self, candidates: Index) -> Clean:
        """The paths that lost nothing: evidence as far as the lost packets are."""
        clean = self._counted.clean_of(candidates)
        return clean._replace(
            probes=clean.probes / self._dispersion,
            partly_probes=clean.partly_probes / self._dispersion,
        )

    def _share_hit(self, candidate: int) -> float:
        """Of the paths that certainly cross a finding, the share that is affected: below 1 for a
        fault of some flows."""
        only, grid = np.array([candidate], dtype=np.intp), np.array([[self._found[candidate]]])
        gains = self._gains_of(only, self._rates_without(candidate), self._floor(candidate))
        every, some = gains.of_all_or_some(grid)
        if some[0, 0] <= every[0, 0]:
            return 1.0
        rows, _ = self._entries.of(candidate)
        hit = np.count_nonzero(np.isin(rows, self._held[candidate][0]))
        return float(hit / (len(rows) + self._clean_of(only).paths[0]))

    def _worth(self) -> float:
        """Log-likelihood of all findings, minus their penalties."""
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
        """Add a candidate to the findings. `rates`: of every row without it."""
        self._changed()
        self._found[candidate] = rate
        self._held[candidate] = self.rows_of(candidate, rate, rates, self._floor(candidate))

    def rows_of(
        self, candidate: int, rate: float, rates: Floats, floor: Floats
    ) -> tuple[Index, Floats]:
        """Rows that cross it, and those that probably do if it loses at this rate; and how many
        times. For a fault of some flows, the rows that are probably affected."""
        only, grid = np.array([candidate], dtype=np.intp), np.array([[rate]])
        gains = self._gains_of(only, rates, floor)
        rows, times = self._may.of(candidate)
        if len(rows):
            by_share = gains.may(grid)[:, 0, 0]
            place = int(np.argmax(by_share))
            probably = self._probably(rows, rate, rates, float(SHARES[place]))
            probably &= by_share[place] > 0
            rows, times = rows[probably], times[probably]
        sure_rows, sure_times = self._entries.of(candidate)
        if gains.may_be_some[0]:
            every, some = gains.of_all_or_some(grid)
            if some[0, 0] > every[0, 0]:
                share = gains.share_of_flows[0, 0]
                hit = self._probably(sure_rows, rate * sure_times, rates, share)
                sure_rows, sure_times = sure_rows[hit], sure_times[hit]
        return np.concatenate((sure_rows, rows)), np.concatenate((sure_times, times))

    def _probably(
        self, rows: Index, rate: float | Floats, rates: Floats, share: float
    ) -> NDArray[np.bool_]:
        """Which of these rows are more likely to have this additional loss, given this prior share
        of them."""
        with np.errstate(divide="ignore"):
            there = self._likelihood(rates[rows] + rate, rows) + np.log(share)
            other = self._likelihood(rates[rows], rows) + np.log1p(-share)
        return np.asarray(there > other)

    def _drop(self, candidate: int) -> None:
        self._changed()
        del self._found[candidate], self._held[candidate]

    def _changed(self) -> None:
        """Invalidate what depends on the findings or their rates."""

    def _threshold(self) -> float:
        """Reduction of the next finding's threshold by the step-up procedure."""
        return float(np.log1p(len(self._found)))

    def _set_background(self) -> None:
        """The loss rate that all paths share: losses that are neither explained nor outliers."""
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
        """The share of paths that cross a finding although their map does not list it."""
        if not self._found:
            self._moved = min(1.0 / self._paths, _MAX_MOVED)
            return
        plain = self._likelihood(self._rates)
        moved = self._likelihood_moved()
        odds = np.log(self._moved / (1 - self._moved)) + moved - plain
        share = 1.0 / (1.0 + np.exp(-np.clip(odds, -50, 50)))
        self._moved = min((float(share.sum()) + 0.5) / self._paths, _MAX_MOVED)

    def _outlier_beside(self, candidate: int) -> float:
        """Cost of an outlier as the paths suggest that do not cross a finding and that no other one
        explains: the more of them lose by causes of their own, the less one path proves."""
        explained = np.maximum(
            self._likelihood(self._rates_without(candidate)),
            self._likelihood_moved(candidate) + np.log(self._moved),
        )
        alone = explained < self._best - self._outlier
        for rows, _ in (*self._held.values(), self._entries.of(candidate), self._may.of(candidate)):
            alone[rows] = False
        many = int(np.count_nonzero(alone))
        cost = -float(np.log((many + 0.5) / (self._paths + 1)))
        return min(cost, self._outlier) if many else self._outlier

    def _likelihood_moved(self, *without: int) -> Floats:
        """Each path's likelihood if it went through the finding that suits it best. Its ends do not
        move: a path that does not begin or end at a NIC does not cross the NIC's components."""
        rates = [
            rate
            for candidate, rate in self._found.items()
            if candidate not in without and not self._structure.is_fixed(candidate)
        ]
        lost, arrived = self._lost[self._first], self._arrived[self._first]
        most = np.full(len(lost), -np.inf)
        for rate in rates:
            each = np.array(self._background + rate)
            np.maximum(most, likelihood(lost, arrived, each), out=most)
        return np.asarray(most[self._alike])

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
        """Likelihood of paths at these rates, (paths,)."""
        return likelihood(self._lost[rows], self._arrived[rows], rate)

    def _floor(self, *without: int) -> Floats:
        """Lower bound of a path's likelihood: it may be an outlier, or have moved."""
        moved = self._likelihood_moved(*without) + np.log(self._moved)
        return np.asarray(np.maximum(self._best - self._outlier, moved))

    def _score(self, candidates: Index, without: int | None = None) -> tuple[Floats, Floats]:
        """Gain beyond its penalty, and most likely rate, of each candidate if added to the
        findings.

        Args:
            candidates: numbers, (n,).
            without: a finding to leave out.
        """
        if not len(candidates):
            return np.zeros(0), np.zeros(0)
        left_out = () if without is None else (without,)
        rates, floor = self._rates_without(*left_out), self._floor(*left_out)
        gain, rate = self.fitted(candidates, rates, floor)
        others = len(self._found) - (without is not None)
        return gain - self.price[candidates] + np.log1p(others), rate

    def fitted(self, candidates: Index, rates: Floats, floor: Floats) -> tuple[Floats, Floats]:
        """Nats gained by each candidate at its most likely rate in addition to `rates`, and that
        rate. A search returns to the same question often, which is answered once."""
        key = self._key(candidates, rates, floor)
        if key not in self._fitted:
            gains = self._gains_of(candidates, rates, floor)
            self._effort.spend(gains.entries)
            self._fitted[key] = gains.fitted(_GRID)
        return self._fitted[key]

    def _key(self, candidates: Index, rates: Floats, floor: Floats) -> _Key:
        """Equal for equal questions."""
        asked = b"".join(each.tobytes() for each in (candidates, rates, floor))
        return hashlib.blake2b(asked, digest_size=16).digest(), self._outlier, self._some_flows

    def _most(self, candidates: Index, rates: Floats, floor: Floats) -> Floats:
        """Nats that each candidate would gain if it explained each path as well as its own best
        rate: no candidate gains more."""
        room = self._best - np.maximum(self._likelihood(rates), floor)
        return np.asarray(self._entries.sums(room)[candidates] + self._may.sums(room)[candidates])

    def gains(self, candidates: Index, grid: Floats, rates: Floats, floor: Floats) -> Floats:
        """Nats gained by each candidate at each trial rate, (candidates, trial rates)."""
        return self._gains_of(candidates, rates, floor).at(grid)

    def _gains_of(self, candidates: Index, rates: Floats, floor: Floats) -> Gains:
        """The gains; those that were last asked for are kept."""
        key = self._key(candidates, rates, floor)
        if self._last_gains is None or self._last_gains[0] != key:
            self._last_gains = key, self._new_gains(candidates, rates, floor)
        return self._last_gains[1]

    def _new_gains(self, candidates: Index, rates: Floats, floor: Floats) -> Gains:
        paths = CandidatePaths(
            self._entries, self._may, self._clean_of(candidates), self._partly,
            self._counted.crossings, self._clean_of, self._structure.may_hit_some(candidates),
            self._of_another,
        )  # fmt: skip
        path_losses = loss_gains.PathLosses(self._lost, self._arrived, rates, floor, self._alike)
        return Gains(candidates, paths, path_losses, self._outlier, self._some_flows)

    def _refit(self) -> None:
        """Refit the rate of each finding given the others, and the background, until it is
        stable."""
        self._set_background()
        for _ in range(_SWEEPS):
            before = self._background
            for candidate in list(self._found):
                _, rate = self._score(np.array([candidate], dtype=np.intp), without=candidate)
                self._take(candidate, float(rate[0]), self._rates_without(candidate))
                self._set_background()
            if abs(self._background - before) <= _SETTLED * before:
                break
