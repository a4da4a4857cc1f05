"""Connectivity between all NICs: what is asked, and what the answers say. Pure.

Every pair of NICs of one rail is asked on many source ports, so that every member of an ECMP group
is used; pairs across rails on one, for their number of hops. A host tells what arrived, so that a
lost request is told from a lost reply.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from syntony.audit.cabling import Cabling, majority, natural
from syntony.fabric.graph import Cable, Device, make_topology
from syntony.fabric.names import ComponentKind

FIRST_PORT = 49_152
"""RoCEv2's source ports begin here (as NICs choose them)."""
PORTS = 16
IP_UDP_BYTES = 28
TRACED = 3
"""Lost flows that a host traces, and as many that are not: routers answer six in a row."""
CROSS_HOSTS = 8
"""Hosts that a NIC's other rails are asked on, for hops: enough for a majority."""


class HostNic(NamedTuple):
    """A NIC as its host tells it."""

    host: str
    name: str
    address: str
    mtu: int

    def __str__(self) -> str:
        return f"{self.host}/{self.name}"


class Flow(NamedTuple):
    """Requests from one NIC to another from one source port."""

    src: str
    dst: str
    sport: int
    size: int
    """Bytes of the request that may not be fragmented; 0 for a small one."""


class Outcome(NamedTuple):
    """What the asker saw."""

    flow: Flow
    answered: bool
    hops: int
    """Routers in between; 0 if nothing came."""
    rtt_ns: int
    error: str = ""


class Trace(NamedTuple):
    """Who answered on the way, hop by hop; ``*`` at the end if the flow arrived."""

    flow: Flow
    hops: tuple[str, ...]

    @property
    def arrived(self) -> bool:
        return bool(self.hops) and self.hops[-1] == "*"


class Survey(NamedTuple):
    """Everything that was seen."""

    nics: tuple[HostNic, ...]
    outcomes: tuple[Outcome, ...]
    arrived: frozenset[Flow]
    """Requests that the other end heard, answered or not."""
    traces: tuple[Trace, ...] = ()
    silent: Mapping[str, str] = {}
    """Hosts that could not take part, and why."""
    quiet_ns: Mapping[tuple[str, str], int] = {}
    """Smallest round trip of each direction of a pair of one rail, one packet at a time."""


def plan_flows(nics: Sequence[HostNic], *, ports: int = PORTS) -> list[Flow]:
    """Same rail: `ports` small flows and one of the usual MTU each; other rails: one small flow."""
    mtu = usual_mtu(nics)
    size = max(0, mtu - IP_UDP_BYTES)
    hosts = list(dict.fromkeys(nic.host for nic in nics))
    place = {host: number for number, host in enumerate(hosts)}
    flows = []
    for src in nics:
        for dst in nics:
            if src.host == dst.host:
                continue
            ends = str(src), str(dst)
            if src.name == dst.name:
                flows += [Flow(*ends, FIRST_PORT + number, 0) for number in range(ports)]
                flows += [Flow(*ends, FIRST_PORT, size)] if size else []
            elif (place[dst.host] - place[src.host]) % len(hosts) <= CROSS_HOSTS:
                flows.append(Flow(*ends, FIRST_PORT, 0))
    return flows


def usual_mtu(nics: Iterable[HostNic]) -> int:
    """The most frequent; of two as frequent the larger. 0 without any NIC."""
    often = Counter(nic.mtu for nic in nics)
    return max(often, key=lambda mtu: (often[mtu], mtu), default=0)


def plan_traces(outcomes: Sequence[Outcome], arrived: frozenset[Flow]) -> list[Flow]:
    """Flows whose requests were lost, and as many of the same pairs that arrived."""
    by_host: dict[str, list[Flow]] = defaultdict(list)
    living: dict[tuple[str, str], list[Flow]] = defaultdict(list)
    for outcome in outcomes:
        flow = outcome.flow
        if flow.size:
            continue
        if outcome.answered:
            living[flow.src, flow.dst].append(flow)
        elif flow not in arrived and not outcome.error:
            by_host[flow.src.partition("/")[0]].append(flow)
    wanted: list[Flow] = []
    for lost in by_host.values():
        pairs: dict[tuple[str, str], Flow] = {}
        for flow in lost:
            if living[flow.src, flow.dst]:  # others of the pair arrive: one path of several
                pairs.setdefault((flow.src, flow.dst), flow)
        chosen = list(pairs.values())[:TRACED]
        wanted += chosen
        wanted += [living[flow.src, flow.dst][0] for flow in chosen]
    return wanted


