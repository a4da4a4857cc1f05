"""The running lab that acts measure: queried once a second and shown on the screen."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from syntony.controller.client import ask
from syntony.demo.claims import ClockError
from syntony.demo.screen import FleetScene, Screen
from syntony.errors import RemoteError
from syntony.lab.client import Lab
from syntony.lab.messages import LabStatus
from syntony.model import S, Timeline
from syntony.wire.clocks import ClockQuery
from syntony.wire.incidents import IncidentsQuery
from syntony.wire.messages import Fleet, FleetQuery
from syntony.wire.probes import MatrixCell, MatrixQuery, SeriesPoint, SeriesQuery

_T = TypeVar("_T")

ANSWER_NS = 60 * S
"""How long to retry a query that an act depends on, if the machine is busy."""
SCENE_WINDOW_NS = 5 * S
"""The live matrix shows the last seconds, so that a fault is seen while it lasts."""


class Stage:
    """One lab and one screen. A user can make each of its queries with the command line."""

    def __init__(self, lab: Lab, screen: Screen) -> None:
        self.lab = lab
        self.screen = screen
        self.lab_ended = False
        """An act has ended the lab."""
        self.status: LabStatus = lab.status()
        self._target = f"unix:{lab.controller_socket}"
        self._title = (
            f"{len(self.status.hosts)} hosts × {self.status.spec.rails} rails, "
            f"{len(self.status.leaves)} leaves, {len(self.status.spines)} spines"
        )

    @property
    def nics(self) -> int:
        """How many NICs the lab's hosts have."""
        return len(self.status.hosts) * self.status.spec.rails

    def end_lab(self) -> None:
        """End the lab, for a last act that starts one of its own."""
        self.lab_ended = True
        self.lab.down()

    def timelines(self) -> tuple[Timeline, ...]:
        """Timelines from the controller; empty while it does not answer yet."""
        try:
            return ask(self._target, ClockQuery()).timelines
        except RemoteError:
            return ()

    def matrix(self, window_ns: int) -> tuple[MatrixCell, ...]:
        return ask(self._target, MatrixQuery(window_ns=window_ns)).cells

    def series(self, window_ns: int) -> tuple[SeriesPoint, ...]:
        """The per-second history of every pair."""
        return ask(self._target, SeriesQuery(window_ns=window_ns)).points

    def incidents(self) -> tuple[dict[str, Any], ...]:
        """Live incidents, including those explained by others."""
        return ask(self._target, IncidentsQuery()).incidents

    def fleet_ns(self) -> int:
        """Fleet time now, by the first host's clock and timeline. Raises `RemoteError`."""
        truth = self.lab.truth()[0]
        line = next((line for line in self.timelines() if line.node == truth.host), None)
        if line is None:
            raise RemoteError(f"the controller has no timeline of {truth.host}")
        return line.to_fleet_ns(truth.at_ns + truth.offset_ns)

    def truths(self) -> tuple[ClockError, ...]:
        """The error of every estimated clock; hosts without an estimate are left out."""
        return tuple(
            ClockError(host=truth.host, error_ns=truth.error_ns, clk_err_ns=truth.clk_err_ns)
            for truth in self.lab.truth()
            if truth.error_ns is not None and truth.clk_err_ns
        )

    def watch(self, for_ns: int) -> list[tuple[ClockError, ...]]:
        """Show the fleet for a while, once a second; return the clock errors."""
        samples = []
        until_ns = time.monotonic_ns() + for_ns
        while time.monotonic_ns() < until_ns:
            scene = self.scene()
            samples.append(scene.truths)
            self.screen.show(scene)
            time.sleep(1)
        return samples

    def retry(self, ask: Callable[[], _T]) -> _T:
        """Return what `ask` returns; retry while the controller does not answer. Raises
        `RemoteError`: no answer within `ANSWER_NS`."""
        end_ns = time.monotonic_ns() + ANSWER_NS
        while True:
            try:
                return ask()
            except RemoteError:
                if time.monotonic_ns() > end_ns:
                    raise
                time.sleep(1)

    def watch_until(self, find: Callable[[], _T | None], within_ns: int) -> tuple[_T | None, int]:
        """Show the fleet, once a second, until `find` returns something true.

        If the controller does not answer (`RemoteError` of `find`), retry.

        Returns:
            What was found, or None after `within_ns`; and how long it took, ns.
        """
        began_ns = time.monotonic_ns()
        while True:
            found = None
            with suppress(RemoteError):
                found = find()
            took_ns = time.monotonic_ns() - began_ns
            if found or took_ns > within_ns:
                return found or None, took_ns
            self.watch(S)

    def scene(self) -> FleetScene:
        try:
            fleet = ask(self._target, FleetQuery())
            cells = self.matrix(SCENE_WINDOW_NS)
        except RemoteError:
            fleet, cells = Fleet(agents=(), rows_stored=0, probes_per_s=0.0), ()
        return FleetScene(
            fleet=self._title,
            agents=sum(agent.connected for agent in fleet.agents),
            hosts=len(self.status.hosts),
            probes_per_s=fleet.probes_per_s,
            rows_stored=fleet.rows_stored,
            dropped=sum(agent.dropped for agent in fleet.agents),
            cells=cells,
            truths=self.truths(),
        )
