"""A file of probes to clocks, window by window, by the code that the daemons run.

Windows are cut on one time axis, good to what the coarsest look at the clocks gives; both
directions of a pair are cut by the same clock, so a window never splits a probe from its answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.clock.fit import WindowFitter, fit_window
from syntony.clock.network import EdgeVerdict, NetworkSolver
from syntony.clock.pair import PairEstimator
from syntony.clock.probe_file import Instants, Probes
from syntony.clock.samples import MIN_PROBES, PairSamples
from syntony.errors import UsageError
from syntony.model import ClockState, Edge, S, Timeline

WINDOW_NS = 2 * S
CLOCK_STEPPED = "inconsistent: a clock stepped inside the window, or stamps are not of one clock"


class NodeResult(msgspec.Struct, frozen=True, kw_only=True):
    """One clock: ``fleet = local + offset_ns + drift_ppb·1e-9·(local - ref_ns)``."""

    node: str
    offset_ns: float | None = None
    """None, like the other numbers, if the state is UNKNOWN."""
    drift_ppb: float | None = None
    sigma_ns: float | None = None
    bound_ns: float | None = None
    state: ClockState
    component: str = ""
    """First node of the connected part; offsets of different parts are not comparable."""
    reason: str = ""


class EdgeResult(msgspec.Struct, frozen=True, kw_only=True):
    """One pair's path in one window."""

    a: str
    b: str
    path: int
    probes: int
    residual_ns: float | None
    sigma_ns: float | None
    rtt_floor_ns: float | None
    mode: str
    rejected: str
    """Why the edge was not used; empty where it was."""


class WindowResult(msgspec.Struct, frozen=True, kw_only=True):
    """All clocks as of one window."""

    ref_ns: int
    probes: int
    nodes: tuple[NodeResult, ...]
    edges: tuple[EdgeResult, ...]


class _Series(NamedTuple):
    """Probes between two nodes over one path; rows of `Probes`."""

    a: int
    b: int
    path: int
    forward: NDArray[np.intp]
    reverse: NDArray[np.intp]


class _Measured(NamedTuple):
    """One series in one window: an edge, or why there is none."""

    series: _Series
    probes: int
    edge: Edge | None
    reason: str


def solve_probes(
    probes: Probes,
    *,
    window_ns: int = WINDOW_NS,
    reference: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    fit: WindowFitter = fit_window,
) -> tuple[WindowResult, ...]:
    """The clocks of every window that has probes, oldest first, at least one.

    Args:
        probes: checked.
        window_ns: length of a window; a last one under half of it joins the one before.
        reference: node whose clock is to be fleet time; None for the mean of all.
        progress: is informed how many windows are done, and of how many.
        fit: `fit_window`, or the native one that agents use.

    Raises:
        UsageError: the reference is not in the file, or the window is not longer than 0.
    """
    if window_ns <= 0:
        raise UsageError("the window must be longer than 0")
    if reference is not None and reference not in probes.nodes:
        raise UsageError(
            f"no node {reference!r} in the file, which has {', '.join(probes.nodes[:8])}"
        )
    all_series = _series(probes)
    window = _windows(probes, all_series, window_ns)
    solver = NetworkSolver()
    names = probes.nodes
    estimators = [PairEstimator(names[one.a], names[one.b], fit) for one in all_series]
    results = []
    numbers = np.unique(window).tolist()
    for done, number in enumerate(numbers):
        if progress is not None:
            progress(done, len(numbers))
        measured = [
            _measure(probes, one, estimator, window == number)
            for one, estimator in zip(all_series, estimators, strict=True)
        ]
        now_ns = (number + 1) * window_ns
        solver.forget(
            probes.nodes[each.series.a] for each in measured if each.reason == CLOCK_STEPPED
        )
        solver.update([each.edge for each in measured if each.edge is not None], now_ns)
        lines = solver.solve(now_ns)
        results.append(_result(probes, lines, solver.verdicts, measured, reference))
    return tuple(results)


