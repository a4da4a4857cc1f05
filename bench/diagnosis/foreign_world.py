"""The second generator's fabric: links with capacities, routes, shares by water-filling.

It knows nothing of the rules, nor of the first generator: a fault changes a part of the mechanism,
and what the tables say of it follows.
"""

from __future__ import annotations

import random
import zlib
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Flow(NamedTuple):
    """One queue pair or connection: channel `channel` from `rank` to `peer`."""

    name: str
    rank: int
    peer: int
    channel: int
    src: str
    dst: str
    hops: tuple[str, ...]
    rail: int


class Place(NamedTuple):
    """Where a rank runs."""

    host: str
    gpu: str
    nic: str
    rail: int


class Fabric:
    """Directed links by name and equal-cost routes between NICs."""

    def __init__(self, rng: random.Random, kind: str, hosts: int, nics: int) -> None:
        self.kind, self.nics = kind, nics
        self.hosts = [
            f"{rng.choice(('node', 'gpu', 'w'))}{rng.randrange(900) * 20 + index:05d}"
            for index in range(hosts)
        ]
        self.per_leaf = min(rng.choice((2, 3, 4)), hosts // 2)
        self.spines = rng.choice((3, 4, 6))
        self.line_bps = rng.choice((25e9, 100e9, 200e9, 400e9))
        self.device = rng.choice(("mlx5_{}", "bnxt{}", "eth{}", "hsn{}"))

    def nic(self, host: int, rail: int) -> str:
        """As in the tables: HOST/NIC."""
        return f"{self.hosts[host]}/{self.device.format(rail)}"

    def leaf(self, host: int, rail: int) -> str:
        """The switch at which a NIC hangs."""
        group = host // self.per_leaf
        return f"L{rail}.{group}" if self.kind == "rail" else f"T{group}"

    def route(self, source: tuple[int, int], target: tuple[int, int], salt: str) -> tuple[str, ...]:
        """Links from one (host, rail) to another; `salt` chooses among equal costs."""
        first, last = self.leaf(*source), self.leaf(*target)
        pick = zlib.crc32(salt.encode())
        walk = [self.nic(*source), first]
        if first != last and self.kind == "three":
            pod, other = first + "a", last + "a"
            core = f"C{pick % self.spines}"
            walk += [f"{pod}{pick % 2}", core, f"{other}{pick % 2}", last]
        elif first != last:
            plane = f"S{source[1]}." if self.kind == "rail" else "S"
            walk += [f"{plane}{pick % self.spines}", last]
        walk.append(self.nic(*target))
        return tuple(f"{a}>{b}" for a, b in pairwise(walk))


def share(
    flows: list[Flow], wish_bps: Floats, capacity_bps: dict[str, float]
) -> tuple[Floats, dict[str, float]]:
    """Max-min fair rates, and each link's demand over its capacity."""
    links = sorted({hop for flow in flows for hop in flow.hops})
    place = {name: index for index, name in enumerate(links)}
    crosses = np.zeros((len(links), len(flows)), dtype=bool)
    for index, flow in enumerate(flows):
        crosses[[place[hop] for hop in flow.hops], index] = True
    room = np.array([capacity_bps[name] for name in links])
    demand = dict(zip(links, (crosses @ wish_bps) / np.maximum(room, 1.0), strict=True))
    rate, left = np.zeros(len(flows)), np.ones(len(flows), dtype=bool)
    while left.any():
        waiting = crosses[:, left].sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            fair = np.where(waiting > 0, room / waiting, np.inf)
        tight = int(np.argmin(fair))
        easy = left & (wish_bps <= fair[tight])
        now = easy if easy.any() else left & crosses[tight]
        rate[now] = wish_bps[now] if easy.any() else fair[tight]
        room = np.maximum(room - crosses[:, now] @ rate[now], 0.0)
        left &= ~now
    return rate, demand


def ring(fabric: Fabric, places: list[Place], channels: int) -> list[Flow]:
    """Each rank sends to the same place on the next host, and on the way back as well."""
    flows = []
    gpus = len(places) // len(fabric.hosts)
    for rank, place in enumerate(places):
        host = rank // gpus
        for step in (1, -1):
            peer = ((host + step) % len(fabric.hosts)) * gpus + rank % gpus
            flows += _pair(fabric, places, rank, peer, channels=channels, rail=place.rail)
    return flows


def mesh(fabric: Fabric, places: list[Place], channels: int) -> list[Flow]:
    """Each rank sends to the same place on every other host: an all-to-all on rails."""
    gpus = len(places) // len(fabric.hosts)
    flows = []
    for rank, place in enumerate(places):
        for host in range(len(fabric.hosts)):
            peer = host * gpus + rank % gpus
            if peer != rank:
                flows += _pair(fabric, places, rank, peer, channels=channels, rail=place.rail)
    return flows


def _pair(
    fabric: Fabric, places: list[Place], rank: int, peer: int, *, channels: int, rail: int
) -> list[Flow]:
    gpus = len(places) // len(fabric.hosts)
    ends = (rank // gpus, rail), (peer // gpus, rail)
    made = []
    for channel in range(channels):
        name = f"q{rank}-{peer}.{channel}"
        hops = fabric.route(*ends, salt=name)
        made.append(
            Flow(name, rank, peer, channel, fabric.nic(*ends[0]), fabric.nic(*ends[1]), hops, rail)
        )
    return made
