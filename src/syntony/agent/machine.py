"""The telemetry process's resources on its host: files, clocks, sockets, the reactor, each a
supervised part."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from syntony.agent import metrics
from syntony.agent.clock_server import ClockServer
from syntony.agent.config import AgentConfig, DisciplineConfig
from syntony.agent.discipline import Discipline
from syntony.agent.gpus import GpuTelemetry
from syntony.agent.links import LinkWatch
from syntony.agent.nic_clocks import NicClocks
from syntony.agent.operations import JobTelemetry
from syntony.agent.parts import MAX_BACKOFF_NS, Parts
from syntony.agent.paths import PathTracer
from syntony.agent.queue_pairs import FleetOffset, QueuePairSocket
from syntony.agent.reactor.link import RETRY_NS, ReactorLink
from syntony.agent.segments import HostClockState, SegmentSampler
from syntony.agent.spool import Spool
from syntony.errors import MissingError
from syntony.io.clocks import ClockSource
from syntony.io.gpu_process import GpuProcess
from syntony.io.interfaces import addresses
from syntony.io.run_directory import QUEUE_PAIR_SOCKET
from syntony.io.scrape import ScrapeServer, ServerTls
from syntony.io.trace_packets import is_ipv6
from syntony.mesh.stats import Columns
from syntony.model import ClockState, Timeline
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.policy import FailoverMode, Policy
from syntony.wire.enrol import Revocations
from syntony.wire.messages import NicInfo
from syntony.wire.parts import PartStatus
from syntony.wire.queue_pairs import QueuePairsReport
from syntony.wire.segments import SegmentsReport
from syntony.wire.tables import GPU, Table


class Machine:
    """Opens the telemetry process's files, clocks and sockets, and keeps them open.

    One per agent, used by its loop. What is unavailable now is retried: see `parts`.

    Args:
        spool: of measurements, not open yet.
        answer_scrape: handles a scraper's request, in its thread.
    """

    def __init__(
        self,
        config: AgentConfig,
        spool: Spool,
        clock: ClockSource,
        answer_scrape: Callable[[metrics.Scrape], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._answer_scrape = answer_scrape
        self.parts = Parts()
        self.spool = spool
        self.clock_server = ClockServer(config.clock, clock)
        self.reactor = ReactorLink(config.socket_dir())
        self.nic_clocks = NicClocks(config.host)
        self.links = LinkWatch(config.host, frozenset(nic.name for nic in config.nics))
        self.tracer = PathTracer(
            config.host, spare_ports=_spare_ports(config.traffic), join_port=config.traffic.port
        )
        self.queue_pairs = QueuePairSocket(config.socket_dir() / QUEUE_PAIR_SOCKET)
        self.jobs = JobTelemetry(config.host, config.socket_dir())
        self.gpus = GpuTelemetry(config.host, GpuProcess())
        self.segments = SegmentSampler(clock)
        self.discipline: Discipline | None = None
        self._scraping: ScrapeServer | None = None
        self.revocations = Revocations()
        """Certificates to which ``/metrics`` is not served; replaced as a whole."""
        self.described: tuple[NicInfo, ...] = ()
        """Description of the NICs for the controller."""
        self.stream_changed: Callable[[], None] = _nothing
        """Called when the contents of the hello change."""

    def start(self) -> None:
        """Start every part that can start. Raises `ConfigError`: an address or a number is invalid,
        or another agent uses the spool."""
        config = self._config
        self.reactor.await_socket()
        now_ns = time.monotonic_ns()
        starts: dict[str, Callable[[], None]] = {
            "spool": self._open_spool,
            "clock-page": self.clock_server.open,
            "reactor": self._reach_reactor,
            "link-events": self.links.start,
            "path-tracing": self._trace_paths,
            "queue-pair-socket": self.queue_pairs.start,
            "operations-socket": self.jobs.socket.start,
            "nccl-socket": self.jobs.nccl.start,
            "takeover-socket": self.jobs.takeovers.start,
        }
        if config.sample_segments:
            starts["segment-sampling"] = self.segments.start
        if config.discipline != DisciplineConfig():
            starts["clock-discipline"] = self._start_discipline
        if config.metrics.listen:
            starts["metrics"] = self._serve_metrics
        for name in ("link-counters", "orders", "reports", "jobs"):
            starts[name] = _nothing
        for name, start in starts.items():
            self.parts.add(name, start, now_ns, RETRY_NS if name == "reactor" else MAX_BACKOFF_NS)
        self.describe()

    def steer(self, timelines: Sequence[Timeline]) -> None:
        """Steer the host's own clocks; others are not in `Discipline`. Only timelines that served
        time accepts are used, not those that miss our last adjustment."""
        if self.discipline is None or not self.clock_server.synchronized:
            return
        for line in timelines:
            nic = self.nic_clocks.get(line.node)
            local_ns = self._clock.now_ns() if nic is None else nic.now_ns()
            change = self.discipline.steer(line, local_ns)
            if change is None or line.node != self._config.host:
                continue
            self.clock_server.adjusted(change.rate_ppb, coarse=change.coarse)

    def check(self, now_ns: int) -> None:
        """Once a second: detect failed parts, retry those that are due."""
        spool = MissingError(self.spool.fault) if self.spool.fault else None
        faults = {
            "link-events": self.links.fault,
            "path-tracing": self.tracer.fault,
            "clock-page": self.clock_server.fault,
            "reactor": self.reactor.fault,
            "queue-pair-socket": self.queue_pairs.fault,
            "operations-socket": self.jobs.socket.fault,
            "nccl-socket": self.jobs.nccl.fault,
            "takeover-socket": self.jobs.takeovers.fault,
            "spool": spool,
        }
        self.parts.check(faults, now_ns)
        if (
            not self.parts.has("gpus")
            and self._config.read_gpus
            and self.gpus.process.is_possible()
        ):
            self.parts.add("gpus", self.gpus.process.start, now_ns)

    def reported_by_jobs(
        self, offset: Callable[[], FleetOffset | None], now_ns: int
    ) -> tuple[QueuePairsReport | None, list[tuple[Table, Columns]]]:
        """Reports of jobs' processes and GPUs other than flows: queue pairs, and rows; once a
        second.

        Args:
            offset: reads the clocks; None: there is no fleet time.
            now_ns: CLOCK_MONOTONIC.
        """
        tell = partial(self.queue_pairs.report, offset)
        rows = self.parts.run("jobs", partial(self.jobs.rows, offset), now_ns) or []
        of_gpus = partial(self.gpus.rows, offset(), self.jobs.members)
        if self.parts.has("gpus") and (found := self.parts.run("gpus", of_gpus, now_ns)):
            rows.append((GPU, found))
        return self.parts.run("queue-pair-socket", tell, now_ns), rows

    def segments_passed(
        self, flows: Sequence[ReportedFlow], line: Timeline | None
    ) -> SegmentsReport | None:
        """When sampled bytes of jobs' flows passed the NICs; once a second."""
        served, server = self.clock_server.served(), self.clock_server
        clock = HostClockState(
            line,
            ClockState.UNKNOWN if served is None else served.state,
            (server.epoch, 0 if served is None else served.steps),
            server.step,
        )
        make = partial(self.segments.report, flows, clock)
        return self.parts.run("segment-sampling", make, time.monotonic_ns())

    def close(self) -> None:
        """Stop watching, tracing and serving; the reactor continues."""
        if self._scraping is not None:
            self._scraping.close()
        self.tracer.close()
        self.reactor.close()
        self.nic_clocks.close()
        self.links.close()
        self.queue_pairs.close()
        self.segments.close()
        self.jobs.close()
        self.gpus.process.close()
        self.clock_server.close()
        if self.discipline is not None:
            self.discipline.close()

    def statuses(self, now_ns: int) -> tuple[PartStatus, ...]:
        """State of all parts of the agent; unknown for a reactor that does not answer."""
        state = self.reactor.state
        return (*(state.parts if state is not None else ()), *self.parts.statuses(now_ns))

    def describe(self) -> None:
        """The NICs as last reported by the reactor; and their clocks."""
        state, now_ns = self.reactor.state, time.monotonic_ns()
        if state is not None:
            described = state.nics
            if self.nic_clocks.keep(state.clocks):
                self.parts.restart("clock-discipline", now_ns)
        else:
            described = self.described or self._undescribed()
        if described != self.described:
            self.described = described
            self.stream_changed()
            self.parts.restart("path-tracing", now_ns)

    def _undescribed(self) -> tuple[NicInfo, ...]:
        return tuple(
            NicInfo(
                name=nic.name,
                rail=nic.rail,
                addresses=_addresses(nic.name),
                clock=self._config.host,
                stamping="not attached",
                port=self._config.probe_port,
            )
            for nic in self._config.nics
        )

    def _reach_reactor(self) -> None:
        self.reactor.start()
        self.describe()

    def _open_spool(self) -> None:
        before = self.spool.stream
        self.spool.open()
        if self.spool.stream != before:
            self.stream_changed()
        if self.spool.fault:
            raise MissingError(self.spool.fault)

    def _trace_paths(self) -> None:
        ipv6 = self._config.family == "ipv6"
        probed = {
            nic.name: next((each for each in nic.addresses if is_ipv6(each) is ipv6), "")
            for nic in self.described
        }
        self.tracer.start({nic: address for nic, address in probed.items() if address})

    def _start_discipline(self) -> None:
        if self.discipline is not None:
            self.discipline.close()
        self.discipline = None
        self.discipline = Discipline(self._config.discipline, self._clock, self.nic_clocks.paths())

    def _serve_metrics(self) -> None:
        settings = self._config.metrics
        tls = ServerTls(self._config.tls, settings.clients) if settings.tls else None
        page = partial(metrics.page, self._answer_scrape)
        self._scraping = ScrapeServer(settings.listen, page, tls)
        self._scraping.revocations = lambda: self.revocations


def _nothing() -> None:
    """For parts that are only steps of the loop: there is nothing to start."""


def _addresses(nic: str) -> tuple[str, ...]:
    """None: the interface is missing."""
    with suppress(MissingError):
        return tuple(addresses(nic))
    return ()


def _spare_ports(policy: Policy) -> range:
    """None if no job may be moved: then they are not needed."""
    count = policy.spare_ports if policy.place and policy.mode is not FailoverMode.OFF else 0
    return range(policy.port_low, min(policy.port_low + count, policy.port_high + 1))