def _series(probes: Probes) -> list[_Series]:
    low, high = np.minimum(probes.src, probes.dst), np.maximum(probes.src, probes.dst)
    keys, which = np.unique(np.stack((low, high, probes.path)), axis=1, return_inverse=True)
    which = which.reshape(-1)
    forward = probes.src < probes.dst
    found = []
    for number, (a, b, path) in enumerate(keys.T.tolist()):
        mine = which == number
        there, back = np.flatnonzero(mine & forward), np.flatnonzero(mine & ~forward)
        found.append(_Series(a, b, path, there, back))
    return found


def _windows(probes: Probes, all_series: list[_Series], window_ns: int) -> NDArray[np.intp]:
    """The window of every probe, (n,)."""
    coarse_ns = _coarse_offsets(probes, all_series)
    at_a = np.where(probes.src < probes.dst, probes.tx_ns, probes.rx_ns)
    a = np.minimum(probes.src, probes.dst)
    common_ns = at_a - coarse_ns[a]
    since_ns = common_ns - common_ns.min()
    last = round(float(since_ns.max()) / window_ns) - 1
    return np.asarray(np.minimum(since_ns // window_ns, last), dtype=np.intp)


def _coarse_offsets(probes: Probes, all_series: list[_Series]) -> Instants:
    """Each node's clock against the first of its part, to within drift and delay, (nodes,)."""
    apparent = np.empty(len(all_series), dtype=np.int64)
    for number, one in enumerate(all_series):
        ways = [
            sign * int(np.median(probes.rx_ns[rows] - probes.tx_ns[rows]))
            for rows, sign in ((one.forward, 1), (one.reverse, -1))
            if len(rows)
        ]
        apparent[number] = sum(ways) // len(ways)
    offset_ns = np.zeros(len(probes.nodes), dtype=np.int64)
    known = np.zeros(len(probes.nodes), dtype=np.bool_)
    for first in range(len(known)):
        if known[first]:
            continue
        known[first] = True
        waiting = [first]
        while waiting:
            node = waiting.pop()
            for one, theta_ns in zip(all_series, apparent.tolist(), strict=True):
                if node not in {one.a, one.b}:
                    continue
                other, sign = (one.b, 1) if node == one.a else (one.a, -1)
                if not known[other]:
                    offset_ns[other] = offset_ns[node] + sign * theta_ns
                    known[other] = True
                    waiting.append(other)
    return offset_ns


def _measure(
    probes: Probes, one: _Series, estimator: PairEstimator, inside: NDArray[np.bool_]
) -> _Measured:
    forward, reverse = one.forward[inside[one.forward]], one.reverse[inside[one.reverse]]
    count = len(forward) + len(reverse)
    reason = _lacking(probes, one, len(forward), len(reverse))
    if reason:
        return _Measured(one, count, None, reason)
    edge = estimator.estimate(
        PairSamples(
            fwd_tx=probes.tx_ns[forward],
            fwd_rx=probes.rx_ns[forward],
            rev_tx=probes.tx_ns[reverse],
            rev_rx=probes.rx_ns[reverse],
            fwd_pair=None if probes.pair is None else probes.pair[forward],
            rev_pair=None if probes.pair is None else probes.pair[reverse],
        )
    )
    if edge is None:
        reason = CLOCK_STEPPED
    return _Measured(one, count, edge, reason)


def _lacking(probes: Probes, one: _Series, forward: int, reverse: int) -> str:
    a, b = probes.nodes[one.a], probes.nodes[one.b]
    if not forward and not reverse:
        return "no probes in this window"
    if not forward or not reverse:
        return f"one direction only: no probes {f'{a} to {b}' if not forward else f'{b} to {a}'}"
    if min(forward, reverse) < MIN_PROBES:
        return f"too few probes: {min(forward, reverse)} in one direction, {MIN_PROBES} needed"
    return ""


def _result(
    probes: Probes,
    lines: tuple[Timeline, ...],
    verdicts: tuple[EdgeVerdict, ...],
    measured: list[_Measured],
    reference: str | None,
) -> WindowResult:
    by_node = {line.node: line for line in lines}
    anchor = by_node.get(reference) if reference is not None else None
    ref_ns = anchor.ref_ns if anchor else max((line.ref_ns for line in lines), default=0)
    results = []
    for place, node in enumerate(probes.nodes):
        line = by_node.get(node)
        if line is None:
            results.append(_unknown(node, _why(probes, node, measured)))
        elif reference is not None and (anchor is None or anchor.component != line.component):
            results.append(_unknown(node, f"island: not connected to {reference}"))
        else:
            results.append(_torn(_node(line, anchor, ref_ns), place, measured))
    judged = {id(verdict.edge): verdict for verdict in verdicts}
    edges = tuple(_edge(probes, each, judged) for each in measured if each.probes)
    return WindowResult(
        ref_ns=ref_ns,
        probes=sum(each.probes for each in measured),
        nodes=tuple(results),
        edges=edges,
    )


def _node(line: Timeline, anchor: Timeline | None, ref_ns: int) -> NodeResult:
    """The line at `ref_ns` of its own clock and, given an anchor, in the anchor's time."""
    offset_ns = line.shift_ns(ref_ns)
    drift = line.drift_ppb * 1e-9
    sigma_ns = math.hypot(line.sigma_ns, line.drift_sigma_ppb * 1e-9 * (ref_ns - line.ref_ns))
    bound_ns = line.bound_ns(ref_ns)
    if anchor is not None and anchor.node == line.node:
        offset_ns, drift, sigma_ns, bound_ns = 0.0, 0.0, 0.0, 0.0
    elif anchor is not None:
        # fleet = local_r + o_r + d_r·(local_r - ref) for the anchor: solved for local_r.
        rate = 1 + anchor.drift_ppb * 1e-9
        offset_ns = (offset_ns - anchor.offset_ns) / rate
        drift = (1 + drift) / rate - 1
        sigma_ns = math.hypot(sigma_ns, anchor.sigma_ns)
        bound_ns += anchor.bound_ns(ref_ns)
    return NodeResult(
        node=line.node,
        offset_ns=offset_ns,
        drift_ppb=drift * 1e9,
        sigma_ns=sigma_ns,
        bound_ns=bound_ns,
        state=line.state,
        component=line.component,
        reason=line.reason,
    )


def _torn(result: NodeResult, place: int, measured: list[_Measured]) -> NodeResult:
    """A clock that nothing confirms because its pairs contradict themselves is not held over."""
    if result.state is not ClockState.HOLDOVER:
        return result
    if not any(each.reason == CLOCK_STEPPED and place in each.series[:2] for each in measured):
        return result
    return msgspec.structs.replace(result, state=ClockState.DISRUPTED, reason=CLOCK_STEPPED)


def _unknown(node: str, reason: str) -> NodeResult:
    return NodeResult(node=node, state=ClockState.UNKNOWN, reason=reason)


def _why(probes: Probes, node: str, measured: list[_Measured]) -> str:
    place = probes.nodes.index(node)
    reasons = [each.reason for each in measured if place in {each.series.a, each.series.b}]
    return min(filter(None, reasons), default="no usable probes")


def _edge(probes: Probes, each: _Measured, judged: dict[int, EdgeVerdict]) -> EdgeResult:
    edge = each.edge
    verdict = judged.get(id(edge)) if edge is not None else None
    return EdgeResult(
        a=probes.nodes[each.series.a],
        b=probes.nodes[each.series.b],
        path=each.series.path,
        probes=each.probes,
        residual_ns=None if verdict is None else verdict.residual_ns,
        sigma_ns=None if edge is None else edge.sigma_ns,
        rtt_floor_ns=None if edge is None else edge.rtt_floor_ns,
        mode="" if edge is None else edge.mode,
        rejected=each.reason if verdict is None else verdict.reason,
    )
