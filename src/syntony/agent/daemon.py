"""One host's agent: engine → pipeline → spool → uplink, on one thread beside the engine's own."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from syntony import __version__
from syntony.agent import metrics
from syntony.agent.audit import AuditService
from syntony.agent.config import AgentConfig
from syntony.agent.delays import recent_delays
from syntony.agent.early_rows import EarlyRows
from syntony.agent.keyring import Keyring
from syntony.agent.machine import Machine
from syntony.agent.nics import RING_RECORDS
from syntony.agent.pipeline import Pipeline, agent_row
from syntony.agent.plans import start_flows, usable
from syntony.agent.renewal import Renewal, time_left_ns
from syntony.agent.spool import Spool
from syntony.agent.uplink import Uplink
from syntony.errors import MissingError
from syntony.io.clocks import ClockSource, KernelClock, SyntheticClock
from syntony.io.kernel_utc import read_kernel_utc
from syntony.io.probe import Counters
from syntony.io.process import name_thread, own_usage
from syntony.io.window_fit import fit_window
from syntony.mesh.stats import HOLD_NS, Columns
from syntony.metrics.sheet import Sheet
from syntony.model import MS, Edge, S, Timeline, UtcReading
from syntony.wire.arrow import encode_columns
from syntony.wire.audit import AuditOrder
from syntony.wire.clocks import Timelines
from syntony.wire.enrol import Revocations
from syntony.wire.failover import PathsReport, Switch
from syntony.wire.messages import PROTOCOL, ControllerMessage, Hello
from syntony.wire.parts import PartsReport
from syntony.wire.probes import KeysHeld, Plan, ProbeKeys
from syntony.wire.tables import AGENT, HEARD, PATH, PATH_EVENTS, PROBE, Table
from syntony.wire.traffic import Moves, Paces, ProbeDelay

_log = logging.getLogger(__name__)

TURN_NS = 200 * MS
"""Longest rest of the loop: a step of the local clock is seen within it."""
SET_WAIT_S = 5.0
"""Between two looks of the clock's thread whether the agent goes down."""
ESTIMATE_SECONDS = 2
"""Pairs are estimated every so many seconds, half a window: more often costs CPU, tells little."""
COLD_ESTIMATE_NS = 500 * MS
"""… and this often while the host has no fleet time: a first, coarse one is worth a lot."""
FLOWS_NS = 400 * MS
"""Jobs' flows are told of so often: of windows of half a second, each is seen within one."""
PATHS_SECONDS = 2
"""Connections are reported every so many seconds."""
DRAIN_RECORDS = RING_RECORDS // 8
"""Records are taken from the ring when they are needed, or when there are so many."""
PLAN_GRACE_NS = 1 * S
"""A plan's flows begin this long after it has come, when every reflector has its keys too: a probe
refused by a peer that has not got the pair's key yet would look like loss."""
PARTS_NS = 10 * S
"""How the parts are is reported so often, and whenever one changes."""
CHECK_NS = 1 * S
"""Between two looks at the parts."""
MAX_FAULTS_LOGGED = 8
"""Of one plan; the rest is only counted."""
COLD_GRACE_NS = 300 * MS
"""An agent that has just started begins to probe this early, for its clock's sake; what these
probes say of loss is not told before the grace above is over."""


def run_agent(config: AgentConfig, stop: threading.Event) -> None:
    """Probe and report until `stop` is set.

    Raises:
        ConfigError: an address or a number is not as it must be, or another agent uses the spool.
    """
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


class ClockSet(NamedTuple):
    """Somebody has set the host's clock."""


