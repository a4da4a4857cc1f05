"""Clos fabrics whose faults are known: paths as candidate numbers, probes lost at random. Seeded.

Candidates are numbered kind by kind (see `Clos.kinds`): directional links first, then cables,
NICs, hosts, leaves, aggregation switches, spines. An access cable is its NIC: what crosses one
crosses the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Crossings = NDArray[np.int32]


class Kind(NamedTuple):
    """One kind of candidate: numbers ``first … first + size - 1``."""

    name: str
    first: int
    size: int


class Clos:
    """Two tiers: `leaves` × `nics_per_leaf` NICs, every leaf on every spine."""

    def __init__(
        self, *, leaves: int = 32, spines: int = 16, nics_per_leaf: int = 16, rails: int = 8
    ) -> None:
        self.leaves, self.spines, self.per_leaf, self.rails = leaves, spines, nics_per_leaf, rails
        self.nics = leaves * nics_per_leaf
        self.hashes = spines
        fabric = leaves * spines
        self.kinds = _number(
            ("nic-up", self.nics), ("nic-down", self.nics), ("leaf-up", fabric),
            ("leaf-down", fabric), ("cable", fabric), ("nic", self.nics),
            ("host", self.nics // rails), ("leaf", leaves), ("spine", spines),
        )  # fmt: skip
        self.links = 2 * self.nics + 2 * fabric
        """The first so many candidates are directional links."""

    @property
    def candidates(self) -> int:
        last = list(self.kinds.values())[-1]
        return last.first + last.size

    def leaf_of(self, nic: Ints) -> Ints:
        return nic // self.per_leaf

    def host_of(self, nic: Ints) -> Ints:
        """NICs of one host are on as many neighbouring leaves: its rails."""
        group, within = np.divmod(nic, self.per_leaf * self.rails)
        return np.asarray(group * self.per_leaf + within % self.per_leaf)

    def crossings(self, src: Ints, dst: Ints, entropy: Ints) -> Crossings:
        """What each path crosses, (paths, 13); -1 where it stays below one leaf.

        Args:
            src: sending NICs, (paths,).
            dst: receiving NICs, (paths,).
            entropy: which of the equal-cost paths, below `hashes`, (paths,).
        """
        k = {name: kind.first for name, kind in self.kinds.items()}
        a, b = self.leaf_of(src), self.leaf_of(dst)
        near = a == b
        up, down = a * self.spines + entropy, b * self.spines + entropy
        far = [
            k["leaf-up"] + up, k["leaf-down"] + down, k["cable"] + up, k["cable"] + down,
            k["spine"] + entropy, k["leaf"] + b,
        ]  # fmt: skip
        always = [
            k["nic-up"] + src, k["nic-down"] + dst, k["nic"] + src, k["nic"] + dst,
            k["host"] + self.host_of(src), k["host"] + self.host_of(dst), k["leaf"] + a,
        ]  # fmt: skip
        columns = [np.where(near, -1, column) for column in far] + always
        return np.stack(columns, axis=1).astype(np.int32)

    def members(self, candidate: int) -> Ints:
        """The directional links that a candidate consists of."""
        if candidate < self.links:
            return np.array([candidate])
        nic, host, k = np.arange(self.nics), self.host_of(np.arange(self.nics)), self.kinds
        row, column = np.divmod(np.arange(self.leaves * self.spines), self.spines)
        for name, chosen in (
            ("cable", np.arange(len(row))), ("leaf", row), ("spine", column),
        ):  # fmt: skip
            kind = k[name]
            if kind.first <= candidate < kind.first + kind.size:
                mine = np.flatnonzero(chosen == candidate - kind.first)
                links = [k["leaf-up"].first + mine, k["leaf-down"].first + mine]
                if name == "leaf":
                    below = np.flatnonzero(self.leaf_of(nic) == candidate - kind.first)
                    links += [k["nic-up"].first + below, k["nic-down"].first + below]
                return np.concatenate(links)
        owner, kind = (nic, k["nic"]) if candidate < k["host"].first else (host, k["host"])
        below = np.flatnonzero(owner == candidate - kind.first)
        return np.concatenate([k["nic-up"].first + below, k["nic-down"].first + below])


class Clos3:
    """Three tiers: pods of leaves and aggregation switches, cores in groups above each."""

    def __init__(
        self,
        *,
        pods: int = 8,
        leaves: int = 4,
        nics_per_leaf: int = 16,
        aggs: int = 4,
        cores: int = 4,
    ) -> None:
        self.pods, self.leaves_per_pod, self.per_leaf = pods, leaves, nics_per_leaf
        self.aggs, self.cores = aggs, cores
        self.leaves = pods * leaves
        self.nics = self.leaves * nics_per_leaf
        self.hashes = aggs * cores
        lower, upper = self.leaves * aggs, pods * aggs * cores
        self.kinds = _number(
            ("nic-up", self.nics), ("nic-down", self.nics), ("leaf-up", lower),
            ("leaf-down", lower), ("agg-up", upper), ("agg-down", upper), ("cable", lower),
            ("core-cable", upper), ("nic", self.nics), ("leaf", self.leaves),
            ("agg", pods * aggs), ("core", aggs * cores),
        )  # fmt: skip
        self.links = 2 * (self.nics + lower + upper)

    @property
    def candidates(self) -> int:
        last = list(self.kinds.values())[-1]
        return last.first + last.size

    def leaf_of(self, nic: Ints) -> Ints:
        return nic // self.per_leaf

    def host_of(self, nic: Ints) -> Ints:
        return nic

    def crossings(self, src: Ints, dst: Ints, entropy: Ints) -> Crossings:
        """As `Clos.crossings`, (paths, 17)."""
        k = {name: kind.first for name, kind in self.kinds.items()}
        a, b = self.leaf_of(src), self.leaf_of(dst)
        pod_a, pod_b = a // self.leaves_per_pod, b // self.leaves_per_pod
        agg, core = entropy % self.aggs, entropy // self.aggs
        up, down = a * self.aggs + agg, b * self.aggs + agg
        agg_a, agg_b = pod_a * self.aggs + agg, pod_b * self.aggs + agg
        over, under = agg_a * self.cores + core, agg_b * self.cores + core
        beyond_leaf = [
            k["leaf-up"] + up, k["leaf-down"] + down, k["cable"] + up, k["cable"] + down,
            k["leaf"] + b, k["agg"] + agg_a,
        ]  # fmt: skip
        beyond_pod = [
            k["agg-up"] + over, k["agg-down"] + under, k["core-cable"] + over,
            k["core-cable"] + under, k["agg"] + agg_b, k["core"] + agg * self.cores + core,
        ]  # fmt: skip
        always = [
            k["nic-up"] + src, k["nic-down"] + dst, k["nic"] + src, k["nic"] + dst, k["leaf"] + a,
        ]  # fmt: skip
        columns = [np.where(a == b, -1, column) for column in beyond_leaf]
        columns += [np.where(pod_a == pod_b, -1, column) for column in beyond_pod]
        return np.stack(columns + always, axis=1).astype(np.int32)

    def members(self, candidate: int) -> Ints:
        """The directional links of a link; other kinds are not drawn as faults here."""
        return np.array([candidate])


Fabric = Clos | Clos3


def _number(*sizes: tuple[str, int]) -> dict[str, Kind]:
    first = 0
    kinds = {}
    for name, count in sizes:
        kinds[name] = Kind(name, first, count)
        first += count
    return kinds


def prices(fabric: Fabric) -> NDArray[np.float64]:
    """What `find_losses` asks of each candidate: the logarithm of how many of its kind there are,
    all links being one kind.
    """
    penalty = np.full(fabric.candidates, np.log(fabric.links))
    for kind in fabric.kinds.values():
        if kind.first >= fabric.links:
            penalty[kind.first : kind.first + kind.size] = np.log(fabric.links)
    return penalty


class Flows(NamedTuple):
    """Probe flows of every NIC; each is probed there and back, ways hashed apart."""

    src: Ints
    dst: Ints
    there: Ints
    """Entropy of the requests, (flows,)."""
    back: Ints


def draw_flows(fabric: Fabric, rng: np.random.Generator, *, peers: int, ports: int) -> Flows:
    """`peers` random peers of each NIC, `ports` source ports to each, as the probe mesh has."""
    nic = np.arange(fabric.nics)
    # Rings of random order, as in the mesh: every NIC probes and is probed equally often.
    pairs = []
    for _ in range(peers // 2):
        ring = rng.permutation(nic)
        pairs += [(ring, np.roll(ring, 1)), (np.roll(ring, 1), ring)]
    src = np.repeat(np.concatenate([pair[0] for pair in pairs]), ports)
    dst = np.repeat(np.concatenate([pair[1] for pair in pairs]), ports)
    there, back = rng.integers(0, fabric.hashes, (2, len(src)))
    return Flows(src, dst, there, back)


class Counts(NamedTuple):
    """What a window's probes say, requests first and then replies, (2 × flows,)."""

    crossings: Crossings
    """As the path map has it, which may be stale."""
    sent: Ints
    lost: Ints


