"""Path control as the daemon sees it: plans and the switch in, rows and reports out."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from syntony.agent.config import AgentConfig
from syntony.agent.steering.actuators import PathActuator
from syntony.agent.steering.control import OwnSource, PathControl
from syntony.agent.steering.liveness import PORTS, Prober
from syntony.agent.steering.orders import Hops, flows_report, order_of
from syntony.agent.steering.pacing import PaceKeeper
from syntony.agent.steering.rows import columns
from syntony.agent.steering.story import PathCounters
from syntony.errors import MissingError
from syntony.io.interfaces import addresses
from syntony.io.pacing import KernelPacing
from syntony.mesh.plan import with_spares
from syntony.mesh.stats import Columns
from syntony.model.paths import FourTuple
from syntony.traffic.flows import JobFlow
from syntony.traffic.instructions import Notice
from syntony.traffic.moving import REMEMBERED, Order, Outcome
from syntony.traffic.pairs import LocalNic, WatchedFlow
from syntony.traffic.path_notices import ProcessPath
from syntony.traffic.policy import Mode
from syntony.wire.failover import PathsReport, Switch
from syntony.wire.messages import MAX_VIEWS
from syntony.wire.probes import Plan
from syntony.wire.traffic import FlowsReport, Moves, Paces, ProbeDelay

_log = logging.getLogger(__name__)
_SWITCH_FILE = "traffic-switch.json"


class PathService:
    """One per agent. A host where paths cannot be managed is measured all the same.

    Args:
        config: who we are, the policy.
        source: opens what the machine says of carriers, beside MPTCP's own events.
        processes: those of jobs that move their own flows.
    """

    def __init__(
        self,
        config: AgentConfig,
        source: Callable[[], OwnSource],
        processes: PathActuator[Notice] | None = None,
    ) -> None:
        self._config = config
        self._source = source
        self._processes = processes
        self._used: frozenset[ProcessPath] = frozenset()
        self._prober: Prober | None = None
        self._plan: Plan | None = None
        self._host = config.host
        self._join_port = config.traffic.port
        self._rails = {nic.name: nic.rail for nic in config.nics}
        self._switch_file = Path(config.spool_dir) / _SWITCH_FILE
        self._switch = self._load()
        self._control: PathControl | None = None
        self._told: Outcome | None = None
        self._refused: deque[Outcome] = deque(maxlen=REMEMBERED)
        self._mode: str = config.traffic.mode
        self._pacing = PaceKeeper(config.traffic, KernelPacing([nic.name for nic in config.nics]))
        if config.traffic.mode is not Mode.OFF:
            self._mode = "unavailable: not started yet"

    def start(self) -> None:
        """Begin to manage paths, with the NICs that are there. Raises `MissingError`: this host
        cannot, now."""
        config = self._config
        try:
            control = PathControl(
                config.host,
                config.traffic,
                [nic for each in config.nics if (nic := self._local_nic(each.name)) is not None],
                stopped=self.stopped,
                sources=[self._source()],
                processes=self._processes,
            )
        except MissingError as error:
            self._mode = f"unavailable: {error}"
            raise
        control.start()
        self._mode = config.traffic.mode
        if control.no_mptcp:
            _log.warning("only plain TCP is managed reason=%s", control.no_mptcp)
            self._mode = f"{config.traffic.mode}, plain TCP only: {control.no_mptcp}"
        _log.info("paths managed mode=%s stopped=%s", config.traffic.mode, self.stopped)
        self._control = control
        control.probe_with(self._prober)
        if self._plan is not None:
            self.plan(self._plan)
        control.use(self._used)

    def use(self, paths: frozenset[ProcessPath]) -> None:
        """The paths that jobs' processes use by their own word."""
        if paths != self._used:
            self._used = paths
            if self._control is not None:
                self._control.use(paths)

    def nic_came(self, name: str) -> None:
        """A NIC that was missing is there."""
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
        """Whether the stop switch is on, as last heard."""
        return self._switch is not None and self._switch.stopped

    @property
    def control(self) -> PathControl | None:
        """For events that other threads hear; None where paths are not managed."""
        return self._control

    @property
    def listen_fault(self) -> MissingError | None:
        """Why peers cannot join connections at all of our addresses."""
        return self._control.listen_fault if self._control is not None else None

    @property
    def counters(self) -> PathCounters:
        """All zero where paths are not managed."""
        return self._control.counters if self._control is not None else PathCounters()

    def close(self) -> None:
        """Subflows stay as they are; none is held back."""
        self._pacing.close()
        if self._control is not None:
            self._control.close()

    def plan(self, plan: Plan) -> None:
        """A new probe plan."""
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
        """The probe engine to hear of paths from; None before it is closed."""
        self._prober = prober
        if self._control is not None:
            self._control.probe_with(prober)

    def switch(self, switch: Switch) -> None:
        """The stop switch was thrown, or we are told where it stands; the newest counts."""
        if self._switch is not None and switch.at_ns <= self._switch.at_ns:
            return
        self._switch = switch
        self._save(switch)
        _log.warning("traffic control stopped=%s by=%s", switch.stopped, switch.by)
        if self._control is not None:
            self._control.stop(stopped=switch.stopped)

    def rows(self, fleet_minus_monotonic_ns: int) -> Columns | None:
        """What was done since the last call, as `path_events`."""
        rows = self._control.story.rows() if self._control is not None else []
        return columns(rows, self._host, fleet_minus_monotonic_ns) if rows else None

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

    def flows(self, hops: Hops, fleet_ns: int, delays: tuple[ProbeDelay, ...]) -> FlowsReport:
        """Managed subflows now, and what became of the newest orders."""
        flows = self._control.view.job_flows if self._control is not None else ()
        done = self._control.view.outcomes if self._control is not None else ()
        self._told = self._newest()
        return flows_report(
            flows,
            [*self._refused, *done],
            hops,
            fleet_ns=fleet_ns,
            join_port=self._join_port,
            delays=delays,
            pace_of=self._pace_of,
        )

    def outcomes_are_news(self) -> bool:
        """Whether an order has come to its end since `flows` last told of outcomes."""
        newest = self._newest()
        return newest is not None and newest is not self._told

    def _newest(self) -> Outcome | None:
        outcomes = self._control.view.outcomes if self._control is not None else ()
        return outcomes[-1] if outcomes else None

    def has_flows(self) -> bool:
        """Whether any job's flow is managed."""
        return self._control is not None and bool(self._control.view.job_flows)

    def in_use(self) -> list[tuple[str, FourTuple]]:
        """NIC and flow of everything managed whose way matters."""
        flows = self._control.view.job_flows if self._control is not None else ()
        return [(each.nic, each.flow) for each in flows if each.traced]

    def obey(self, message: Switch | Moves | Paces, fleet_now_ns: int | None) -> None:
        """The controller's word; None: there is no fleet time here."""
        match message:
            case Switch():
                self.switch(message)
            case Moves():
                self.moves(message, fleet_now_ns)
            case Paces():
                self.paces(message, fleet_now_ns)

    def moves(self, message: Moves, fleet_now_ns: int | None) -> None:
        """Orders of the controller; None: there is no fleet time here."""
        if self._control is None:
            return
        self._control.confirm(frozenset(message.helped))
        for move in message.moves:
            order = order_of(move, fleet_now_ns)
            if isinstance(order, Order):
                self._control.move(order)
                continue
            _log.warning("order not obeyed move=%s reason=%s", move.move_id, order)
            self._refused.append(
                Outcome(move_id=move.move_id, result=order, at_ns=time.monotonic_ns(), tried=False)
            )

    def paces(self, message: Paces, fleet_now_ns: int | None) -> None:
        """The controller's rates; in force with the next `pace`."""
        self._pacing.take(message, fleet_now_ns, time.monotonic_ns())
        self.pace()

    def pace(self) -> None:
        """Hold back what is to be held back now, let go what is not."""
        if self._control is not None:
            flows = self._control.view.job_flows
            self._pacing.tick(flows, time.monotonic_ns(), stopped=self.stopped)

    def _pace_of(self, flow: JobFlow) -> tuple[bool, int]:
        may = self._pacing.may(flow, stopped=self.stopped)
        return may, self._pacing.in_force.get((flow.nic, flow.flow), 0)

    def _load(self) -> Switch | None:
        try:
            return msgspec.json.decode(self._switch_file.read_bytes(), type=Switch)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            # Someone threw it, and we cannot read which way: touching nothing is the safe reading.
            _log.error("%s cannot be read, traffic control stays stopped: %s",
                       self._switch_file, error)  # fmt: skip
            return Switch(stopped=True, at_ns=0, by="unreadable switch file")

    def _save(self, switch: Switch) -> None:
        """Whole or not at all: a crash must not leave half a switch."""
        fresh = self._switch_file.with_suffix(".new")
        try:
            fresh.write_bytes(msgspec.json.encode(switch))
            os.replace(fresh, self._switch_file)  # noqa: PTH105 - Path.replace says no more
        except OSError as error:
            _log.error("the stop switch cannot be kept over a restart: %s", error)
