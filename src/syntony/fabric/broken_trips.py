"""In which direction round trips broke, by the requests that their targets received. Pure.

Decided by pair of NICs and window: if all requests of a pair's broken round trips arrived, the way
back lost them; if none arrived, the way there. Otherwise the direction is unknown.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.fabric import history
from syntony.fabric.history import HistoryWindow
from syntony.fabric.tally import Floats, Index, Ints

SLACK = 2
SLACK_S = 0.1
"""Requests received in another window than sent, per pair: a few, or what a tenth of a second
brings, since the two ends cut their seconds by their own ticks. Where few are received at all, few
can be of another window."""


class Attributed(NamedTuple):
    """Broken round trips by direction, (flows,) each."""

    there: Ints
    """Lost on the way to the target."""
    back: Ints
    """Lost on the way back."""
    unknown: NDArray[np.bool_]
    """Flows of which nobody can say."""


def attribute(window: HistoryWindow, flows: Index, pair: Index, of_pair: Index) -> Attributed:
    """Say of the broken round trips of some flows where they were lost.

    Args:
        window: counts of all flows.
        flows: those with broken round trips.
        pair: of all flows, the number of their pair of NICs.
        of_pair: NICs, from and to, (pairs, 2).
    """
    pairs, here = np.unique(pair[flows], return_inverse=True)
    chosen = np.zeros(len(of_pair), dtype=np.bool_)
    chosen[pairs] = True
    members = np.flatnonzero(chosen[pair])
    at = np.searchsorted(pairs, pair[members])
    counts = window.counts[:, members]

    def per_pair(field: int) -> Ints:
        return np.bincount(at, counts[field], minlength=len(pairs)).astype(np.int64)

    broken = per_pair(history.UNRESOLVED)
    heard = np.zeros(len(pairs), dtype=np.int64)
    heard[at] = counts[history.HEARD]
    missing = per_pair(history.SENT) - per_pair(history.LOST) - heard
    slack = SLACK + SLACK_S * heard / window.seconds
    telling = broken > 2 * slack
    all_there = missing >= broken - slack
    all_back = missing <= slack
    mixed = telling & ~all_there & ~all_back
    clear = telling & (all_there | all_back) & ~_shares_end(of_pair[pairs], mixed)
    all_there &= clear
    all_back &= clear
    of_flow = window.counts[history.UNRESOLVED, flows]
    known = (all_there | all_back)[here] & ~_hidden(of_flow, here, slack)
    there = np.where(all_there[here] & known, of_flow, 0)
    back = np.where(all_back[here] & known, of_flow, 0)
    return Attributed(there, back, ~known)


def _shares_end(ends: Index, mixed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Pairs with a NIC that one of the mixed has, too, (pairs,). Where a NIC loses both ways,
    pairs that happened to lose all of theirs one way prove nothing.

    Args:
        ends: the NICs of each, (pairs, 2).
    """
    return np.asarray(np.isin(ends, ends[mixed]).any(axis=1))


def _hidden(broken: Ints, pair: Index, slack: Floats) -> NDArray[np.bool_]:
    """Flows, (n,), that may have broken the other way than their pair: those that lost least, as
    many losses as the slack of the pair, (pairs,), leaves open."""
    order = np.lexsort((broken, pair))
    total = np.cumsum(broken[order])
    of_pair = np.bincount(pair, broken, len(slack))
    before = np.cumsum(of_pair) - of_pair
    hidden = np.empty(len(broken), dtype=np.bool_)
    hidden[order] = total - before[pair[order]] <= slack[pair[order]]
    return hidden
