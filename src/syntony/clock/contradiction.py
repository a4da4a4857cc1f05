"""Bound the error of a mesh's potentials if its edges contradict each other. Pure.

If most peers of a node agree within their claimed errors, they are right and the others wrong.
Without such a majority, or if the rest of the mesh has no cycle that checks it, each of the
contradicting edges may be wrong, and all their nodes may be off by that contradiction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.laplacian import Floats, Laplacian

Mask = NDArray[np.bool_]

CONTRADICTION_SIGMAS = 4.0
"""An edge this far from the prediction of all others contradicts them (6 in 100,000 by chance)."""
LEAST_REDUNDANCY = 0.1
"""Least part of an edge that the other edges confirm, for it to count as confirmed: a bridge has
0, an edge of a mesh of n edges per node and end about 1 - 1/n."""
LEAST_LEFT = 0.02
"""The same, as far as a residual is scaled up by it: a cycle of 50 edges."""
UNCONFIRMED = 1e-6
"""The same for an edge that no other confirms: the contradiction may be its own fault."""
MAJORITY = 0.6
"""Share of a node's peers that must agree with it; two of three do, one of two does not."""
LEAST_PEERS = 3
"""That must: two that agree with a third clock may do so by chance."""
ROUNDING = 1e-9
DISPUTED = 0.2
"""Share of contradicting edges, of a node and its peers, above which no majority is trusted."""


class EdgeClaims(NamedTuple):
    """Measurements of the edges, arrays of shape (edges,)."""

    residual: Floats
    sigma: Floats
    doubt: Floats
    """1-sigma of a systematic error."""
    weights: Floats
    """With which the potentials were solved."""
    left: Floats
    """Part of each edge that the others confirm, 1 - leverage of its pair; 0 for a bridge."""
    excluded: Mask
    """Edges of clocks that are known to be wrong; they count as no contradiction."""


class Disputes(NamedTuple):
    """Errors that contradictions allow for; 0 where there are none."""

    node: Floats
    """Of nodes that no majority confirms, shape (count,)."""
    edge: Floats
    """Of edges that contradict others, or are held by nothing but such edges, shape (edges,)."""


def contradictions(mesh: Laplacian, claims: EdgeClaims) -> Disputes:
    """Possible errors of nodes and edges due to contradicting edges."""
    away, bad, vague = _deviations(mesh, claims)
    if not bad.any():
        return Disputes(np.zeros(mesh.count), np.zeros(len(bad)))
    confirmed = _confirmed(mesh, claims, bad)
    clear = _clear(mesh, claims, bad, confirmed, vague)
    disputed = np.where(bad, away, 0.0)
    worst = _largest(mesh, disputed)
    # What only unconfirmed edges hold is as doubtful as the contradictions at their ends.
    loose = ~bad & ~confirmed & ~claims.excluded
    edge = np.where(loose, np.maximum(worst[mesh.plus], worst[mesh.minus]), disputed)
    node = np.where(clear, 0.0, _largest(mesh, edge))
    # Nor is a node confirmed by peers that are not.
    beside = _largest(mesh, np.maximum(node[mesh.plus], node[mesh.minus]))
    return Disputes(np.where(clear | (node > 0), node, beside), edge)


def _largest(mesh: Laplacian, values: Floats) -> Floats:
    """Largest value of each node's edges, shape (count,)."""
    found = np.zeros(mesh.count)
    some = np.flatnonzero(values)
    np.maximum.at(found, mesh.plus[some], values[some])
    np.maximum.at(found, mesh.minus[some], values[some])
    return found


def _deviations(mesh: Laplacian, claims: EdgeClaims) -> tuple[Floats, Mask, Mask]:
    """Each edge's deviation from all others, whether it exceeds both claimed errors, and whether
    only its systematic error explains it."""
    away = np.abs(claims.residual)
    bad = np.zeros(len(away), dtype=np.bool_)
    some = np.flatnonzero((away > claims.sigma) & ~claims.excluded)
    if not len(some):
        return away, bad, bad
    pair = mesh.pair
    left = np.maximum(claims.left[some], LEAST_LEFT)
    pull = np.bincount(pair, claims.weights)
    mean = np.bincount(pair, claims.weights * claims.residual) / np.where(pull > 0, pull, 1.0)
    common = np.where(pull > 0, mean, 0.0)[pair[some]]
    # Deleted residual r/(1-h) with variance σ²/(1-h) (Belsley, Kuh & Welsch 1980, section 2.1).
    away[some] = np.abs(claims.residual[some] - common) + np.abs(common) / left
    limit = CONTRADICTION_SIGMAS * claims.sigma[some] / np.sqrt(left)
    bad[some] = away[some] > limit + CONTRADICTION_SIGMAS * claims.doubt[some]
    vague = np.zeros(len(away), dtype=np.bool_)
    vague[some] = (away[some] > limit) & ~bad[some]
    return away, bad, vague


def redundancy(mesh: Laplacian, weights: Floats, spans: Floats) -> Floats:
    """Part of each edge that others confirm, by `mesh.spans` of the weights; shape (edges,).

    The whole pair counts as one: what its edges have in common confirms none of them.
    """
    part = np.bincount(mesh.pair, weights)[mesh.pair] * spans
    return np.asarray(np.clip(1 - part, 0.0, 1.0), dtype=np.float64)


def _clear(mesh: Laplacian, claims: EdgeClaims, bad: Mask, confirmed: Mask, vague: Mask) -> Mask:
    """Nodes that a majority of their peers confirms, shape (count,)."""
    # An edge that is far off, but within its systematic error, neither contradicts nor confirms.
    votes = np.where(claims.excluded | vague, 0.0, mesh.share)
    agreeing = np.where(bad | ~confirmed, 0.0, votes)
    # What contradicts most of its peers contradicts them wrongly: counted out first.
    wrong = mesh.degree(np.where(bad, votes, 0.0)) > mesh.degree(votes) / 2
    among = ~(wrong[mesh.plus] | wrong[mesh.minus])
    votes, against = votes * among, votes * (bad & among)
    own, disputed, good = (mesh.degree(each) for each in (votes, against, agreeing * among))
    # One wrong edge is its own fault, one in five of a neighbourhood is a fault of the claims.
    near = own + _beside(mesh, own, among)
    quiet = disputed + _beside(mesh, disputed, among) <= (DISPUTED - ROUNDING) * near
    most = np.maximum(MAJORITY * own, LEAST_PEERS)
    return np.asarray(~wrong & quiet & (good > most - ROUNDING), dtype=np.bool_)


def _beside(mesh: Laplacian, values: Floats, among: Mask) -> Floats:
    """Sum of the neighbours' values over all edges to them, by votes; shape (count,)."""
    found = np.bincount(mesh.plus, mesh.share * among * values[mesh.minus], mesh.count)
    found += np.bincount(mesh.minus, mesh.share * among * values[mesh.plus], mesh.count)
    return np.asarray(found, dtype=np.float64)


def _confirmed(mesh: Laplacian, claims: EdgeClaims, bad: Mask) -> Mask:
    """Edges that others confirm and that contradict none."""
    # Hardly any weight instead of none keeps the mesh in one part.
    weights = np.where(bad | claims.excluded, UNCONFIRMED, 1.0) * mesh.share / claims.sigma**2
    left = redundancy(mesh, weights, mesh.spans(weights))
    return np.asarray(left >= LEAST_REDUNDANCY, dtype=np.bool_)
