"""Hosts with two NICs or more whose processes send by queue pairs: real agents' logic and orders.

Not real: processes (as the NCCL plug-in: they stripe over the rails that they may use, by how fast
each is), links, probes, the wire. Every step is a quarter of a second.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from syntony.agent.steering.orders import flows_report, order_of
from syntony.agent.steering.view import View
from syntony.controller.config import PlacementConfig, PlacementMode
from syntony.controller.flow_delays import DelaySecond, ProbeSecond
from syntony.controller.placing import PlacementService
from syntony.fabric.graph import Cable, Device, Topology, make_topology
from syntony.fabric.names import ComponentKind
from syntony.model import MS, US, S
from syntony.model.paths import FourTuple, LinkEvent
from syntony.traffic.failover import Failover
from syntony.traffic.fair import max_min
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.instructions import Avoid, Instruction, Notice
from syntony.traffic.pairs import LocalNic
from syntony.traffic.policy import FailoverMode, Policy
from syntony.wire.traffic import FlowsReport, Move, Moves

STEP_NS = 250 * MS
RATE_BPS = 100e9
BASE_NS, QUEUE_NS = 10 * US, 1 * MS
FULL = 0.98
Path = tuple[str, str]


class Job(NamedTuple):
    """One process that sends to one host."""

    name: str
    process: int
    src: str
    dst: str
    rails: tuple[int, ...]
    demand: float
    """Parts of one link."""


class Process:
    """As a process of the plug-in does: what it was told of paths, and which it uses."""

    def __init__(self) -> None:
        self.dead: set[Path] = set()
        self.avoided: set[Path] = set()

    def uses(self, living: Sequence[Path]) -> list[Path]:
        """Of rails whose ports are up; never none, if there is any."""
        alive = [path for path in living if path not in self.dead]
        free = [path for path in alive if path not in self.avoided]
        return free or alive or list(living)


class Agent:
    """The reactor's logic for one host."""

    def __init__(self, host: str, nics: Sequence[LocalNic], policy: Policy) -> None:
        self.host = host
        self.failover = Failover(policy, nics, seed=1)
        self.view = View(self.failover, lambda _: "")
        self.view.take_flows()

    def act(self, out: Sequence[Instruction], processes: Mapping[int, Process]) -> None:
        for each in out:
            if isinstance(each, Notice):
                for process in processes.values():
                    (process.dead.discard if each.usable else process.dead.add)(each.path)
            elif isinstance(each, Avoid):
                avoided = processes[each.process].avoided
                (avoided.add if each.expires_ns else avoided.discard)(each.path)


def _links(src: str, dst: str, rail: int) -> tuple[str, str]:
    return f"{src}/rail{rail}->leaf{rail}", f"leaf{rail}->{dst}/rail{rail}"


