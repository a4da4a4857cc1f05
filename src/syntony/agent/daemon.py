"""One host's telemetry process: reactor's records → pipeline → spool → uplink, on one thread."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from functools import partial
from pathlib import Path

from syntony import __version__
from syntony.agent import metrics
from syntony.agent.audit import AuditService
from syntony.agent.clock import host_clock
from syntony.agent.config import AgentConfig
from syntony.agent.delays import recent_delays
from syntony.agent.early_rows import EarlyRows
from syntony.agent.inbox import ClockSet, Inbox
from syntony.agent.job_paths import JobPaths
from syntony.agent.machine import Machine
from syntony.agent.pipeline import Pipeline, agent_row
from syntony.agent.queue_pairs import FleetOffset, fleet_offset
from syntony.agent.reactor.link import NO_UPDATE
from syntony.agent.reactor.messages import Reported
from syntony.agent.spool import Spool
from syntony.agent.steering import rows as path_rows
from syntony.agent.uplink import Uplink
from syntony.errors import MissingError
from syntony.io.kernel_utc import read_kernel_utc
from syntony.io.process import name_thread
from syntony.io.renewal import Renewal, time_left_ns
from syntony.io.window_fit import fit_window
from syntony.mesh.fresh_losses import STEP_NS
from syntony.mesh.stats import HOLD_NS, Columns
from syntony.metrics.sheet import Sheet
from syntony.model import MS, S, UtcReading
from syntony.wire.arrow import encode_columns
from syntony.wire.audit import AuditOrder
from syntony.wire.clocks import Timelines
from syntony.wire.enrol import Revocations
from syntony.wire.failover import PathsReport, Switch
from syntony.wire.messages import PROTOCOL, ControllerMessage, Hello
from syntony.wire.parts import PartsReport
from syntony.wire.probes import Plane
from syntony.wire.tables import AGENT, HEARD, PATH, PATH_EVENTS, PROBE, VERBS, VERBS_HEARD, Table
from syntony.wire.traffic import Paces, ProbeDelay

_log = logging.getLogger(__name__)

TURN_NS = STEP_NS
"""Longest pause of the loop, whose turns end at multiples of it in fleet time: a step of the local
clock is detected within it."""
SET_WAIT_S = 5.0
"""Interval at which the clock's thread checks whether the agent stops."""
ESTIMATE_SECONDS = 2
"""Interval of estimates of pairs, half a window: shorter ones cost CPU and add little."""
COLD_ESTIMATE_NS = 500 * MS
"""… and while the host has no fleet time, when a first, coarse estimate is valuable."""
PATHS_SECONDS = 2
"""Interval of reports of connections, in seconds."""
PARTS_NS = 10 * S
"""Interval of reports of parts; also sent whenever one changes."""
CHECK_NS = 1 * S
"""Interval of checks of the parts."""


def run_agent(config: AgentConfig, stop: threading.Event) -> None:
    """Measure and report until `stop` is set. Raises `ConfigError`: an address or a number is
    invalid, or another agent uses the spool."""
    spool = Spool(Path(config.spool_dir), config.spool_bytes)
    agent = Agent(config, spool)
    try:
        agent.start()
        with (
            Uplink(config, agent.hello, agent.receive, spool) as uplink,
            Renewal(config.tls, uplink.ask),
        ):
            _log.info("agent started host=%s nics=%d", config.host, len(config.nics))
            agent.run(uplink, stop)
    finally:
        agent.close()
        spool.close()


