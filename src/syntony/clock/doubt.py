"""How far systematic errors of edges may have moved each node of a mesh."""

from __future__ import annotations

import numpy as np

from syntony.clock.laplacian import Floats, Laplacian

LEVEL = 2.0
"""Edges are taken in as long as their doubts are within this factor of each other."""
LEAST_DOUBT_NS = 1.0


def node_doubts(mesh: Laplacian, doubts: Floats, weights: Floats) -> Floats:
    """1-sigma of each node's systematic error against most of the others; shape (count,).

    A node is as doubtful as the best chain of edges that ties it to the larger half of the mesh,
    and that is as doubtful as its worst edge. Doubtful edges beside better ones hardly count: by
    their `weights`.

    Args:
        mesh: one connected part.
        doubts: (edges,), 1-sigma; infinite for edges that are left out.
        weights: (edges,), how much each edge pulls at its ends.
    """
    used = np.isfinite(doubts)
    if not (doubts[used] > LEAST_DOUBT_NS).any():
        return np.zeros(mesh.count)
    weights = np.where(used, weights, 0.0)
    total = mesh.degree(weights)
    mean = mesh.degree(weights * np.where(used, doubts, 0.0)) / np.where(total > 0, total, 1.0)
    return np.maximum(_bottlenecks(mesh, doubts), mean)


def _bottlenecks(mesh: Laplacian, doubts: Floats) -> Floats:
    """The least level of doubt at which each node joins more than half of all; shape (count,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    found = np.full(mesh.count, np.inf)
    part = np.arange(mesh.count, dtype=np.intp)
    left = np.argsort(doubts, kind="stable")
    left = left[np.isfinite(doubts[left])]
    while len(left) and not np.isfinite(found).all():
        level = max(LEVEL * float(doubts[left[0]]), LEAST_DOUBT_NS)
        count = int(np.searchsorted(doubts[left], level, side="right"))
        some, left = left[:count], left[count:]
        ends = part[mesh.plus[some]], part[mesh.minus[some]]
        graph = coo_array((np.ones(count), ends), shape=(mesh.count, mesh.count))
        _, joined = connected_components(graph, directed=False)
        part = np.asarray(joined[part], dtype=np.intp)
        sizes = np.bincount(part)
        largest = int(sizes.argmax())
        if 2 * sizes[largest] > mesh.count:
            worst = float(doubts[some[-1]])
            reached = (part == largest) & ~np.isfinite(found)
            found[reached] = worst if worst > LEAST_DOUBT_NS else 0.0
    return np.where(np.isfinite(found), found, 0.0)
