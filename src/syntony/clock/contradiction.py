"""What the potentials of a mesh may be off by where its edges contradict each other.

A node whose peers mostly agree within what they claim is right, and the others are wrong. Where no
such majority exists, or where what is left of the mesh has no cycle to be checked by, each of the
contradicting edges may be the wrong one, and all their nodes are in doubt by that contradiction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.laplacian import DENSE_NODES, Floats, Laplacian, Places

Mask = NDArray[np.bool_]

CONTRADICTION_SIGMAS = 4.0
"""An edge this far from what all other edges say contradicts them (6 in 100,000 by chance)."""
LEAST_REDUNDANCY = 0.1
"""Least part of an edge that the other edges confirm, for it to count as confirmed: a bridge has
0, an edge of a mesh of n edges per node and end about 1 - 1/n."""
UNCONFIRMED = 1e-9
"""The same of an edge that no other confirms: what contradicts it may all be its own fault."""
MAJORITY = 0.6
"""Share of a node's peers that must agree with it; two of three do, one of two does not."""
LEAST_PEERS = 3
"""That must: two that agree with a third clock may do so by chance."""
DISPUTED = 0.2
"""Share of contradicting edges, of a node and its peers, beyond which no majority is believed."""


class Claims(NamedTuple):
    """What the edges claim, arrays of shape (edges,)."""

    residual: Floats
    sigma: Floats
    doubt: Floats
    """1-sigma of a systematic error."""
    weights: Floats
    """With which the potentials were solved."""
    excluded: Mask
    """Edges of clocks that are known to be wrong: they contradict nobody."""


def contradictions(mesh: Laplacian, claims: Claims) -> Floats:
    """How far each node may be off because edges contradict each other; shape (count,)."""
    away, bad = _deviations(mesh, claims)
    result = np.zeros(mesh.count)
    if not bad.any():
        return result
    clear = _clear(mesh, claims, bad)
    disputed = np.flatnonzero(bad)
    worst = np.zeros(mesh.count)
    for end in (mesh.plus, mesh.minus):
        np.maximum.at(worst, end[disputed], away[disputed])
    worst[clear] = 0.0
    # A node that only unconfirmed edges hold is as doubtful as the nodes at their other ends.
    held = ~clear & (worst == 0)
    result[:] = worst
    near = np.flatnonzero((held[mesh.plus] | held[mesh.minus]) & ~claims.excluded)
    for end, other in ((mesh.plus[near], mesh.minus[near]), (mesh.minus[near], mesh.plus[near])):
        mine = held[end]
        np.maximum.at(result, end[mine], worst[other[mine]])
    return result


def _deviations(mesh: Laplacian, claims: Claims) -> tuple[Floats, Mask]:
    """Each edge's distance from what all others say, and whether it is more than both claim."""
    away = np.abs(claims.residual)
    bad = np.zeros(len(away), dtype=np.bool_)
    some = np.flatnonzero((away > claims.sigma) & ~claims.excluded)
    if not len(some):
        return away, bad
    # The whole pair is left out: what its edges have in common confirms none of them.
    pair = mesh.pair
    part = np.bincount(pair, claims.weights) * _first(pair, mesh.spans(claims.weights))
    left = np.maximum(1 - part, UNCONFIRMED)[pair[some]]
    pull = np.bincount(pair, claims.weights)
    mean = np.bincount(pair, claims.weights * claims.residual) / np.where(pull > 0, pull, 1.0)
    common = np.where(pull > 0, mean, 0.0)[pair[some]]
    # Deleted residual r/(1-h) with variance σ²/(1-h) (Belsley, Kuh & Welsch 1980, section 2.1).
    away[some] = np.abs(claims.residual[some] - common) + np.abs(common) / left
    limit = CONTRADICTION_SIGMAS * claims.sigma[some] / np.sqrt(left)
    bad[some] = away[some] > limit + CONTRADICTION_SIGMAS * claims.doubt[some]
    return away, bad


def _first(pair: Places, values: Floats) -> Floats:
    """One of the values of each pair, all of which are the same."""
    found = np.zeros(int(pair.max()) + 1)
    found[pair] = values
    return found


def _clear(mesh: Laplacian, claims: Claims, bad: Mask) -> Mask:
    """Nodes that a majority of their peers confirms, shape (count,)."""
    votes = np.where(claims.excluded, 0.0, mesh.share)
    agreeing = np.where(bad | ~_confirmed(mesh, claims, bad), 0.0, votes)
    # What contradicts most of its peers contradicts them wrongly: counted out first.
    wrong = mesh.degree(np.where(bad, votes, 0.0)) > mesh.degree(votes) / 2
    among = ~(wrong[mesh.plus] | wrong[mesh.minus])
    votes, against = votes * among, votes * (bad & among)
    own, disputed, good = (mesh.degree(each) for each in (votes, against, agreeing * among))
    # One wrong edge is its own fault, one in five of a neighbourhood is a fault of the claims.
    near = own + _beside(mesh, own, among)
    quiet = disputed + _beside(mesh, disputed, among) <= DISPUTED * near
    most = np.maximum(MAJORITY * own, LEAST_PEERS)
    return np.asarray(~wrong & quiet & (good > most - 1e-9), dtype=np.bool_)


def _beside(mesh: Laplacian, values: Floats, among: Mask) -> Floats:
    """Sum of the neighbours' values over all edges to them, by votes; shape (count,)."""
    found = np.bincount(mesh.plus, mesh.share * among * values[mesh.minus], mesh.count)
    found += np.bincount(mesh.minus, mesh.share * among * values[mesh.plus], mesh.count)
    return found


def _confirmed(mesh: Laplacian, claims: Claims, bad: Mask) -> Mask:
    """Edges that others confirm which contradict nobody; in large meshes all of them."""
    if mesh.count > DENSE_NODES:
        return np.ones(len(bad), dtype=np.bool_)
    weights = np.where(bad | claims.excluded, 0.0, mesh.share / claims.sigma**2)
    if not weights.any():
        return np.zeros(len(bad), dtype=np.bool_)
    part = np.bincount(mesh.pair, weights)[mesh.pair] * mesh.spans(weights)
    return np.asarray(1 - part >= LEAST_REDUNDANCY, dtype=np.bool_)
