"""Largest effect of edges' systematic errors on each node of a mesh."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.clock.laplacian import Floats, Laplacian, Places

Parts = NDArray[np.int32]
LEVEL = 1.25
"""Edges are taken in as long as their doubts are within this factor of each other."""
LEAST_DOUBT_NS = 1.0
FEW_EDGES = 2
"""Edges per node that are examined first."""


def node_doubts(mesh: Laplacian, doubts: Floats, weights: Floats) -> Floats:
    """1-sigma of each node's systematic error against most of the others; shape (count,).

    The error of a node is that of the best chain of edges to the larger half of the mesh, and the
    error of a chain is that of its worst edge. Edges with large errors next to better ones hardly
    count, by their `weights`.

    Args:
        mesh: one connected part.
        doubts: (edges,), 1-sigma; infinite for edges that are left out.
        weights: (edges,), how much each edge pulls at its ends.
    """
    doubtful = np.flatnonzero(doubts)
    if not (doubts[doubtful] > LEAST_DOUBT_NS).any():
        return np.zeros(mesh.count)
    used = np.isfinite(doubts)
    total = mesh.degree(weights if used.all() else np.where(used, weights, 0.0))
    doubtful = doubtful[used[doubtful]]
    pulls = mesh.degree(weights[doubtful] * doubts[doubtful], doubtful)
    mean = pulls / np.where(total > 0, total, 1.0)
    return np.maximum(_bottlenecks(mesh, doubts), mean)


def _bottlenecks(mesh: Laplacian, doubts: Floats) -> Floats:
    """The least level of doubt at which each node joins more than half of all; shape (count,)."""
    found = np.full(mesh.count, np.inf)
    part = np.arange(mesh.count, dtype=np.int32)
    left = np.flatnonzero(np.isfinite(doubts))
    level = LEAST_DOUBT_NS
    while len(left):
        low = left[doubts[left] <= level]
        some = low[:: 1 + len(low) // (FEW_EDGES * mesh.count)]
        if len(some) < len(low):
            # Some edges join nearly all nodes of a large mesh: few of the others are left to see.
            part = _joined(mesh, part, some)
            left = _between(mesh, part, left)
            low = left[doubts[left] <= level]
        part = _joined(mesh, part, low)
        sizes = np.bincount(part)
        largest = int(sizes.argmax())
        if 2 * sizes[largest] > mesh.count:
            reached = (part == largest) & ~np.isfinite(found)
            found[reached] = level if level > LEAST_DOUBT_NS else 0.0
        if len(sizes) == 1:
            break
        left = _between(mesh, part, left)
        level = LEVEL * float(doubts[left].min()) if len(left) else level
    return np.where(np.isfinite(found), found, 0.0)


def _joined(mesh: Laplacian, part: Parts, edges: Places) -> Parts:
    """Numbers of the connected parts, once these edges join them; shape (count,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not len(edges):
        return part
    ends = part[mesh.plus[edges]], part[mesh.minus[edges]]
    graph = coo_array((np.ones(len(edges)), ends), shape=(mesh.count, mesh.count))
    _, joined = connected_components(graph, directed=False)
    return np.asarray(joined[part], dtype=np.int32)


def _between(mesh: Laplacian, part: Parts, edges: Places) -> Places:
    across = part[mesh.plus[edges]] != part[mesh.minus[edges]]
    return np.asarray(edges[across], dtype=np.intp)
