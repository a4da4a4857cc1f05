"""All pairs to one timeline: weighted least squares on node potentials, per connected part.

With ``fleet = local + offset``, an edge from a to b says ``offset_a - offset_b = theta`` at one
instant, and ``log rate_b - log rate_a = log(1 + drift)``. Both are graph-Laplacian systems over the
same mesh. The fleet timeline's own gauge is arbitrary; it starts as the mean of the clocks of a
part and is then carried on by continuity, so that no single host is the reference and none is
missed when it dies.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from syntony.model import ClockState, Edge, S, Timeline

EDGE_LIFETIME_NS = 8 * S
"""An edge older than this says nothing about now: two estimator windows."""
HOLDOVER_LIFETIME_NS = 600 * S
"""How long a clock without edges keeps its last timeline, with a growing sigma."""
WANDER_PPB = 100.0
"""Assumed drift change in holdover (Graham, NSDI'22, reaches this with temperature memory)."""
DRIFT_CHANGE_PPB = 10.0
"""1-sigma of a quartz's drift change between one window and its use: 3–5 ppb per √s over 4–8 s."""
STEP_NS = 1_000.0
STEP_SIGMAS = 10.0
"""A clock that is this far (both) from where it was predicted has stepped."""
DENSE_NODES = 400
"""Up to here variances are exact (pseudo-inverse); beyond, bounded by the node's own edges."""


class NetworkSolver:
    """Edges in, timelines out. One instance per fleet; not thread-safe."""

    def __init__(self) -> None:
        self._edges: dict[str, tuple[int, tuple[Edge, ...]]] = {}
        self._last: dict[str, tuple[int, Timeline]] = {}

    def update(self, edges: Sequence[Edge], now_ns: int) -> None:
        """Take the newest edges of some probers; each prober's earlier ones are replaced.

        Args:
            edges: measured edges; those that are not finite or join a clock to itself are ignored.
            now_ns: monotonic instant.
        """
        by_prober: dict[str, list[Edge]] = defaultdict(list)
        for edge in edges:
            if _sane(edge):
                by_prober[edge.a].append(edge)
        for prober, mine in by_prober.items():
            self._edges[prober] = (now_ns, tuple(mine))

    def solve(self, now_ns: int) -> tuple[Timeline, ...]:
        """Every known clock's timeline, sorted by node.

        Args:
            now_ns: monotonic instant, same clock as in `update`.
        """
        fresh = [
            edge
            for taken_ns, edges in self._edges.values()
            if now_ns - taken_ns <= EDGE_LIFETIME_NS
            for edge in edges
        ]
        previous = {node: timeline for node, (_, timeline) in self._last.items()}
        solved: dict[str, Timeline] = {}
        for component in _components(fresh):
            solved.update(solve_component(component, previous))
        for node, timeline in solved.items():
            self._last[node] = (now_ns, timeline)
        self._hold(solved, now_ns)
        return tuple(solved[node] for node in sorted(solved))

    def _hold(self, solved: dict[str, Timeline], now_ns: int) -> None:
        for node, (since_ns, timeline) in list(self._last.items()):
            if node in solved:
                continue
            if now_ns - since_ns > HOLDOVER_LIFETIME_NS:
                del self._last[node]
                self._edges.pop(node, None)
                continue
            solved[node] = _held(timeline, now_ns - since_ns)


def solve_component(edges: Sequence[Edge], previous: dict[str, Timeline]) -> dict[str, Timeline]:
    """One connected part at the newest instant its edges speak of.

    Args:
        edges: of one connected part, at least one.
        previous: last timelines, for the gauge and for step detection.
    """
    nodes = sorted({edge.a for edge in edges} | {edge.b for edge in edges})
    index = {node: place for place, node in enumerate(nodes)}
    a = np.array([index[edge.a] for edge in edges])
    b = np.array([index[edge.b] for edge in edges])
    rates, rate_sigmas = _potentials(
        b,
        a,
        np.array([math.log1p(edge.drift_ppb * 1e-9) for edge in edges]),
        np.array([edge.drift_sigma_ppb * 1e-9 for edge in edges]),
        len(nodes),
    )
    drifts = np.expm1(-rates)
    epoch_ns, locals_ns = _common_instant(nodes, edges)
    theta = np.array([_theta_at(edge, locals_ns[edge.a]) for edge in edges])
    guess = np.array([epoch_ns - locals_ns[node] for node in nodes], dtype=np.float64)
    correction, sigmas = _potentials(
        a,
        b,
        theta - (guess[a] - guess[b]),
        np.array([edge.sigma_ns for edge in edges]),
        len(nodes),
    )
    typical = _typical_sigmas(a, b, edges, len(nodes))
    fresh = {
        node: Timeline(
            node=node,
            ref_ns=locals_ns[node],
            offset_ns=float(guess[place] + correction[place]),
            drift_ppb=float(drifts[place] * 1e9),
            sigma_ns=math.hypot(sigmas[place], typical[place]),
            drift_sigma_ppb=math.hypot(rate_sigmas[place] * 1e9, DRIFT_CHANGE_PPB),
            state=ClockState.SYNCHRONIZED,
            component=nodes[0],
        )
        for place, node in enumerate(nodes)
    }
    return _carried(fresh, previous)


def _typical_sigmas(
    a: NDArray[np.int_], b: NDArray[np.int_], edges: Sequence[Edge], count: int
) -> list[float]:
    """Median sigma of each node's edges, shape (count,).

    The solve averages over a node's edges as if their errors were independent. Those of one
    stamping path are not (the same interrupt, the same caches), so no node is claimed to be better
    than a typical edge of its own.
    """
    found: list[list[float]] = [[] for _ in range(count)]
    for place_a, place_b, edge in zip(a, b, edges, strict=True):
        found[place_a].append(edge.sigma_ns)
        found[place_b].append(edge.sigma_ns)
    return [_median(sigmas) for sigmas in found]


def _potentials(
    plus: NDArray[np.int_],
    minus: NDArray[np.int_],
    values: NDArray[np.float64],
    sigmas: NDArray[np.float64],
    count: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Node potentials x (mean zero) with ``x[plus] - x[minus] ≈ values``, and their 1-sigma.

    Shapes: (edges,) for the first four, (count,) for the results.
    """
    weights = 1.0 / np.maximum(sigmas, 1e-15) ** 2
    scale = weights.max()
    weights = weights / scale
    degree = _sums(plus, weights, count) + _sums(minus, weights, count)
    pull = _sums(plus, weights * values, count) - _sums(minus, weights * values, count)
    if count <= DENSE_NODES:
        laplacian = np.diag(degree)
        np.add.at(laplacian, (plus, minus), -weights)
        np.add.at(laplacian, (minus, plus), -weights)
        inverse = np.linalg.pinv(laplacian, hermitian=True)
        return inverse @ pull, np.sqrt(np.diag(inverse) / scale)
    solution = _solve_sparse(plus, minus, weights, degree, pull)
    return solution - solution.mean(), np.sqrt(2.0 / (degree * scale))


def _sums(nodes: NDArray[np.int_], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    return np.bincount(nodes, values, count).astype(np.float64)


def _solve_sparse(
    plus: NDArray[np.int_],
    minus: NDArray[np.int_],
    weights: NDArray[np.float64],
    degree: NDArray[np.float64],
    pull: NDArray[np.float64],
) -> NDArray[np.float64]:
    from scipy import sparse
    from scipy.sparse.linalg import cg

    count = len(degree)
    off = sparse.coo_array((-weights, (plus, minus)), shape=(count, count)).tocsr()
    laplacian = sparse.diags_array(degree) + off + off.T
    preconditioner = sparse.diags_array(1.0 / degree)
    solution, _ = cg(laplacian, pull, rtol=1e-10, maxiter=1000, M=preconditioner)
    return np.asarray(solution, dtype=np.float64)


def _common_instant(nodes: Sequence[str], edges: Sequence[Edge]) -> tuple[int, dict[str, int]]:
    """One instant, as every clock of the part read it (to within one edge's error).

    Walks a spanning tree from the first node. Returns that instant on the first node's clock and,
    per node, on its own.
    """
    neighbours: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        neighbours[edge.a].append(edge)
        neighbours[edge.b].append(edge)
    root = nodes[0]
    epoch_ns = max(_ref_on(root, edge) for edge in neighbours[root])
    locals_ns = {root: epoch_ns}
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for edge in neighbours[node]:
            other = edge.b if edge.a == node else edge.a
            if other not in locals_ns:
                locals_ns[other] = _reading(edge, node, locals_ns[node])
                queue.append(other)
    return epoch_ns, locals_ns


def _ref_on(node: str, edge: Edge) -> int:
    return edge.ref_ns if edge.a == node else edge.ref_ns + round(edge.theta_ns)


def _reading(edge: Edge, node: str, local_ns: int) -> int:
    """What the other clock of `edge` read when `node` read `local_ns`."""
    if edge.a == node:
        return local_ns + round(_theta_at(edge, local_ns))
    at_a_ns = local_ns - round(edge.theta_ns)
    for _ in range(2):
        at_a_ns = local_ns - round(_theta_at(edge, at_a_ns))
    return at_a_ns


def _theta_at(edge: Edge, local_a_ns: int) -> float:
    return edge.theta_ns + edge.drift_ppb * 1e-9 * (local_a_ns - edge.ref_ns)


def _carried(fresh: dict[str, Timeline], previous: dict[str, Timeline]) -> dict[str, Timeline]:
    """Shift offset and rate so that the fleet timeline goes on where it was; flag clock steps."""
    known = [node for node in fresh if node in previous]
    if not known:
        gauge_ns = math.fsum(line.offset_ns for line in fresh.values()) / len(fresh)
        return {node: _shifted(line, -gauge_ns, 0.0) for node, line in fresh.items()}
    jumps = {node: _predicted(previous[node], fresh[node]) for node in known}
    gauge_ns = _median(jumps.values())
    gauge_ppb = _median(previous[node].drift_ppb - fresh[node].drift_ppb for node in known)
    carried = {}
    for node, line in fresh.items():
        off_ns = abs(jumps.get(node, gauge_ns) - gauge_ns)
        stepped = off_ns > max(STEP_NS, STEP_SIGMAS * _step_sigma(line, previous.get(node)))
        state = ClockState.DISRUPTED if stepped else line.state
        carried[node] = _shifted(line, gauge_ns, gauge_ppb, state)
    return carried


def _predicted(before: Timeline, now: Timeline) -> float:
    """How far the old timeline is from the new one at the new reference instant, ns."""
    return before.to_fleet_ns(now.ref_ns) - now.ref_ns - now.offset_ns


def _step_sigma(line: Timeline, before: Timeline | None) -> float:
    if before is None:
        return math.inf
    drift_ns = before.drift_sigma_ppb * 1e-9 * abs(line.ref_ns - before.ref_ns)
    return math.hypot(line.sigma_ns, before.sigma_ns, drift_ns)


def _shifted(
    line: Timeline, offset_ns: float, drift_ppb: float, state: ClockState | None = None
) -> Timeline:
    return Timeline(
        node=line.node,
        ref_ns=line.ref_ns,
        offset_ns=line.offset_ns + offset_ns,
        drift_ppb=line.drift_ppb + drift_ppb,
        sigma_ns=line.sigma_ns,
        drift_sigma_ppb=line.drift_sigma_ppb,
        state=state or line.state,
        component=line.component,
    )


def _held(line: Timeline, age_ns: int) -> Timeline:
    drift_sigma_ppb = math.hypot(line.drift_sigma_ppb, WANDER_PPB)
    return Timeline(
        node=line.node,
        ref_ns=line.ref_ns,
        offset_ns=line.offset_ns,
        drift_ppb=line.drift_ppb,
        sigma_ns=math.hypot(line.sigma_ns, drift_sigma_ppb * 1e-9 * age_ns),
        drift_sigma_ppb=drift_sigma_ppb,
        state=ClockState.HOLDOVER,
        component=line.component,
    )


def _components(edges: Sequence[Edge]) -> Iterable[list[Edge]]:
    parent: dict[str, str] = {}

    def find(node: str) -> str:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for edge in edges:
        parent[find(edge.a)] = find(edge.b)
    parts: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        parts[find(edge.a)].append(edge)
    return parts.values()


def _sane(edge: Edge) -> bool:
    numbers = (edge.theta_ns, edge.drift_ppb, edge.sigma_ns, edge.drift_sigma_ppb)
    return (
        edge.a != edge.b
        and all(math.isfinite(number) for number in numbers)
        and edge.sigma_ns > 0
        and edge.drift_sigma_ppb > 0
        and edge.drift_ppb > -1e9
    )


def _median(values: Iterable[float]) -> float:
    return float(np.median(np.fromiter(values, dtype=np.float64)))