def probe(
    fabric: Fabric,
    flows: Flows,
    loss: NDArray[np.float64],
    rng: np.random.Generator,
    *,
    probes_per_flow: float,
    stale: float = 0.0,
    stalling: NDArray[np.float64] | None = None,
) -> Counts:
    """Send probes and count.

    Args:
        fabric: where.
        flows: which way.
        loss: of each directional link, (links,).
        rng: decides.
        probes_per_flow: requests on each, on average.
        stale: share of flows whose path changed since the map was learnt.
        stalling: per NIC, share of replies that its host does not send in time.
    """
    sent = rng.poisson(probes_per_flow, len(flows.src))
    ways = [
        fabric.crossings(flows.src, flows.dst, flows.there),
        fabric.crossings(flows.dst, flows.src, flows.back),
    ]
    counts, going = [], sent
    for number, way in enumerate(ways):
        risk = _risk(way, loss)
        if number and stalling is not None:
            risk = 1 - (1 - risk) * (1 - stalling[flows.dst])
        lost = rng.binomial(going, risk)
        counts.append((going, lost))
        going = going - lost
    if stale:
        moved = rng.random(len(flows.src)) < stale
        there, back = (
            np.where(moved, rng.integers(0, fabric.hashes, len(moved)), old)
            for old in (flows.there, flows.back)
        )
        ways = [
            fabric.crossings(flows.src, flows.dst, there),
            fabric.crossings(flows.dst, flows.src, back),
        ]
    return Counts(
        crossings=np.concatenate(ways),
        sent=np.concatenate([count[0] for count in counts]),
        lost=np.concatenate([count[1] for count in counts]),
    )


def _risk(crossings: Crossings, loss: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probability that a probe on each path is lost."""
    keep = np.append(np.log1p(-np.minimum(loss, 1 - 1e-12)), 0.0)
    links = np.where((crossings >= 0) & (crossings < len(loss)), crossings, len(loss))
    return np.asarray(-np.expm1(keep[links].sum(axis=1)))


def round_trips(counts: Counts) -> Counts:
    """The same probes as seen by a prober that knows round trips only."""
    half = len(counts.sent) // 2
    both = np.concatenate((counts.crossings[:half], counts.crossings[half:]), axis=1)
    both = np.sort(both, axis=1)
    both[:, 1:][both[:, 1:] == both[:, :-1]] = -1
    return Counts(both, counts.sent[:half], counts.lost[:half] + counts.lost[half:])
