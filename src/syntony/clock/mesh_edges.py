"""Edges as arrays, and one instant as every clock of a connected part read it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.model import Edge

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

_ENDS = attrgetter("a", "b")
_NUMBERS = attrgetter(
    "theta_ns", "drift_ppb", "sigma_ns", "drift_sigma_ppb", "rtt_floor_ns", "doubt_ns"
)
LEAST_SIGMA_NS = 0.5
"""No edge is believed to be better: stamps are whole nanoseconds."""


class EdgeArrays(NamedTuple):
    """Edges of one connected part, arrays of shape (edges,); nodes are numbers below `nodes`."""

    nodes: int
    a: Places
    b: Places
    ref_ns: NDArray[np.int64]
    theta_ns: Floats
    drift: Floats
    sigma_ns: Floats
    drift_sigma: Floats
    rtt_ns: Floats
    doubt_ns: Floats
    """1-sigma of a systematic error, beside `sigma_ns`, which is random."""

    @classmethod
    def of(cls, nodes: Sequence[str], edges: Sequence[Edge]) -> EdgeArrays:
        """`nodes` must hold every end of `edges`."""
        place = {node: number for number, node in enumerate(nodes)}
        numbers = np.fromiter(chain.from_iterable(map(_NUMBERS, edges)), np.float64)
        columns = np.ascontiguousarray(numbers.reshape(len(edges), -1).T)
        theta, drift, sigma, drift_sigma, rtt, doubt = columns
        least = np.maximum(LEAST_SIGMA_NS, np.spacing(np.abs(theta)))
        return cls(
            len(nodes),
            np.array([place[edge.a] for edge in edges], dtype=np.intp),
            np.array([place[edge.b] for edge in edges], dtype=np.intp),
            np.array([edge.ref_ns for edge in edges], dtype=np.int64),
            theta,
            drift * 1e-9,
            np.maximum(sigma, least),
            drift_sigma * 1e-9,
            rtt,
            np.maximum(doubt, 0.0),
        )

    def theta_at(self, at_a_ns: NDArray[np.int64]) -> Floats:
        """Each edge's theta at an instant of its a's clock, (edges,)."""
        return np.asarray(self.theta_ns + self.drift * (at_a_ns - self.ref_ns), dtype=np.float64)

    def sigma_at(self, at_a_ns: NDArray[np.int64]) -> Floats:
        """Each edge's 1-sigma there, (edges,)."""
        return np.hypot(self.sigma_ns, self.drift_sigma * (at_a_ns - self.ref_ns))


def common_instant(edges: EdgeArrays) -> tuple[int, NDArray[np.int64]]:
    """One instant, as every clock of the part read it to within one edge's error per hop.

    Walks the mesh breadth first from node 0. Returns that instant on node 0's clock and, shape
    (nodes,), on each node's own. Offsets of clocks that drift by 80 ppm are 4 µs different 50 ms
    later, so edges are compared at one instant.
    """
    at_root = np.concatenate(
        (
            edges.ref_ns[edges.a == 0],
            (edges.ref_ns + whole(edges.theta_ns))[edges.b == 0],
        )
    )
    local_ns = np.zeros(edges.nodes, dtype=np.int64)
    local_ns[0] = at_root.max()
    known = np.zeros(edges.nodes, dtype=np.bool_)
    known[0] = True
    while not known.all():
        reached = _next_ring(edges, local_ns, known)
        if not reached:
            break
    return int(local_ns[0]), local_ns


def _next_ring(edges: EdgeArrays, local_ns: NDArray[np.int64], known: NDArray[np.bool_]) -> bool:
    """Reads the clocks one hop further; whether there were any."""
    there = np.flatnonzero(known[edges.a] & ~known[edges.b])
    back = np.flatnonzero(known[edges.b] & ~known[edges.a])
    from_a, from_b = edges.a[there], edges.b[back]
    forward = local_ns[from_a] + whole(
        edges.theta_ns[there] + edges.drift[there] * (local_ns[from_a] - edges.ref_ns[there])
    )
    since = local_ns[from_b] - whole(edges.theta_ns[back]) - edges.ref_ns[back]
    drift = edges.drift[back]
    backward = local_ns[from_b] - whole(edges.theta_ns[back] + since * drift / (1 + drift))
    local_ns[edges.b[there]] = forward
    local_ns[edges.a[back]] = backward
    known[edges.b[there]] = True
    known[edges.a[back]] = True
    return bool(len(there) or len(back))


def whole(values: Floats) -> NDArray[np.int64]:
    return np.rint(values).astype(np.int64)


def connected_parts(edges: Sequence[Edge]) -> Iterable[list[Edge]]:
    """Edges of each connected part."""
    part_of = _part_of(frozenset(map(_ENDS, edges)))
    if len(set(part_of.values())) == 1:
        return [list(edges)]
    parts: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        parts[part_of[edge.a]].append(edge)
    return parts.values()


@lru_cache(1)
def _part_of(pairs: frozenset[tuple[str, str]]) -> Mapping[str, str]:
    """Of each node one that stands for its part. Who measures whom hardly ever changes."""
    beside: dict[str, list[str]] = defaultdict(list)
    for a, b in pairs:
        beside[a].append(b)
        beside[b].append(a)
    part_of: dict[str, str] = {}
    for first in beside:
        waiting = [first]
        while waiting:
            node = waiting.pop()
            if node not in part_of:
                part_of[node] = first
                waiting += beside[node]
    return part_of
