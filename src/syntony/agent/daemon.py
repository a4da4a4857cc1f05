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
from syntony.agent.clock_server import ClockServer
from syntony.agent.config import AgentConfig
from syntony.agent.delays import recent_delays
from syntony.agent.discipline import Discipline
from syntony.agent.links import LinkWatch, Overheard
from syntony.agent.paths import PathTracer
from syntony.agent.pipeline import Pipeline, agent_row
from syntony.agent.plans import start_flows, usable
from syntony.agent.spool import Spool
from syntony.agent.steering.service import PathService
from syntony.agent.uplink import Uplink
from syntony.clock.cross import CrossStamps
from syntony.errors import MissingError
from syntony.io.clocks import ClockSource, KernelClock, SyntheticClock
from syntony.io.interfaces import address, addresses
from syntony.io.kernel_utc import read_kernel_utc
from syntony.io.phc import Phc
from syntony.io.probe import ProbeEngine, ProbeNic
from syntony.io.process import name_thread, own_usage
from syntony.io.scrape import ScrapeServer, ServerTls, serve
from syntony.io.window_fit import fit_window
from syntony.mesh.stats import HOLD_NS, Columns
from syntony.metrics.sheet import Sheet
from syntony.model import MS, Edge, NicRef, S, Timeline, UtcReading
from syntony.model.names import nic_number
from syntony.traffic.policy import Mode, Policy
from syntony.wire.arrow import encode_columns
from syntony.wire.audit import AuditOrder
from syntony.wire.clocks import Timelines
from syntony.wire.failover import Switch
from syntony.wire.messages import PROTOCOL, ControllerMessage, Hello, NicInfo, Refuse
from syntony.wire.probes import Plan
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
RING_RECORDS = 1 << 13
"""Two seconds of a mesh of 4,000 probes a second, 0.6 MB."""
DRAIN_RECORDS = RING_RECORDS // 8
"""Records are taken from the ring when they are needed, or when there are so many."""
PLAN_GRACE_NS = 1 * S
"""A plan's flows begin this long after its key is known, when every reflector knows it too: a probe
refused by a peer that has not heard of the key yet would look like loss."""
PLAN_RETRY_NS = 10 * S
"""Flows that the host refuses, for example a source port in use, are tried again so often."""
MAX_FAULTS_LOGGED = 8
"""Of one plan; the rest is only counted."""
COLD_GRACE_NS = 300 * MS
"""An agent that has just started begins to probe this early, for its clock's sake; what these
probes say of loss is not told before the grace above is over."""


