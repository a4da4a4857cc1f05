"""Records and analysis of connectivity between NICs. Pure.

Every pair of NICs of one rail is asked on many source ports, so that every member of an ECMP group
is used; pairs across rails on one, for their number of hops. A host reports what arrived, so that a
lost request is distinguished from a lost reply. The plan of requests is in
`syntony.audit.reach_plan`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from syntony.audit.cabling import Cabling
from syntony.audit.majority import MajorityVote, Votes, own_vote
from syntony.audit.parse.routes import RoutingTable
from syntony.fabric.graph import Cable, Device, make_topology
from syntony.fabric.names import ComponentKind
from syntony.model.names import host_of, natural

FIRST_PORT = 49_152
"""RoCEv2's source ports begin here (as NICs choose them)."""
PORTS = 16
IP_UDP_BYTES = 28
TRACED = 3
"""Lost flows that a host traces, and as many that are not: routers answer six in a row."""


class HostNic(NamedTuple):
    host: str
    name: str
    address: str
    mtu: int
    rdma: str = ""
    """Its RDMA port, ``mlx5_0:1``; empty where it has none."""

    def __str__(self) -> str:
        return f"{self.host}/{self.name}"


class ReachFlow(NamedTuple):
    """Requests from one NIC to another from one source port."""

    src: str
    dst: str
    sport: int
    size: int
    """Bytes of the request that may not be fragmented; 0 for a small one."""


class DirectionResult(NamedTuple):
    """One direction of a pair of NICs, all its source ports together.

    A fleet's survey has hundreds of thousands: what passed is a number, what was lost is named.
    """

    src: str
    dst: str
    sent: int
    """Source ports asked."""
    lost: tuple[int, ...] = ()
    """Those whose requests were lost."""
    lost_back: tuple[int, ...] = ()
    """Those whose requests arrived and whose replies did not."""
    hops: int = 0
    """Routers in between; 0 if nothing came back."""
    big: bool | None = None
    """Whether a packet of the full MTU passed; None where none was sent."""
    error: str = ""
    """Why the host could not send."""

    @property
    def pair(self) -> tuple[str, str]:
        return self.src, self.dst

    @property
    def answered(self) -> bool:
        """On one source port at least."""
        return len(self.lost) + len(self.lost_back) < self.sent

    @property
    def same_rail(self) -> bool:
        return rail_of(self.src) == rail_of(self.dst)


class RouteTrace(NamedTuple):
    """The routers that answered, hop by hop; ``*`` at the end if the flow arrived."""

    flow: ReachFlow
    hops: tuple[str, ...]

    @property
    def arrived(self) -> bool:
        return bool(self.hops) and self.hops[-1] == "*"


class LoadedRoundTrip(NamedTuple):
    """Round trips of one direction's pair while nothing else ran, and while its path was filled."""

    idle_ns: int
    """Median."""
    loaded_ns: int
    """Median."""
    rate_bps: float
    """Rate of the load that filled the path."""


class Survey(NamedTuple):
    nics: tuple[HostNic, ...]
    seen: tuple[DirectionResult, ...]
    """One for each direction that was asked."""
    traces: tuple[RouteTrace, ...] = ()
    silent: Mapping[str, str] = {}
    """Hosts that could not take part, and why."""
    quiet_ns: Mapping[tuple[str, str], int] = {}
    """Smallest round trip of each direction of a pair of one rail, one packet at a time."""
    loaded: Mapping[tuple[str, str], LoadedRoundTrip] = {}
    """By direction; empty unless load was requested."""
    rounds: int = 0
    """Perfect matchings that were tested, re-tests of suspects included."""
    sampled: bool = False
    """Whether only a sample of pairs was probed."""
    tables: tuple[RoutingTable, ...] = ()
    """Routing tables of the hosts that sent theirs."""
    lldp: Mapping[str, str] = {}
    """Host to what its `lldpctl` prints, where it has one."""


def rail_of(nic: str) -> str:
    """``rail0`` of ``h3/rail0``."""
    return nic.partition("/")[2]


def usual_mtu(nics: Iterable[HostNic]) -> MajorityVote[int]:
    """The MTU that more than half of the hosts have on more than half of their NICs."""
    by_host: dict[str, list[int]] = defaultdict(list)
    for nic in nics:
        by_host[nic.host].append(nic.mtu)
    votes = Votes[int]()
    for host, mine in by_host.items():
        votes.add(host, own_vote(mine))
    return votes.decide()


