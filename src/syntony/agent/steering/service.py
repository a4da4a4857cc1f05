"""The reactor's interface to path control: plans and orders in, rows and reports out."""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from syntony.agent.config import AgentConfig
from syntony.agent.steering.actuators import PathActuator
from syntony.agent.steering.control import PathControl
from syntony.agent.steering.liveness import PORTS, Prober
from syntony.agent.steering.orders import order_of
from syntony.agent.steering.path_log import PathCounters
from syntony.agent.steering.rows import PathRow
from syntony.agent.steering.switch import StopSwitch
from syntony.errors import MissingError
from syntony.io.carrier import POLL_NS, CarrierWatch
from syntony.io.interfaces import addresses
from syntony.mesh.plan import with_spares
from syntony.model import MS
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.instructions import Avoid, Notice
from syntony.traffic.moving import REMEMBERED, Outcome
from syntony.traffic.pairs import LocalNic, WatchedFlow
from syntony.traffic.path_notices import ProcessPath
from syntony.traffic.policy import FailoverMode
from syntony.wire.bounds import MAX_VIEWS
from syntony.wire.failover import PathsReport, Switch
from syntony.wire.probes import Plan
from syntony.wire.traffic import Moves

_log = logging.getLogger(__name__)

REST_POLL_NS = 500 * MS
"""Between two reads of a NIC's carrier counter where jobs' paths are not watched: shorter outages
are known as far as the kernel reports them."""


