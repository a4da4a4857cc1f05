"""What else explains the same delays: findings compared with others in their place. Pure.

A search that adds one component at a time can end at a set that explains the paths worse than
another set. Findings that their paths contradict, or that share paths with others, are compared
with the alternatives, all delays refitted. What explains about as much is named as an alternative.
"""

from __future__ import annotations

import numpy as np

from syntony.fabric.delay_search import (
    CLOSE_NATS,
    LATE_SIGMAS,
    MIN_DELAY_NS,
    SLACK_NATS,
    DelaySearch,
)
from syntony.fabric.tally import Index

MAX_MIXED = 6
"""With more findings, none is compared with others in its place: each costs a search."""
MAX_STARTS = 12
CHANCE_SIGMAS = 2.0
"""By this many standard deviations paths across a finding must contradict it more often than paths
elsewhere differ from what is found."""


class DelaySuspects(DelaySearch):
    """A search whose findings are compared with others in their place; arguments as there."""

    def doubt(self) -> None:
        """Search again without each finding if more paths across it contradict it than elsewhere,
        then put in its place what it has in common with others; keep what explains clearly
        more."""
        for candidate in list(self._found) if self.found <= MAX_MIXED else ():
            if candidate in self._found and self._is_contradicted(candidate) and self.may_search():
                self._search_without(candidate)
        for candidate in list(self._found) if 1 < self.found <= MAX_MIXED else ():
            for wider in self._wider_rivals(candidate):
                if self._is_spent():
                    return
                if candidate in self._found and wider not in self._found:
                    self._replace(candidate, wider)

    def search_from_others(self) -> None:
        """Restart with other first findings that explain nearly as many paths, and keep the result
        that explains most: of three delays between three leaves, any one is the sum or the
        difference of the other two."""
        if not 0 < self.found <= MAX_MIXED or not self.may_search():
            return
        best, most = self._state(), self._worth()
        for candidate, delay_ns in self._starts():
            if not self.may_search():
                break
            self._restart()
            self._take(candidate, delay_ns, self._rest)
            self._refit()
            self.search()
            if (worth := self._worth()) > most + SLACK_NATS:
                best, most = self._state(), worth
        self._restore(best)

    def _starts(self) -> list[tuple[int, float]]:
        """Possible first findings and their delays, best first."""
        self._restart()
        found = []
        for candidate in self._promising().tolist():
            gains, tried = self._tried(candidate, self._rest)
            each = zip((gains - self._price[candidate]).tolist(), tried.tolist(), strict=True)
            fresh = {round(delay_ns / MIN_DELAY_NS): (gain, delay_ns) for gain, delay_ns in each}
            found += [(gain, candidate, delay_ns) for gain, delay_ns in fresh.values()]
        found.sort(reverse=True)
        least = found[0][0] / 2 if found else 0.0
        return [(each, delay_ns) for gain, each, delay_ns in found[:MAX_STARTS] if gain > least]

    def _is_contradicted(self, candidate: int) -> bool:
        """Whether any path across a finding is off, of those that are not by chance."""
        held = np.zeros(len(self._change), dtype=np.bool_)
        for each in self._found:
            held[self._rows_of(each)] = True
        off = np.abs(self._rest) > LATE_SIGMAS * self._sigma(self._rest)
        elsewhere = self._known & ~held
        own = self._rows_of(candidate)
        share = int(np.count_nonzero(off & elsewhere)) / max(int(np.count_nonzero(elsewhere)), 1)
        usual = share * len(own)
        return bool(np.count_nonzero(off[own]) >= 1 + usual + CHANCE_SIGMAS * np.sqrt(usual))

    def _search_without(self, candidate: int) -> None:
        """Search again without a finding. Of a result that explains about as much, the others are
        alternatives."""
        before, worth, price = self._state(), self._worth(), self._price
        self._price = price.copy()
        self._price[candidate] = np.inf
        self._restart()
        self.search(len(before.found) + 1)
        self._price = price
        more, others = self._worth() - worth, self._found.keys() - before.found.keys()
        if more < CLOSE_NATS:
            self._restore(before)
            if more > -CLOSE_NATS:
                self._instead[candidate] = dict.fromkeys(others, min(more, 0.0))

    def _wider_rivals(self, candidate: int) -> list[int]:
        """What the paths of a finding cross that paths of another finding do, too: they may share
        a delay, of which the other finding has the rest. A search that adds one finding at a time
        does not see this, since the other then has all of its paths' delay."""
        own, others = self._rows_of(candidate), np.zeros(len(self._change), dtype=np.bool_)
        for other in self._found:
            if other != candidate:
                others[self._rows_of(other)] = True
        _, across, _ = self._crossed.entries_of(own[~others[own]])
        among, count = np.unique(across, return_counts=True)
        _, elsewhere, _ = self._crossed.entries_of(np.flatnonzero(others))
        shared = among[(count == count.max(initial=0)) & np.isin(among, elsewhere)]
        return [each for each in shared.tolist() if np.isfinite(self._price[each])]

    def _replace(self, candidate: int, rival: int) -> None:
        """Exchange a finding for a rival, all others refitted, if that explains clearly more. If
        about as much, the rival is an alternative."""
        before, worth = self._state(), self._worth()
        delay_ns = self._found.pop(candidate)
        del self._held[candidate]
        self._take(rival, delay_ns, self._left_by(None))
        self._refit()
        more = self._worth() - worth
        if more < CLOSE_NATS:
            self._restore(before)
            if more > -CLOSE_NATS:
                self._instead.setdefault(candidate, {})[rival] = min(more, 0.0)

    def _rows_of(self, candidate: int) -> Index:
        """Paths that a finding explains."""
        return self._of(candidate)[0][self._held[candidate]]
