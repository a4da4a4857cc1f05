"""Edges as arrays, and one instant as every clock of a connected part read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.laplacian import Floats, Laplacian, Places
from syntony.model import Edge

_INSTANT = attrgetter("ref_ns")
_FIELDS = ("theta_ns", "drift_ppb", "sigma_ns", "drift_sigma_ppb", "rtt_floor_ns", "doubt_ns")
_NUMBERS = attrgetter(*_FIELDS)
_DRIFT_SIGMA = _FIELDS.index("drift_sigma_ppb")
LEAST_SIGMA_NS = 0.5
"""Smallest sigma of an edge: stamps are whole nanoseconds."""


class MeshComponent(NamedTuple):
    """A connected component of the mesh, without its edges' measurements."""

    nodes: list[str]
    """Sorted."""
    edges: Places
    """Which of the mesh's, (edges,)."""
    mesh: Laplacian


class EdgeMeasurements(NamedTuple):
    edges: tuple[Edge, ...]
    ref_ns: NDArray[np.int64]
    """(edges,)."""
    numbers: Floats
    """`_FIELDS` of each, (edges, fields)."""

    @classmethod
    def of(cls, edges: Iterable[Edge]) -> EdgeMeasurements:
        """Instants beyond 64 bits must have been left out."""
        known = tuple(edges)
        count = len(known)
        numbers = np.fromiter(chain.from_iterable(map(_NUMBERS, known)), np.float64)
        return cls(
            known,
            np.fromiter(map(_INSTANT, known), np.int64, count),
            numbers.reshape(count, len(_FIELDS)),
        )

    def only(self, places: Sequence[int]) -> EdgeMeasurements:
        """The measurements at these indices, which are in ascending order."""
        if len(places) == len(self.edges):
            return self
        if len(places) and places[-1] - places[0] + 1 == len(places):
            chosen = slice(places[0], places[-1] + 1)
            return EdgeMeasurements(self.edges[chosen], self.ref_ns[chosen], self.numbers[chosen])
        edges = tuple(self.edges[place] for place in places)
        some = np.array(places, np.intp)
        return EdgeMeasurements(edges, self.ref_ns[some], self.numbers[some])

    def aged(self, turns_ppb: Floats) -> EdgeMeasurements:
        """The same, with drifts that may have turned by this (1-sigma, (edges,)) since."""
        numbers = self.numbers.copy()
        numbers[:, _DRIFT_SIGMA] = np.hypot(numbers[:, _DRIFT_SIGMA], turns_ppb)
        return self._replace(numbers=numbers)

    @classmethod
    def all_of(cls, each: Sequence[EdgeMeasurements]) -> EdgeMeasurements:
        """One after the other; at least one."""
        edges, ref_ns, numbers = zip(*each, strict=True)
        joined = tuple(chain.from_iterable(edges))
        return cls(joined, np.concatenate(ref_ns), np.concatenate(numbers))


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
    """1-sigma of a systematic error, in addition to the random `sigma_ns`."""

    @classmethod
    def of(cls, mesh: Laplacian, measured: EdgeMeasurements) -> EdgeArrays:
        """`mesh` is of the ends of the edges."""
        theta, drift, sigma, drift_sigma, rtt, doubt = np.ascontiguousarray(measured.numbers.T)
        least = np.maximum(LEAST_SIGMA_NS, np.spacing(np.abs(theta)))
        return cls(
            mesh.count,
            mesh.plus,
            mesh.minus,
            measured.ref_ns,
            theta,
            drift * 1e-9,
            np.maximum(sigma, least),
            drift_sigma * 1e-9,
            rtt,
            np.maximum(doubt, 0.0),
        )

    def theta_after(self, since_ns: NDArray[np.int64]) -> Floats:
        """Each edge's theta so long after its `ref_ns` on its a's clock, (edges,)."""
        return np.asarray(self.theta_ns + self.drift * since_ns, dtype=np.float64)

    def sigma_after(self, since_ns: NDArray[np.int64]) -> Floats:
        """Each edge's 1-sigma then, (edges,)."""
        return np.hypot(self.sigma_ns, self.drift_sigma * since_ns)


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


def connected_parts(ends: Sequence[tuple[str, str]]) -> list[MeshComponent]:
    """The parts of a mesh, by their first edges.

    Args:
        ends: of each edge, names of its two clocks.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes = sorted(set(chain.from_iterable(ends)))
    place = {node: number for number, node in enumerate(nodes)}
    numbers = np.fromiter(map(place.__getitem__, chain.from_iterable(ends)), np.intp)
    a, b = np.ascontiguousarray(numbers.reshape(-1, 2).T)
    size = len(nodes)
    _, found = connected_components(coo_array((np.ones(len(a)), (a, b)), shape=(size, size)))
    part_of = found.astype(np.intp)
    parts, first = np.unique(part_of[a], return_index=True)
    return [_part(nodes, a, b, part_of, number) for number in parts[np.argsort(first)]]


def _part(nodes: list[str], a: Places, b: Places, part_of: Places, number: int) -> MeshComponent:
    members = np.flatnonzero(part_of == number)
    edges = np.flatnonzero(part_of[a] == number)
    a, b = (np.searchsorted(members, each[edges]) for each in (a, b))
    own = [nodes[node] for node in members.tolist()]
    return MeshComponent(own, edges, Laplacian(a, b, len(own)))
