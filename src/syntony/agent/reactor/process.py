"""The reactor: probe engine, jobs' paths and jobs' socket of one host, in a separate process.

It acts on events of the kernel, its probes and jobs' processes. Orders of the controller come
through the telemetry process; the last ones stay in force without that process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from syntony import __version__
from syntony.agent.clock import host_clock
from syntony.agent.config import AgentConfig
from syntony.agent.job_link import JobLink
from syntony.agent.keyring import Keyring
from syntony.agent.nics import ProbedNics
from syntony.agent.parts import Parts
from syntony.agent.plans import start_flows, usable
from syntony.agent.reactor import saved_orders
from syntony.agent.reactor.messages import (
    PROTOCOL,
    Answer,
    Began,
    Begin,
    Drain,
    Failed,
    JobCounts,
    Look,
    Obey,
    Obeyed,
    Probing,
    ProbingQuery,
    ProcessPaces,
    ReactorState,
    ReactorUpdate,
    Records,
    Request,
    StateQuery,
)
from syntony.agent.reactor.server import Server
from syntony.agent.steering.service import PathService
from syntony.agent.verbs import VerbsPlane
from syntony.errors import MissingError
from syntony.io.probe_records import RECORD
from syntony.io.process import own_usage
from syntony.io.run_directory import REACTOR_SOCKET, SOCKET_NAME
from syntony.model import MS, NicRef, S
from syntony.model.names import device_clock
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.policy import FailoverMode
from syntony.wire.failover import ProcessView, Switch
from syntony.wire.messages import NicInfo
from syntony.wire.probes import Plan, ProbeKeys

_log = logging.getLogger(__name__)

PLAN_GRACE_NS = 1 * S
"""A plan's flows begin this long after it has arrived, when every reflector has its keys too: a
probe refused by a peer that does not have the pair's key yet would look like loss."""
COLD_GRACE_NS = 300 * MS
"""A reactor that has just started begins to probe this early, for the clock's sake; losses of these
probes are not reported before the grace period above is over."""
CHECK_NS = 1 * S
"""Interval of checks of the parts."""
JOBS_NS = 500 * MS
"""Interval of reading the reports of jobs' processes."""
TURN_NS = 200 * MS
"""Longest pause: an order to stop is noticed within it."""
MAX_FAULTS_LOGGED = 8
"""Maximum number logged for one plan; further ones are only counted."""


def run_reactor(config: AgentConfig, stop: threading.Event) -> None:
    """Probe, reflect and protect jobs' paths until `stop` is set. Raises `ConfigError`: an address
    or a number is invalid."""
    reactor = Reactor(config)
    try:
        reactor.start()
        _log.info("reactor started host=%s nics=%d", config.host, len(config.nics))
        reactor.run(stop)
    finally:
        reactor.close()


