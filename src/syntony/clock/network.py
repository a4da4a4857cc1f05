"""All pairs to one timeline: memory of edges and timelines around the robust solve of each part."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from syntony.clock.gauge import apply_lead, continue_timeline, hold_over, kept_time
from syntony.clock.laplacian import Floats
from syntony.clock.lead import Lead
from syntony.clock.mesh_edges import EdgeArrays, EdgeMeasurements, MeshComponent, connected_parts
from syntony.clock.mesh_solve import MeshSolution, Predicted, solve_mesh
from syntony.model import ClockState, Edge, S, Timeline, format_ns

EDGE_LIFETIME_NS = 8 * S
"""An older edge is not used: two estimator windows."""
HOLDOVER_LIFETIME_NS = 600 * S
"""Time for which a clock without edges keeps its last timeline, with a growing sigma."""
WAIT_FOR_STEADY_NS = 60 * S
"""Clocks that have all stepped wait so long for one that has not: only that one knows fleet time.
Agents connect again within seconds."""
DRIFT_CHANGE_PPB = 5.0
"""1-sigma of a quartz's drift in the middle of a window against the window's own slope: 5 ppb/√s
make it 2.5 ppb over 4 s (√(0.0615·T)). What it walks afterwards is in `Timeline.bound_ns`."""
TURN_PPB_PER_S = 16.0
"""1-sigma of the rate at which clocks' drifts may have begun to turn since an edge was measured, if
others are newer: four of these, over a second or two, are a crystal that is heated (0.1 ppm/s)."""
MAX_THETA_NS = 1 << 61
"""Clocks further apart (73 years) are not compared; twice this still fits 64 bits."""

_ENDS = attrgetter("a", "b")
NOT_YET = "its clock stepped or changed its rate, and was not measured since"
MAX_DRIFT_PPB = 5e8
"""Largest plausible drift."""


class EdgeVerdict(NamedTuple):
    """Result of the last solve for one edge."""

    edge: Edge
    residual_ns: float
    """Its theta minus the timelines' prediction."""
    reason: str
    """Why it was left out; empty where it was used."""


