"""Node potentials that a few wrong edges cannot move.

Iteratively reweighted least squares with Huber's weights (Huber 1964), which has no second minimum
to fall into; then edges far beyond the spread of the rest are left out altogether, so that what
Huber still lets them pull is gone too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.laplacian import Floats, Laplacian

HUBER = 1.345
"""95 % efficiency on Gaussian errors (Huber 1981)."""
HUBER_ROUNDS = 6
WARM_ROUNDS = 1
SMALL_NODES = 64
SMALL_ROUNDS = 40
"""Where one liar's edges are a good part of all, rounds go on until they settle: cheap there."""
REJECT_SIGMAS = 6.0
REJECT_ROUNDS = 2
MAD_TO_SIGMA = 1.4826
COARSE = 0.05
"""Error, in a typical edge's sigmas, of a round whose weights will change anyway."""
FINE = 0.005
SCALE_EDGES = 1 << 17
"""Of more, every so many are enough for a median: half a per cent off at most."""
SETTLED = 0.02
"""Change of a potential, in its typical edge's sigmas, below which rounds stop."""


class Potentials(NamedTuple):
    """Potentials and what each edge was worth to them."""

    x: Floats
    """(count,), mean zero."""
    sigma: Floats
    """(count,), 1-sigma, of edges' own sigmas times `scale`."""
    residual: Floats
    """(edges,): value minus the potentials' difference."""
    rejected: NDArray[np.bool_]
    """(edges,)."""
    scale: float
    """How much larger residuals are than sigmas say, at least 1."""


def robust_potentials(
    mesh: Laplacian,
    values: Floats,
    sigmas: Floats,
    *,
    least_reject: float,
    start: Floats | None = None,
    excluded: NDArray[np.bool_] | None = None,
) -> Potentials:
    """Solve ``x[plus] - x[minus] ≈ values``.

    Args:
        mesh: one connected part.
        values: (edges,).
        sigmas: (edges,), positive; a claim, which an edge that contradicts others does not enforce.
        least_reject: residuals up to this are never rejected.
        start: a good guess (count,): the last solution, carried on.
        excluded: edges to leave out from the beginning, (edges,).
    """
    used = np.ones(len(values), dtype=np.bool_) if excluded is None else ~excluded
    claimed = np.where(used, 1.0 / sigmas**2, 0.0)
    typical = float(np.median(sigmas[used]))
    x = start
    if x is None:
        # Nobody's own claim counts before it has been compared with the others'.
        equal = np.where(used, 1.0 / np.maximum(sigmas, typical) ** 2, 0.0)
        x = mesh.solve(equal, values, tolerance=COARSE * typical)
    for _ in range(_rounds(mesh, start)):
        before = x
        z = np.abs(_residuals(mesh, values, x)) / sigmas
        # At the sigmas as claimed, however large residuals are: a scale taken from residuals that
        # a liar has spread over the mesh would call the spread normal.
        weights = claimed * np.minimum(1.0, HUBER / np.maximum(z, 1e-12))
        x = mesh.solve(weights, values, start=x, tolerance=COARSE * typical)
        if float(np.max(np.abs(x - before))) < SETTLED * typical:
            break
    rejected = ~used
    for round_ in range(REJECT_ROUNDS):
        residual = _residuals(mesh, values, x)
        z = np.abs(residual) / sigmas
        scale = _scale(z, used)
        far = (z > REJECT_SIGMAS * scale) & (np.abs(residual) > least_reject)
        rejected = ~used | (far & ~_last_ties(mesh, ~used | far, z))
        weights = np.where(rejected, 0.0, claimed)
        weights = weights * np.minimum(1.0, HUBER * scale / np.maximum(z, 1e-12))
        fine = FINE if round_ == REJECT_ROUNDS - 1 else COARSE
        x = mesh.solve(weights, values, start=x, tolerance=fine * typical)
    residual = _residuals(mesh, values, x)
    scale = _scale(np.abs(residual) / sigmas, ~rejected)
    return Potentials(x, mesh.sigmas(weights) * scale, residual, rejected, scale)


def _rounds(mesh: Laplacian, start: Floats | None) -> int:
    if mesh.count <= SMALL_NODES:
        return SMALL_ROUNDS
    return HUBER_ROUNDS if start is None else WARM_ROUNDS


def _residuals(mesh: Laplacian, values: Floats, x: Floats) -> Floats:
    return np.asarray(values - (x[mesh.plus] - x[mesh.minus]), dtype=np.float64)


def _scale(z: Floats, used: NDArray[np.bool_]) -> float:
    """Robust spread of normalised residuals, at least 1."""
    step = 1 + len(z) // SCALE_EDGES
    some = z[::step][used[::step]]
    return max(1.0, MAD_TO_SIGMA * float(np.median(some))) if len(some) else 1.0


def _last_ties(mesh: Laplacian, out: NDArray[np.bool_], z: Floats) -> NDArray[np.bool_]:
    """The best edge of each node that would otherwise lose its last one, as a mask (edges,)."""
    kept = np.zeros(len(out), dtype=np.bool_)
    left = mesh.degree((~out).astype(np.float64))
    lonely = left == 0
    if not lonely.any():
        return kept
    touching = np.flatnonzero(lonely[mesh.plus] | lonely[mesh.minus])
    for node in np.flatnonzero(lonely):
        mine = touching[(mesh.plus[touching] == node) | (mesh.minus[touching] == node)]
        if len(mine):
            kept[mine[int(np.argmin(z[mine]))]] = True
    return kept