def tested_mtu(nics: Sequence[HostNic]) -> int:
    """The size that pairs are tried with: the usual MTU, else the largest. 0 without any NIC."""
    return usual_mtu(nics).value or max((nic.mtu for nic in nics), default=0)


def plan_traces(seen: Iterable[DirectionResult]) -> list[ReachFlow]:
    """Flows whose requests were lost, and as many of the same pairs that arrived."""
    by_host: dict[str, list[ReachFlow]] = defaultdict(list)
    for each in seen:
        mine = by_host[host_of(each.src)]
        alive = _living_port(each)
        # Others of the pair arrive: one path of several is to blame.
        if each.same_rail and each.lost and alive and len(mine) < 2 * TRACED:
            mine += [ReachFlow(each.src, each.dst, port, 0) for port in (each.lost[0], alive)]
    return [flow for mine in by_host.values() for flow in mine]


def _living_port(each: DirectionResult) -> int:
    """A source port that was answered; 0 if none was."""
    gone = {*each.lost, *each.lost_back}
    ports = range(FIRST_PORT, FIRST_PORT + each.sent)
    return next((port for port in ports if port not in gone), 0)


def merged(seen: Iterable[DirectionResult]) -> tuple[DirectionResult, ...]:
    """One for each direction: a re-test adds what it lost."""
    found: dict[tuple[str, str], DirectionResult] = {}
    for each in seen:
        old = found.get(each.pair)
        found[each.pair] = each if old is None else _both(old, each)
    return tuple(found.values())


def _both(old: DirectionResult, new: DirectionResult) -> DirectionResult:
    wider = max(old, new, key=lambda each: each.sent)
    return wider._replace(
        lost=tuple(sorted({*old.lost, *new.lost})),
        lost_back=tuple(sorted({*old.lost_back, *new.lost_back} - {*old.lost, *new.lost})),
        hops=new.hops or old.hops,
        big=new.big if old.big is None else old.big and new.big is not False,
        error=new.error or old.error,
    )


def hop_cabling(survey: Survey) -> Cabling | None:
    """Leaves as hop counts show them: NICs with one router between them share it.

    No switch is asked and no name is known. A leaf is called after the NICs that most of it are:
    ``leaf of rail0 (h0…)``.

    Returns:
        None where nothing is one hop away: a routed fabric of hosts alone on their leaves, or one
        that does not route (every pair at 0 hops).
    """
    near: dict[str, set[str]] = defaultdict(set)
    for each in survey.seen:
        if each.answered and each.hops == 1:
            near[each.src].add(each.dst)
            near[each.dst].add(each.src)
    clusters = _clusters(near)
    if not clusters:
        return None
    devices, cables = [], []
    for members in clusters:
        ordered = sorted(members, key=natural)
        label = Counter(nic.partition("/")[2] for nic in ordered).most_common(1)[0][0]
        leaf = f"leaf-of-{label}-{host_of(ordered[0])}"
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
    """The hop at which requests on one of several paths end."""

    after: str
    """Address of the last hop that answered; empty for the sender itself."""
    flows: tuple[ReachFlow, ...]
    alive: frozenset[str]
    """Next hops that living flows use behind it."""


def culprits(survey: Survey) -> Iterator[Culprit]:
    """Group the traced lost flows by the last hop that answered."""
    alive: dict[str, set[str]] = defaultdict(set)
    for each in survey.traces:
        for here, there in zip(("", *each.hops), each.hops, strict=False):
            if here != "*" and there not in {"*", ""}:
                alive[here].add(there)
    lost: dict[str, list[ReachFlow]] = defaultdict(list)
    for each in survey.traces:
        if not each.arrived:
            lost[each.hops[-1] if each.hops else ""].append(each.flow)
    for after, flows in sorted(lost.items()):
        yield Culprit(after, tuple(flows), frozenset(alive[after]))


def bad_nics(wrong: Iterable[tuple[str, str]], tested: Iterable[tuple[str, str]]) -> list[str]:
    """NICs all (or two thirds) of whose pairs failed.

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
    suspects = {nic for nic in total if bad[nic] and bad[nic] * 3 >= total[nic] * 2}
    # With one bad NIC among few, its partners fail often too: drop those that it explains.
    alone = {nic for pair in failed if len(hit := suspects & set(pair)) == 1 for nic in hit}
    named = suspects if len(suspects) == len(total) else alone
    return sorted(named, key=natural)