class NetworkSolver:
    """Solves the timelines of all clocks from the edges that probers measured.

    One instance per fleet; not thread-safe."""

    def __init__(self) -> None:
        self._edges: dict[str, tuple[int, EdgeMeasurements]] = {}
        self._last: dict[str, tuple[int, Timeline]] = {}
        self._inherited: dict[str, Timeline] = {}
        self._fresh: frozenset[str] = frozenset()
        self._epochs: dict[str, int] = {}
        self._changed_ns: dict[str, int] = {}
        """When a clock's epoch last changed."""
        self._ends: list[tuple[str, str]] = []
        self._parts: list[MeshComponent] = []
        """Of the last solve; the pairs that measure each other rarely change."""
        self._solutions: list[tuple[Sequence[Edge], Sequence[str], MeshSolution]] = []
        """Edges, clocks and solution of each connected part, as of the last solve."""

    @property
    def verdicts(self) -> tuple[EdgeVerdict, ...]:
        """The verdict on each edge of the last solve."""
        return tuple(each for solved in self._solutions for each in _verdicts(*solved))

    def update(
        self, edges: Sequence[Edge], now_ns: int, epochs: Mapping[str, int] | None = None
    ) -> None:
        """Take the newest edges of some probers; each prober's earlier ones are replaced.

        Args:
            edges: measured edges; those that are not finite, join a clock to itself or speak of
                another epoch of a clock than its present one are ignored.
            now_ns: monotonic instant.
            epochs: the present ones of some clocks, by node; edges of others are forgotten.
        """
        for node, epoch in (epochs or {}).items():
            self._begin_epoch(node, epoch, now_ns)
        measured = EdgeMeasurements.of([edge for edge in edges if abs(edge.ref_ns) < MAX_THETA_NS])
        by_prober: dict[str, list[int]] = defaultdict(list)
        for place, (edge, sane) in enumerate(
            zip(measured.edges, _sane(measured.numbers).tolist(), strict=True)
        ):
            if sane and edge.a != edge.b and self._of_present(edge, now_ns):
                by_prober[edge.a].append(place)
        for prober, places in by_prober.items():
            self._edges[prober] = (now_ns, measured.only(places))

    def _begin_epoch(self, node: str, epoch: int, now_ns: int) -> None:
        known = self._epochs.get(node, epoch)
        self._epochs[node] = epoch
        if known == epoch:
            return
        self._changed_ns[node] = now_ns
        for prober, (taken_ns, said) in self._edges.items():
            whole = [x for x, edge in enumerate(said.edges) if node not in {edge.a, edge.b}]
            self._edges[prober] = (taken_ns, said.only(whole))

    def _of_present(self, edge: Edge, now_ns: int) -> bool:
        """Whether the edge was measured in the present epochs of its clocks. A prober that has just
        started does not know its peers' yet (0), nor that one changed while it measured."""
        a_epoch, b_epoch = edge.a_epoch, edge.b_epoch
        if self._epochs.get(edge.a, a_epoch) != a_epoch:
            return False
        if b_epoch == 0:
            changed_ns = self._changed_ns.get(edge.b)
            return changed_ns is None or now_ns - changed_ns > EDGE_LIFETIME_NS
        return self._epochs.get(edge.b, b_epoch) == b_epoch

    def _disrupted(self, lines: Mapping[str, Timeline]) -> set[str]:
        """Clocks that have stepped, or changed their rate, since these timelines."""
        return {
            node for node, line in lines.items() if self._epochs.get(node, line.epoch) != line.epoch
        }

    def forget(self, probers: Iterable[str]) -> None:
        """Drop the edges of probers that measured and found no valid edge."""
        for prober in probers:
            self._edges.pop(prober, None)

    def solve(self, now_ns: int) -> tuple[Timeline, ...]:
        """Every known clock's timeline, sorted by node."""
        fresh = [
            (taken_ns, said)
            for taken_ns, said in self._edges.values()
            if now_ns - taken_ns <= EDGE_LIFETIME_NS
        ] or [(now_ns, EdgeMeasurements.of(()))]
        measured = EdgeMeasurements.all_of([said for _, said in fresh])
        measured = measured.aged(_turns_ppb(fresh))
        previous = self._inherited | {node: line for node, (_, line) in self._last.items()}
        disrupted = self._disrupted(previous)
        solved: dict[str, Timeline] = {}
        self._solutions = []
        for nodes, places, mesh in self._parts_of(measured.edges):
            part = measured.only(places.tolist())
            solution = solve_mesh(EdgeArrays.of(mesh, part), _predicted(nodes, previous), mesh)
            self._solutions.append((part.edges, nodes, solution))
            lines = _timelines(nodes, solution, self._epochs)
            if not self._waits(lines, previous, disrupted, now_ns):
                solved.update(continue_timeline(lines, previous, disrupted))
        for node, timeline in solved.items():
            self._last[node] = (now_ns, timeline)
            self._inherited.pop(node, None)
        self._fresh = frozenset(solved)
        self._hold(solved, now_ns)
        return tuple(solved[node] for node in sorted(solved))

    def _waits(
        self,
        part: Mapping[str, Timeline],
        previous: Mapping[str, Timeline],
        disrupted: set[str],
        now_ns: int,
    ) -> bool:
        """Whether all of a part that had fleet time have lost it, and one elsewhere has not."""
        heirs = part.keys() & previous.keys()
        elsewhere = previous.keys() - disrupted - part.keys()
        if not heirs or not elsewhere or kept_time(part, previous, disrupted):
            return False
        changed_ns = max(self._changed_ns.get(node, 0) for node in heirs)
        return now_ns - changed_ns <= WAIT_FOR_STEADY_NS

    def _parts_of(self, edges: Sequence[Edge]) -> list[MeshComponent]:
        ends = list(map(_ENDS, edges))
        if ends != self._ends:
            self._ends, self._parts = ends, connected_parts(ends) if ends else []
        for part in self._parts:
            part.mesh.forget()
        return self._parts

    def lead(self, part: str, lead: Lead) -> None:
        """Fleet time of one connected part, and of all clocks held over, changes."""
        for node, (since_ns, line) in self._last.items():
            if line.component == part or node not in self._fresh:
                self._last[node] = (since_ns, apply_lead(line, lead))
        self._inherited = {node: apply_lead(line, lead) for node, line in self._inherited.items()}

    def inherit(self, lines: Sequence[Timeline]) -> None:
        """Continue a predecessor's timelines; they are not reported themselves.

        Their age is unknown; the doubt of holdover allows for it.
        """
        self._inherited = {line.node: hold_over(line, 0) for line in lines}
        # A clock that steps before it reports here for the first time is in another epoch.
        self._epochs = {line.node: line.epoch for line in lines if line.epoch} | self._epochs

    def held_over(self) -> tuple[Timeline, ...]:
        """Last timelines of clocks that are held over, or have not reported since a predecessor's
        end."""
        held_over = [line for node, (_, line) in self._last.items() if node not in self._fresh]
        return (*held_over, *self._inherited.values())

    def _hold(self, solved: dict[str, Timeline], now_ns: int) -> None:
        for node, (since_ns, timeline) in list(self._last.items()):
            if node in solved:
                continue
            if now_ns - since_ns > HOLDOVER_LIFETIME_NS:
                del self._last[node]
                self._edges.pop(node, None)
                self._changed_ns.pop(node, None)
                continue
            line = hold_over(timeline, now_ns - since_ns)
            epoch = self._epochs.get(node, line.epoch)
            if epoch != line.epoch:
                line = structs.replace(line, state=ClockState.UNKNOWN, epoch=epoch, reason=NOT_YET)
            solved[node] = line


