"""Edges from every agent, once a second one solve, timelines back and into the store."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Protocol

from syntony.controller.batches import Piece
from syntony.controller.fleet_time import FleetTime
from syntony.model import ClockState, Edge, S, Timeline
from syntony.wire.arrow import arrow_schema
from syntony.wire.messages import Timelines
from syntony.wire.tables import CLOCK

SOLVE_INTERVAL_NS = 1 * S
"""A clock's drift is known for far longer; more often would tell agents the same again."""
ORIGIN_HOST = "controller"
"""Stands as `host` of rows that no agent sent."""


class Solver(Protocol):
    """`syntony.clock.network.NetworkSolver`."""

    def update(self, edges: Sequence[Edge], now_ns: int) -> None: ...

    def solve(self, now_ns: int) -> tuple[Timeline, ...]: ...


class SolveLoop:
    """Collects edges, solves, and says what follows. Not thread-safe, except that `step` may run
    in a thread of its own while `take` runs in another.
    """

    def __init__(self, solver: Solver) -> None:
        self.timelines: tuple[Timeline, ...] = ()
        self._solver = solver
        self._waiting: dict[str, tuple[Edge, ...]] = {}
        self._time = FleetTime()
        self._stream = secrets.token_hex(16)
        self._solved_ns: int | None = None
        self._seq = 0

    def take(self, host: str, edges: Sequence[Edge]) -> int:
        """The newest edges of one agent; returns how many were not its own to report."""
        own = tuple(edge for edge in edges if edge.a == host or edge.a.startswith(f"{host}/"))
        self._waiting[host] = own
        return len(edges) - len(own)

    def due(self, now_ns: int) -> bool:
        """Once a second; at once for a clock that has no fleet time yet."""
        if self._solved_ns is None or now_ns - self._solved_ns >= SOLVE_INTERVAL_NS:
            return True
        known = {line.node for line in self.timelines}
        return any(edge.a not in known for edges in self._waiting.values() for edge in edges)

    def step(self, now_ns: int) -> tuple[Timeline, ...]:
        """Solve with what has arrived; `now_ns` is monotonic."""
        self._solved_ns = now_ns
        waiting, self._waiting = self._waiting, {}
        self._solver.update([edge for edges in waiting.values() for edge in edges], now_ns)
        self.timelines = self._solver.solve(now_ns)
        for timeline in self.timelines:
            if timeline.state is ClockState.SYNCHRONIZED:
                fleet_ns = timeline.to_fleet_ns(timeline.ref_ns)
                self._time.observe(timeline.node, fleet_ns, now_ns)
        return self.timelines

    def rows(self, now_ns: int) -> Piece | None:
        """The last solve as rows of `clock_1s`; None while there is no fleet time."""
        import pyarrow as pa

        fleet_ns = self._time.now(now_ns)
        if fleet_ns is None or fleet_ns <= 0 or not self.timelines:
            return None
        self._seq += 1
        records = [
            {
                "ts_ns": fleet_ns,
                "node": timeline.node,
                "ref_ns": timeline.ref_ns,
                "offset_ns": timeline.offset_ns,
                "drift_ppb": timeline.drift_ppb,
                "sigma_ns": timeline.sigma_ns,
                "state": timeline.state.value,
                "drift_sigma_ppb": timeline.drift_sigma_ppb,
                "bound_ns": timeline.bound_ns(timeline.to_local_ns(fleet_ns)),
                "reason": timeline.reason,
            }
            for timeline in self.timelines
        ]
        rows = pa.Table.from_pylist(records, schema=arrow_schema(CLOCK))
        return Piece(
            CLOCK,
            ORIGIN_HOST,
            self._stream,
            self._seq,
            rows,
            fleet_ns,
            fleet_ns,
            check=False,
        )


def timelines_per_host(
    timelines: Sequence[Timeline], clocks_of: Mapping[str, frozenset[str]]
) -> dict[str, Timelines]:
    """What each host must know: its own clocks and its peers'."""
    by_node = {timeline.node: timeline for timeline in timelines}
    return {
        host: Timelines(timelines=tuple(by_node[node] for node in sorted(nodes & by_node.keys())))
        for host, nodes in clocks_of.items()
    }
