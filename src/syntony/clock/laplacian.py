"""Weighted least squares on node potentials: one graph-Laplacian system, solved many times.

The mesh stays while its weights change, so its structure is sorted once.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Mask = NDArray[np.bool_]

DENSE_NODES = 400
"""Up to here systems are solved exactly and variances are the pseudo-inverse's diagonal."""
FEW_PROBES = 2
"""Random right sides that show whether a mesh is an expander."""
EXPANDER_TAIL = 0.3
"""Mean part of the variances, beyond the node's own edges, up to which it is one (random meshes of
10 peers: 0.05); its error then hardly matters."""
SAME_MESH = 0.9
"""Share of its edges with which an expander graph is still one."""
EXPANDER_MARGIN = 2.0
"""In such meshes the mean, with this margin, is used for every node whose own sample is not
larger."""
MANY_PROBES = 32
PROBE_MARGIN = 4.0
"""Standard errors of a sampled variance that are added to it, so that it bounds the exact one."""
PROBE_TOLERANCE = 1e-3
"""Relative residual of such a solve: the slowest modes of clustered meshes count most."""
ROUNDS = 1_000
FINEST = 1e-12
"""Relative residual at which rounding ends all progress."""
GROUNDED = 1e-12
"""Weight, in terms of the heaviest edge, of an edge left out: parts stay solvable."""


class _Rows(NamedTuple):
    """Edges by their `plus` end, as compressed rows."""

    order: Places | None
    """Which edge each entry is; None where edges are in this order already."""
    columns: NDArray[np.int32]
    starts: NDArray[np.int32]


class _Pairs(NamedTuple):
    share: Floats
    """(edges,)."""
    shared: Places
    """Edges that are not the only one of their pair."""
    number: Places
    """The number of the pair of each of those."""


class _Expander(NamedTuple):
    """A mesh that was found to be one."""

    edges: int
    """Number of edges that counted then."""
    tail: float
    """Mean part of a variance beyond the node's own edges, in terms of what those leave."""