def run_agent(config: AgentConfig, stop: threading.Event) -> None:
    """Probe and report until `stop` is set.

    Raises:
        SyntonyError: a NIC, an address, a port, a certificate or the spool is not as configured.
    """
    spool = Spool(Path(config.spool_dir), config.spool_bytes)
    agent = Agent(config, spool)
    try:
        with Uplink(config, agent.hello, agent.inbox.put, spool) as uplink:
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
        self._spool = spool
        self._clock = _clock(config)
        self._clock_server = ClockServer(config.clock, self._clock)
        self._pipeline = Pipeline(config.host, fit_window)
        self._key: tuple[int, bytes] | None = None
        self._next_second_ns = 0
        self._next_probes_ns = 0
        """Fleet time at which a second of probing is closed next, everywhere at once."""
        self._coming: tuple[int, Plan] | None = None
        self._flows = 0
        self._plan_faults = 0
        """Plans and flows of plans that could not be taken."""
        self._next_estimate_ns = self._flows_told_ns = 0
        self._engine = self._open_engine(
            {nic.name: nic_number(NicRef(config.host, nic.name)) for nic in config.nics}
        )
        self._nics = self._describe_nics()
        self._crossings = self._open_crossings()
        self._links = LinkWatch(config.host, frozenset(nic.name for nic in config.nics))
        self._tracer = PathTracer(
            config.host,
            self._traced(),
            spare_ports=_spare_ports(config.traffic),
            join_port=config.traffic.port,
        )
        self._discipline = Discipline(
            config.discipline, self._clock, {cross.nic: phc.path for phc, cross in self._crossings}
        )
        self._steering = PathService(config, [Overheard(self._links.heard)])
        self._steering.probe_with(self._engine)
        self.inbox: queue.SimpleQueue[ControllerMessage | metrics.Scrape | ClockSet] = (
            queue.SimpleQueue()
        )
        self._pipeline.begin_epoch(self._clock_server.epoch)
        self._was_set = False
        self._scraping = self._open_metrics()
        self._audits: AuditService | None = None

    def hello(self, stream: str) -> Hello:
        """First message of a stream to the controller."""
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            host=self._config.host,
            nics=self._nics,
            stream=stream,
        )

    def run(self, uplink: Uplink, stop: threading.Event) -> None:
        """Until `stop` is set."""
        self._links.start(carriers=self._steering.control is None)
        threading.Thread(target=self._watch_clock, args=(stop,), name="clock", daemon=True).start()
        config = self._config
        self._audits = AuditService(
            config.host, config.audit.mode, config.clock.dir, uplink.send_audit
        )
        while not stop.is_set():
            for scrape in self._take_messages(self._pause_ns()):
                scrape.answer.put(self._sheet(uplink))
            self._check_clock(uplink)
            self._begin_plan()
            self._steering.pace()
            if self._flows_are_due():
                self._tell_flows(uplink)
            with uplink.together():
                self._report_due(uplink)

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
        for _, stamps in self._crossings:
            stamps.forget()
        uplink.send_edges((), (), self._epochs())

    def _epochs(self) -> dict[str, int]:
        return {self._config.host: self._clock_server.epoch}

    def _report_due(self, uplink: Uplink) -> None:
        """Everything that is told second by second, as far as it is due."""
        self._drain(DRAIN_RECORDS)
        local_ns = self._clock.now_ns()
        fleet_ns = self._pipeline.fleet_ns(local_ns)
        now_ns = local_ns if fleet_ns is None else fleet_ns
        if now_ns >= self._next_second_ns:
            self._next_second_ns = (now_ns // S + 1) * S
            self._take_crossings()
            self._discipline.feed_chrony(self._clock_server.served(), local_ns)
            if self._next_second_ns // S % ESTIMATE_SECONDS == 0:
                self._estimate(uplink, local_ns)
            if self._next_second_ns // S % PATHS_SECONDS == 0:
                uplink.send_paths(self._steering.report())
            if not self._steering.has_flows():
                self._tell_flows(uplink)
            if fleet_ns is not None:
                self._report(uplink, fleet_ns)
        elif not self._clock_server.synchronized and local_ns >= self._next_estimate_ns:
            self._estimate(uplink, local_ns)
        if fleet_ns is not None and fleet_ns >= self._next_probes_ns:
            self._next_probes_ns = ((fleet_ns - HOLD_NS) // S + 1) * S + HOLD_NS
            self._report_probes(uplink, fleet_ns)

    def _open_metrics(self) -> ScrapeServer | None:
        wanted, files = self._config.metrics, self._config.tls
        if not wanted.listen:
            return None
        tls = ServerTls(files.ca, files.cert, files.key, wanted.clients) if wanted.tls else None
        return serve(wanted.listen, partial(metrics.page, self.inbox.put), tls)

    def _sheet(self, uplink: Uplink) -> Sheet:
        counters = self._engine.counters()
        sheet = metrics.new_sheet(self._config.host)
        metrics.put_clock(sheet, self._clock_server, self._pipeline, self._clock.now_ns())
        metrics.put_engine(sheet, counters, self._flows, self._plan_faults)
        metrics.put_nics(sheet, self._pipeline.totals.each())
        metrics.put_paths(sheet, self._steering)
        metrics.put_links(sheet, self._links.ports())
        shed = {"pipeline": self._pipeline.dropped, "ring": counters.ring_dropped}
        metrics.put_uplink(sheet, uplink, self._spool, shed)
        return sheet

    def close(self) -> None:
        """Stop probing, reflecting, watching and steering."""
        if self._scraping is not None:
            self._scraping.close()
        self._steering.close()
        self._tracer.close()
        self._engine.close()
        self._links.close()
        self._clock_server.close()
        self._discipline.close()
        for phc, _ in self._crossings:
            phc.close()

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

    def _open_engine(self, nic_ids: dict[str, int]) -> ProbeEngine:
        self._nic_ids = nic_ids
        nics = [
            ProbeNic(
                name=nic.name,
                nic_id=nic_ids[nic.name],
                address=address(nic.name, self._config.family),
                port=self._config.probe_port,
                stamping=nic.stamping,
            )
            for nic in self._config.nics
        ]
        engine = ProbeEngine(nics, self._clock, ring_records=RING_RECORDS)
        engine.start()
        return engine

    def _describe_nics(self) -> tuple[NicInfo, ...]:
        status = {nic.name: nic for nic in self._engine.nic_status()}
        host = self._config.host
        return tuple(
            NicInfo(
                name=nic.name,
                rail=nic.rail,
                addresses=self._addresses(nic.name),
                clock=f"{host}/{nic.name}" if status[nic.name].stamping == "hardware" else host,
                stamping=status[nic.name].reason,
                port=self._config.probe_port,
            )
            for nic in self._config.nics
        )

    def _addresses(self, name: str) -> tuple[str, ...]:
        """The one that is probed first, as the controller expects."""
        probed = address(name, self._config.family)
        return (probed, *(other for other in addresses(name) if other != probed))

    def _traced(self) -> dict[str, str]:
        """Addresses whose paths can be learnt: IPv4 only."""
        if self._config.family != "ipv4":
            return {}
        return {nic.name: nic.addresses[0] for nic in self._nics}

    def _open_crossings(self) -> list[tuple[Phc, CrossStamps]]:
        return [
            (Phc(nic.phc_index), CrossStamps(self._config.host, f"{self._config.host}/{nic.name}"))
            for nic in self._engine.nic_status()
            if nic.stamping == "hardware" and nic.phc_index is not None
        ]

    def _take_crossings(self) -> None:
        """Once a second: a window then holds enough of them for an edge."""
        for phc, stamps in self._crossings:
            stamp = phc.cross_stamp()
            stamps.add(stamp.sys_ns, stamp.phc_ns, stamp.uncertainty_ns)

    def _cross_edges(self) -> tuple[Edge, ...]:
        edges = [stamps.edge() for _, stamps in self._crossings]
        return tuple(self._pipeline.in_epochs(edge) for edge in edges if edge is not None)

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
            if isinstance(message, Plan):
                self._take_plan(message)
            elif isinstance(message, Timelines):
                self._pipeline.timelines(message.timelines, message.utc)
                self._clock_server.take(message.timelines, message.step)
                self._steer(message.timelines)
            elif isinstance(message, Switch | Moves | Paces):
                self._steering.obey(message, self._pipeline.fleet_ns(self._clock.now_ns()))
            elif isinstance(message, AuditOrder):
                self._order(message)
            elif isinstance(message, Refuse):
                _log.error("controller refuses this agent reason=%s", message.reason)
            elif isinstance(message, metrics.Scrape):
                scrapes.append(message)
            elif isinstance(message, ClockSet):
                self._was_set = True

    def _order(self, order: AuditOrder) -> None:
        local_ns = self._clock.now_ns()
        if self._audits is not None:
            self._audits.take(order, self._pipeline.fleet_ns(local_ns) or local_ns)

    def _steer(self, timelines: Sequence[Timeline]) -> None:
        """Only the host's own clocks are ever steered: the rest are not in `Discipline`. And only
        by timelines that served time believes: not by those that miss our last adjustment."""
        if not self._clock_server.synchronized:
            return
        for line in timelines:
            nic = next((phc for phc, cross in self._crossings if cross.nic == line.node), None)
            local_ns = self._clock.now_ns() if nic is None else nic.now_ns()
            change = self._discipline.steer(line, local_ns)
            if change is None or line.node != self._config.host:
                continue
            self._clock_server.adjusted(change.rate_ppb, coarse=change.coarse)

    def _take_plan(self, sent: Plan) -> None:
        found = usable(sent, self._nic_ids, self._config.family)
        if found is None:
            self._plan_faults += 1
            _log.error(
                "plan refused, the one before stays generation=%d reason=its key or a NIC number "
                "cannot be one", sent.generation,
            )  # fmt: skip
            return
        plan, faults = found
        self._log_plan_faults(plan, faults)
        if any(plan.nic_ids.get(name, number) != number for name, number in self._nic_ids.items()):
            self._steering.probe_with(None)
            self._engine.close()
            self._engine = self._open_engine(self._nic_ids | plan.nic_ids)
            self._steering.probe_with(self._engine)
            self._key = None
        key = (plan.key_id, plan.key)
        cold = self._key is None
        if key != self._key:
            self._engine.set_keys(key, previous=self._key)
            self._key = key
        if cold:
            self._pipeline.tell_from(self._clock.now_ns() + PLAN_GRACE_NS)
        grace_ns = COLD_GRACE_NS if cold else PLAN_GRACE_NS
        self._coming = (time.monotonic_ns() + grace_ns, plan)

    def _log_plan_faults(self, plan: Plan, faults: Sequence[str]) -> None:
        self._plan_faults += len(faults)
        for fault in faults[:MAX_FAULTS_LOGGED]:
            _log.warning("flows left out of plan generation=%d %s", plan.generation, fault)

    def _begin_plan(self) -> None:
        if self._coming is None or time.monotonic_ns() < self._coming[0]:
            return
        _, whole = self._coming
        flows, faults = start_flows(whole.flows, self._engine.set_flows)
        self._log_plan_faults(whole, faults)
        retry_ns = time.monotonic_ns() + PLAN_RETRY_NS
        self._coming = (retry_ns, whole) if faults else None
        plan = msgspec.structs.replace(whole, flows=flows)
        self._pipeline.plan(plan)
        self._flows = len(flows)
        self._tracer.plan(plan.flows, self._config.probe_port)
        self._steering.plan(plan)
        _log.info("plan taken generation=%d flows=%d", plan.generation, len(plan.flows))

    def _report_probes(self, uplink: Uplink, fleet_ns: int) -> None:
        self._drain()
        probes = self._pipeline.probe_rows(fleet_ns)
        self._submit(uplink, PROBE, probes)
        if probes is not None:
            self._tracer.doubt(probes, time.monotonic_ns())

    def _report(self, uplink: Uplink, fleet_ns: int) -> None:
        second_ns = fleet_ns // S * S
        heard = self._pipeline.heard_rows(self._engine.heard(), second_ns - S)
        self._submit(uplink, HEARD, heard)
        for table, columns in self._links.report(time.monotonic_ns(), fleet_ns).rows:
            self._submit(uplink, table, columns)
        self._submit(uplink, PATH, self._tracer.rows(fleet_ns))
        self._submit(uplink, AGENT, agent_row(self._config.host, second_ns - S, self._vitals()))

        # Instants of the path thread are of another clock: read together, as close as can be.
        offset_ns = (
            self._pipeline.fleet_ns(self._clock.now_ns()) or fleet_ns
        ) - time.monotonic_ns()
        self._submit(uplink, PATH_EVENTS, self._steering.rows(offset_ns))

    def _vitals(self) -> dict[str, int]:
        counters = self._engine.counters()
        return {
            "tx": counters.sent + counters.replies,
            "rx": counters.received,
            "rejected": counters.rejected + counters.unsolicited,
            "stalls": counters.stalls,
            "dropped": self._pipeline.dropped + counters.ring_dropped + self._spool.dropped_rows,
        } | own_usage()._asdict()

    @staticmethod
    def _submit(uplink: Uplink, table: Table, columns: Columns | None) -> None:
        if columns is not None:
            uplink.submit(table.name, len(columns["ts_ns"]), encode_columns(table, columns))


def _spare_ports(policy: Policy) -> range:
    """None where no job may be moved: then nobody needs to know."""
    count = policy.spare_ports if policy.place and policy.mode is not Mode.OFF else 0
    return range(policy.port_low, min(policy.port_low + count, policy.port_high + 1))


def _clock(config: AgentConfig) -> ClockSource:
    if config.synthetic_clock is not None:
        return SyntheticClock(config.host, config.synthetic_clock)
    return KernelClock(config.host)
