"""Solve one connected part: offsets and rates of all its clocks, without wrong edges and clocks.

With ``fleet = local + offset``, an edge from a to b says ``offset_a - offset_b = theta`` at one
instant, and ``log rate_b - log rate_a = log(1 + drift)``. Both are graph-Laplacian systems over the
same mesh.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.contradiction import ROUNDING, EdgeClaims, contradictions, redundancy, touching
from syntony.clock.doubt import node_doubts
from syntony.clock.laplacian import Floats, Laplacian, Mask
from syntony.clock.median import median
from syntony.clock.mesh_edges import EdgeArrays, common_instant, whole
from syntony.clock.robust import SCALE_EDGES, Potentials, robust_potentials
from syntony.model.clocks import BOUND_SIGMAS

LEAST_REJECT_NS = 100.0
"""Smaller contradictions stay in: Huber's weight already holds their pull to a nanosecond or so."""
LEAST_REJECT_PPB = 100.0
PPB = 1e9
TRUST = 0.5
GOOD_QUARTER = 0.25
"""No edge counts for better than `TRUST` of a good one at either end, that is, of the best quarter:
a claim costs nothing, and one prober's claims must not outweigh all the others'. That quarter is
still the others' where half of a node's edges, its own, have turned wide."""
LIE_NS = 1_000.0
"""A clock is cut out for contradictions beyond this only: below, no lie moves others by 10 ns."""
LIAR_SHARE = 0.5
LIAR_PEERS = 3
"""A clock most of whose edges, with this many peers, contradict the rest is no clock to follow."""
COMMON = 0.5
"""Part of an edge's random error that it has in common with its node's other edges."""
FAR_GUESS_NS = 100_000.0
"""A first guess this far off makes instants differ by what 80 ppm turn into 8 ns."""


class MeshSolution(NamedTuple):
    """Arrays of shape (nodes,), except those of edges."""

    local_ns: NDArray[np.int64]
    """The instant on each node's own clock."""
    offset_ns: Floats
    """At that instant; the gauge is arbitrary."""
    drift: Floats
    sigma_ns: Floats
    drift_sigma: Floats
    asymmetry_ns: Floats
    """Half the round trip where all edges of a node lead to one peer: nothing contradicts them."""
    liars: Mask
    residual_ns: Floats
    """(edges,)."""
    rejected: Mask
    """(edges,)."""
    scale: float