class Agent:
    """The loop. `hello` and `inbox` serve the uplink's thread, everything else the caller's."""

    def __init__(self, config: AgentConfig, spool: Spool) -> None:
        self._config = config
        self._clock = _clock(config)
        self.inbox: queue.SimpleQueue[ControllerMessage | metrics.Scrape | ClockSet] = (
            queue.SimpleQueue()
        )
        self._pipeline = Pipeline(config.host, fit_window)
        self._early = EarlyRows()
        self._machine = machine = Machine(config, spool, self._clock, self.inbox.put)
        self.parts = machine.parts
        self._parts_told = self._parts_due_ns = 0
        self._nics, self._engine = machine.nics, machine.nics.engine
        self._spool, self._clock_server = spool, machine.clock_server
        self._links, self._tracer, self._steering = machine.links, machine.tracer, machine.steering
        self._keyring = Keyring()
        self._cold = True
        """No plan has been taken yet, or it had other numbers."""
        self._uplink: Uplink | None = None
        self._next_second_ns = 0
        self._next_probes_ns = 0
        """Fleet time at which a second of probing is closed next, everywhere at once."""
        self._coming: tuple[int, Plan] | None = None
        self._flows = 0
        self._plan_faults = 0
        """Plans and flows of plans that could not be taken."""
        self._next_check_ns = self._next_estimate_ns = self._flows_told_ns = 0
        self._plan: Plan | None = None
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
        )

    def start(self) -> None:
        """Start every part that can be; the others are tried again in `run`.

        Raises:
            ConfigError: an address or a number is not as it must be, or another agent uses the
                spool.
        """
        self._machine.start(self._start_flows)
        self._pipeline.begin_epoch(self._clock_server.epoch)

    def receive(self, message: ControllerMessage) -> None:
        """From the uplink's threads."""
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
        self._audits = AuditService(
            config.host, config.audit.mode, config.clock.dir, uplink.send_audit
        )
        while not stop.is_set():
            for scrape in self._take_messages(self._pause_ns()):
                scrape.answer.put(self._sheet(uplink))
            self._check_clock(uplink)
            now_ns = time.monotonic_ns()
            if self._coming is not None and now_ns >= self._coming[0]:
                _, self._plan = self._coming
                self._coming = None
                self.parts.restart("probing", now_ns)
            if now_ns >= self._next_check_ns:
                self._next_check_ns = now_ns + CHECK_NS
                self._machine.check(now_ns)
                self._tell_parts(uplink, now_ns)
            with uplink.together():
                self.parts.run("reports", partial(self._report_due, uplink), now_ns)

    def _tell_parts(self, uplink: Uplink, now_ns: int) -> None:
        if self.parts.changes != self._parts_told or now_ns >= self._parts_due_ns:
            self._parts_told, self._parts_due_ns = self.parts.changes, now_ns + PARTS_NS
            uplink.send_parts(PartsReport(parts=self.parts.statuses(now_ns)))

    def _watch_clock(self, stop: threading.Event) -> None:
        """A thread of its own: the loop's rest ends where the clock is set."""
        name_thread("clock")
        try:
            while not stop.is_set():
                if self._clock.wait_for_step(SET_WAIT_S):
                    self.inbox.put(ClockSet())
        except MissingError as error:
            _log.warning("steps of the clock are seen late: %s", error)

    def _check_clock(self, uplink: Uplink) -> None:
        """Where the host's clock stepped or changed its rate, everybody begins anew with it."""
        was_set, self._was_set = self._was_set, False
        torn_ns = self._clock_server.tick(was_set=was_set)
        if torn_ns is None:
            return
        self._drain()
        self._pipeline.begin_epoch(self._clock_server.epoch, torn_ns)
        for _, stamps in self._nics.clocks.values():
            stamps.forget()
        uplink.send_edges((), (), self._epochs())

    def _epochs(self) -> dict[str, int]:
        return {self._config.host: self._clock_server.epoch}

    def _report_due(self, uplink: Uplink) -> None:
        """Everything that is told second by second, as far as it is due."""
        self._steering.pace()
        if self._flows_are_due():
            self._tell_flows(uplink)
        self._drain(DRAIN_RECORDS)
        local_ns = self._clock.now_ns()
        fleet_ns = self._pipeline.fleet_ns(local_ns)
        now_ns = local_ns if fleet_ns is None else fleet_ns
        # Also where the clock, or fleet time, has gone back.
        if not self._next_second_ns - S <= now_ns < self._next_second_ns:
            self._next_second_ns = (now_ns // S + 1) * S
            self._take_crossings()
            if self._machine.discipline is not None:
                self._machine.discipline.feed_chrony(self._clock_server.served(), local_ns)
            if self._next_second_ns // S % ESTIMATE_SECONDS == 0:
                self._estimate(uplink, local_ns)
            if self._next_second_ns // S % PATHS_SECONDS == 0:
                uplink.send_paths(self._paths())
            if not self._steering.has_flows():
                self._tell_flows(uplink)
            self._report(uplink, fleet_ns)
        elif not self._clock_server.synchronized and local_ns >= self._next_estimate_ns:
            self._estimate(uplink, local_ns)
        next_ns = self._next_probes_ns
        if fleet_ns is not None and not next_ns - S <= fleet_ns < next_ns:
            self._next_probes_ns = ((fleet_ns - HOLD_NS) // S + 1) * S + HOLD_NS
            self._report_probes(uplink, fleet_ns)

    def _sheet(self, uplink: Uplink) -> Sheet:
        counters = self._engine.counters()
        sheet = metrics.new_sheet(self._config.host)
        metrics.put_clock(sheet, self._clock_server, self._pipeline, self._clock.now_ns())
        metrics.put_parts(sheet, self.parts.statuses(time.monotonic_ns()))
        metrics.put_jobs(sheet, self._machine.job_link)
        metrics.put_engine(sheet, counters, self._flows, self._plan_faults)
        metrics.put_nics(sheet, self._pipeline.totals.each())
        metrics.put_paths(sheet, self._steering)
        metrics.put_links(sheet, self._links.ports())
        metrics.put_uplink(sheet, uplink, self._spool, self._shed(counters))
        sheet.put("certificate_expiry_seconds", time_left_ns(self._config.tls) / S)
        return sheet

    def close(self) -> None:
        """Stop probing, reflecting, watching and steering."""
        self._machine.close()

    def _flows_are_due(self) -> bool:
        """Where no job's flow is managed, the controller is told so with the rows of a second: a
        third of its lease."""
        if self._steering.outcomes_are_news():
            return True
        waited_ns = time.monotonic_ns() - self._flows_told_ns
        return waited_ns >= FLOWS_NS and self._steering.has_flows()

    def _tell_flows(self, uplink: Uplink) -> None:
        """Jobs' flows as they are now; their paths are learnt first."""
        now_ns = self._flows_told_ns = time.monotonic_ns()
        self._tracer.follow(self._steering.in_use(), now_ns)
        fleet_ns = self._pipeline.fleet_ns(self._clock.now_ns())
        if fleet_ns is not None:
            report = self._steering.flows(
                self._tracer.hops, fleet_ns, self._newest_delays(fleet_ns)
            )
            uplink.send_flows(report)

    def _paths(self) -> PathsReport:
        link, steering = self._machine.job_link, self._steering
        link.stop(stopped=steering.stopped)
        processes = link.report()
        steering.use(link.paths)
        return msgspec.structs.replace(
            steering.report(), processes=processes, refused=link.refused()
        )

    def _newest_delays(self, fleet_ns: int) -> tuple[ProbeDelay, ...]:
        """Of probes to peers that jobs talk to, over the last second as far as it is known."""
        peers = self._tracer.peers(flow.remote for _, flow in self._steering.in_use())
        if not peers:
            return ()
        self._drain()
        rows = self._pipeline.recent_rows(fleet_ns)
        return () if rows is None else recent_delays(rows, self._config.host, peers, fleet_ns)

    def _drain(self, at_least: int = 0) -> None:
        """Take the engine's records, if there are so many."""
        if self._engine.pending() >= at_least:
            self._pipeline.add(self._engine.drain())

    def _estimate(self, uplink: Uplink, local_ns: int) -> None:
        self._drain()
        self._next_estimate_ns = local_ns + COLD_ESTIMATE_NS
        edges = self._pipeline.edges(local_ns) + self._cross_edges()
        # Also without any: peers may have measured this clock, whose epoch must be known.
        uplink.send_edges(edges, self._utc_readings(), self._epochs())

    def _pause_ns(self) -> int:
        local_ns = self._clock.now_ns()
        now_ns = self._pipeline.fleet_ns(local_ns) or local_ns
        next_ns = min(self._next_second_ns, self._next_probes_ns or self._next_second_ns)
        return max(0, min(TURN_NS, next_ns - now_ns))

    def _take_crossings(self) -> None:
        """Once a second: a window then holds enough of them for an edge."""
        for phc, stamps in self._nics.clocks.values():
            stamp = phc.cross_stamp()
            stamps.add(stamp.sys_ns, stamp.phc_ns, stamp.uncertainty_ns)

    def _cross_edges(self) -> tuple[Edge, ...]:
        return tuple(map(self._pipeline.in_epochs, self._nics.cross_edges()))

    def _utc_readings(self) -> tuple[UtcReading, ...]:
        if self._config.utc != "kernel":
            return ()
        reading = read_kernel_utc(self._clock)
        return () if reading is None else (reading,)

    def _take_messages(self, pause_ns: int) -> list[metrics.Scrape]:
        """Everything that is there; waits for the first for up to `pause_ns`. Returns what is to be
        answered when all of it has been taken."""
        scrapes: list[metrics.Scrape] = []
        wait_s: float | None = pause_ns / S
        while True:
            try:
                message = self.inbox.get(block=wait_s is not None, timeout=wait_s)
            except queue.Empty:
                return scrapes
            wait_s = None
            if isinstance(message, metrics.Scrape):
                scrapes.append(message)
            else:
                take = partial(self._take, message)
                self.parts.run("orders", take, time.monotonic_ns(), always=True)

    def _take(self, message: ControllerMessage | ClockSet) -> None:
        if isinstance(message, Plan):
            self._take_plan(message)
        elif isinstance(message, ProbeKeys):
            self._take_keys(message)
        elif isinstance(message, Timelines):
            self._drain()
            self._pipeline.timelines(message.timelines, message.utc, self._clock.now_ns())
            self._clock_server.take(message.timelines, message.step)
            self._steer(message.timelines)
        elif isinstance(message, Switch | Moves | Paces):
            self._steering.obey(message, self._pipeline.fleet_ns(self._clock.now_ns()))
            self._machine.job_link.stop(stopped=self._steering.stopped)
        elif isinstance(message, AuditOrder):
            self._order(message)
        elif isinstance(message, ClockSet):
            self._was_set = True

    def _order(self, order: AuditOrder) -> None:
        local_ns = self._clock.now_ns()
        if self._audits is not None:
            self._audits.take(order, self._pipeline.fleet_ns(local_ns) or local_ns)

    def _steer(self, timelines: Sequence[Timeline]) -> None:
        """Only the host's own clocks are ever steered: the rest are not in `Discipline`. And only
        by timelines that served time believes: not by those that miss our last adjustment."""
        discipline = self._machine.discipline
        if discipline is None or not self._clock_server.synchronized:
            return
        for line in timelines:
            clocks = self._nics.clocks.values()
            nic = next((phc for phc, cross in clocks if cross.nic == line.node), None)
            local_ns = self._clock.now_ns() if nic is None else nic.now_ns()
            change = discipline.steer(line, local_ns)
            if change is None or line.node != self._config.host:
                continue
            self._clock_server.adjusted(change.rate_ppb, coarse=change.coarse)

    def _take_plan(self, sent: Plan) -> None:
        found = usable(sent, self._nics.numbers, self._config.family)
        if found is None:
            self._plan_faults += 1
            _log.error(
                "plan refused, the one before stays generation=%d reason=a NIC number "
                "cannot be one", sent.generation,
            )  # fmt: skip
            return
        plan, faults = found
        self._log_plan_faults(plan, faults)
        if self._nics.renumber(plan.nic_ids):
            self._cold = True
        cold, self._cold = self._cold, False
        if cold:
            self._pipeline.tell_from(self._clock.now_ns() + PLAN_GRACE_NS)
        grace_ns = COLD_GRACE_NS if cold else PLAN_GRACE_NS
        self._coming = (time.monotonic_ns() + grace_ns, plan)

    def _take_keys(self, sent: ProbeKeys) -> None:
        peers = self._keyring.take(sent)
        if peers is None:
            _log.error("probe keys refused, those before stay reason=they cannot be such")
            return
        self._engine.set_peers(peers)
        if self._uplink is not None:
            self._uplink.send_keys_held(KeysHeld(epochs=sent.epochs, sending=sent.sending))

    def _log_plan_faults(self, plan: Plan, faults: Sequence[str]) -> None:
        self._plan_faults += len(faults)
        for fault in faults[:MAX_FAULTS_LOGGED]:
            _log.warning("flows left out of plan generation=%d %s", plan.generation, fault)

    def _start_flows(self) -> None:
        """Probe by the newest plan, from NICs that are there. Raises `MissingError`: another
        program has a source port; the flows from the others are probed."""
        if self._plan is None:
            return
        there = self._nics.addresses()
        wanted = [flow for flow in self._plan.flows if flow.src in there]
        flows, faults = start_flows(wanted, self._engine.set_flows)
        plan = msgspec.structs.replace(self._plan, flows=flows)
        self._pipeline.plan(plan)
        self._flows = len(flows)
        self._tracer.plan(flows, self._config.probe_port)
        # Flows from a NIC that has gone stay watched: they are dead.
        started = {flow.flow_id for flow in flows}
        watched = [
            flow
            for flow in self._plan.flows
            if flow.flow_id in started or (flow.src not in there and flow.src in self._nics.seen)
        ]
        self._steering.plan(msgspec.structs.replace(plan, flows=tuple(watched)))
        _log.info("plan taken generation=%d flows=%d", plan.generation, len(flows))
        if faults:
            raise MissingError(f"{len(wanted) - len(flows)} of {len(wanted)} flows: {faults[0]}")

    def _report_probes(self, uplink: Uplink, fleet_ns: int) -> None:
        self._drain()
        probes = self._pipeline.probe_rows(fleet_ns)
        self._submit(uplink, PROBE, probes)
        if probes is not None:
            self._tracer.doubt(probes, time.monotonic_ns())

    def _report(self, uplink: Uplink, fleet_ns: int | None) -> None:
        """Rows of the second that has just ended. Without fleet time they are of CLOCK_MONOTONIC,
        and wait."""
        # Two clocks, read together as close as can be.
        local_ns, now_ns = self._clock.now_ns(), time.monotonic_ns()
        if fleet_ns is None:
            submit, offset_ns, second_ns = self._early.keep, 0, now_ns
        else:
            submit = partial(self._submit, uplink)
            offset_ns = (self._pipeline.fleet_ns(local_ns) or fleet_ns) - now_ns
            second_ns = fleet_ns // S * S
            for table, columns in self._early.release(offset_ns):
                submit(table, columns)
        submit(HEARD, self._pipeline.heard_rows(self._engine.heard(), second_ns - S))
        look = partial(self._links.report, now_ns, now_ns + offset_ns)
        links = self.parts.run("link-counters", look, now_ns)
        for table, columns in links.rows if links is not None else ():
            submit(table, columns)
        submit(PATH, self._tracer.rows(now_ns + offset_ns))
        submit(AGENT, agent_row(self._config.host, second_ns - S, self._vitals()))
        submit(PATH_EVENTS, self._steering.rows(offset_ns))

    def _vitals(self) -> dict[str, int]:
        counters = self._engine.counters()
        return {
            "tx": counters.sent + counters.replies,
            "rx": counters.received,
            "rejected": counters.rejected + counters.unsolicited,
            "stalls": counters.stalls,
            "dropped": sum(self._shed(counters).values()) + self._spool.dropped_rows,
        } | own_usage()._asdict()

    def _shed(self, counters: Counters) -> dict[str, int]:
        """Rows that never reached the spool, by where they were shed."""
        return {
            "pipeline": self._pipeline.dropped,
            "ring": counters.ring_dropped,
            "early": self._early.dropped,
        }

    @staticmethod
    def _submit(uplink: Uplink, table: Table, columns: Columns | None) -> None:
        if columns is not None:
            uplink.submit(table.name, len(columns["ts_ns"]), encode_columns(table, columns))


def _clock(config: AgentConfig) -> ClockSource:
    if config.synthetic_clock is not None:
        return SyntheticClock(config.host, config.synthetic_clock)
    return KernelClock(config.host)