class Agent:
    """The loop. `hello` and `inbox` serve the uplink's thread, everything else the caller's."""

    def __init__(self, config: AgentConfig, spool: Spool) -> None:
        self._config = config
        self._clock = host_clock(config)
        self.inbox = Inbox()
        self._pipeline = Pipeline(config.host, fit_window)
        self._early = EarlyRows()
        self._machine = machine = Machine(config, spool, self._clock, self.inbox.put)
        self.parts = machine.parts
        self._parts_reported: tuple[object, ...] = ()
        self._parts_due_ns = 0
        self._reactor, self._nic_clocks = machine.reactor, machine.nic_clocks
        self._spool, self._clock_server = spool, machine.clock_server
        self._links, self._tracer = machine.links, machine.tracer
        self._jobs = JobPaths(config, partial(self._reactor.obey, fleet_minus_monotonic_ns=None))
        self._stopped = False
        """By the stop switch, as last known."""
        self._reactor_update = NO_UPDATE
        self._connections = 0
        """Connections to the reactor so far, including the current one."""
        self._probing = 0
        """Number of the last probing state that was taken over."""
        self._uplink: Uplink | None = None
        self._next_second_ns = 0
        self._next_probes_ns = 0
        """Fleet time at which the next second of probing ends, the same on all hosts."""
        self._turn = zlib.crc32(config.host.encode()) % ESTIMATE_SECONDS
        """Hosts estimate in different seconds, so that some edges of each clock are fresh."""
        self._next_check_ns = self._next_estimate_ns = self._caught_up_ns = 0
        self._was_set = False
        self._audits: AuditService | None = None

    def hello(self, stream: str) -> Hello:
        """First message of a stream to the controller."""
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            host=self._config.host,
            nics=self._machine.described,
            stream=stream,
            reads_device_stamps=True,
            reads_stored=True,
        )

    def start(self) -> None:
        """Start every part that can start; the others are retried in `run`. Raises `ConfigError`:
        an address or a number is invalid, or another agent uses the spool."""
        self._machine.start()
        self._pipeline.begin_epoch(self._clock_server.epoch)

    def receive(self, message: ControllerMessage) -> None:
        """Take a message from the uplink's threads."""
        if isinstance(message, Revocations):
            self._machine.revocations = message
        else:
            self.inbox.put(message)

    def run(self, uplink: Uplink, stop: threading.Event) -> None:
        """Until `stop` is set."""
        self._uplink = uplink
        self._machine.stream_changed = uplink.reconnect
        threading.Thread(target=self._watch_clock, args=(stop,), name="clock", daemon=True).start()
        config = self._config
        self._audits = AuditService(config.host, config.audit.mode, config.clock.dir, uplink.send)
        while not stop.is_set():
            for scrape in self._take_messages(self._pause_ns()):
                scrape.answer.put(self._sheet(uplink))
            self._check_clock(uplink)
            now_ns = time.monotonic_ns()
            if now_ns >= self._next_check_ns:
                self._next_check_ns = now_ns + CHECK_NS
                self._machine.check(now_ns)
                self._report_parts(uplink, now_ns)
            with uplink.together():
                self.parts.run("reports", partial(self._report_due, uplink), now_ns)

    def _report_parts(self, uplink: Uplink, now_ns: int) -> None:
        parts = self._machine.statuses(now_ns)
        reported = tuple((part.name, part.state, part.reason) for part in parts)
        if reported != self._parts_reported or now_ns >= self._parts_due_ns:
            self._parts_reported, self._parts_due_ns = reported, now_ns + PARTS_NS
            uplink.send(PartsReport(parts=parts))

    def _watch_clock(self, stop: threading.Event) -> None:
        """Runs in a thread: ends the loop's pause when the clock is set."""
        name_thread("clock")
        try:
            while not stop.is_set():
                if self._clock.wait_for_step(SET_WAIT_S):
                    self.inbox.put(ClockSet())
        except MissingError as error:
            _log.warning("clock steps will be detected late: %s", error)

    def _check_clock(self, uplink: Uplink) -> None:
        """If the host's clock stepped or changed its rate, restart all measurements with it."""
        was_set, self._was_set = self._was_set, False
        torn_ns = self._clock_server.tick(was_set=was_set)
        if torn_ns is None:
            return
        self._drain()
        self._pipeline.begin_epoch(self._clock_server.epoch, torn_ns)
        self._nic_clocks.forget()
        uplink.send_edges((), (), self._epochs())

    def _take_crossings(self, uplink: Uplink, local_ns: int) -> None:
        """Report a device's clock that enters another epoch at once, as for the host's clock."""
        state = self._reactor.state
        changed = self._nic_clocks.take_crossings(state.verbs_clocks if state is not None else {})
        if changed:
            self._drain()
        for node, epoch in self._nic_clocks.epochs.items():
            self._pipeline.begin_epoch(epoch, local_ns, node)
        if changed:
            uplink.send_edges((), (), self._epochs())

    def _epochs(self) -> dict[str, int]:
        return {self._config.host: self._clock_server.epoch} | self._nic_clocks.epochs

    def _report_due(self, uplink: Uplink) -> None:
        self._caught_up_ns = time.monotonic_ns()
        self._look_at_flows(uplink)
        if self._reactor_update.pending:
            self._drain()
        local_ns = self._clock.now_ns()
        fleet_ns = self._pipeline.fleet_ns(local_ns)
        if fleet_ns is not None:
            self._report_early(uplink, fleet_ns)
            if (losses := self._pipeline.losses(fleet_ns)) is not None:
                uplink.send(losses)
        now_ns = time.monotonic_ns() if fleet_ns is None else fleet_ns
        # Also where fleet time has gone back. Two seconds: the first may begin within early rows'.
        if not self._next_second_ns - 2 * S <= now_ns < self._next_second_ns:
            self._next_second_ns = (now_ns // S + 1) * S
            self._reactor.refresh()
            self._machine.describe()
            self._take_crossings(uplink, local_ns)
            if self._machine.discipline is not None:
                self._machine.discipline.feed_chrony(self._clock_server.served(), local_ns)
            self._catch_up(uplink)
            if (self._next_second_ns // S + self._turn) % ESTIMATE_SECONDS == 0:
                self._estimate(uplink, local_ns)
                self._catch_up(uplink)
            if self._next_second_ns // S % PATHS_SECONDS == 0:
                uplink.send(self._paths())
            self._report_flows(uplink)  # of a whole second nothing is awaited then
            self._report_jobs(uplink)
            self._catch_up(uplink)
            self._report(uplink, fleet_ns)
        elif not self._clock_server.synchronized and local_ns >= self._next_estimate_ns:
            self._estimate(uplink, local_ns)
        next_ns = self._next_probes_ns
        if fleet_ns is not None and not next_ns - S <= fleet_ns < next_ns:
            self._next_probes_ns = ((fleet_ns - HOLD_NS) // S + 1) * S + HOLD_NS
            self._catch_up(uplink)
            self._report_probes(uplink, fleet_ns)

    def _look_at_flows(self, uplink: Uplink) -> None:
        """Report jobs' flows if that is due, and keep their rates."""
        self._look()
        self._jobs.pace(stopped=self._stopped)
        if self._jobs.are_due(self._reactor_update):
            self._report_flows(uplink)

    def _catch_up(self, uplink: Uplink) -> None:
        """In a turn that takes longer than `TURN_NS`: obey orders that have arrived, and report
        jobs' flows. On a host that is short of CPU a turn takes seconds, and orders expire after
        one."""
        now_ns = time.monotonic_ns()
        if now_ns - self._caught_up_ns < TURN_NS:
            return
        self._caught_up_ns = now_ns
        for order in self.inbox.take_urgent():
            self._run_order(order)
        self._look_at_flows(uplink)
        uplink.release()

    def _look(self) -> None:
        """Fetch news from the reactor."""
        self._reactor_update = self._reactor.look(flows=False)
        held, self._reactor.held = self._reactor.held, None
        if held is not None and self._uplink is not None:
            self._uplink.send(held)
        if not self._reactor.up:
            self._jobs.lost()
        elif self._reactor.connections != self._connections:
            self._connections = self._reactor.connections
            self._pipeline.count_from(self._reactor.heard())
            self._pipeline.count_from(self._reactor.verbs_heard(), Plane.VERBS)
            self._take_probing()
        elif self._reactor_update.probing != self._probing:
            self._take_probing()
        if self._reactor.state is not None:
            self._stopped = self._reactor.state.report.stopped

    def _take_probing(self) -> None:
        if (found := self._reactor.probing()) is None:
            return
        self._probing = found.number
        if found.plan is not None:
            self._drain()
            self._pipeline.report_from(found.tell_from_ns)
            self._pipeline.plan(found.plan)
            plan = found.plan
            self._tracer.plan(plan.flows, self._config.probe_port, plan.first_trace_ns)

    def _sheet(self, uplink: Uplink) -> Sheet:
        sheet = metrics.new_sheet(self._config.host)
        metrics.put_clock(sheet, self._clock_server, self._pipeline, self._clock.now_ns())
        metrics.put_parts(sheet, self._machine.statuses(time.monotonic_ns()))
        metrics.put_queue_pairs(sheet, self._machine.queue_pairs)
        metrics.put_operations(sheet, self._machine.jobs)
        metrics.put_takeovers(sheet, self._machine.jobs.takeovers)
        sheet.put("paths_late_paces_total", self._jobs.late_paces)
        metrics.put_segments(sheet, self._machine.segments)
        metrics.put_nics(sheet, self._pipeline.totals.each())
        if self._reactor.state is not None:
            metrics.put_reactor(sheet, self._reactor.state)
        metrics.put_links(sheet, self._links.ports())
        metrics.put_uplink(sheet, uplink, self._spool, self._shed())
        sheet.put("certificate_expiry_seconds", time_left_ns(self._config.tls) / S)
        return sheet

    def close(self) -> None:
        """Stop watching and reporting; the reactor continues."""
        self._jobs.close()
        self._machine.close()

    def _report_flows(self, uplink: Uplink) -> None:
        """Report jobs' current flows; their paths are learnt first."""
        self._reactor_update = self._reactor.look(flows=True)
        if not self._reactor.up:
            return  # no report: an empty one would say that no job has a flow here
        self._jobs.take(self._reactor_update)
        self._tracer.follow(self._jobs.in_use(), time.monotonic_ns())
        fleet_ns = self._pipeline.fleet_ns(self._clock.now_ns())
        if fleet_ns is not None:
            delays = self._newest_delays(fleet_ns)
            uplink.send(
                self._jobs.report(self._tracer.hops, fleet_ns, delays, stopped=self._stopped)
            )

    def _report_jobs(self, uplink: Uplink) -> None:
        """Report what jobs' processes send in addition to their flows."""
        report, rows = self._machine.reported_by_jobs(self._fleet_offset, time.monotonic_ns())
        if report is not None:
            uplink.send(report)
        segments = self._machine.segments_passed(self._jobs.flows, self._pipeline.timeline)
        if segments is not None:
            uplink.send(segments)
        for table, columns in rows:
            self._submit(uplink, table, columns)

    def _fleet_offset(self) -> FleetOffset | None:
        """Current offset, from two clocks read as close together as possible."""
        local_ns, now_ns = self._clock.now_ns(), time.monotonic_ns()
        return fleet_offset(self._pipeline.timeline, local_ns, now_ns)

    def _paths(self) -> PathsReport:
        state = self._reactor.state
        if state is None:
            return PathsReport(
                mode="unavailable: the reactor does not answer", stopped=self._stopped,
                connections=(),
            )  # fmt: skip
        return state.report

    def _newest_delays(self, fleet_ns: int) -> tuple[ProbeDelay, ...]:
        """Delays of probes to peers that jobs use, over the last second as far as it is known."""
        peers = self._tracer.peers(self._jobs.remotes())
        if not peers:
            return ()
        self._drain()
        rows = self._pipeline.recent_rows(fleet_ns)
        return () if rows is None else recent_delays(rows, self._config.host, peers, fleet_ns)

    def _drain(self) -> None:
        """Take the probe records."""
        self._pipeline.add(self._reactor.drain())
        self._pipeline.add_verbs(self._reactor.drained_verbs())

    def _estimate(self, uplink: Uplink, local_ns: int) -> None:
        self._drain()
        self._next_estimate_ns = local_ns + COLD_ESTIMATE_NS
        own = map(self._pipeline.in_epochs, self._nic_clocks.edges())
        edges = (*self._pipeline.edges(local_ns), *own)
        # Also without records: peers may have measured this clock, whose epoch must be known.
        uplink.send_edges(edges, self._utc_readings(), self._epochs())

    def _pause_ns(self) -> int:
        if not self.parts.is_running("reports"):
            return TURN_NS  # nothing is due, and the last due time has passed
        local_ns = self._clock.now_ns()
        now_ns = self._pipeline.fleet_ns(local_ns) or time.monotonic_ns()
        next_ns = min(self._next_second_ns, self._next_probes_ns or self._next_second_ns)
        return max(0, min(TURN_NS - now_ns % TURN_NS, next_ns - now_ns))

    def _utc_readings(self) -> tuple[UtcReading, ...]:
        if self._config.utc != "kernel":
            return ()
        reading = read_kernel_utc(self._clock)
        return () if reading is None else (reading,)

    def _take_messages(self, pause_ns: int) -> list[metrics.Scrape]:
        """Everything that is there; waits for the first for up to `pause_ns`. Returns what is to be
        answered when all of it has been taken."""
        scrapes: list[metrics.Scrape] = []
        for message in self.inbox.take(pause_ns):
            if isinstance(message, metrics.Scrape):
                scrapes.append(message)
            else:
                self._run_order(message)
        return scrapes

    def _run_order(self, message: ControllerMessage | ClockSet) -> None:
        take = partial(self._take, message)
        self.parts.run("orders", take, time.monotonic_ns(), always=True)

    def _take(self, message: ControllerMessage | ClockSet) -> None:
        if isinstance(message, Timelines):
            self._drain()
            self._pipeline.timelines(message.timelines, message.utc, self._clock.now_ns())
            self._clock_server.take(message.timelines, message.step)
            self._machine.steer(message.timelines)
        elif isinstance(message, Reported):
            self._forward(message)
        elif isinstance(message, Paces):
            fleet_ns = self._pipeline.fleet_ns(self._clock.now_ns())
            self._jobs.paces(message, fleet_ns, stopped=self._stopped)
        elif isinstance(message, AuditOrder):
            self._order(message)
        elif isinstance(message, ClockSet):
            self._was_set = True

    def _forward(self, order: Reported) -> None:
        fleet_ns = self._pipeline.fleet_ns(self._clock.now_ns())
        offset_ns = None if fleet_ns is None else fleet_ns - time.monotonic_ns()
        reason = self._reactor.obey(order, offset_ns)
        if reason:
            _log.error("%s not applied reason=%s", type(order).__name__, reason)
        if isinstance(order, Switch):
            self._stopped = order.stopped
            self._reactor.refresh()

    def _order(self, order: AuditOrder) -> None:
        local_ns = self._clock.now_ns()
        if self._audits is not None:
            self._audits.take(order, self._pipeline.fleet_ns(local_ns) or local_ns)

    def _report_probes(self, uplink: Uplink, fleet_ns: int) -> None:
        self._drain()
        probes = self._pipeline.probe_rows(fleet_ns)
        self._submit(uplink, PROBE, probes)
        self._submit(uplink, VERBS, self._pipeline.verbs_rows(fleet_ns))
        self._catch_up(uplink)
        if probes is not None:
            self._tracer.retrace(probes, time.monotonic_ns())

    def _report(self, uplink: Uplink, fleet_ns: int | None) -> None:
        """Rows of the second that has just ended. Without fleet time they are of CLOCK_MONOTONIC,
        and wait."""
        if fleet_ns is None:
            now_ns = time.monotonic_ns()
            # In the middle of the second that it will be reported, whenever fleet seconds begin.
            submit, offset_ns, second_ns = self._early.keep, 0, now_ns // S * S + S // 2
        else:
            submit = partial(self._submit, uplink)
            now_ns, offset_ns = self._offset(fleet_ns)
            second_ns = fleet_ns // S * S
        submit(HEARD, self._pipeline.received_rows(self._reactor.heard(), second_ns - S))
        heard = self._reactor.verbs_heard()
        submit(VERBS_HEARD, self._pipeline.received_rows(heard, second_ns - S, Plane.VERBS))
        self._catch_up(uplink)
        look = partial(self._links.report, now_ns, now_ns + offset_ns)
        links = self.parts.run("link-counters", look, now_ns)
        for table, columns in links.rows if links is not None else ():
            submit(table, columns)
        self._catch_up(uplink)
        submit(PATH, self._tracer.rows(now_ns + offset_ns, now_ns))
        shed = sum(self._shed().values()) + self._spool.dropped_rows
        submit(AGENT, agent_row(self._config.host, second_ns - S, self._reactor.vitals(shed)))
        done = self._reactor.rows()
        submit(PATH_EVENTS, path_rows.columns(done, self._config.host, offset_ns) if done else None)

    def _offset(self, fleet_ns: int) -> tuple[int, int]:
        """CLOCK_MONOTONIC now, and the offset of fleet time from it."""
        # Two clocks, read as close together as possible.
        local_ns, now_ns = self._clock.now_ns(), time.monotonic_ns()
        return now_ns, (self._pipeline.fleet_ns(local_ns) or fleet_ns) - now_ns

    def _report_early(self, uplink: Uplink, fleet_ns: int) -> None:
        """Report rows that have waited for fleet time. The next report begins with the second after
        these, whole: no second is reported twice."""
        for table, columns in self._early.release(self._offset(fleet_ns)[1]):
            self._submit(uplink, table, columns)
            if table is AGENT:
                self._next_second_ns = int(columns["ts_ns"][-1]) + 2 * S

    def _shed(self) -> dict[str, int]:
        """Rows that never reached the spool, by where they were dropped."""
        return {
            "pipeline": self._pipeline.dropped,
            "ring": self._reactor.counters.ring_dropped,
            "reactor": self._reactor.unsent,
            "early": self._early.dropped,
        }

    @staticmethod
    def _submit(uplink: Uplink, table: Table, columns: Columns | None) -> None:
        if columns is not None:
            uplink.submit(table.name, len(columns["ts_ns"]), encode_columns(table, columns))
