"""In which direction unanswered round trips were lost, from the requests that targets received.
Pure.

Decided per pair of NICs and window. If all requests of a pair's unanswered round trips arrived,
they were lost on the way back. If none arrived, they were lost on the way there. Otherwise the
direction is unknown.
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
"""Requests that may be received in another window than they were sent in, per pair: a few, or those
of a tenth of a second, because each end cuts its seconds by its own clock. At low rates it can only
be few."""


class Attributed(NamedTuple):
    """Unanswered round trips by direction, (flows,) each."""

    there: Ints
    """Lost on the way to the target."""
    back: Ints
    """Lost on the way back."""
    unknown: NDArray[np.bool_]
    """Flows whose direction of loss is unknown."""


def attribute(window: HistoryWindow, flows: Index, pair: Index, of_pair: Index) -> Attributed:
    """Attribute the unanswered round trips of some flows to a direction.

    Args:
        window: counts of all flows.
        flows: those with unanswered round trips.
        pair: the number of the pair of NICs of each flow, for all flows.
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
    received = np.zeros(len(pairs), dtype=np.int64)
    received[at] = counts[history.HEARD]
    missing = per_pair(history.SENT) - per_pair(history.LOST) - received
    slack = SLACK + SLACK_S * received / window.seconds
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
    """Pairs that share a NIC with a pair of mixed result, (pairs,). If a NIC loses in both
    directions, pairs that happened to lose all of theirs in one direction are no evidence.

    Args:
        ends: the NICs of each, (pairs, 2).
    """
    return np.asarray(np.isin(ends, ends[mixed]).any(axis=1))


def _hidden(broken: Ints, pair: Index, slack: Floats) -> NDArray[np.bool_]:
    """Flows, (n,), that may have lost in the other direction than their pair: those with the fewest
    losses, up to the slack of the pair, (pairs,)."""
    order = np.lexsort((broken, pair))
    total = np.cumsum(broken[order])
    of_pair = np.bincount(pair, broken, len(slack))
    before = np.cumsum(of_pair) - of_pair
    hidden = np.empty(len(broken), dtype=np.bool_)
    hidden[order] = total - before[pair[order]] <= slack[pair[order]]
    return hidden