class PathService:
    """Gives path control its plans and orders, and returns its rows and reports.

    One per agent. A host whose paths cannot be managed is measured nevertheless.

    Args:
        processes: those of jobs that move their own flows.
    """

    def __init__(
        self,
        config: AgentConfig,
        processes: PathActuator[Notice | Avoid] | None = None,
    ) -> None:
        self._config = config
        self._processes = processes
        self._used: tuple[frozenset[ProcessPath], tuple[ReportedFlow, ...]] = (frozenset(), ())
        self._prober: Prober | None = None
        self._plan: Plan | None = None
        self._rails = {nic.name: nic.rail for nic in config.nics}
        self._switch = StopSwitch(Path(config.spool_dir))
        self._control: PathControl | None = None
        self._refused: deque[Outcome] = deque(maxlen=REMEMBERED)
        self._mode: str = config.traffic.mode
        if config.traffic.mode is not FailoverMode.OFF:
            self._mode = "unavailable: not started yet"

    def start(self) -> None:
        """Begin to manage paths, with the NICs that are present. Raises `MissingError`: this host
        cannot, now."""
        config = self._config
        try:
            control = PathControl(
                config.host,
                config.traffic,
                [nic for each in config.nics if (nic := self._local_nic(each.name)) is not None],
                stopped=self.stopped,
                sources=[CarrierWatch(poll_ns=POLL_NS if config.traffic.watch else REST_POLL_NS)],
                processes=self._processes,
            )
        except MissingError as error:
            self._mode = f"unavailable: {error}"
            raise
        control.start()
        self._mode = config.traffic.mode
        if control.no_mptcp:
            _log.warning("MPTCP not available, managing plain TCP only reason=%s", control.no_mptcp)
            self._mode = f"{config.traffic.mode}, plain TCP only: {control.no_mptcp}"
        _log.info("paths managed mode=%s stopped=%s", config.traffic.mode, self.stopped)
        self._control = control
        control.probe_with(self._prober)
        if self._plan is not None:
            self.plan(self._plan)
        control.use(*self._used)

    def use(self, paths: frozenset[ProcessPath], rails: tuple[ReportedFlow, ...]) -> None:
        """Paths and queue-pair rates as jobs' processes report them."""
        if (paths, rails) != self._used:
            self._used = paths, rails
            if self._control is not None:
                self._control.use(paths, rails)

    def rails(self) -> tuple[ReportedFlow, ...]:
        """Rates that processes send by queue pairs, and the actions on them."""
        rails = self._used[1]
        return self._control.view.rails(rails) if self._control is not None else rails

    def nic_appeared(self, name: str) -> None:
        """A NIC that was missing is present."""
        nic = self._local_nic(name)
        if nic is not None and self._control is not None:
            self._control.add_nic(nic)

    def _local_nic(self, name: str) -> LocalNic | None:
        """None: there is no such interface now."""
        with suppress(MissingError):
            return LocalNic(name=name, rail=self._rails[name], addresses=addresses(name))
        return None

    @property
    def stopped(self) -> bool:
        """Whether the stop switch is on, as last received."""
        return self._switch.stopped

    @property
    def listen_fault(self) -> MissingError | None:
        """Why peers cannot join connections at all of our addresses."""
        return self._control.listen_fault if self._control is not None else None

    @property
    def counters(self) -> PathCounters:
        """All zero where paths are not managed."""
        return self._control.counters if self._control is not None else PathCounters()

    def close(self) -> None:
        """Subflows stay as they are."""
        if self._control is not None:
            self._control.close()

    def plan(self, plan: Plan) -> None:
        self._plan = plan
        if self._control is not None:
            flows = with_spares(plan.flows, PORTS)
            self._control.plan(
                flows,
                [
                    WatchedFlow(
                        flow_id=flow.flow_id,
                        nic=flow.src,
                        remote=flow.dst_addr,
                        remote_name=flow.dst,
                        # A fleet names the NICs of a rail alike.
                        remote_rail=self._rails.get(flow.dst.partition("/")[2], -1),
                        others=plan.others.get(flow.dst, ()),
                    )
                    for flow in flows
                ],
            )

    def probe_with(self, prober: Prober | None) -> None:
        """The probe engine whose events to use; None before it is closed."""
        self._prober = prober
        if self._control is not None:
            self._control.probe_with(prober)

    def switch(self, switch: Switch) -> None:
        """The stop switch was thrown, or its state arrives again; the newest counts."""
        if not self._switch.take(switch):
            return
        if self._control is not None:
            self._control.stop(stopped=switch.stopped)  # before writing to the disk, which may hang
        self._switch.save()
        _log.warning("traffic control stopped=%s by=%s", switch.stopped, switch.by)

    def rows(self, after: int) -> tuple[int, tuple[PathRow, ...]]:
        """Actions, oldest first, and the number of the first row; rows before `after` need not be
        kept any longer."""
        return self._control.path_log.rows(after) if self._control is not None else (0, ())

    def report(self) -> PathsReport:
        """Managed connections now."""
        views = self._control.view.connections if self._control is not None else ()
        return PathsReport(
            mode=self._mode,
            stopped=self.stopped,
            connections=views[:MAX_VIEWS],
            left_out=max(0, len(views) - MAX_VIEWS),
            degraded=sum(bool(view.degraded) for view in views),
        )

    def flows(self) -> tuple[ReportedFlow, ...]:
        """Managed subflows and connections, at most `FLOWS_NS` old."""
        return self._control.view.job_flows if self._control is not None else ()

    def outcomes(self) -> tuple[Outcome, ...]:
        """Results of the newest orders, oldest first."""
        done = self._control.view.outcomes if self._control is not None else ()
        return (*self._refused, *done)

    def newest_outcome(self) -> str:
        """The order that was completed or refused last; empty: none."""
        done = self._control.view.outcomes if self._control is not None else ()
        newest = [each[-1] for each in (self._refused, done) if each]
        return max(newest, key=lambda each: each.at_ns).move_id if newest else ""

    def moves(self, message: Moves, fleet_now_ns: int | None) -> None:
        """Orders of the controller; None: there is no fleet time here."""
        if self._control is not None:
            self._control.confirm(frozenset(message.helped))
        for move in message.moves:
            order = order_of(move, fleet_now_ns)
            if self._control is None:
                order = f"paths are not managed here: {self._mode}"
            elif not isinstance(order, str):
                self._control.move(order)
                continue
            _log.warning("move refused move=%s reason=%s", move.move_id, order)
            self._refused.append(
                Outcome(move_id=move.move_id, result=order, at_ns=time.monotonic_ns(), tried=False)
            )
