"""Meshes of measured edges with a known truth, drawn without the solver's own model.

Clocks differ by milliseconds and drift by tens of ppm; edges are told by either or both ends, over
several ports, with heavy-tailed or uniform noise beside Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.clock.network import NetworkSolver
from syntony.model import Edge, S, Timeline

Floats = NDArray[np.float64]

REF_NS = 1_750_000_000 * S
Link = tuple[int, int]


def everyone(count: int, rng: np.random.Generator) -> Iterator[Link]:
    return ((a, b) for a in range(count) for b in range(a))


def ring(count: int, rng: np.random.Generator) -> Iterator[Link]:
    return ((a, (a + step) % count) for a in range(count) for step in (1, 2))


def star(count: int, rng: np.random.Generator) -> Iterator[Link]:
    """Three hubs that probe each other and everybody."""
    return ((a, b) for a in range(count) for b in range(min(a, 3)))


def random_regular(count: int, rng: np.random.Generator) -> Iterator[Link]:
    """Three random Hamiltonian cycles: every clock has about six peers."""
    for _ in range(3):
        order = rng.permutation(count).tolist()
        yield from zip(order, order[1:] + order[:1], strict=True)


def clustered(count: int, rng: np.random.Generator) -> Iterator[Link]:
    """Racks of six, each tied to the next by three links."""
    for first in range(0, count, 6):
        rack = range(first, min(first + 6, count))
        yield from ((a, b) for a in rack for b in range(first, a))
        for _ in range(3):
            yield int(rng.choice(rack)), int((first + 6 + rng.integers(6)) % count)


TOPOLOGIES: dict[str, Callable[[int, np.random.Generator], Iterable[Link]]] = {
    each.__name__: each for each in (everyone, ring, star, random_regular, clustered)
}


class World:
    """Clocks, and edges between them that can be spoilt."""

    def __init__(  # noqa: PLR0917 - who, how many, between whom, how often, how well
        self,
        seed: int,
        count: int,
        topology: str = "random_regular",
        ports: int = 1,
        both_ends: bool = True,
        sigmas_ns: tuple[float, float] = (5.0, 50.0),
    ) -> None:
        self.seed = seed
        self.rng = rng = np.random.default_rng(seed)
        self.count = count
        self.offset_ns = rng.uniform(-5e6, 5e6, count)
        self.drift_ppb = rng.uniform(-20e3, 20e3, count)
        pairs = {(min(x), max(x)) for x in TOPOLOGIES[topology](count, rng) if x[0] != x[1]}
        links = [(a, b) if rng.random() < 0.5 else (b, a) for a, b in sorted(pairs)]
        if both_ends:
            links += [(b, a) for a, b in links]
        self.edges = [self._edge(a, b, sigmas_ns) for a, b in links for _ in range(ports)]

    def _edge(self, a: int, b: int, sigmas_ns: tuple[float, float]) -> Edge:
        rng = self.rng
        sigma_ns = math.exp(rng.uniform(*np.log(sigmas_ns)))
        kind = rng.integers(3)
        unit = (rng.normal(), rng.uniform(-1.7, 1.7), rng.standard_t(5) / 1.29)[kind]
        ref_ns = REF_NS + round(self.offset_ns[a])
        return Edge(
            a=f"n{a}",
            b=f"n{b}",
            ref_ns=ref_ns,
            theta_ns=float(self.offset_ns[b] - self.offset_ns[a] + unit * sigma_ns),
            drift_ppb=float(self.drift_ppb[b] - self.drift_ppb[a] + rng.normal(0, 5)),
            sigma_ns=sigma_ns,
            drift_sigma_ppb=5.0,
            rtt_floor_ns=20_000.0,
            probes=256,
        )

    def spoil(self, off_ns: Floats, **claims: float) -> None:
        """Move each theta by ``off_ns[a, b]``; where that is not 0, replace claims."""
        for place, edge in enumerate(self.edges):
            wrong_ns = float(off_ns[int(edge.a[1:]), int(edge.b[1:])])
            if wrong_ns:
                self.edges[place] = msgspec.structs.replace(
                    edge, theta_ns=edge.theta_ns + wrong_ns, **claims
                )

    def slew(self, node: int, by_ppb: float, believers: set[int]) -> None:
        """One clock's rate has changed; edges that these clocks measured say nothing of it."""
        self.drift_ppb[node] += by_ppb
        for place, edge in enumerate(self.edges):
            ends = int(edge.a[1:]), int(edge.b[1:])
            if node not in ends or ends[0] in believers:
                continue
            turn_ppb = by_ppb if ends[1] == node else -by_ppb
            self.edges[place] = msgspec.structs.replace(edge, drift_ppb=edge.drift_ppb + turn_ppb)

    def from_one(self, node: int, off_ns: Floats) -> Floats:
        """Errors of the edges that one clock measures, (clocks,), as a matrix for `spoil`."""
        found = np.zeros((self.count, self.count))
        found[node] = off_ns
        return found

    def solve(self) -> Judged:
        solver = NetworkSolver()
        solver.update(self.edges, now_ns=0)
        lines = {line.node: line for line in solver.solve(now_ns=0)}
        return Judged.of(self, [lines[f"n{node}"] for node in range(self.count)])


class Judged(NamedTuple):
    """Arrays of shape (clocks,)."""

    error_ns: Floats
    """Against the median of all."""
    bound_ns: Floats
    sigma_ns: Floats
    lines: list[Timeline]
    drift_error_ppb: Floats
    """Against the median of all."""
    drift_sigma_ppb: Floats

    @classmethod
    def of(cls, world: World, lines: list[Timeline]) -> Judged:
        error = np.array(
            [line.offset_ns + off for line, off in zip(lines, world.offset_ns, strict=True)]
        )
        at = [REF_NS + round(off) for off in world.offset_ns]
        drift = np.array([line.drift_ppb * 1e-9 for line in lines])
        error += drift * (np.array(at) - np.array([line.ref_ns for line in lines]))
        drift_error = np.array([line.drift_ppb for line in lines]) + world.drift_ppb
        return cls(
            error - np.median(error),
            np.array([line.bound_ns(t) for line, t in zip(lines, at, strict=True)]),
            np.array([line.sigma_ns for line in lines]),
            lines,
            drift_error - np.median(drift_error),
            np.array([line.drift_sigma_ppb for line in lines]),
        )

    @property
    def worst(self) -> float:
        """Largest error in terms of its bound."""
        return float(np.max(np.abs(self.error_ns) / self.bound_ns))
