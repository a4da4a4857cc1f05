"""Node potentials that a few wrong edges cannot move.

Iteratively reweighted least squares with Huber's weights (Huber 1964), which has no second minimum
to fall into; then edges far beyond the spread of the rest are left out altogether, so that what
Huber still lets them pull is gone too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from syntony.clock.laplacian import Floats, Laplacian, Mask
from syntony.clock.median import median

HUBER = 1.345
"""95 % efficiency on Gaussian errors (Huber 1981)."""
SMALL_NODES = 64
"""Where one liar's edges are a good part of all, rounds go on until they settle: cheap there."""
MOST_DOUBT = 1_000.0
"""Sigmas beyond which a doubt makes an edge count no less: weights stay within nine digits."""
REJECT_SIGMAS = 6.0
NEAR = 2.0
"""Median residual of a guess, in sigmas, up to which it counts as one: right ones leave 0.7."""
MAD_TO_SIGMA = 1.4826
COARSE = 0.05
"""Error, in a typical edge's sigmas, of a round whose weights will change anyway."""
FINE = 0.005
SCALE_EDGES = 1 << 17
"""Of more values a regular sample is enough for a median: at most half a per cent off."""
ROUNDS, SMALL_ROUNDS = 6, 40
"""Maximum number of reweighting rounds (Huber), in meshes of more than `SMALL_NODES` and of
fewer."""
SETTLED, NEAR_SETTLED = 0.02, 3.0
"""They end with one that moves no potential by more than this, in a typical edge's sigmas: with the
first, where a guess was near, unless a clock is not where it was predicted."""


class Potentials(NamedTuple):
    """Potentials, and each edge's weight."""

    x: Floats
    """(count,), mean zero."""
    sigma: Floats
    """(count,), 1-sigma, of edges' own sigmas times `scale`."""
    residual: Floats
    """(edges,): value minus the potentials' difference."""
    rejected: Mask
    """(edges,)."""
    scale: float
    """Factor by which residuals exceed the sigmas, at least 1."""
    weights: Floats
    """(edges,), with which the potentials were solved last."""
    degree: Floats
    """(count,), sum of these at each node."""
    spans: Floats
    """(edges,): `Laplacian.spans` of these."""


def robust_potentials(
    mesh: Laplacian,
    values: Floats,
    sigmas: Floats,
    *,
    least_reject: float,
    doubts: Floats | None = None,
    start: Floats | None = None,
    excluded: Mask | None = None,
) -> Potentials:
    """Solve ``x[plus] - x[minus] ≈ values``.

    Args:
        mesh: one connected part.
        values: (edges,).
        sigmas: (edges,), positive; a claim, which an edge that contradicts others does not enforce.
        least_reject: residuals up to this are never rejected.
        doubts: (edges,), 1-sigma of a systematic error beside it: the edge counts the less for it,
            but contradicts the others from `sigmas` on.
        start: a good guess (count,): the last solution, carried on.
        excluded: edges to leave out from the beginning, (edges,).
    """
    used = np.ones(len(values), dtype=np.bool_) if excluded is None else ~excluded
    total = counted = sigmas
    if doubts is not None:
        total = np.hypot(sigmas, doubts)
        counted = np.minimum(total, MOST_DOUBT * sigmas)
    claimed = mesh.share / counted**2
    claimed[~used] = 0.0
    typical = _typical(sigmas, used)
    x, residual = np.zeros(mesh.count), values
    if start is not None:
        x, residual = start, values - mesh.differences(start)
    small = mesh.count <= SMALL_NODES
    near = start is not None and not small and _near(residual, sigmas, used)
    if not near:
        # Nobody's own claim counts before it has been compared with the others'.
        equal = np.where(used, mesh.share / np.maximum(counted, typical) ** 2, 0.0)
        x = x + mesh.solve(equal, residual, tolerance=COARSE * typical)
        residual = values - mesh.differences(x)
    for _ in range(SMALL_ROUNDS if small else ROUNDS):
        # At the sigmas as claimed, however large residuals are: a scale taken from residuals that
        # a liar has spread over the mesh would call the spread normal.
        weights = claimed * _huber(np.abs(residual) / sigmas, 1.0)
        change = mesh.solve(weights, residual, tolerance=COARSE * typical)
        x = x + change
        residual = values - mesh.differences(x)
        if float(np.max(np.abs(change))) < (NEAR_SETTLED if near else SETTLED) * typical:
            break
    z = np.abs(residual) / total
    scale = _scale(z, used)
    far = (z > REJECT_SIGMAS * scale) & (np.abs(residual) > least_reject)
    rejected = ~used | (far & ~_last_ties(mesh, ~used | far, z))
    weights = np.where(rejected, 0.0, claimed)
    weights *= _huber(z if doubts is None else np.abs(residual) / sigmas, scale)
    x = x + mesh.solve(weights, residual, tolerance=FINE * typical)
    residual = values - mesh.differences(x)
    scale = _scale(np.abs(residual) / total, ~rejected)
    degree = mesh.degree(weights)
    sigma = mesh.sigmas(weights, degree) * scale
    spans = mesh.spans(weights, degree)
    return Potentials(x, sigma, residual, rejected, scale, weights, degree, spans)


def _near(residual: Floats, sigmas: Floats, used: Mask) -> bool:
    """Whether a guess already fits most edges, so that outliers stand out."""
    some = _sample(len(residual))
    z = (np.abs(residual[some]) / sigmas[some])[used[some]]
    return len(z) > 0 and median(z) < NEAR


def _typical(sigmas: Floats, used: Mask) -> float:
    """A sigma to state tolerances in."""
    some = _sample(len(sigmas))
    chosen = sigmas[some][used[some]]
    return median(chosen if len(chosen) else sigmas[used])


def _sample(edges: int) -> slice:
    return slice(None, None, 1 + edges // SCALE_EDGES)


def _huber(z: Floats, scale: float) -> Floats:
    """Huber's weights of residuals that are `z` of their own sigmas, (edges,)."""
    weights = np.maximum(z, HUBER * scale)
    return np.asarray(np.divide(HUBER * scale, weights, out=weights), dtype=np.float64)


def _scale(z: Floats, used: Mask) -> float:
    """Robust spread of normalised residuals, at least 1."""
    some = z[_sample(len(z))][used[_sample(len(z))]]
    return max(1.0, MAD_TO_SIGMA * median(some)) if len(some) else 1.0


def _last_ties(mesh: Laplacian, out: Mask, z: Floats) -> Mask:
    """The best edge of each node that would otherwise lose its last one, as a mask (edges,)."""
    kept = np.zeros(len(out), dtype=np.bool_)
    lonely = mesh.rest(out) == 0
    if not lonely.any():
        return kept
    touching = np.flatnonzero(lonely[mesh.plus] | lonely[mesh.minus])
    for node in np.flatnonzero(lonely):
        mine = touching[(mesh.plus[touching] == node) | (mesh.minus[touching] == node)]
        if len(mine):
            kept[mine[int(np.argmin(z[mine]))]] = True
    return kept
