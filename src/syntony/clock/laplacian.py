"""Weighted least squares on node potentials: one graph-Laplacian system, solved many times.

The mesh stays while its weights change, so its structure is sorted once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

DENSE_NODES = 400
"""Up to here systems are solved exactly and variances are the pseudo-inverse's diagonal."""
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


class Laplacian:
    """``x[plus] - x[minus] ≈ values`` under weights: arrays of shape (edges,), x of (count,)."""

    def __init__(self, plus: Places, minus: Places, count: int) -> None:
        self.plus = plus
        self.minus = minus
        self.count = count
        self._by_plus: _Rows | None = None

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
            found: Floats = self._inverse(weights) @ right
            return found
        return self._conjugate_gradients(weights, right, tolerance)

    def sigmas(self, weights: Floats) -> Floats:
        """1-sigma of each potential against their mean, weights being inverse variances.

        Beyond `DENSE_NODES` twice the variance its own edges leave: a bound on random meshes.
        """
        if self.count <= DENSE_NODES:
            variances: Floats = np.maximum(np.diag(self._inverse(weights)), 0.0)
            return np.asarray(np.sqrt(variances), dtype=np.float64)
        degree = self._sums(weights, weights)
        return np.asarray(
            np.sqrt(2.0 / np.maximum(degree, degree.max() * GROUNDED)), dtype=np.float64
        )

    def degree(self, weights: Floats) -> Floats:
        """Sum of each node's edge weights, shape (count,)."""
        return self._sums(weights, weights)

    def _sums(self, at_plus: Floats, at_minus: Floats) -> Floats:
        found = np.bincount(self.plus, at_plus, self.count)
        found += np.bincount(self.minus, at_minus, self.count)
        return np.asarray(found, dtype=np.float64)

    def _inverse(self, weights: Floats) -> Floats:
        """Pseudo-inverse; a node without weight is cut out: potential 0, variance arbitrary."""
        scale = float(weights.max())
        alive = self._sums(weights, weights) > 0
        between = alive[self.plus] & alive[self.minus]
        relative = np.where(between, np.maximum(weights / scale, GROUNDED), 0.0)
        matrix = np.diag(np.where(alive, self._sums(relative, relative), 1.0))
        np.add.at(matrix, (self.plus, self.minus), -relative)
        np.add.at(matrix, (self.minus, self.plus), -relative)
        # Adding the projector on the common shift makes the matrix regular and changes no solution.
        shift = np.outer(alive, alive) / max(float(alive.sum()), 1.0)
        return np.asarray((np.linalg.inv(matrix + shift) - shift) / scale, dtype=np.float64)

    def _rows(self) -> _Rows:
        if self._by_plus is None:
            order = None
            columns = self.minus
            if np.any(self.plus[1:] < self.plus[:-1]):
                order = np.argsort(self.plus, kind="stable")
                columns = columns[order]
            starts = np.zeros(self.count + 1, dtype=np.int32)
            np.cumsum(np.bincount(self.plus, minlength=self.count), out=starts[1:])
            self._by_plus = _Rows(order, columns.astype(np.int32), starts)
        return self._by_plus

    def _conjugate_gradients(self, weights: Floats, right: Floats, tolerance: float) -> Floats:
        """From zero, Jacobi-preconditioned (Saad 2003, algorithm 9.1)."""
        from scipy.sparse import csc_array, csr_array

        rows = self._rows()
        scale = float(weights.max())
        relative = np.maximum(weights / scale, GROUNDED)
        if rows.order is not None:
            relative = relative[rows.order]
        # The same three arrays read by rows and by columns: half the matrix and its transpose.
        half = relative, rows.columns, rows.starts
        there = csr_array(half, shape=(self.count, self.count))
        back = csc_array(half, shape=(self.count, self.count))
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
