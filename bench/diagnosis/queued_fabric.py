"""The third generator's fabrics: one switch, leaf and spine, rails, three tiers; names as various
tools write them."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

from bench.diagnosis.queued_engine import Flow, Server

Style = tuple[str, str, str, str]
"""Host, NIC, how a directed link is written, flow."""
STYLES: tuple[Style, ...] = (
    ("h{}", "mlx5_{}", "{}->{}", "qp{}"),
    ("gpu-node-{:03}.dc1", "roce{}", "{}:tx>{}:rx", "0x{:06x}"),
    ("10.1.0.{}", "eth{}", "{} => {}", "10.1.0.9:{}->10.1.0.7:4791"),
    ("u{}", "bnxt_re{}", "{}~{}", "comm0.ch{}"),
)


class Fabric:
    """Servers by name, and paths that a hash picks."""

    def __init__(self, rng: random.Random, hosts: int, rails: int, xoff: float) -> None:
        self.rng, self.hosts, self.rails, self.xoff = rng, hosts, rails, xoff
        self.bps = rng.choice((25e9, 100e9, 200e9, 400e9))
        self.latency = rng.uniform(400, 1200)
        self.style = rng.choice(STYLES)
        if hosts <= 2:
            self.kind = "one"
        elif hosts <= 12:
            self.kind = rng.choice(("one", "tor", "rail"))
        else:
            self.kind = rng.choice(("tor", "rail", "three"))
        self.per_leaf = rng.choice((2, 3, 4)) if hosts <= 12 else rng.choice((4, 8))
        self.spines = rng.choice((2, 3, 4)) if hosts <= 12 else rng.choice((4, 8))
        self.up = rng.choice((1.0, 1.5, 2.0))
        self.servers: dict[str, Server] = {}
        self.after: dict[str, set[str]] = defaultdict(set)
        self.dead: set[str] = set()
        self.made = 0

    def host(self, number: int) -> str:
        """Name of a host."""
        return self.style[0].format(number + 1)

    def nic(self, host: int, rail: int) -> str:
        """`HOST/NIC`."""
        return f"{self.host(host)}/{self.style[1].format(rail)}"

    def _server(self, one: str, other: str, bps: float) -> Server:
        name = self.style[2].format(one, other)
        if name not in self.servers:
            self.servers[name] = Server(name, bps, self.latency, self.xoff)
        return self.servers[name]

    def dma(self, way: str, nic: str) -> Server:
        """The NIC's way `to` or `from` memory: no link of the fabric."""
        name = f"{way} memory of {nic}"
        if name not in self.servers:
            self.servers[name] = Server(name, self.bps * 1.3, 300, 1e12)
        return self.servers[name]

    def leaf(self, host: int, rail: int) -> str:
        """The switch that a NIC is at."""
        if self.kind == "one":
            return "sw0"
        if self.kind == "rail":
            return f"leaf-r{rail}-p{host // (self.per_leaf * 2)}"
        return f"leaf{host // self.per_leaf}"

    def switches(self, one: int, other: int, rail: int, entropy: int) -> list[str]:
        """Switches from a host to another."""
        first, last = self.leaf(one, rail), self.leaf(other, rail)
        if first == last:
            return [first]
        alive = [each for each in range(self.spines) if not self._cut(first, last, each)]
        spine = (alive or [0])[entropy % len(alive or [0])]
        if self.kind != "three":
            return [first, f"spine{spine}", last]
        pod, far = one // (self.per_leaf * 2), other // (self.per_leaf * 2)
        if pod == far:
            return [first, f"agg{pod}-{spine}", last]
        core = entropy // self.spines % 2
        return [first, f"agg{pod}-{spine}", f"core{spine}-{core}", f"agg{far}-{spine}", last]

    def _cut(self, first: str, last: str, spine: int) -> bool:
        form = self.style[2].format
        return bool(self.dead & {form(first, f"spine{spine}"), form(f"spine{spine}", last)})

    def path(self, one: int, other: int, rail: int, entropy: int) -> list[Server]:
        """Servers from memory to memory; all but the first and last are links."""
        source, target = self.nic(one, rail), self.nic(other, rail)
        switches = self.switches(one, other, rail, entropy)
        links = [self._server(source, switches[0], self.bps)]
        width = self.bps * self.up * max(1, self.per_leaf * (
            1 if self.kind == "rail" else self.rails) / self.spines)  # fmt: skip
        links += [self._server(a, b, width) for a, b in
                  itertools.pairwise(switches)]  # fmt: skip
        links.append(self._server(switches[-1], target, self.bps))
        return [self.dma("from", source), *links, self.dma("to", target)]

    def flow(self, one: int, other: int, rail: int, rank: int, peer: int) -> Flow:
        """A flow over a path that a hash picks."""
        self.made += 1
        entropy = self.rng.randrange(1 << 16)
        path = self.path(one, other, rail, entropy)
        name = self.style[3].format(self.made * 7)
        return Flow(name, self.nic(one, rail), self.nic(other, rail), path, rank=rank, peer=peer,
                    rail=f"rail{rail}", nodes=(one, other), window=6)  # fmt: skip

    def hops(self, path: list[Server]) -> list[str]:
        """Links as recorded."""
        return [server.name for server in path[1:-1]]
