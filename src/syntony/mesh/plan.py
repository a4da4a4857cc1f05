"""Plan which NICs probe each other: a sparse random-regular mesh over the fleet's NICs.

The graph is a union of rings. Each ring orders all NICs by a keyed hash of their name, so a NIC
that joins or leaves only touches its neighbours on each ring; every other pair keeps its history.
A union of two or more random rings is connected and an expander with high probability (Friedman
2008); connectedness and survival of any single host's loss are checked, never assumed.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from syntony.model import NicRef
from syntony.wire.probes import ProbeFlow

FIRST_SOURCE_PORT = 61_000
"""Above Linux's default ephemeral range (32768–60999), so probes never take a job's port."""
MAX_SOURCE_PORTS = 512
PATH_COVERAGE = 0.99
"""Required probability that a pair's source ports reach every equal-cost path."""
_REDRAWS = 64


class MeshNic(NamedTuple):
    """One NIC that can probe and be probed."""

    ref: NicRef
    nic_id: int
    rail: int
    address: str
    port: int
    clock: str
    others: tuple[str, ...] = ()
    """Addresses in addition to the probed one."""
    rdma: str = ""
    """Link layer of its RDMA port, ``roce`` or ``infiniband``; empty: it has none."""
    verbs_clock: str = ""
    """Clock of its stamps over verbs; empty: its host's."""


class VerbsClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[verbs_classes]]``: a traffic class that is probed over verbs, as a job uses it."""

    dscp: Annotated[int, Meta(ge=0, le=63)] = 0
    """The traffic class without the two bits of ECN: ``NCCL_IB_TC`` / 4."""
    sl: Annotated[int, Meta(ge=0, le=15)] = 0
    """The service level, as in ``NCCL_IB_SL``."""


Adjacency = dict[NicRef, set[NicRef]]


def make_plan(
    nics: Sequence[MeshNic],
    *,
    peers: int,
    ecmp_paths: int,
    interval_ns: int,
    seed: int,
    further: Iterable[tuple[NicRef, NicRef]] = (),
) -> dict[str, tuple[ProbeFlow, ...]]:
    """Every host's probe flows.

    Each pair is probed from both ends, so that each end learns of a fault by itself and a one-way
    fault is seen from both sides.

    Args:
        nics: the fleet; names unique.
        peers: wanted peers per NIC (fewer where the fleet is smaller).
        ecmp_paths: equal-cost paths a pair may have; decides how many source ports are used.
        interval_ns: time between two probe pairs on one path.
        seed: of the mesh.
        further: pairs of NICs that are probed in addition to the mesh's, from as many source ports.
            Pairs that are in both are probed from twice as many.
    """
    by_ref = {nic.ref: nic for nic in nics}
    ports = ports_to_cover(ecmp_paths)
    added: Adjacency = defaultdict(set)
    for a, b in further:
        if a in by_ref and b in by_ref and a.host != b.host:
            added[a].add(b)
            added[b].add(a)
    flows: dict[str, list[ProbeFlow]] = {nic.ref.host: [] for nic in nics}
    for ref, others in sorted(mesh(list(by_ref), peers=peers, seed=seed).items()):
        for other in sorted(others | added[ref]):
            peer = by_ref[other]
            wanted = ports * ((other in others) + (other in added[ref]))
            flows[ref.host].extend(
                ProbeFlow(
                    flow_id=0,
                    src=ref.nic,
                    dst=str(other),
                    dst_nic_id=peer.nic_id,
                    dst_addr=peer.address,
                    dst_port=peer.port,
                    src_port=FIRST_SOURCE_PORT + port,
                    interval_ns=interval_ns,
                )
                for port in range(wanted)
            )
    return {host: _numbered(mine) for host, mine in flows.items()}


def over_verbs(
    plan: Mapping[str, Sequence[ProbeFlow]],
    nics: Mapping[NicRef, MeshNic],
    classes: Sequence[VerbsClass],
    interval_ns: int,
) -> dict[str, tuple[ProbeFlow, ...]]:
    """Every host's flows over verbs: what `make_plan` probes, between RDMA ports of one kind.

    A path is a queue pair and a flow label, for there are NICs whose UDP source port follows from
    the label, and others where it follows from the queue pair.
    """
    return {
        host: _numbered(
            msgspec.structs.replace(
                flow,
                flow_label=_label(flow.src_port),
                dscp=each.dscp,
                sl=each.sl,
                interval_ns=interval_ns,
            )
            for flow in flows
            for each in classes
            if nics[NicRef(host, flow.src)].rdma
            and nics[NicRef(host, flow.src)].rdma == nics[NicRef.parse(flow.dst)].rdma
        )
        for host, flows in plan.items()
    }


def _label(src_port: int) -> int:
    """Not 0, and far apart: a NIC that takes the label's low 14 bits for the UDP source port takes
    others for each."""
    return 1 + _digest(f"label {src_port}") % ((1 << 20) - 1)


def with_spares(plan: Sequence[ProbeFlow], ports: int) -> tuple[ProbeFlow, ...]:
    """A plan, and flows from further source ports of each of its pairs, up to `ports` of them.

    Peers are not told of these ports, because a reflector answers any probe with the key of the
    pair of hosts. A pair with only one path has none.
    """
    by_pair: dict[tuple[str, str], list[ProbeFlow]] = defaultdict(list)
    for flow in plan:
        by_pair[flow.src, flow.dst_addr].append(flow)
    spares = [
        msgspec.structs.replace(flows[0], src_port=last + 1 + more)
        for flows in by_pair.values()
        if len(flows) > 1
        for last in [max(flow.src_port for flow in flows)]
        for more in range(ports - len(flows))
    ]
    return (*plan, *_numbered(spares, {flow.flow_id for flow in plan}))


def ports_to_cover(paths: int) -> int:
    """How many random source ports reach all of `paths` equally likely paths.

    The coupon collector's problem: 1→1, 2→8, 4→21, 8→51, 16→115, 32→255. From
    60 on `MAX_SOURCE_PORTS`, which reach most of them.
    """
    paths = max(paths, 1)
    # How probable each number of reached paths is, after one port more each time.
    reached = [1.0] + [0.0] * paths
    for ports in range(1, MAX_SOURCE_PORTS + 1):
        for number in range(min(ports, paths), 0, -1):
            came = reached[number - 1] * (paths - number + 1)
            reached[number] = (reached[number] * number + came) / paths
        reached[0] = 0.0
        if reached[-1] >= PATH_COVERAGE:
            return ports
    return MAX_SOURCE_PORTS


def mesh(nics: Sequence[NicRef], *, peers: int, seed: int) -> Adjacency:
    """Undirected peer sets: no edge inside a host, degree `peers` or as near as the fleet allows.

    Connected, and connected still after the loss of any one host, whenever the fleet has at least
    three hosts and `peers` is at least 2.
    """
    best: Adjacency = {}
    for draw in range(_REDRAWS):
        best = _draw(nics, peers, f"{seed}.{draw}")
        if survives_any_host(best):
            return best
    return best


def survives_any_host(adjacency: Adjacency) -> bool:
    """Whether the mesh is connected, and remains so without any single host.

    NICs of one host count as joined: they share its clock, or are tied to it by cross-stamps.
    """
    peers: dict[str, set[str]] = defaultdict(set)
    for ref, others in adjacency.items():
        peers[ref.host].update(other.host for other in others)
    return _biconnected(peers)


def _biconnected(peers: dict[str, set[str]]) -> bool:
    """Connected and without an articulation point (Hopcroft & Tarjan 1973), iteratively."""
    if len(peers) <= 1:
        return True
    root = next(iter(peers))
    depth = {root: 0}
    low = {root: 0}
    root_children = 0
    stack = [(root, iter(peers[root]))]
    while stack:
        host, rest = stack[-1]
        other = next(rest, None)
        if other is None:
            stack.pop()
            if len(stack) > 1 and low[host] >= depth[stack[-1][0]]:
                return False
            if stack:
                parent = stack[-1][0]
                low[parent] = min(low[parent], low[host])
        elif other in depth:
            low[host] = min(low[host], depth[other])
        else:
            depth[other] = low[other] = len(stack)
            root_children += host == root
            stack.append((other, iter(peers[other])))
    return len(depth) == len(peers) and root_children <= 1


def _draw(nics: Sequence[NicRef], peers: int, key: str) -> Adjacency:
    adjacency: Adjacency = {ref: set() for ref in nics}
    wanted = _wanted_degrees(nics, peers)
    for ring in range(math.ceil(peers / 2)):
        order = sorted(nics, key=lambda ref: _digest(f"{key}.{ring}.{ref}"))
        for place, ref in enumerate(order):
            _link_first(ref, _following(order, place), adjacency, wanted)
    _fill(adjacency, wanted, key)
    return adjacency


def _wanted_degrees(nics: Sequence[NicRef], peers: int) -> dict[NicRef, int]:
    per_host: dict[str, int] = defaultdict(int)
    for ref in nics:
        per_host[ref.host] += 1
    return {ref: min(peers, len(nics) - per_host[ref.host]) for ref in nics}


def _following(order: Sequence[NicRef], place: int) -> Iterable[NicRef]:
    for step in range(1, len(order)):
        yield order[(place + step) % len(order)]


def _link_first(
    ref: NicRef, candidates: Iterable[NicRef], adjacency: Adjacency, wanted: dict[NicRef, int]
) -> bool:
    """Link a NIC that is short of peers to the first that is, too; whether there was one."""
    if len(adjacency[ref]) >= wanted[ref]:
        return False
    for other in candidates:
        if len(adjacency[other]) < wanted[other] and _may_link(ref, other, adjacency):
            _link(ref, other, adjacency)
            return True
    return False


def _may_link(a: NicRef, b: NicRef, adjacency: Adjacency) -> bool:
    return a.host != b.host and b not in adjacency[a]


def _link(a: NicRef, b: NicRef, adjacency: Adjacency) -> None:
    adjacency[a].add(b)
    adjacency[b].add(a)


def _fill(adjacency: Adjacency, wanted: dict[NicRef, int], key: str) -> None:
    """Give NICs short of peers more of them: directly, or by opening an existing edge."""

    def short() -> list[NicRef]:
        lacking = [ref for ref in adjacency if len(adjacency[ref]) < wanted[ref]]
        return sorted(lacking, key=lambda ref: _digest(f"{key}.fill.{ref}"))

    progress = True
    while progress:  # a NIC may be short of several
        others = short()
        progress = any(_link_first(ref, others, adjacency, wanted) for ref in others)
    progress = True
    while progress:
        # Each lack of one peer counts once: a NIC short of two may take both ends of an edge.
        lacks = [ref for ref in short() for _ in range(wanted[ref] - len(adjacency[ref]))]
        progress = any(_open_edge(u, v, adjacency) for u, v in itertools.pairwise(lacks))


def _open_edge(u: NicRef, v: NicRef, adjacency: Adjacency) -> bool:
    """Replace some edge x–y by u–x and v–y."""
    for x in sorted(adjacency):
        if x in {u, v} or not _may_link(u, x, adjacency):
            continue
        for y in sorted(adjacency[x]):
            if y not in {u, v} and _may_link(v, y, adjacency):
                adjacency[x].remove(y)
                adjacency[y].remove(x)
                _link(u, x, adjacency)
                _link(v, y, adjacency)
                return True
    return False


def _numbered(flows: Iterable[ProbeFlow], others: Iterable[int] = ()) -> tuple[ProbeFlow, ...]:
    """Give each flow an id that depends on its path alone, unique within its host, which has
    `others` besides."""
    taken = set(others)
    numbered = []
    for flow in flows:
        name = f"{flow.src}>{flow.dst}:{flow.src_port}:{flow.flow_label}"
        flow_id = _digest(name + (f":{flow.dscp}" if flow.dscp else "")) & 0xFFFFFFFF
        while flow_id in taken:
            flow_id = (flow_id + 1) & 0xFFFFFFFF
        taken.add(flow_id)
        numbered.append(msgspec.structs.replace(flow, flow_id=flow_id))
    return tuple(numbered)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