class Reactor:
    """Runs the reactor: the probe engine, path control and the jobs' socket of one host.

    One per host. A separate thread controls paths, and nothing here blocks it.
    """

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._directory = config.socket_dir()
        self._clock = host_clock(config)
        self.parts = Parts()
        self.nics = ProbedNics(config, self._clock)
        self.job_link = JobLink(self._directory / SOCKET_NAME)
        self.steering = PathService(config, self.job_link)
        self.steering.probe_with(self.nics.engine)
        self._server = Server(self._directory / REACTOR_SOCKET, self._answer)
        self._keyring = Keyring()
        self.verbs = VerbsPlane(config, self._clock, self.nics.engine)
        self._saved = saved_orders.SavedOrders()
        self._cold = True
        """No plan has been accepted yet, or it had other numbers."""
        self._coming: tuple[int, Plan] | None = None
        self._plan: Plan | None = None
        self._probed: Plan | None = None
        """With the flows that have started."""
        self._probing = 0
        """Number of changes of these so far."""
        self._report_from_ns = 0
        self._plan_faults = 0
        self._described: tuple[NicInfo, ...] = ()
        self._processes: tuple[ProcessView, ...] = ()
        self._next_check_ns = self._next_jobs_ns = 0
        self._verbs_probing = 0

    def start(self) -> None:
        """Start every part that can start; the others are retried in `run`. Raises `ConfigError`:
        an address or a number is invalid."""
        now_ns = time.monotonic_ns()
        starts: dict[str, Callable[[], None]] = {
            f"nic:{nic.name}": partial(self._attach, nic.name) for nic in self._config.nics
        }
        if self._config.traffic.mode is not FailoverMode.OFF:
            starts |= {"failover": self.steering.start, "join-port": self._check_join_port}
        starts["job-socket"] = self.job_link.start
        starts["probing"] = self._start_flows
        starts["reactor-socket"] = self._server.start
        self.verbs.start()
        for name, start in starts.items():
            self.parts.add(name, start, now_ns)
        self._described = self.nics.describe()
        self.job_link.stop(stopped=self.steering.stopped)
        before = saved_orders.load(self._directory)
        if before.keys is not None:
            self._take_keys(before.keys)
        if before.plan is not None:
            self._take_plan(before.plan)

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set."""
        while not stop.is_set():
            now_ns = time.monotonic_ns()
            if self._coming is not None and now_ns >= self._coming[0]:
                _, self._plan = self._coming
                self._coming = None
                self.parts.restart("probing", now_ns)
            if now_ns >= self._next_check_ns:
                self._next_check_ns = now_ns + CHECK_NS
                self._check(now_ns)
            if now_ns >= self._next_jobs_ns:
                self._next_jobs_ns = now_ns + JOBS_NS
                self.parts.run("job-socket", self._read_job_reports, now_ns)
            self._server.serve(TURN_NS)

    def close(self) -> None:
        """Stop probing, reflecting and steering."""
        self._server.close()
        self.verbs.close()
        self.steering.close()
        self.job_link.close()
        self.nics.close()

    def _check(self, now_ns: int) -> None:
        """Once a second: detect failed parts, retry those that are due."""
        for nic, error in self.nics.gone().items():
            self.nics.detach(nic)
            self.parts.fail(f"nic:{nic}", error, now_ns)
        faults = {
            "join-port": self.steering.listen_fault,
            "job-socket": self.job_link.fault,
            "reactor-socket": self._server.fault,
        }
        self.parts.check(faults, now_ns)
        self.verbs.look(self.nics.addresses(), self.nics.numbers)
        if self.verbs.probing != self._verbs_probing:
            self._verbs_probing = self.verbs.probing
            self._tell_probing()

    def _attach(self, name: str) -> None:
        self.nics.attach(name)
        self._described = self.nics.describe()
        self.steering.nic_appeared(name)
        self.parts.restart("probing", time.monotonic_ns())

    def _check_join_port(self) -> None:
        if self.steering.listen_fault is not None:
            raise self.steering.listen_fault

    def _read_job_reports(self) -> None:
        self._processes = self.job_link.report()
        rails: tuple[ReportedFlow, ...] = ()
        if self._config.traffic.mode is not FailoverMode.OFF:
            nics = {address: name for name, address in self.nics.addresses().items()}
            rails = self.job_link.rates.flows(nics)
        self.steering.use(self.job_link.paths, rails)

    # --- the telemetry process ---

    def _answer(self, request: Request) -> Answer:
        match request:
            case Begin(protocol=protocol, version=version):
                return self._begin(protocol, version)
            case Look(flows=flows):
                return self._look(flows=flows)
            case Drain():
                return Records(records=self.nics.engine.drain().tobytes(), verbs=self.verbs.drain())
            case StateQuery(rows=rows):
                return self._state(rows)
            case ProbingQuery():
                return Probing(
                    number=self._probing, plan=self._probed, tell_from_ns=self._report_from_ns
                )
            case Obey():
                return self._obey(request)

    def _begin(self, protocol: int, version: str) -> Answer:
        if protocol != PROTOCOL:
            return Failed(
                reason=f"the reactor is of version {__version__}, this is {version}: restart both"
            )
        return Began(version=__version__, record_bytes=RECORD.itemsize)

    def _look(self, *, flows: bool) -> ReactorUpdate:
        its = self.steering
        update = ReactorUpdate(
            pending=self.nics.engine.pending() + self.verbs.pending(),
            probing=self._probing,
            outcome=its.newest_outcome(),
            has_flows=bool(its.flows() or its.rails()),
        )
        if not flows:
            return update
        return msgspec.structs.replace(
            update, flows=(*its.flows(), *its.rails()), outcomes=its.outcomes()
        )

    def _state(self, rows: int) -> ReactorState:
        now_ns = time.monotonic_ns()
        link, usage, verbs = self.job_link, own_usage(), self.verbs.status()
        first, waiting = self.steering.rows(rows)
        return ReactorState(
            nics=tuple(
                msgspec.structs.replace(
                    nic,
                    rdma=verbs.layers.get(nic.name, ""),
                    verbs_clock=device_clock(NicRef(self._config.host, nic.name))
                    if nic.name in verbs.clocks
                    else "",
                )
                for nic in self._described
            ),
            clocks=dict(self.nics.clocks),
            parts=(*self.parts.statuses(now_ns), *verbs.parts),
            engine=msgspec.structs.asdict(self.nics.engine.counters()),
            heard=self.nics.engine.heard().tobytes(),
            flows=len(self._probed.flows) if self._probed is not None else 0,
            plan_faults=self._plan_faults,
            unsent=self._server.unsent,
            report=msgspec.structs.replace(
                self.steering.report(), processes=self._processes, refused=link.refused()
            ),
            counters=self.steering.counters,
            rows=waiting,
            first_row=first,
            jobs=JobCounts(
                processes=link.processes,
                connected=link.connected,
                malformed={str(field.value): count for field, count in link.malformed.items()},
                torn=link.torn,
            ),
            cpu_ns=usage.cpu_ns,
            rss_bytes=usage.rss_bytes,
            connections=self._server.connections,
            verbs=verbs.counters,
            verbs_heard=verbs.heard,
            verbs_flows=len(self.verbs.flows),
            verbs_clocks=verbs.clocks,
        )

    def _obey(self, order: Obey) -> Answer:
        message, offset_ns = order.said, order.fleet_minus_monotonic_ns
        fault = ""
        if isinstance(message, Plan):
            fault = self._take_plan(message)
        elif isinstance(message, ProbeKeys):
            fault = self._take_keys(message)
        elif isinstance(message, Switch):
            self.steering.switch(message)
            self.job_link.stop(stopped=self.steering.stopped)
        elif isinstance(message, ProcessPaces):
            self.job_link.pace(dict(message.paces), message.expires_ns)
        else:
            fleet_ns = None if offset_ns is None else time.monotonic_ns() + offset_ns
            self.steering.moves(message, fleet_ns)
        return Failed(reason=fault) if fault else Obeyed()

    def _take_plan(self, sent: Plan) -> str:
        """Accept a plan; returns why not, or an empty string."""
        if sent == self._saved.plan:
            return ""
        found = usable(sent, self.nics.numbers, self._config.family)
        if found is None:
            self._plan_faults += 1
            return "plan refused, the one before stays: a NIC number cannot be one"
        plan, faults = found
        self._log_plan_faults(plan, faults)
        self.verbs.allow_device_stamps(allowed=plan.device_stamps)
        if self.nics.renumber(plan.nic_ids):
            self._cold = True
        cold, self._cold = self._cold, False
        if cold:
            self._report_from_ns = self._clock.now_ns() + PLAN_GRACE_NS
        self._coming = (time.monotonic_ns() + (COLD_GRACE_NS if cold else PLAN_GRACE_NS), plan)
        self._keep(msgspec.structs.replace(self._saved, plan=sent))
        return ""

    def _take_keys(self, sent: ProbeKeys) -> str:
        """Accept keys; returns why not, or an empty string."""
        sent = msgspec.structs.replace(sent, number=0)
        if sent == self._saved.keys:
            return ""
        peers = self._keyring.take(sent)
        if peers is None:
            return "probe keys refused, those before stay: they cannot be such"
        self.nics.engine.set_peers(peers)
        self.verbs.set_peers(peers)
        self._keep(msgspec.structs.replace(self._saved, keys=sent))
        return ""

    def _keep(self, now: saved_orders.SavedOrders) -> None:
        self._saved = now
        saved_orders.save(self._directory, now)

    def _tell_probing(self) -> None:
        """Report that the set of probed flows has changed, by the same plan or another."""
        if self._probed is not None:
            self._probed = msgspec.structs.replace(self._probed, verbs=self.verbs.flows)
            self._probing += 1

    def _log_plan_faults(self, plan: Plan, faults: Sequence[str]) -> None:
        self._plan_faults += len(faults)
        for fault in faults[:MAX_FAULTS_LOGGED]:
            _log.warning("flows of the plan skipped generation=%d %s", plan.generation, fault)

    def _start_flows(self) -> None:
        """Probe by the newest plan, from NICs that are present. Raises `MissingError`: another
        program has a source port; the flows from the others are probed."""
        if self._plan is None:
            return
        there = self.nics.addresses()
        wanted = [flow for flow in self._plan.flows if flow.src in there]
        flows, faults = start_flows(wanted, self.nics.engine.set_flows)
        self._probed = msgspec.structs.replace(self._plan, flows=flows)
        self.verbs.plan(self._plan.verbs)
        self._tell_probing()
        # Flows from a NIC that has gone stay watched: they are dead.
        started = {flow.flow_id for flow in flows}
        watched = tuple(
            flow
            for flow in self._plan.flows
            if flow.flow_id in started or (flow.src not in there and flow.src in self.nics.seen)
        )
        self.steering.plan(msgspec.structs.replace(self._plan, flows=watched))
        _log.info("plan applied generation=%d flows=%d", self._plan.generation, len(flows))
        if faults:
            raise MissingError(f"{len(wanted) - len(flows)} of {len(wanted)} flows: {faults[0]}")
