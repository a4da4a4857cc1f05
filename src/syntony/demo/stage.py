"""What acts stand on: a running lab, asked once a second, shown as it is."""

from __future__ import annotations

import time
from typing import Any

from syntony.controller.client import ask_for
from syntony.demo.claims import Truth
from syntony.demo.screen import Scene, Screen
from syntony.errors import RemoteError
from syntony.lab.client import Lab
from syntony.lab.messages import Status
from syntony.model import S, Timeline
from syntony.wire.clocks import ClockQuery, Clocks
from syntony.wire.incidents import IncidentsQuery, IncidentsReply
from syntony.wire.messages import Fleet, FleetQuery
from syntony.wire.probes import Matrix, MatrixCell, MatrixQuery, Series, SeriesPoint, SeriesQuery

SCENE_WINDOW_NS = 5 * S
"""The live matrix shows the last seconds, so that a fault is seen while it lasts."""


class Stage:
    """One lab and one screen. Every question is one a user can ask with the command line."""

    def __init__(self, lab: Lab, screen: Screen) -> None:
        self.lab = lab
        self.screen = screen
        self.status: Status = lab.status()
        self._target = f"unix:{lab.controller_socket}"
        self._title = (
            f"{len(self.status.hosts)} hosts × {self.status.spec.rails} rails, "
            f"{len(self.status.leaves)} leaves, {len(self.status.spines)} spines"
        )

    @property
    def nics(self) -> int:
        """How many NICs the lab's hosts have."""
        return len(self.status.hosts) * self.status.spec.rails

    def strike(self) -> None:
        """End the fleet: for a last act that needs the machine for one of its own."""
        self.lab.down()

    def timelines(self) -> tuple[Timeline, ...]:
        """Of the controller; empty while it does not answer yet."""
        try:
            return ask_for(self._target, ClockQuery(), Clocks).timelines
        except RemoteError:
            return ()

    def matrix(self, window_ns: int) -> tuple[MatrixCell, ...]:
        """The delay matrix."""
        return ask_for(self._target, MatrixQuery(window_ns=window_ns), Matrix).cells

    def series(self, window_ns: int) -> tuple[SeriesPoint, ...]:
        """Second by second, every pair."""
        return ask_for(self._target, SeriesQuery(window_ns=window_ns), Series).points

    def incidents(self) -> tuple[dict[str, Any], ...]:
        """Live incidents, those explained by others included."""
        return ask_for(self._target, IncidentsQuery(), IncidentsReply).incidents

    def fleet_ns(self) -> int:
        """Fleet time now, as the first host's clock and timeline tell it."""
        truth = self.lab.truth()[0]
        line = next(line for line in self.timelines() if line.node == truth.host)
        return line.to_fleet_ns(truth.at_ns + truth.offset_ns)

    def truths(self) -> tuple[Truth, ...]:
        """Every estimated clock's error; hosts without an estimate are left out."""
        return tuple(
            Truth(host=truth.host, error_ns=truth.error_ns, clk_err_ns=truth.clk_err_ns)
            for truth in self.lab.truth()
            if truth.error_ns is not None and truth.clk_err_ns
        )

    def watch(self, for_ns: int) -> list[tuple[Truth, ...]]:
        """Show the fleet for a while, once a second; the clock errors seen."""
        samples = []
        until_ns = time.monotonic_ns() + for_ns
        while time.monotonic_ns() < until_ns:
            scene = self.scene()
            samples.append(scene.truths)
            self.screen.show(scene)
            time.sleep(1)
        return samples

    def scene(self) -> Scene:
        """The fleet as it is now."""
        try:
            fleet = ask_for(self._target, FleetQuery(), Fleet)
            cells = self.matrix(SCENE_WINDOW_NS)
        except RemoteError:
            fleet, cells = Fleet(agents=(), rows_stored=0, probes_per_s=0.0), ()
        return Scene(
            fleet=self._title,
            agents=sum(agent.connected for agent in fleet.agents),
            hosts=len(self.status.hosts),
            probes_per_s=fleet.probes_per_s,
            rows_stored=fleet.rows_stored,
            dropped=sum(agent.dropped for agent in fleet.agents),
            cells=cells,
            truths=self.truths(),
        )
