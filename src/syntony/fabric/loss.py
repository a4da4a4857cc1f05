"""Which components lose packets, from one window's counts; see `syntony.fabric.loss_search`.
Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from syntony.fabric.loss_fit import MAX_RATE, OUTLIER_MARGIN
from syntony.fabric.loss_search import MAX_FOUND, STRICTNESS
from syntony.fabric.loss_suspects import LossFinding, SuspectSearch
from syntony.fabric.tally import SHARES, Floats, NoStructure, Structure, Tally
from syntony.fabric.unevenness import UNEVEN_NATS, USUAL

_ROUNDS = 3
"""Maximum searches, each with another unevenness."""
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
    """

    def __init__(
        self,
        tally: Tally,
        penalty: Floats,
        *,
        threshold: float = STRICTNESS,
        max_found: int = MAX_FOUND,
        structure: Structure = _NOTHING_KNOWN,
    ) -> None:
        self.tally = tally
        self._search: SuspectSearch | None = None
        self.findings: list[LossFinding] = []
        if len(tally.lost):
            self._search, self.findings = _searched(
                tally, penalty + threshold, max_found, structure
            )

    @property
    def uneven(self) -> float:
        """How much losses of a path come together, as the findings suggest (`unevenness`)."""
        return self._search.uneven if self._search is not None else 0.0

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


class _Result(NamedTuple):
    """One search, its findings, and their log-likelihood minus their penalties."""

    search: SuspectSearch
    findings: list[LossFinding]
    worth: float

    def is_better(self, other: _Result) -> bool:
        """Whether it explains more. Uneven losses must explain clearly more than even ones, unless
        one or more findings are enough where even losses need more of them."""
        return self.worth - self._penalty(other) > other.worth - other._penalty(self)

    def _penalty(self, other: _Result) -> float:
        fewer = 0 < len(self.findings) < len(other.findings)
        return UNEVEN_NATS if self.search.uneven and not (other.search.uneven or fewer) else 0.0


def _may_be_uneven(findings: list[LossFinding]) -> bool:
    """Whether uneven losses of one component could look like this: as several findings of parts, or
    of some flows."""
    return len(findings) > 1 or any(each.flows < 1 for each in findings)


def _searched(
    tally: Tally, price: Floats, max_found: int, structure: Structure
) -> tuple[SuspectSearch, list[LossFinding]]:
    """The search whose findings explain the window best, with even losses or with uneven ones."""
    results: list[_Result] = []
    uneven = 0.0
    for left in reversed(range(_ROUNDS)):
        search = SuspectSearch(tally, price, max_found, structure, uneven=uneven, is_final=not left)
        findings = search.run()
        if findings is not None:
            results.append(_Result(search, findings, search.explains(uneven)))
        if findings == []:
            break
        uneven = search.likeliest_unevenness()
        if not uneven and findings and _may_be_uneven(findings):
            uneven = USUAL
        if any(uneven == each.search.uneven for each in results):
            break
    best = results[0]
    for each in results[1:]:
        best = each if each.is_better(best) else best
    return best.search, best.findings
