"""Largest effect of edges' systematic errors on each node of a mesh."""

from __future__ import annotations

import numpy as np

from syntony.clock.laplacian import Floats, Laplacian, Places

LEVEL = 1.25
"""Edges are taken in as long as their doubts are within this factor of each other."""
LEAST_DOUBT_NS = 1.0
FEW_EDGES = 4
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
    used = np.isfinite(doubts)
    if not (doubts[used] > LEAST_DOUBT_NS).any():
        return np.zeros(mesh.count)
    pulls = np.multiply(weights, doubts, where=used, out=np.zeros(len(doubts)))
    total = mesh.degree(np.where(used, weights, 0.0))
    mean = mesh.degree(pulls) / np.where(total > 0, total, 1.0)
    return np.maximum(_bottlenecks(mesh, doubts), mean)


def _bottlenecks(mesh: Laplacian, doubts: Floats) -> Floats:
    """The least level of doubt at which each node joins more than half of all; shape (count,)."""
    found = np.full(mesh.count, np.inf)
    part = np.arange(mesh.count, dtype=np.intp)
    left = np.flatnonzero(np.isfinite(doubts))
    level = LEAST_DOUBT_NS
    while len(left):
        low = doubts[left] <= level
        part = _joined(mesh, part, left[low])
        sizes = np.bincount(part)
        largest = int(sizes.argmax())
        if 2 * sizes[largest] > mesh.count:
            reached = (part == largest) & ~np.isfinite(found)
            found[reached] = level if level > LEAST_DOUBT_NS else 0.0
        if len(sizes) == 1:
            break
        left = _between(mesh, part, left[~low])
        level = LEVEL * float(doubts[left].min()) if len(left) else level
    return np.where(np.isfinite(found), found, 0.0)


def _joined(mesh: Laplacian, part: Places, edges: Places) -> Places:
    """Numbers of the connected parts, once these edges join them; shape (count,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # Some edges join nearly all nodes of a large mesh, which leaves few of the others to look at.
    for some in (edges[:: 1 + len(edges) // (FEW_EDGES * mesh.count)], edges):
        across = _between(mesh, part, some)
        ends = part[mesh.plus[across]], part[mesh.minus[across]]
        graph = coo_array((np.ones(len(across)), ends), shape=(mesh.count, mesh.count))
        count, joined = connected_components(graph, directed=False)
        part = np.asarray(joined[part], dtype=np.intp)
        if count == 1:
            break
    return part


def _between(mesh: Laplacian, part: Places, edges: Places) -> Places:
    across = part[mesh.plus[edges]] != part[mesh.minus[edges]]
    return np.asarray(edges[across], dtype=np.intp)
