"""Questions from command lines, answered from the store and the controller's own state."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from syntony.controller.fleet import Fleet
from syntony.controller.locating import LocateLoop
from syntony.controller.sla import SlaQuestions
from syntony.controller.solve import SolveLoop
from syntony.errors import UsageError
from syntony.model import MS, S
from syntony.store import Store
from syntony.wire import messages as wire
from syntony.wire.clocks import (
    ClockHistory,
    ClockHistoryQuery,
    ClockQuery,
    Clocks,
    Pairs,
    PairsQuery,
)
from syntony.wire.fabric import (
    FabricChanges,
    FabricChangesQuery,
    FindingsQuery,
    LearntPaths,
    PathsQuery,
)
from syntony.wire.failover import FailoverLog, FailoverLogQuery
from syntony.wire.links import LinkHistory, LinkHistoryQuery, Links, LinksQuery
from syntony.wire.probes import Matrix, MatrixQuery, PlanQuery, ProbePlan, Series, SeriesQuery
from syntony.wire.sla import QueuesQuery, SlaCheckQuery, SlaReportQuery

DAY_NS = 24 * 3600 * S
MAX_WINDOW_NS = 7 * DAY_NS
MAX_HISTORY_NS = 90 * DAY_NS
"""Events and clocks: all that are kept may be asked for."""
MAX_CHANGES_NS = 365 * DAY_NS
CLOCK_SAMPLES = 60_000
"""Of one answer: some 200 bytes each, within a message."""
MAX_LOG_ROWS = 10_000
_SLACK_NS = 1 * S
"""Rows of hosts that are a little ahead of the median are of the window too."""

StoreQuery = (
    MatrixQuery
    | SeriesQuery
    | LinksQuery
    | LinkHistoryQuery
    | ClockHistoryQuery
    | FailoverLogQuery
    | FabricChangesQuery
    | wire.FleetQuery
    | SlaReportQuery
    | SlaCheckQuery
    | QueuesQuery
)
PresentQuery = ClockQuery | PairsQuery | FindingsQuery | PathsQuery | PlanQuery


class Answers:
    """Reads; never changes anything."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        solving: SolveLoop,
        locating: LocateLoop,
        slas: SlaQuestions,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._solving = solving
        self._locating = locating
        self._slas = slas

    async def answer(
        self, query: StoreQuery | PresentQuery, fleet_now_ns: int | None
    ) -> wire.Answer:
        """The answer to one question, with the window ending at `fleet_now_ns`.

        Raises:
            UsageError: a window that is not positive or longer than anything kept.
            StoreError: the store failed.
        """
        match query:
            case MatrixQuery() | SeriesQuery():
                return await self._window_answer(query, fleet_now_ns)
            case LinksQuery() | LinkHistoryQuery():
                return await asyncio.to_thread(self._links_answer, query, fleet_now_ns)
            case ClockHistoryQuery() | FailoverLogQuery() | FabricChangesQuery():
                return await self._past(query, fleet_now_ns)
            case SlaReportQuery() | SlaCheckQuery() | QueuesQuery():
                return await self._slas.answer(query, fleet_now_ns)
            case wire.FleetQuery():
                rows = await asyncio.to_thread(self._store.count_rows)
                return self._fleet_answer(rows)
            case _:
                return self._present(query)

    async def _past(
        self,
        query: ClockHistoryQuery | FailoverLogQuery | FabricChangesQuery,
        fleet_now_ns: int | None,
    ) -> wire.Answer:
        if isinstance(query, FabricChangesQuery):
            first_ns, last_ns = _window(query.window_ns, MAX_CHANGES_NS, fleet_now_ns or 0)
            found = await asyncio.to_thread(self._store.fabric.changes, first_ns, last_ns)
            return FabricChanges(changes=found)
        if isinstance(query, ClockHistoryQuery):
            return await self._clock_history(query, fleet_now_ns)
        return await self._failover_log(query, fleet_now_ns)

    def _present(self, query: PresentQuery) -> wire.Answer:
        """What is known now, without the store."""
        match query:
            case ClockQuery():
                return Clocks(timelines=self._solving.timelines, utc=self._solving.utc)
            case PairsQuery():
                return Pairs(edges=self._solving.edges())
            case FindingsQuery():
                return self._locating.answer
            case PathsQuery():
                return LearntPaths(paths=self._locating.paths())
            case PlanQuery():
                return ProbePlan(generation=self._fleet.mesh.generation, flows=self._fleet.flows())

    async def _failover_log(self, query: FailoverLogQuery, fleet_now_ns: int | None) -> FailoverLog:
        first_ns, last_ns = _window(query.window_ns, MAX_HISTORY_NS, fleet_now_ns or 0)
        if not 0 < query.limit <= MAX_LOG_ROWS:
            raise UsageError(f"a log of {query.limit} rows; ask for up to {MAX_LOG_ROWS}")
        if fleet_now_ns is None:
            return FailoverLog(events=())
        found = await asyncio.to_thread(
            self._store.path_events,
            first_ns,
            last_ns,
            job=query.job,
            host=query.host,
            limit=query.limit,
        )
        return FailoverLog(events=found)

    async def _window_answer(
        self, query: MatrixQuery | SeriesQuery, fleet_now_ns: int | None
    ) -> wire.Answer:
        first_ns, last_ns = _window(query.window_ns, MAX_WINDOW_NS, fleet_now_ns or 0)
        if fleet_now_ns is None:
            return Matrix(cells=()) if isinstance(query, MatrixQuery) else _no_points()
        if isinstance(query, MatrixQuery):
            cells = await asyncio.to_thread(self._store.matrix, first_ns, last_ns)
            return Matrix(cells=cells)
        points = await asyncio.to_thread(
            self._store.series, first_ns, last_ns, query.src, query.dst
        )
        return Series(points=points)

    def _links_answer(
        self, query: LinksQuery | LinkHistoryQuery, fleet_now_ns: int | None
    ) -> wire.Answer:
        now_ns = fleet_now_ns or 0
        first_ns, last_ns = _window(query.window_ns, MAX_HISTORY_NS, now_ns)
        links = self._store.links
        if isinstance(query, LinksQuery):
            return Links(ports=links.ports(first_ns, last_ns), now_ns=now_ns)
        return LinkHistory(
            events=links.events(first_ns, last_ns, query.nic),
            counters=links.counters(first_ns, last_ns, query.nic),
            now_ns=now_ns,
        )

    async def _clock_history(
        self, query: ClockHistoryQuery, fleet_now_ns: int | None
    ) -> ClockHistory:
        first_ns, last_ns = _window(query.window_ns, MAX_HISTORY_NS, fleet_now_ns or 0)
        if query.step_ns < 0:
            raise UsageError(f"a step of {query.step_ns} ns; give a positive one, or 0")
        clocks = 1 if query.node else max(1, len(self._solving.timelines))
        finest_ns = -(-clocks * query.window_ns // CLOCK_SAMPLES)
        step_ns = max(query.step_ns, finest_ns, MS)
        if fleet_now_ns is None:
            return ClockHistory(samples=(), step_ns=step_ns)
        samples = await asyncio.to_thread(
            self._store.clock_history, first_ns, last_ns, query.node, step_ns
        )
        return ClockHistory(samples=samples, step_ns=step_ns)

    def _fleet_answer(self, rows_stored: int) -> wire.Fleet:
        contested: dict[str, list[str]] = defaultdict(list)
        for ref, address in self._fleet.contested.items():
            contested[ref.host].append(f"nic={ref.nic} reason=another host claims {address} too")
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
                faults=(*member.faults, *contested.get(host, ())),
            )
            for host, member in sorted(self._fleet.members.items())
        )
        total = sum(agent.probes_per_s for agent in agents)
        return wire.Fleet(agents=agents, rows_stored=rows_stored, probes_per_s=total)


def _window(asked_ns: int, longest_ns: int, now_ns: int) -> tuple[int, int]:
    """Whole seconds from the asked window's start to a little after now."""
    if not 0 < asked_ns <= longest_ns:
        raise UsageError(f"a window of {asked_ns} ns; ask for up to {longest_ns // DAY_NS} days")
    return (now_ns - asked_ns) // S * S, now_ns + _SLACK_NS


def _no_points() -> Series:
    return Series(points=())
