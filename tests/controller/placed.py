"""A fabric in memory for the placing desk: flows share links fairly, agents obey, refuse or lie."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np

from syntony.controller.config import PlacementConfig, PlacementMode
from syntony.controller.placing import Decided, PlacementService
from syntony.fabric.book import Way
from syntony.fabric.graph import Cable, Device, Topology, make_topology
from syntony.fabric.names import ComponentKind
from syntony.model import MS, S
from syntony.traffic.classes import JobClass
from syntony.traffic.fair import max_min
from syntony.wire.traffic import FlowsReport, FlowView, Move, MoveOutcome

JOIN = 8621
PORTS = range(61_000, 61_032)
RATE_BPS = 100_000_000
WINDOW_NS = 500 * MS
Route = Callable[[str, str, int, int], int]
"""Sender, receiver, ports: to the number of the spine."""


def hashed(src: str, dst: str, sport: int, dport: int) -> int:
    """As a switch would."""
    return hash((src, dst, sport, dport, "salt")) >> 7


class Fabric:
    """Two leaves, `spines` spines, `hosts` hosts with one NIC each, the first half below leaf0."""

    def __init__(self, hosts: int = 8, spines: int = 4, route: Route = hashed) -> None:
        self.hosts = [f"h{k}" for k in range(hosts)]
        self.spines = spines
        self.route = route
        self.topology = self._topology()

    def _topology(self) -> Topology:
        gbps = RATE_BPS / 1e9
        nics = [
            Device(name=f"{h}/rail0", kind=ComponentKind.NIC, addresses=(self.address(h),))
            for h in self.hosts
        ]
        kinds = {"leaf0": ComponentKind.LEAF, "leaf1": ComponentKind.LEAF} | {
            f"spine{k}": ComponentKind.SPINE for k in range(self.spines)
        }
        switches = [Device(name=n, kind=kind, addresses=(n,)) for n, kind in kinds.items()]
        down = [Cable(a=f"{h}/rail0", b=self.leaf(h), gbps=gbps) for h in self.hosts]
        up = [
            Cable(a=leaf, b=f"spine{k}", gbps=gbps)
            for leaf in ("leaf0", "leaf1")
            for k in range(self.spines)
        ]
        return make_topology([*nics, *switches], [*down, *up])

    def leaf(self, host: str) -> str:
        return "leaf0" if self.hosts.index(host) < len(self.hosts) // 2 else "leaf1"

    def address(self, host: str) -> str:
        return f"10.0.0.{self.hosts.index(host)}"

    def hops(self, src: str, dst: str, sport: int, dport: int) -> tuple[str, ...]:
        first, last = self.leaf(src), self.leaf(dst)
        if first == last:
            return (first,)
        return (first, f"spine{self.route(src, dst, sport, dport) % self.spines}", last)

    def links(self, src: str, dst: str, sport: int, dport: int) -> list[str]:
        stops = [f"{src}/rail0", *self.hops(src, dst, sport, dport), f"{dst}/rail0"]
        return [f"{a}->{b}" for a, b in itertools.pairwise(stops)]


class Live:
    """One flow as it is."""

    def __init__(self, job: str, src: str, dst: str, sport: int, dport: int) -> None:
        self.job, self.src, self.dst = job, src, dst
        self.sport, self.dport = sport, dport
        self.token = 0
        self.windows = 5
        self.movable = True


class World:
    """Flows on a fabric, a desk, and time in steps of a quarter of a second.

    Args:
        fabric: the truth.
        pairs: (job, sender, receiver).
        classes: of jobs.
        believed: how the map says ports are routed; None: as they are.
    """

    def __init__(
        self,
        fabric: Fabric,
        pairs: list[tuple[str, str, str]],
        *,
        mode: PlacementMode = PlacementMode.ACT,
        believed: Route | None = None,
        classes: tuple[JobClass, ...] = (),
    ) -> None:
        self.fabric = fabric
        self.flows = [Live(job, s, d, 40_000 + k, 5_000) for k, (job, s, d) in enumerate(pairs)]
        for k, flow in enumerate(self.flows):
            flow.token = k + 1
        self.now_ns = 1_000 * S
        self.map = Fabric(len(fabric.hosts), fabric.spines, believed or fabric.route)
        self.config = PlacementConfig(mode=mode, classes=classes)
        self.service = self.new_service()
        self.outcomes: dict[str, list[MoveOutcome]] = {host: [] for host in fabric.hosts}
        self.moves: list[Move] = []
        self.obey: Callable[[Move], str] = lambda _: "moved"
        self.silent: set[str] = set()
        self.log: list[str] = []

    def new_service(self) -> PlacementService:
        service = PlacementService(self.config, self.fabric.topology)
        for src in self.fabric.hosts:
            for dst in self.fabric.hosts:
                if src == dst:
                    continue
                for port in PORTS:
                    for sport, dport in ((port, JOIN), (JOIN, port)):
                        way = Way(f"{src}/rail0", f"{dst}/rail0", sport, dport)
                        service.learn(way, self.map.hops(src, dst, sport, dport), self.now_ns)
        return service

    def rates(self) -> list[float]:
        """Fair shares of what each flow sends."""
        names = sorted({link for flow in self.flows for link in self._links(flow)})
        number = {name: k for k, name in enumerate(names)}
        ways = [[number[name] for name in self._links(flow)] for flow in self.flows]
        hops = max(map(len, ways), default=1)
        padded = np.array([way + [-1] * (hops - len(way)) for way in ways], dtype=np.int32)
        return list(max_min(padded, np.full(len(names), float(RATE_BPS))))

    def _links(self, flow: Live) -> list[str]:
        return self.fabric.links(flow.src, flow.dst, flow.sport, flow.dport)

    def step(self, service: PlacementService | None = None) -> Decided:
        """A quarter of a second."""
        service = service or self.service
        self.now_ns += WINDOW_NS // 2
        for host, report in self.reports().items():
            if host not in self.silent:
                service.take(host, report)
        nics = {self.fabric.address(host): f"{host}/rail0" for host in self.fabric.hosts}
        decided = service.step(self.now_ns, nics, self.fabric.hosts, ())
        for host, orders in decided.orders.items():
            for move in orders.moves:
                self._do(host, move)
        return decided

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds * S / (WINDOW_NS // 2))):
            self.step()

    def _do(self, host: str, move: Move) -> None:
        self.moves.append(move)
        result = self.obey(move)
        if result == "moved":
            flow = next(f for f in self.flows if f.token == int(move.connection, 16))
            assert (flow.src, flow.sport, flow.dport) == (host, move.local_port, move.remote_port)
            flow.sport, flow.dport, flow.windows = move.port, JOIN, 0
        if result:
            self.outcomes[host].append(MoveOutcome(move_id=move.move_id, result=result))

    def reports(self) -> Mapping[str, FlowsReport]:
        views: dict[str, list[FlowView]] = {host: [] for host in self.fabric.hosts}
        for flow, bps in zip(self.flows, self.rates(), strict=True):
            flow.windows += 1
            views[flow.src].append(self._view(flow, round(bps), dialled=True))
            views[flow.dst].append(self._view(flow, round(bps), dialled=False))
        return {
            host: FlowsReport(
                at_ns=self.now_ns,
                flows=tuple(views[host]),
                outcomes=tuple(self.outcomes[host]),
                delays=(),
                join_port=JOIN,
            )
            for host in self.fabric.hosts
        }

    def _view(self, flow: Live, bps: int, *, dialled: bool) -> FlowView:
        ends = [(flow.src, flow.sport), (flow.dst, flow.dport)]
        (near, near_port), (far, far_port) = ends if dialled else ends[::-1]
        return FlowView(
            job=flow.job,
            connection=f"{flow.token:08x}",
            nic="rail0",
            local=self.fabric.address(near),
            local_port=near_port,
            remote=self.fabric.address(far),
            remote_port=far_port,
            dialled=dialled,
            movable=dialled and flow.movable,
            moving=False,
            tx_bps=bps if dialled else 0,
            rx_bps=0 if dialled else bps,
            windows=flow.windows,
            hops=self.fabric.hops(near, far, near_port, far_port),
        )