def _predicted(nodes: Sequence[str], previous: Mapping[str, Timeline]) -> Predicted | None:
    """Previous offsets of the clocks; None unless all have one gauge and are sorted."""
    lines = [previous.get(node) for node in nodes]
    known = [line for line in lines if line is not None and line.state is ClockState.SYNCHRONIZED]
    if len(known) < len(nodes) or len({line.component for line in known}) > 1:
        return None
    return Predicted(
        np.array([line.ref_ns for line in known], dtype=np.int64),
        np.array([line.offset_ns for line in known], dtype=np.float64),
        np.array([line.drift_ppb * 1e-9 for line in known], dtype=np.float64),
    )


def _turns_ppb(fresh: Sequence[tuple[int, EdgeMeasurements]]) -> Floats:
    """1-sigma of each edge's drift beside those that were taken last, (edges,)."""
    taken_ns = np.array([taken_ns for taken_ns, _ in fresh], dtype=np.int64)
    turns_ppb = TURN_PPB_PER_S * 1e-9 * (taken_ns.max() - taken_ns)
    return np.repeat(turns_ppb, [len(said.edges) for _, said in fresh])


def _timelines(
    nodes: Sequence[str], solution: MeshSolution, epochs: Mapping[str, int]
) -> dict[str, Timeline]:
    columns = zip(
        nodes,
        solution.local_ns.tolist(),
        solution.offset_ns.tolist(),
        solution.drift.tolist(),
        solution.sigma_ns.tolist(),
        solution.drift_sigma.tolist(),
        solution.asymmetry_ns.tolist(),
        solution.liars.tolist(),
        strict=True,
    )
    return {
        node: Timeline(
            node=node,
            ref_ns=local_ns,
            offset_ns=offset_ns,
            drift_ppb=drift * 1e9,
            sigma_ns=sigma_ns,
            drift_sigma_ppb=math.hypot(drift_sigma * 1e9, DRIFT_CHANGE_PPB),
            state=ClockState.DISRUPTED if liar else ClockState.SYNCHRONIZED,
            component=nodes[0],
            asymmetry_ns=asymmetry_ns,
            reason="falseticker: most of its peers contradict it" if liar else "",
            epoch=epochs.get(node, 0),
        )
        for node, local_ns, offset_ns, drift, sigma_ns, drift_sigma, asymmetry_ns, liar in columns
    }


def _verdicts(
    edges: Sequence[Edge], nodes: Sequence[str], solution: MeshSolution
) -> list[EdgeVerdict]:
    liars = {node for node, liar in zip(nodes, solution.liars.tolist(), strict=True) if liar}
    residuals = solution.residual_ns.tolist()
    rejected = solution.rejected.tolist()
    return [
        EdgeVerdict(edge, residual, _reason(edge, residual, liars) if out else "")
        for edge, residual, out in zip(edges, residuals, rejected, strict=True)
    ]


def _reason(edge: Edge, residual_ns: float, liars: set[str]) -> str:
    for node in (edge.a, edge.b):
        if node in liars:
            return f"falseticker: most peers of {node} contradict it"
    sigmas = abs(residual_ns) / edge.sigma_ns
    return f"outlier: {format_ns(residual_ns)} ({sigmas:.0f} sigma) from what the others say"


def _sane(numbers: Floats) -> NDArray[np.bool_]:
    """Which edges can be, of `Measured.numbers`."""
    theta, drift, sigma, drift_sigma, _, _ = numbers.T
    found = np.isfinite(numbers).all(axis=1) & (sigma > 0) & (drift_sigma > 0)
    found &= (np.abs(theta) < MAX_THETA_NS) & (np.abs(drift) < MAX_DRIFT_PPB)
    return np.asarray(found, dtype=np.bool_)