class Predicted(NamedTuple):
    """Each clock's last timeline, arrays of shape (nodes,), all of one gauge."""

    ref_ns: NDArray[np.int64]
    offset_ns: Floats
    drift: Floats

    def instant(self, edges: EdgeArrays) -> tuple[int, NDArray[np.int64]]:
        """The middle of the instants edges speak of, in fleet time and on each clock, (nodes,)."""
        some = slice(None, None, 1 + len(edges.a) // SCALE_EDGES)
        a = edges.a[some]
        ref_ns = edges.ref_ns[some]
        ahead = self.offset_ns[a] + self.drift[a] * (ref_ns - self.ref_ns[a])
        at_ns = int(np.partition(ref_ns + whole(ahead), len(a) // 2)[len(a) // 2])
        since_ns = at_ns - self.ref_ns - whole(self.offset_ns)
        return at_ns, self.ref_ns + whole(since_ns / (1 + self.drift))


class _Frame(NamedTuple):
    """One instant, and the edges' measurements at it."""

    mesh: Laplacian
    edges: EdgeArrays
    local_ns: NDArray[np.int64]
    guess: Floats
    """Offsets that make `local_ns` one instant; potentials are corrections to them."""
    theta_ns: Floats
    """Of the edges at that instant beyond the guess, (edges,)."""
    sigma_ns: Floats
    """The same."""

    @classmethod
    def at(
        cls, epoch_ns: int, local_ns: NDArray[np.int64], mesh: Laplacian, edges: EdgeArrays
    ) -> _Frame:
        guess = (epoch_ns - local_ns).astype(np.float64)
        since_ns = local_ns[edges.a] - edges.ref_ns
        return cls(
            mesh,
            edges,
            local_ns,
            guess,
            edges.theta_after(since_ns) - mesh.differences(guess),
            edges.sigma_after(since_ns),
        )

    def solve(self, start: Floats | None = None, excluded: Mask | None = None) -> Potentials:
        doubts = self.edges.doubt_ns
        return robust_potentials(
            self.mesh,
            self.theta_ns,
            self.sigma_ns,
            least_reject=LEAST_REJECT_NS,
            doubts=doubts if doubts.any() else None,
            start=start,
            excluded=excluded,
        )


def solve_mesh(
    edges: EdgeArrays, before: Predicted | None = None, mesh: Laplacian | None = None
) -> MeshSolution:
    """All clocks of one connected part at the newest instant its edges speak of.

    Args:
        edges: of one connected part, at least one.
        before: where the clocks were, which saves most of the rounds.
        mesh: of the very same ends, solved before, which saves sorting them.
    """
    mesh = mesh or Laplacian(edges.a, edges.b, edges.nodes)
    edges = edges._replace(
        sigma_ns=_believed(edges, edges.sigma_ns, _good(edges, edges.sigma_ns)),
        drift_sigma=np.maximum(edges.drift_sigma, TRUST * median(edges.drift_sigma)),
    )
    frame, found = _offsets(mesh, edges, before)
    found, liars = _without_liars(frame, found)
    drift_sigma = PPB * edges.drift_sigma
    rates = robust_potentials(
        mesh,
        -PPB * np.log1p(edges.drift),
        drift_sigma,
        least_reject=LEAST_REJECT_PPB,
        start=None if before is None else -PPB * np.log1p(before.drift),
        excluded=found.rejected if np.all(mesh.rest(found.rejected) > 0) else None,
    )
    sure = np.zeros(len(drift_sigma))
    return MeshSolution(
        local_ns=frame.local_ns,
        offset_ns=frame.guess + found.x,
        drift=np.expm1(-rates.x / PPB),
        sigma_ns=_sigmas(mesh, found, frame.sigma_ns, edges.doubt_ns, liars),
        drift_sigma=_sigmas(mesh, rates, drift_sigma, sure, liars) / PPB,
        asymmetry_ns=_unchecked(mesh, edges.rtt_ns, found.rejected),
        liars=liars,
        residual_ns=found.residual,
        rejected=found.rejected,
        scale=found.scale,
    )


def _offsets(
    mesh: Laplacian, edges: EdgeArrays, before: Predicted | None
) -> tuple[_Frame, Potentials]:
    epoch_ns, local_ns = common_instant(edges) if before is None else before.instant(edges)
    frame = _Frame.at(epoch_ns, local_ns, mesh, edges)
    # What was predicted is in the guess: no corrections to it are known yet.
    start = None if before is None else np.zeros(edges.nodes)
    found = frame.solve(start)
    if float(np.abs(found.x - median(found.x)).max()) > FAR_GUESS_NS:
        # Wrong edges on the walk have put some clocks at another instant than the rest.
        local_ns = epoch_ns - np.rint(frame.guess + found.x - median(found.x)).astype(np.int64)
        frame = _Frame.at(epoch_ns, local_ns, mesh, edges)
        found = frame.solve()
    return frame, found


def _without_liars(frame: _Frame, found: Potentials) -> tuple[Potentials, Mask]:
    """Cuts out clocks that most of their peers contradict, worst first."""
    edges = frame.edges
    liars = np.zeros(edges.nodes, dtype=np.bool_)
    while (more := _liars(frame.mesh, found, liars)).any():
        liars |= more
        cut = liars[edges.a] | liars[edges.b]
        if cut.all():
            break
        honest = frame.solve(excluded=cut)
        # A wrong clock keeps an offset, from the median of its edges, that affects no other.
        found = honest._replace(
            x=_placed(edges, honest, liars), sigma=_spread(edges, honest, liars)
        )
    return found, liars


def _liars(mesh: Laplacian, found: Potentials, known: Mask) -> Mask:
    lie = np.flatnonzero(found.rejected & (np.abs(found.residual) > LIE_NS))
    total = mesh.ends
    if known.any():
        cut = known[mesh.plus] | known[mesh.minus]
        lie = lie[~cut[lie]]
        total = mesh.rest(cut)
    if not len(lie):
        return np.zeros(mesh.count, dtype=np.bool_)
    a, b = mesh.plus[lie], mesh.minus[lie]
    accused, accuser = np.concatenate((a, b)), np.concatenate((b, a))
    share = np.bincount(accused, minlength=mesh.count) / np.maximum(total, 1)
    quarrels = np.unique(accused * mesh.count + accuser)
    accused, accuser = quarrels // mesh.count, quarrels % mesh.count
    accusers = np.bincount(accused, minlength=mesh.count)
    suspect = (share >= LIAR_SHARE) & (accusers >= LIAR_PEERS)
    # Of two clocks that contradict each other, only the one with more contradictions is cut now.
    worst = np.zeros(mesh.count)
    np.maximum.at(worst, accused, share[accuser])
    return np.asarray(suspect & (share >= worst), dtype=np.bool_)


def _placed(edges: EdgeArrays, found: Potentials, liars: Mask) -> Floats:
    x = found.x.copy()
    values = found.residual + (found.x[edges.a] - found.x[edges.b])
    for node in np.flatnonzero(liars):
        as_a = (edges.a == node) & ~liars[edges.b]
        as_b = (edges.b == node) & ~liars[edges.a]
        says = np.concatenate(
            (found.x[edges.b[as_a]] + values[as_a], found.x[edges.a[as_b]] - values[as_b])
        )
        if len(says):
            x[node] = median(says)
    return x


def _spread(edges: EdgeArrays, found: Potentials, liars: Mask) -> Floats:
    """The sigma of a contradicting clock is the spread of its edges' measurements."""
    sigma = found.sigma.copy()
    for node in np.flatnonzero(liars):
        mine = (edges.a == node) | (edges.b == node)
        sigma[node] = float(np.ptp(found.residual[mine]))
    return sigma


def _sigmas(
    mesh: Laplacian, found: Potentials, sigmas: Floats, doubts: Floats, liars: Mask
) -> Floats:
    """1-sigma of each clock: random errors, doubts that reach it, contradictions; (nodes,).

    Args:
        found: its potentials, in ns or ppb.
        sigmas: random errors of the edges, same unit.
        doubts: their systematic ones.
        liars: clocks that were cut out.
    """
    random = np.hypot(found.sigma, _common(mesh, sigmas, found))
    excluded = touching(mesh, liars)
    left = redundancy(mesh, found.weights, found.spans)
    disputes = contradictions(
        mesh, EdgeClaims(found.residual, sigmas, doubts, found.weights, left, excluded)
    )
    doubts = doubts.copy()
    some = np.flatnonzero(disputes.edge)
    doubts[some] = np.hypot(doubts[some], disputes.edge[some] / BOUND_SIGMAS)
    doubts[excluded] = np.inf
    # An edge that no other confirms affects only the clock at its far end.
    left *= found.weights
    doubt = node_doubts(mesh, doubts, left)
    disputed = disputes.node / BOUND_SIGMAS
    return np.where(liars, found.sigma, np.hypot(random, np.maximum(doubt, disputed)))


def _common(mesh: Laplacian, sigmas: Floats, found: Potentials) -> Floats:
    """What the edges each node was placed by have in common of their errors, (nodes,).

    The solve averages over a node's edges as if their errors were independent. Those of one
    stamping path (the same interrupt, the same caches) and of one oscillator are not.
    """
    total = np.maximum(found.degree, np.finfo(np.float64).tiny)
    typical = np.sqrt(mesh.degree(found.weights * sigmas**2) / total)
    # Where residuals exceed the claims, nothing says that their excess is independent.
    share = min(COMMON * found.scale**2, 1.0)
    return np.asarray(share * found.scale * typical, dtype=np.float64)


def _good(edges: EdgeArrays, values: Floats) -> Floats:
    """Lower quarter over each node's edges of what is positive, to a single float; (nodes,)."""
    # One sort of whole numbers, node above value: positive floats are in the order of their bits.
    bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
    ranked = np.concatenate((edges.a << 32 | bits, edges.b << 32 | bits))
    ranked.sort()
    size = np.bincount(edges.a, minlength=edges.nodes)
    size += np.bincount(edges.b, minlength=edges.nodes)
    place = np.cumsum(size) - size + (GOOD_QUARTER * size).astype(np.int64)
    found = (ranked[place] & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
    return np.asarray(found, dtype=np.float64)


def _believed(edges: EdgeArrays, claimed: Floats, good: Floats) -> Floats:
    least = TRUST * np.maximum(good[edges.a], good[edges.b])
    return np.asarray(np.maximum(claimed, least), dtype=np.float64)


def _unchecked(mesh: Laplacian, rtt_ns: Floats, rejected: Mask) -> Floats:
    """Half the least round trip of nodes whose edges all lead to one peer, else 0; (nodes,)."""
    out = np.flatnonzero(rejected)
    # A peer's edges that are left count for no more than one peer.
    alone = mesh.peers - mesh.degree(mesh.share[out], out) <= 1 + ROUNDING
    kept = touching(mesh, alone)
    kept = kept[~rejected[kept]]
    a, b = mesh.plus[kept], mesh.minus[kept]
    peer = np.full(mesh.count, -1)
    peer[a] = b
    peer[b] = a
    alone &= peer >= 0
    alone[a[peer[a] != b]] = False
    alone[b[peer[b] != a]] = False
    shortest = np.full(mesh.count, np.inf)
    for end in (a, b):
        lone = alone[end]
        np.minimum.at(shortest, end[lone], rtt_ns[kept[lone]])
    return np.where(alone, shortest / 2, 0.0)