class Laplacian:
    """``x[plus] - x[minus] ≈ values`` under weights: arrays of shape (edges,), x of (count,)."""

    def __init__(self, plus: Places, minus: Places, count: int) -> None:
        self.plus = plus
        self.minus = minus
        self.count = count
        self._expander: _Expander | None = None
        self._inverted: tuple[Floats, Floats] | None = None
        """The last weights, and their inverse."""

    def forget(self) -> None:
        """The weights; others may follow."""
        self._expander = self._inverted = None

    @property
    def share(self) -> Floats:
        """Each edge's part of its pair, shape (edges,): a pair has one vote.

        Edges between the same two nodes, from either end, over whatever ports, are one pair.
        """
        return self._pairs.share

    @cached_property
    def ends(self) -> Places:
        """Number of each node's edges, shape (count,)."""
        return self._ends(slice(None))

    def rest(self, out: Mask) -> Places:
        """Number of each node's other edges, shape (count,)."""
        return np.asarray(self.ends - self._ends(np.flatnonzero(out)), dtype=np.intp)

    def _ends(self, places: Places | slice) -> Places:
        at_plus = np.bincount(self.plus[places], minlength=self.count)
        return at_plus + np.bincount(self.minus[places], minlength=self.count)

    @cached_property
    def peers(self) -> Floats:
        """How many other nodes each node has edges with, shape (count,)."""
        return self.degree(self.share)

    def pair_sums(self, values: Floats) -> Floats:
        """Sum over all edges of each edge's pair, shape (edges,)."""
        found = values.copy()
        shared, number = self._pairs.shared, self._pairs.number
        if len(shared):
            found[shared] = np.bincount(number, values[shared])[number]
        return found

    def pair_means(self, weights: Floats, values: Floats) -> Floats:
        """Weighted mean over all edges of each edge's pair, 0 without weight; shape (edges,)."""
        found = np.where(weights > 0, values, 0.0)
        shared, number = self._pairs.shared, self._pairs.number
        if len(shared):
            pull = np.bincount(number, weights[shared])
            sums = np.bincount(number, weights[shared] * found[shared])
            found[shared] = (sums / np.where(pull > 0, pull, 1.0))[number]
        return found

    @cached_property
    def _pairs(self) -> _Pairs:
        ends = np.minimum(self.plus, self.minus) * self.count
        ends += np.maximum(self.plus, self.minus)
        _, number, edges = np.unique(ends, return_inverse=True, return_counts=True)
        number = number.reshape(-1)
        shared = np.flatnonzero(edges[number] > 1)
        _, among = np.unique(number[shared], return_inverse=True)
        return _Pairs(1.0 / edges[number], shared, among.reshape(-1))

    def differences(self, x: Floats) -> Floats:
        """``x[plus] - x[minus]``, shape (edges,)."""
        found = x[self.plus]
        found -= x[self.minus]
        return found

    def solve(self, weights: Floats, values: Floats, tolerance: float = 0.0) -> Floats:
        """Potentials with mean zero; of residuals, the correction to what left them.

        Beyond `DENSE_NODES`, `tolerance` is the error (rms, of one potential) at which iterations
        end.
        """
        pull = weights * values
        right = self._sums(pull, -pull)
        if self.count <= DENSE_NODES:
            matrix, shift = self._regular(weights)
            found = np.linalg.solve(matrix, right) - shift @ right
            return np.asarray(found / float(weights.max()), dtype=np.float64)
        return self._conjugate_gradients(weights, right, tolerance)

    def sigmas(self, weights: Floats, degree: Floats | None = None) -> Floats:
        """1-sigma of each potential against the mean of all, weights being inverse variances.

        The mean counts each node by its own precision, so that nodes of which little is known make
        no other's sigma larger. Up to `DENSE_NODES` exact, beyond it an estimate with a margin.
        `degree` is that of these weights, where it is known.
        """
        degree = self.degree(weights) if degree is None else degree
        if self.count <= DENSE_NODES:
            inverse = self._inverse(weights)
            variances = _against(inverse, degree)
            variances = _against(inverse, 1 / np.maximum(variances, variances.max() * GROUNDED))
            return np.asarray(np.sqrt(variances), dtype=np.float64)
        degree = np.maximum(degree, degree.max() * GROUNDED)
        return np.asarray(np.sqrt(1 / degree + self._tail(weights, degree)), dtype=np.float64)

    def spans(self, weights: Floats, degree: Floats | None = None) -> Floats:
        """Variance of each edge's difference of potentials, shape (edges,).

        Beyond `DENSE_NODES` what the edges of both ends leave. `degree` is that of these weights,
        where it is known.
        """
        if self.count <= DENSE_NODES:
            inverse = self._inverse(weights)
            own = np.diag(inverse)
            found = own[self.plus] + own[self.minus] - 2 * inverse[self.plus, self.minus]
            return np.asarray(np.maximum(found, 0.0), dtype=np.float64)
        degree = self.degree(weights) if degree is None else degree
        least = 1 / np.maximum(degree, degree.max() * GROUNDED)
        return np.asarray(least[self.plus] + least[self.minus], dtype=np.float64)

    def _tail(self, weights: Floats, degree: Floats) -> Floats:
        """Variance of each potential beyond 1/degree, sampled with a margin, shape (count,).

        For signs q, ``x = L⁺·B·√w·q`` has the potentials' covariance (Hutchinson 1990; Spielman &
        Srivastava 2011). What a node's own edges leave is known exactly; only the rest,
        ``x - D⁻¹·B·√w·q``, is sampled: 5 % on random meshes, nearly all on clustered ones.
        """
        edges = int(np.count_nonzero(weights))
        if self._expander is not None and edges >= SAME_MESH * self._expander.edges:
            return np.asarray(EXPANDER_MARGIN * self._expander.tail / degree)
        rng = np.random.default_rng(len(weights))
        roots = np.sqrt(weights)
        tail = self._sampled(rng, FEW_PROBES, weights, roots, degree)
        usual = float(np.mean(tail * degree))
        if usual <= EXPANDER_TAIL:
            self._expander = _Expander(edges, usual)
            return np.maximum(tail, EXPANDER_MARGIN * usual / degree)
        tail = self._sampled(rng, MANY_PROBES, weights, roots, degree)
        return tail * (1 + PROBE_MARGIN * math.sqrt(2 / MANY_PROBES))

    def _sampled(
        self,
        rng: np.random.Generator,
        probes: int,
        weights: Floats,
        roots: Floats,
        degree: Floats,
    ) -> Floats:
        tolerance = PROBE_TOLERANCE * math.sqrt(self.count / float(degree.sum()))
        tail = np.zeros(self.count)
        for _ in range(probes):
            signed = np.where(rng.integers(0, 2, len(roots), dtype=np.bool_), roots, -roots)
            right = self._sums(signed, -signed)
            x = self._conjugate_gradients(weights, right, tolerance)
            x -= float(np.median(x))
            tail += (x - right / degree) ** 2
        return np.asarray(tail / probes, dtype=np.float64)

    def degree(self, weights: Floats, places: Places | None = None) -> Floats:
        """Sum of each node's edge weights, shape (count,).

        Args:
            weights: (edges,), or of those that count.
            places: the edges that count; all unless given.
        """
        if places is None:
            return self._sums(weights, weights)
        found = np.bincount(self.plus[places], weights, self.count)
        found += np.bincount(self.minus[places], weights, self.count)
        return np.asarray(found, dtype=np.float64)

    def beside(self, values: Floats) -> Floats:
        """Sum of the values of each node's peers, shape (count,)."""
        there, back = self._votes
        return np.asarray(there @ values + back @ values, dtype=np.float64)

    @cached_property
    def _votes(self) -> tuple[Any, Any]:
        """Each edge's share as half a matrix, by rows and by columns."""
        return self._halves(self.share)

    def _halves(self, weights: Floats) -> tuple[Any, Any]:
        """A matrix with these weights at (plus, minus), and its transpose.

        Both are the same three arrays, read by rows and by columns.
        """
        from scipy.sparse import csc_array, csr_array

        rows = self._rows
        ordered = weights if rows.order is None else weights[rows.order]
        half = ordered, rows.columns, rows.starts
        shape = (self.count, self.count)
        return csr_array(half, shape=shape), csc_array(half, shape=shape)

    def _sums(self, at_plus: Floats, at_minus: Floats) -> Floats:
        found = np.bincount(self.plus, at_plus, self.count)
        found += np.bincount(self.minus, at_minus, self.count)
        return np.asarray(found, dtype=np.float64)

    def _inverse(self, weights: Floats) -> Floats:
        """Pseudo-inverse; a node without weight is cut out: potential 0, variance arbitrary.

        Of the very array that it was made of last it is known.
        """
        if self._inverted is not None and self._inverted[0] is weights:
            return self._inverted[1]
        matrix, shift = self._regular(weights)
        found = (np.linalg.inv(matrix) - shift) / float(weights.max())
        self._inverted = weights, found
        return np.asarray(found, dtype=np.float64)

    def _regular(self, weights: Floats) -> tuple[Floats, Floats]:
        """The matrix, its largest weight 1, made regular, and what was added for that."""
        relative = np.maximum(weights / weights.max(), GROUNDED)
        # Adding the projector on the common shift makes the matrix regular and changes no solution.
        shift = self._even_shift
        degree = self._sums(relative, relative)
        if not (weights.all() and degree.all()):
            alive = self._sums(weights, weights) > 0
            relative *= alive[self.plus] & alive[self.minus]
            degree = np.where(alive, self._sums(relative, relative), 1.0)
            shift = np.outer(alive, alive) / max(float(alive.sum()), 1.0)
        twice = np.concatenate((relative, relative))
        matrix = shift - np.bincount(self._places, twice, shift.size).reshape(shift.shape)
        matrix.ravel()[:: self.count + 1] += degree
        return np.asarray(matrix, dtype=np.float64), np.asarray(shift, dtype=np.float64)

    @cached_property
    def _even_shift(self) -> Floats:
        return np.full((self.count, self.count), 1 / self.count)

    @cached_property
    def _places(self) -> Places:
        """Of each edge in a dense matrix, as (plus, minus), then of each as (minus, plus)."""
        ends = self.plus * self.count + self.minus, self.minus * self.count + self.plus
        return np.concatenate(ends)

    @cached_property
    def _rows(self) -> _Rows:
        order = None
        columns = self.minus
        if np.any(self.plus[1:] < self.plus[:-1]):
            order = np.argsort(self.plus, kind="stable")
            columns = columns[order]
        starts = np.zeros(self.count + 1, dtype=np.int32)
        np.cumsum(np.bincount(self.plus, minlength=self.count), out=starts[1:])
        return _Rows(order, columns.astype(np.int32), starts)

    def _conjugate_gradients(self, weights: Floats, right: Floats, tolerance: float) -> Floats:
        """From zero, Jacobi-preconditioned (Saad 2003, algorithm 9.1)."""
        scale = float(weights.max())
        there, back = self._halves(np.maximum(weights / scale, GROUNDED))
        ones = np.ones(self.count)
        degree = there @ ones + back @ ones
        residual = right / scale
        x = np.zeros(self.count)
        precise = residual / degree
        direction = precise.copy()
        energy = float(residual @ precise)
        enough = max(tolerance * math.sqrt(float(degree.sum())), FINEST * math.sqrt(energy))
        for _ in range(ROUNDS):
            if math.sqrt(max(energy, 0.0)) <= enough:
                break
            moved = degree * direction
            moved -= there @ direction
            moved -= back @ direction
            step = energy / float(direction @ moved)
            x += step * direction
            residual -= step * moved
            precise = residual / degree
            before, energy = energy, float(residual @ precise)
            direction *= energy / before
            direction += precise
        x -= x.mean()
        return x


def _against(inverse: Floats, counts: Floats) -> Floats:
    """Variance of each node against the mean in which nodes have these counts, shape (count,)."""
    share = counts / counts.sum()
    towards = inverse @ share
    found = np.diag(inverse) - 2 * towards + float(share @ towards)
    return np.asarray(np.maximum(found, 0.0), dtype=np.float64)
