"""Which components lose packets, from one window's counts; see `syntony.fabric.loss_search`.
Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from syntony.fabric.effort import Effort
from syntony.fabric.loss_bursts import dispersion_index
from syntony.fabric.loss_fit import MAX_RATE, OUTLIER_MARGIN
from syntony.fabric.loss_search import MAX_FOUND, STRICTNESS
from syntony.fabric.loss_suspects import LossFinding, SuspectSearch, less_sure
from syntony.fabric.tally import (
    NO_CANDIDATES,
    SHARES,
    Floats,
    Index,
    NoStructure,
    Structure,
    Tally,
)
from syntony.fabric.unevenness import CLEARLY

_ROUNDS = 3
"""Maximum restarts of a search whose paths are more uneven than it assumed."""
_FIRST_SHARE = 0.6
"""Of the steps that are left, for each search that another one may follow."""
_NOTHING_KNOWN = NoStructure()


class LossSearch:
    """One search and its result: the components that explain the window's losses, most certain
    first; empty if there are none.

    Args:
        tally: the window's counts.
        penalty: log-prior penalty per candidate in nats, usually the logarithm of the number of its
            kind; infinite for one that must not be found. (candidates,)
        threshold: see `STRICTNESS`; grows with the logarithm of the number of windows searched.
        max_found: stop there; more faults than this are not sparse.
        structure: relations between candidates.
        effort: limit on the work; None: none.
        known: earlier findings, which do not disappear because the work is limited, (n,).
    """

    def __init__(
        self,
        tally: Tally,
        penalty: Floats,
        *,
        threshold: float = STRICTNESS,
        max_found: int = MAX_FOUND,
        structure: Structure = _NOTHING_KNOWN,
        effort: Effort | None = None,
        known: Index = NO_CANDIDATES,
    ) -> None:
        self.tally = tally
        self.unexplained = 0.0
        """Lost probes for which no cause was found because the work is limited."""
        self._search: SuspectSearch | None = None
        self.findings: list[LossFinding] = []
        if len(tally.lost):
            self._search, self.findings = _searched(
                _Task(tally, penalty + threshold, max_found, structure), effort or Effort(), known
            )
            if self._search.is_cut:
                self.findings = [less_sure(each) for each in self.findings]
                self.unexplained = self._search.unexplained

    def gain_at(self, candidate: int, loss: float) -> float:
        """Nats gained (lost, if negative) if `candidate` had this loss in addition to the findings,
        except those that may be the same fault."""
        rate = min(float(-np.log1p(-min(loss, 1 - 1e-9))), MAX_RATE)
        if self._search is not None:
            same = (f for f in self.findings if candidate in {f.candidate, *f.alternatives})
            fitted = (f.candidate if f.fitted < 0 else f.fitted for f in same)
            return self._search.gain_at(candidate, rate, *fitted)
        only = np.array([candidate], dtype=np.intp)
        clean = self.tally.clean_of(only)
        if not clean.paths[0]:
            share = SHARES[~self.tally.partly.impossible(only)[:, 0]].min()
            each = rate * clean.partly_probes[0] / max(clean.partly_paths[0], 1)
            return float(np.log1p(share * np.expm1(-each)) * clean.partly_paths[0])
        return -min(float(rate * clean.probes[0]), OUTLIER_MARGIN * float(clean.paths[0]))


class _Task(NamedTuple):
    """The first arguments of each search of a window."""

    tally: Tally
    price: Floats
    max_found: int
    structure: Structure


def _searched(task: _Task, effort: Effort, known: Index) -> tuple[SuspectSearch, list[LossFinding]]:
    """Search again with the measured unevenness, while that is clearly more than was assumed. If
    packets are lost in bursts, these may be all that further findings explain: then the result
    is that of a search which allows for them."""
    assumed = 0.0
    for at_most in (*(CLEARLY,) * _ROUNDS, np.inf):
        part = effort.part(_FIRST_SHARE)
        search = SuspectSearch(*task, assumed=assumed, at_most=at_most * assumed, effort=part)
        findings = search.run(known)
        effort.take(part.spent)
        if findings is not None:
            break
        assumed = search.seen_uneven
    if findings and len(findings) > 1 and (dispersion := dispersion_index(search.counts())) > 1:
        part = effort.part(1.0)
        of_bursts = SuspectSearch(*task, assumed=assumed, dispersion=dispersion, effort=part)
        fewer = of_bursts.run(known)
        effort.take(part.spent)
        search.is_cut |= of_bursts.is_cut
        of_bursts.is_cut = search.is_cut
        # What only the dropped findings' own paths show may be several faults as well.
        if fewer and len(fewer) < len(findings) and dispersion_index(of_bursts.counts()) > 1:
            return of_bursts, fewer
    return search, findings or []
