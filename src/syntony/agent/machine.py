"""What an agent works with on its host: NICs, sockets, files, clocks, each a supervised part."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from syntony.agent import metrics
from syntony.agent.clock_server import ClockServer
from syntony.agent.config import AgentConfig, DisciplineConfig
from syntony.agent.discipline import Discipline
from syntony.agent.job_link import JobLink
from syntony.agent.links import LinkWatch, Overheard
from syntony.agent.nics import ProbedNics
from syntony.agent.parts import Parts
from syntony.agent.paths import PathTracer
from syntony.agent.spool import Spool
from syntony.agent.steering.service import PathService
from syntony.errors import MissingError
from syntony.io.clocks import ClockSource
from syntony.io.run_directory import SOCKET_NAME
from syntony.io.scrape import ScrapeServer, ServerTls
from syntony.traffic.policy import Mode, Policy
from syntony.wire.enrol import Revocations
from syntony.wire.messages import NicInfo


class Machine:
    """One per agent, of its loop. What cannot be had now is had later: see `parts`.

    Args:
        config: what there should be.
        spool: of measurements, not open yet.
        clock: of the host.
        answer_scrape: takes a scraper's question, from its thread.
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
        self.nics = ProbedNics(config, clock)
        self.links = LinkWatch(config.host, frozenset(nic.name for nic in config.nics))
        self.tracer = PathTracer(
            config.host, spare_ports=_spare_ports(config.traffic), join_port=config.traffic.port
        )
        self.job_link = JobLink(Path(config.clock.dir) / SOCKET_NAME)
        self.steering = PathService(config, lambda: Overheard(self.links.heard), self.job_link)
        self.steering.probe_with(self.nics.engine)
        self.discipline: Discipline | None = None
        self._scraping: ScrapeServer | None = None
        self.revocations = Revocations()
        """Certificates that ``/metrics`` is not served to; replaced as a whole."""
        self.described: tuple[NicInfo, ...] = ()
        """The NICs as the controller should know them."""
        self.stream_changed: Callable[[], None] = _nothing
        """Called where the hello would not be what it was."""

    def start(self, start_flows: Callable[[], None]) -> None:
        """Start every part that can be.

        Args:
            start_flows: probes by the newest plan; also called when a NIC has come.

        Raises:
            ConfigError: an address or a number is not as it must be, or another agent uses the
                spool.
        """
        config, now_ns = self._config, time.monotonic_ns()
        starts: dict[str, Callable[[], None]] = {
            "spool": self._open_spool,
            "clock-page": self.clock_server.open,
            **{f"nic:{nic.name}": partial(self._attach, nic.name) for nic in config.nics},
        }
        if config.traffic.mode is not Mode.OFF:
            starts |= {"failover": self._start_failover, "join-port": self._check_join_port}
        starts["job-socket"] = self.job_link.start
        starts["link-events"] = self._listen_to_links
        if config.family == "ipv4":
            starts["path-tracing"] = self._trace_paths
        if config.discipline != DisciplineConfig():
            starts["clock-discipline"] = self._start_discipline
        if config.metrics.listen:
            starts["metrics"] = self._serve_metrics
        starts["probing"] = start_flows
        for name in ("link-counters", "orders", "reports"):
            starts[name] = _nothing
        for name, start in starts.items():
            self.parts.add(name, start, now_ns)
        self._describe()

    def check(self, now_ns: int) -> None:
        """Once a second: find what has failed, try again what is due."""
        for nic, error in self.nics.gone().items():
            self.nics.detach(nic)
            self.parts.fail(f"nic:{nic}", error, now_ns)
        spool = MissingError(self.spool.fault) if self.spool.fault else None
        for name, fault in (
            ("link-events", self.links.fault),
            ("path-tracing", self.tracer.fault),
            ("clock-page", self.clock_server.fault),
            ("join-port", self.steering.listen_fault),
            ("job-socket", self.job_link.fault),
            ("spool", spool),
        ):
            if fault is not None and self.parts.is_running(name):
                self.parts.fail(name, fault, now_ns)
        self.parts.retry(now_ns)

    def close(self) -> None:
        """Stop probing, reflecting, watching and steering."""
        if self._scraping is not None:
            self._scraping.close()
        self.steering.close()
        self.job_link.close()
        self.tracer.close()
        self.nics.close()
        self.links.close()
        self.clock_server.close()
        if self.discipline is not None:
            self.discipline.close()

    def _attach(self, name: str) -> None:
        self.nics.attach(name)
        now_ns = time.monotonic_ns()
        self._describe()
        self.steering.nic_came(name)
        self.parts.restart("path-tracing", now_ns)
        self.parts.restart("probing", now_ns)
        if name in self.nics.clocks:
            self.parts.restart("clock-discipline", now_ns)

    def _describe(self) -> None:
        """A NIC that goes keeps its place in the plan: peers see it dead, and it is missed."""
        described = self.nics.describe()
        if described != self.described:
            self.described = described
            self.stream_changed()

    def _open_spool(self) -> None:
        before = self.spool.stream
        self.spool.open()
        if self.spool.stream != before:
            self.stream_changed()
        if self.spool.fault:
            raise MissingError(self.spool.fault)

    def _start_failover(self) -> None:
        self.steering.start()
        # Carriers are heard by path control from now on.
        self.parts.restart("link-events", time.monotonic_ns())

    def _check_join_port(self) -> None:
        if self.steering.listen_fault is not None:
            raise self.steering.listen_fault

    def _listen_to_links(self) -> None:
        self.links.start(carriers=self.steering.control is None)

    def _trace_paths(self) -> None:
        self.tracer.start(self.nics.addresses())

    def _start_discipline(self) -> None:
        if self.discipline is not None:
            self.discipline.close()
        self.discipline = None
        paths = {stamps.nic: phc.path for phc, stamps in self.nics.clocks.values()}
        self.discipline = Discipline(self._config.discipline, self._clock, paths)

    def _serve_metrics(self) -> None:
        wanted, files = self._config.metrics, self._config.tls
        tls = ServerTls(files.ca, files.cert, files.key, wanted.clients) if wanted.tls else None
        page = partial(metrics.page, self._answer_scrape)
        self._scraping = ScrapeServer(wanted.listen, page, tls)
        self._scraping.revocations = lambda: self.revocations


def _nothing() -> None:
    """For parts that are but steps of the loop: there is nothing to start."""


def _spare_ports(policy: Policy) -> range:
    """None where no job may be moved: then nobody needs to know."""
    count = policy.spare_ports if policy.place and policy.mode is not Mode.OFF else 0
    return range(policy.port_low, min(policy.port_low + count, policy.port_high + 1))
