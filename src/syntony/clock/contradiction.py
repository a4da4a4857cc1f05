"""Bound the error of a mesh's potentials if its edges contradict each other. Pure.

If most peers of a node agree within their claimed errors, they are right and the others wrong.
Without such a majority, or if the rest of the mesh has no cycle that checks it, each of the
contradicting edges may be wrong, and all their nodes may be off by that contradiction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from syntony.clock.laplacian import Floats, Laplacian, Mask, Places

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
"""Minimum number of peers that must agree: two may agree with a third clock by chance."""
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
    excluded: Places
    """Edges of clocks that are known to be wrong; they count as no contradiction."""


class Disputes(NamedTuple):
    """Errors that contradictions allow for; 0 where there are none."""

    node: Floats
    """Of nodes that no majority confirms, shape (count,)."""
    edge: Floats
    """Of edges that contradict others, or are held by nothing but such edges, shape (edges,)."""


def contradictions(mesh: Laplacian, claims: EdgeClaims) -> Disputes:
    """Possible errors of nodes and edges due to contradicting edges."""
    bad, away, vague = _deviations(mesh, claims)
    edge, node = np.zeros(len(claims.residual)), np.zeros(mesh.count)
    if not len(bad):
        return Disputes(node, edge)
    edge[bad] = away
    alone = _unconfirmed(mesh, claims, bad)
    clear = _clear(mesh, _Votes(bad, alone, np.concatenate((claims.excluded, vague))))
    worst = _largest(mesh, edge, bad)
    # What only unconfirmed edges hold is as doubtful as the contradictions at their ends.
    judged = np.zeros(len(edge), dtype=np.bool_)
    judged[bad] = judged[claims.excluded] = True
    loose = alone[~judged[alone]]
    edge[loose] = np.maximum(worst[mesh.plus[loose]], worst[mesh.minus[loose]])
    node = np.where(clear, 0.0, np.maximum(worst, _largest(mesh, edge, loose)))
    # Nor is a node confirmed by peers that are not.
    near = touching(mesh, node > 0)
    beside = _largest(mesh, np.maximum(node[mesh.plus], node[mesh.minus]), near)
    return Disputes(np.where(clear | (node > 0), node, beside), edge)


def touching(mesh: Laplacian, nodes: Mask) -> Places:
    """Edges with an end among these nodes."""
    if not nodes.any():
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(nodes[mesh.plus] | nodes[mesh.minus])


def _largest(mesh: Laplacian, values: Floats, places: Places) -> Floats:
    """Largest value of each node's edges among these, 0 without; shape (count,)."""
    found = np.zeros(mesh.count)
    np.maximum.at(found, mesh.plus[places], values[places])
    np.maximum.at(found, mesh.minus[places], values[places])
    return found


def _deviations(mesh: Laplacian, claims: EdgeClaims) -> tuple[Places, Floats, Places]:
    """Edges whose deviation from all others exceeds both claimed errors, those deviations, and
    edges whose deviation only their systematic error explains."""
    far = np.abs(claims.residual) > claims.sigma
    far[claims.excluded] = False
    some = np.flatnonzero(far)
    left = np.maximum(claims.left[some], LEAST_LEFT)
    common = mesh.pair_means(claims.weights, claims.residual)[some]
    # Deleted residual r/(1-h) with variance σ²/(1-h) (Belsley, Kuh & Welsch 1980, section 2.1).
    away = np.abs(claims.residual[some] - common) + np.abs(common) / left
    limit = CONTRADICTION_SIGMAS * claims.sigma[some] / np.sqrt(left)
    bad = away > limit + CONTRADICTION_SIGMAS * claims.doubt[some]
    return some[bad], away[bad], some[(away > limit) & ~bad]


def redundancy(mesh: Laplacian, weights: Floats, spans: Floats) -> Floats:
    """Part of each edge that others confirm, by `mesh.spans` of the weights; shape (edges,).

    The whole pair counts as one: what its edges have in common confirms none of them.
    """
    part = mesh.pair_sums(weights)
    part *= spans
    np.subtract(1.0, part, out=part)
    return np.clip(part, 0.0, 1.0, out=part)


class _Votes(NamedTuple):
    """Edges by what they say of the nodes at their ends."""

    bad: Places
    alone: Places
    """Edges that no others confirm."""
    silent: Places
    """Edges of wrong clocks, and edges so doubtful that they neither contradict nor confirm any
    other, however far off they are."""


def _clear(mesh: Laplacian, votes: _Votes) -> Mask:
    """Nodes that a majority of their peers confirms, shape (count,)."""
    out = np.zeros(len(mesh.plus), dtype=np.bool_)
    out[votes.silent] = True
    # What contradicts most of its peers contradicts them wrongly: counted out first.
    against = _peers(mesh, votes.bad)
    wrong = against > _rest(mesh, out) / 2 + ROUNDING
    out[touching(mesh, wrong)] = True
    disputed = _peers(mesh, votes.bad[~out[votes.bad]])
    own = _rest(mesh, out)
    out[votes.bad] = True
    out[votes.alone] = True
    good = _rest(mesh, out)
    # One wrong edge is its own fault, one in five of a neighbourhood is a fault of the claims.
    near = own + mesh.beside(own)
    quiet = disputed + mesh.beside(disputed) <= (DISPUTED - ROUNDING) * near
    most = np.maximum(MAJORITY * own, LEAST_PEERS)
    return np.asarray(~wrong & quiet & (good > most - ROUNDING), dtype=np.bool_)


def _rest(mesh: Laplacian, out: Mask) -> Floats:
    """How many peers each node has by its other edges, shape (count,)."""
    return mesh.peers - _peers(mesh, np.flatnonzero(out))


def _peers(mesh: Laplacian, places: Places) -> Floats:
    """How many peers each node has by these edges, shape (count,)."""
    return mesh.degree(mesh.share[places], places)


def _unconfirmed(mesh: Laplacian, claims: EdgeClaims, bad: Places) -> Places:
    """Edges that no others confirm, none of those being wrong."""
    # Hardly any weight instead of none keeps the mesh in one part.
    weights = mesh.share / claims.sigma**2
    for places in (bad, claims.excluded):
        weights[places] *= UNCONFIRMED
    return np.flatnonzero(redundancy(mesh, weights, mesh.spans(weights)) < LEAST_REDUNDANCY)
