"""Jobs' flows in the telemetry process: reports them to the controller, and limits the rates of
those that the controller names. It knows them only from the reactor's last report."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from syntony.agent.config import AgentConfig
from syntony.agent.pacing import (
    PROCESS_RENEW_NS,
    PaceKeeper,
    ProcessPacing,
    process_key,
    socket_key,
)
from syntony.agent.reactor.messages import ProcessPaces, ReactorUpdate
from syntony.agent.steering.orders import Hops, flows_report
from syntony.io.pacing import KernelPacing, Paced
from syntony.model import MS
from syntony.model.paths import FourTuple
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.moving import Outcome
from syntony.traffic.process_rates import PacedPath
from syntony.wire.traffic import FlowsReport, Paces, ProbeDelay

_log = logging.getLogger(__name__)

FLOWS_NS = 400 * MS
"""Interval of reports of jobs' flows: each is seen within one window of half a second."""


class JobPaths:
    """Used by the agent's loop.

    Args:
        obey: forwards orders for processes to the reactor; returns why it does not obey, or an
            empty string.
    """

    def __init__(self, config: AgentConfig, obey: Callable[[ProcessPaces], str]) -> None:
        kernel = KernelPacing([nic.name for nic in config.nics])
        self._sockets = PaceKeeper(config.traffic, kernel, socket_key)
        self._queue_pairs = PaceKeeper(
            config.traffic, ProcessPacing(obey), process_key, PROCESS_RENEW_NS
        )
        self._join_port = config.traffic.port
        self._flows: tuple[ReportedFlow, ...] = ()
        self._outcomes: tuple[Outcome, ...] = ()
        self._reported = ""
        """The newest result that was reported."""
        self._reported_ns = 0
        self.late_paces = 0
        """Messages with rates that had expired when they arrived."""

    def close(self) -> None:
        """Remove all rate limits."""
        for keeper in self._keepers:
            keeper.close()

    @property
    def _keepers(self) -> tuple[PaceKeeper[Paced], PaceKeeper[PacedPath]]:
        return self._sockets, self._queue_pairs

    def are_due(self, update: ReactorUpdate) -> bool:
        """Whether to send a report now, between two whole seconds. If no job's flow is managed, the
        report is sent with the rows of a second: a third of its lease."""
        if update.outcome and update.outcome != self._reported:
            return True
        return update.has_flows and time.monotonic_ns() - self._reported_ns >= FLOWS_NS

    def take(self, update: ReactorUpdate) -> None:
        """The current flows."""
        self._flows, self._outcomes = update.flows, update.outcomes
        self._reported, self._reported_ns = update.outcome, time.monotonic_ns()

    def lost(self) -> None:
        """The reactor does not answer: the flows are unknown."""
        self._flows = self._outcomes = ()

    @property
    def flows(self) -> tuple[ReportedFlow, ...]:
        return self._flows

    def in_use(self) -> list[tuple[str, FourTuple]]:
        """NIC and flow of all managed flows whose path matters."""
        return [(each.nic, each.flow) for each in self._flows if each.traced]

    def remotes(self) -> set[str]:
        """Addresses of the peers to which probes' delays matter: also those of queue pairs, whose
        paths are not traced."""
        return {each.flow.remote for each in self._flows if each.traced or each.process}

    def report(
        self, hops: Hops, fleet_ns: int, delays: tuple[ProbeDelay, ...], *, stopped: bool
    ) -> FlowsReport:
        """Managed subflows now, and the results of the newest orders."""

        def pace_of(flow: ReportedFlow) -> tuple[bool, int]:
            may = self._sockets.may(flow, stopped=stopped)
            return may, max(each.rate(flow) for each in self._keepers)

        return flows_report(
            self._flows,
            self._outcomes,
            hops,
            fleet_ns=fleet_ns,
            join_port=self._join_port,
            delays=delays,
            pace_of=pace_of,
            late_paces=self.late_paces,
        )

    def paces(self, message: Paces, fleet_now_ns: int | None, *, stopped: bool) -> None:
        """The controller's rates; None: there is no fleet time here."""
        if fleet_now_ns is not None and fleet_now_ns >= message.expires_ns:
            self.late_paces += 1
            late_ms = (fleet_now_ns - message.expires_ns) // MS
            _log.warning("rates refused reason=expired %d ms ago", late_ms)
        for keeper in self._keepers:
            keeper.take(message, fleet_now_ns, time.monotonic_ns())
        self.pace(stopped=stopped)

    def pace(self, *, stopped: bool) -> None:
        """Apply the current rate limits, and remove outdated ones."""
        for keeper in self._keepers:
            keeper.tick(self._flows, time.monotonic_ns(), stopped=stopped)