class PairPaths(NamedTuple):
    """One direction of one pair on all of its source ports."""

    src: str
    dst: str
    sent: int
    lost: tuple[int, ...]
    """Source ports whose requests were lost."""
    lost_back: tuple[int, ...]
    """Those whose requests arrived and whose replies did not."""


def pairs_of(survey: Survey) -> list[PairPaths]:
    """Pairs of one rail, in order."""
    found: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in survey.outcomes:
        flow = outcome.flow
        if not flow.size and flow.src.partition("/")[2] == flow.dst.partition("/")[2]:
            found[flow.src, flow.dst].append(outcome)
    return [
        PairPaths(
            src,
            dst,
            len(mine),
            tuple(o.flow.sport for o in mine if not o.answered and o.flow not in survey.arrived),
            tuple(o.flow.sport for o in mine if not o.answered and o.flow in survey.arrived),
        )
        for (src, dst), mine in sorted(found.items())
    ]


def hop_cabling(survey: Survey) -> Cabling | None:
    """Leaves as hop counts show them: NICs with one router between them share it.

    No switch is asked and no name is known. A leaf is called after the NICs that most of it are:
    ``leaf of rail0 (h0…)``.

    Returns:
        None where nothing is one hop away: a routed fabric of hosts alone on their leaves, or one
        that does not route (every pair at 0 hops).
    """
    near: dict[str, set[str]] = defaultdict(set)
    for outcome in survey.outcomes:
        if outcome.answered and outcome.hops == 1 and not outcome.flow.size:
            near[outcome.flow.src].add(outcome.flow.dst)
            near[outcome.flow.dst].add(outcome.flow.src)
    clusters = _clusters(near)
    if not clusters:
        return None
    devices, cables = [], []
    for members in clusters:
        ordered = sorted(members, key=natural)
        label = Counter(nic.partition("/")[2] for nic in ordered).most_common(1)[0][0]
        leaf = f"leaf-of-{label}-{ordered[0].partition('/')[0]}"
        devices.append(Device(name=leaf, kind=ComponentKind.LEAF))
        devices += [Device(name=nic, kind=ComponentKind.NIC) for nic in ordered]
        cables += [Cable(a=nic, b=leaf) for nic in ordered]
    return Cabling(make_topology(devices, cables))


def _clusters(near: Mapping[str, set[str]]) -> list[set[str]]:
    left, found = set(near), []
    while left:
        todo, members = [left.pop()], set[str]()
        while todo:
            nic = todo.pop()
            members.add(nic)
            todo += [other for other in near[nic] if other in left]
            left -= near[nic]
        found.append(members)
    return sorted(found, key=lambda members: natural(min(members, key=natural)))


class Culprit(NamedTuple):
    """Where requests of one path of several end."""

    after: str
    """Address of the last hop that answered; empty for the sender itself."""
    flows: tuple[Flow, ...]
    alive: frozenset[str]
    """Next hops that living flows use behind it."""


def culprits(survey: Survey) -> Iterator[Culprit]:
    """By the last hop that answered, the lost flows that were traced."""
    alive: dict[str, set[str]] = defaultdict(set)
    for each in survey.traces:
        for here, there in zip(("", *each.hops), each.hops, strict=False):
            if here != "*" and there not in {"*", ""}:
                alive[here].add(there)
    lost: dict[str, list[Flow]] = defaultdict(list)
    for each in survey.traces:
        if not each.arrived:
            lost[each.hops[-1] if each.hops else ""].append(each.flow)
    for after, flows in sorted(lost.items()):
        yield Culprit(after, tuple(flows), frozenset(alive[after]))


def bad_nics(wrong: Iterable[tuple[str, str]], tested: Iterable[tuple[str, str]]) -> list[str]:
    """NICs that are in every wrong pair they could be in: all (or two thirds) of their pairs.

    Args:
        wrong: pairs that failed, either end first.
        tested: all pairs.
    """
    total, bad = Counter[str](), Counter[str]()
    failed = set(wrong)
    for pair in tested:
        for nic in pair:
            total[nic] += 1
            bad[nic] += pair in failed
    suspects = [nic for nic in total if bad[nic] and bad[nic] * 3 >= total[nic] * 2]
    explained = {pair for pair in failed if any(nic in suspects for nic in pair)}
    # With one bad NIC among few, its partners fail often too: those that the others explain go.
    return [
        nic
        for nic in sorted(suspects, key=natural)
        if any(nic in pair and not any(o in suspects and o != nic for o in pair)
               for pair in explained) or len(suspects) == len(total)
    ]  # fmt: skip


def majority_mtu(nics: Sequence[HostNic]) -> int | None:
    """What two thirds of the NICs have."""
    return majority(nic.mtu for nic in nics)
