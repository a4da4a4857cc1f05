"""Questions from command lines, answered from the store and the controller's own state."""

from __future__ import annotations

import asyncio

from syntony.controller.fleet import Fleet
from syntony.controller.locating import LocateLoop
from syntony.controller.solve import SolveLoop
from syntony.errors import UsageError
from syntony.model import S
from syntony.store import Store
from syntony.wire import messages as wire

MAX_WINDOW_NS = 7 * 24 * 3600 * S
_SLACK_NS = 1 * S
"""Rows of hosts that are a little ahead of the median are of the window too."""


class Answers:
    """Reads; never changes anything."""

    def __init__(
        self, store: Store, fleet: Fleet, solving: SolveLoop, locating: LocateLoop
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._solving = solving
        self._locating = locating

    async def answer(self, query: wire.Query, fleet_now_ns: int | None) -> wire.Answer:
        """The answer to one question, with the window ending at `fleet_now_ns`.

        Raises:
            UsageError: a window that is not positive or longer than anything kept.
            StoreError: the store failed.
        """
        match query:
            case wire.ClockQuery():
                return wire.Clocks(timelines=self._solving.timelines)
            case wire.FindingsQuery():
                return self._locating.answer
            case wire.PathsQuery():
                return wire.LearntPaths(paths=self._locating.paths())
            case wire.PlanQuery():
                return wire.ProbePlan(
                    generation=self._fleet.mesh.generation, flows=self._fleet.flows()
                )
            case wire.FleetQuery():
                rows = await asyncio.to_thread(self._store.count_rows)
                return self._fleet_answer(rows)
            case wire.MatrixQuery() | wire.SeriesQuery():
                return await self._window_answer(query, fleet_now_ns)

    async def _window_answer(
        self, query: wire.MatrixQuery | wire.SeriesQuery, fleet_now_ns: int | None
    ) -> wire.Answer:
        if not 0 < query.window_ns <= MAX_WINDOW_NS:
            raise UsageError(f"a window of {query.window_ns} ns; ask for up to 7 days")
        if fleet_now_ns is None:
            return wire.Matrix(cells=()) if isinstance(query, wire.MatrixQuery) else _no_points()
        first_ns = (fleet_now_ns - query.window_ns) // S * S
        last_ns = fleet_now_ns + _SLACK_NS
        if isinstance(query, wire.MatrixQuery):
            cells = await asyncio.to_thread(self._store.matrix, first_ns, last_ns)
            return wire.Matrix(cells=cells)
        points = await asyncio.to_thread(
            self._store.series, first_ns, last_ns, query.src, query.dst
        )
        return wire.Series(points=points)

    def _fleet_answer(self, rows_stored: int) -> wire.Fleet:
        agents = tuple(
            wire.AgentStatus(
                host=host,
                connected=member.connected,
                nics=member.hello.nics,
                version=member.hello.version,
                last_batch_ns=member.newest_ns,
                batches=member.batches,
                rows=member.rows,
                dropped=member.dropped + member.refused_rows,
                probes_per_s=member.probes_per_s if member.connected else 0.0,
            )
            for host, member in sorted(self._fleet.members.items())
        )
        total = sum(agent.probes_per_s for agent in agents)
        return wire.Fleet(agents=agents, rows_stored=rows_stored, probes_per_s=total)


def _no_points() -> wire.Series:
    return wire.Series(points=())
