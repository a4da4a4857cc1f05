"""When the rules are held against what is known: at their own pace, and at once on news."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from syntony.controller.fleet import Fleet
from syntony.controller.incidents import STARTING_NS, AlertDesk, Slas
from syntony.controller.locating import LocateLoop
from syntony.controller.sla import SlaDesk, with_flows
from syntony.controller.solve import SolveLoop
from syntony.controller.traffic import TrafficDesk
from syntony.errors import StoreError

_log = logging.getLogger(__name__)


class Judging:
    """One per controller; on its event loop.

    Args:
        fleet_now: fleet time, None while unknown.
    """

    def __init__(
        self,
        *,
        alerts: AlertDesk,
        fleet: Fleet,
        solving: SolveLoop,
        locating: LocateLoop,
        slas: SlaDesk,
        traffic: TrafficDesk,
        fleet_now: Callable[[], int | None],
    ) -> None:
        self._alerts = alerts
        self._fleet = fleet
        self._solving = solving
        self._locating = locating
        self._slas = slas
        self._traffic = traffic
        self._fleet_now = fleet_now
        self._up_ns = time.monotonic_ns()
        self._one = asyncio.Lock()
        """Two evaluations at a time would be two windows in a row of the same."""
        self._blamed: set[tuple[str, str]] = set()
        """(component, fault) of the findings when this was asked last."""

    async def judge(self) -> None:
        """One evaluation; none while there is no fleet time."""
        fleet_now_ns = self._fleet_now()
        if fleet_now_ns is None:
            return
        async with self._one:
            silent_ns = self._fleet.silent(time.monotonic_ns(), self._up_ns + STARTING_NS)
            try:
                await asyncio.to_thread(
                    self._alerts.evaluate,
                    fleet_now_ns,
                    silent_ns,
                    self._solving.timelines,
                    self._locating.answer.findings,
                    await self._found_slas(),
                    fabric=self._locating.changes.standing,
                )
            except StoreError as error:
                _log.error("rules not evaluated reason=%s", error)

    async def news(self) -> None:
        """Localisation has looked again: what it newly blames waits for nothing."""
        findings = self._locating.answer.findings
        blamed = {(found.component, found.fault) for found in findings}
        if blamed != self._blamed:
            self._blamed = blamed
            await self.judge()

    async def _found_slas(self) -> Slas:
        queues, flows = self._locating.queues, self._traffic.flows(time.monotonic_ns())
        jobs = self._traffic.used(time.monotonic_ns())
        crossed = await asyncio.to_thread(self._locating.crossings)
        return Slas(
            self._slas.rows,
            None if queues is None else with_flows(queues, flows),
            {pair: each.components for pair, each in crossed.items()},
            jobs,
        )