class World:
    """A fabric of one leaf a rail.

    Args:
        jobs: what sends.
        hosts: how many.
        rails: of each host.
        real: links whose capacity is another than the topology says, in parts of that.
        place: whose flows agents let be moved.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        hosts: int = 4,
        rails: int = 2,
        mode: PlacementMode = PlacementMode.ACT,
        real: Mapping[str, float] | None = None,
        place: tuple[str, ...] = ("*",),
    ) -> None:
        self.jobs, self.real = tuple(jobs), dict(real or {})
        self.hosts = [f"h{k}" for k in range(hosts)]
        self.rails = range(rails)
        self.now_ns = 1_000 * S
        self.down: set[str] = set()
        self.windows = 5
        policy = Policy(mode=FailoverMode.ACT, place=place)
        self.agents = {
            host: Agent(
                host,
                [
                    LocalNic(name=f"rail{r}", rail=r, addresses=(self.address(host, r),))
                    for r in self.rails
                ],
                policy,
            )
            for host in self.hosts
        }
        self.processes: dict[str, dict[int, Process]] = {host: {} for host in self.hosts}
        for job in self.jobs:
            self.processes[job.src][job.process] = Process()
        self.service = PlacementService(PlacementConfig(mode=mode), self._topology())
        self.orders: list[Move] = []
        self.rates: dict[tuple[Job, int], float] = {}

    def _topology(self) -> Topology:
        nics = [
            Device(
                name=f"{host}/rail{r}", kind=ComponentKind.NIC, addresses=(self.address(host, r),)
            )
            for host in self.hosts
            for r in self.rails
        ]
        leaves = [
            Device(name=f"leaf{r}", kind=ComponentKind.LEAF, addresses=(f"leaf{r}",))
            for r in self.rails
        ]
        cables = [
            Cable(a=f"{host}/rail{r}", b=f"leaf{r}", gbps=RATE_BPS / 1e9)
            for host in self.hosts
            for r in self.rails
        ]
        return make_topology([*nics, *leaves], cables)

    def address(self, host: str, rail: int) -> str:
        return f"10.{rail}.0.{self.hosts.index(host) + 1}"

    def path(self, job: Job, rail: int) -> Path:
        return self.address(job.src, rail), self.address(job.dst, rail)

    def used(self, job: Job) -> list[int]:
        """Rails that carry a job's traffic now."""
        living = {self.path(job, rail): rail for rail in self._up(job)}
        uses = self.processes[job.src][job.process].uses(list(living))
        return [living[path] for path in uses]

    def _up(self, job: Job) -> list[int]:
        return [
            rail
            for rail in job.rails
            if not {f"{job.src}/rail{rail}", f"{job.dst}/rail{rail}"} & self.down
        ]

    def share(self) -> dict[tuple[Job, int], float]:
        """What goes by each rail: its part of a job's demand is as its fair share there."""
        flows = [(job, rail) for job in self.jobs for rail in self.used(job)]
        links = [_links(job.src, job.dst, rail) for job, rail in flows]
        names = sorted(set(itertools.chain.from_iterable(links)))
        ways = np.array([[names.index(link) for link in each] for each in links], np.int32)
        ways = ways.reshape(len(flows), 2)
        capacity = np.array([self.real.get(name, 1.0) for name in names])
        fair = max_min(ways, capacity)
        total: Counter[Job] = Counter()
        for (job, _), part in zip(flows, fair, strict=True):
            total[job] += part
        asked = np.array(
            [job.demand * part / total[job] for (job, _), part in zip(flows, fair, strict=True)]
        )
        given = max_min(ways, capacity, np.ones(len(flows)), asked)
        return dict(zip(flows, given.tolist(), strict=True))

    def total(self, job: Job) -> float:
        """Parts of one link that a job gets."""
        return sum(rate for (each, _), rate in self.share().items() if each is job)

    def step(self) -> None:
        self.now_ns += STEP_NS
        self.rates = self.share()
        self.windows += 1
        for host, agent in self.agents.items():
            rails = tuple(self._flow(job, rail) for job in self._of(host) for rail in job.rails)
            agent.failover.use(
                frozenset((each.flow.local, each.flow.remote) for each in rails), self.now_ns, rails
            )
            self._tick(agent)
            flows = agent.view.rails(rails)
            self.service.take(host, self._report(agent, flows))
        self.service.delays.add(self._probed())
        nics = {self.address(h, r): f"{h}/rail{r}" for h in self.hosts for r in self.rails}
        for host, orders in self.service.step(self.now_ns, nics, self.hosts, ()).orders.items():
            self.obey(host, msgspec.msgpack.decode(msgspec.msgpack.encode(orders), type=Moves))

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds * S / STEP_NS)):
            self.step()

    def obey(self, host: str, orders: Moves) -> None:
        """What the reactor does with the controller's word."""
        agent = self.agents[host]
        agent.failover.confirm(frozenset(orders.helped))
        for move in orders.moves:
            self.orders.append(move)
            order = order_of(move, self.now_ns)
            assert not isinstance(order, str), order
            agent.act(agent.failover.move(order, self.now_ns), self.processes[host])
        agent.view.take_flows()

    def port(self, nic: str, *, up: bool) -> None:
        """A NIC loses its carrier, or has it again; its agent hears of it."""
        (self.down.discard if up else self.down.add)(nic)
        host, _, name = nic.partition("/")
        agent = self.agents[host]
        event = LinkEvent(
            at_ns=self.now_ns,
            nic=name,
            carrier=up,
            admin_up=True,
            addresses=(self.address(host, int(name[4:])),),
            carrier_down_count=0 if up else 1,
        )
        agent.act(agent.failover.handle(event), self.processes[host])
        self._tick(agent)

    def results(self) -> list[str]:
        """Of the controller's moves."""
        return [move.result for move in self.service.moves("", 1_000)]

    def _probed(self) -> list[ProbeSecond]:
        """Packets wait on links that are full."""
        loads: Counter[str] = Counter()
        for (job, rail), rate in self.rates.items():
            loads.update(dict.fromkeys(_links(job.src, job.dst, rail), rate))
        full = {link for link, load in loads.items() if load > FULL * self.real.get(link, 1.0)}
        found = []
        for src, dst in itertools.permutations(self.hosts, 2):
            for rail in self.rails:
                links = _links(src, dst, rail)
                p50_ns = BASE_NS + QUEUE_NS * len(full & set(links))
                delay = DelaySecond(self.now_ns, p50_ns, p50_ns)
                names = f"{src}/rail{rail}", f"{dst}/rail{rail}"
                found.append(ProbeSecond(*names, links, delay, BASE_NS))
        return found

    def _of(self, host: str) -> list[Job]:
        return [job for job in self.jobs if job.src == host]

    def _tick(self, agent: Agent) -> None:
        agent.act(agent.failover.tick(self.now_ns), self.processes[agent.host])
        agent.view.take_flows()

    def _flow(self, job: Job, rail: int) -> ReportedFlow:
        local, remote = self.path(job, rail)
        return ReportedFlow(
            job=job.name,
            token=0,
            nic=f"rail{rail}",
            flow=FourTuple(local, 0, remote, 0),
            dialled=True,
            movable=False,
            moving=False,
            tx_bps=round(self.rates.get((job, rail), 0.0) * RATE_BPS),
            rx_bps=0,
            windows=self.windows,
            process=job.process,
            left=rail not in self._up(job),
        )

    def _report(self, agent: Agent, flows: Sequence[ReportedFlow]) -> FlowsReport:
        report = flows_report(
            flows, agent.view.outcomes, lambda *_: (), fleet_ns=self.now_ns, join_port=8621
        )
        return msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=FlowsReport)
