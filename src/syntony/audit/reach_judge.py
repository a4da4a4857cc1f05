"""From a survey of who reaches whom to verdicts. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from syntony.audit.check import Check
from syntony.audit.checks.network import (
    AllPaths,
    DelayFit,
    HopRails,
    OneWayDelay,
    PairLatency,
    PathMtu,
    RailConnectivity,
)
from syntony.audit.checks.rails import Rails
from syntony.audit.latency import off_the_line
from syntony.audit.pairs import limit_of, slow_pairs
from syntony.audit.reach import (
    FIRST_PORT,
    Culprit,
    PairPaths,
    Survey,
    bad_nics,
    culprits,
    hop_cabling,
    pairs_of,
    usual_mtu,
)
from syntony.audit.result import Result, Status, Suspect
from syntony.fabric.graph import Topology
from syntony.fabric.names import ComponentKind, cable_name

FLEET = "fleet"
_LISTED = 6
NOISE_NS = 100_000
"""What the scheduler adds to a round trip between two programs; one-way delays are finer."""
Pair = tuple[str, str]


class Direction(NamedTuple):
    """One direction's delay, by the fleet's clocks."""

    median_ns: float
    floor_ns: float
    clk_err_ns: float


def judge(
    survey: Survey, topology: Topology | None = None, delays: Mapping[Pair, Direction] | None = None
) -> tuple[Result, ...]:
    """Every network check's verdict.

    Args:
        survey: what was seen.
        topology: for names of hops and for how many hops there should be; None: not known.
        delays: from the controller's probe rows; None: there is none.
    """
    pairs = pairs_of(survey)
    if not pairs:
        why = "no two hosts have NICs of one name: nothing was measured"
        kinds = (RailConnectivity, AllPaths, PathMtu, HopRails, PairLatency, OneWayDelay, DelayFit)
        return (*_silent(survey), *(_unknown(kind(), why) for kind in kinds))
    verdicts: tuple[tuple[Check, Iterable[Result]], ...] = (
        (RailConnectivity(), (*_silent(survey), *_rail(pairs))),
        (AllPaths(), _paths(survey, pairs, topology)),
        (PathMtu(), _mtu(survey)),
        (HopRails(), _hops(survey)),
        (PairLatency(), _latency(survey)),
        (OneWayDelay(), _one_way(survey, delays)),
        (DelayFit(), _floor(survey, topology, delays)),
    )
    said = f"{len(survey.nics)} NICs, {len(pairs)} directions, {len(survey.outcomes)} flows"
    found: list[Result] = []
    for check, results in verdicts:
        told = list(results)
        found += told or [check.result(Status.PASS, FLEET, evidence=said)]
    return tuple(found)


def _unknown(check: Check, why: str, subject: str = FLEET) -> Result:
    return check.result(Status.UNKNOWN, subject, evidence=why)


def _silent(survey: Survey) -> Iterator[Result]:
    for host, why in survey.silent.items():
        yield _unknown(RailConnectivity(), why, host)


def _dead(pair: PairPaths) -> bool:
    return len(pair.lost) + len(pair.lost_back) == pair.sent


def _rail(pairs: Sequence[PairPaths]) -> Iterator[Result]:
    check = RailConnectivity()
    dead = [(p.src, p.dst) for p in pairs if _dead(p)]
    every = [(p.src, p.dst) for p in pairs]
    suspects = bad_nics(dead, every)
    for nic in suspects:
        mine = [pair for pair in dead if nic in pair]
        total = sum(nic in pair for pair in every)
        yield check.result(
            Status.FAIL, nic, f"{len(mine)} of {total} directions are dead", "none",
            f"dead with {_some(other for pair in mine for other in pair if other != nic)}",
        )  # fmt: skip
    for src, dst in dead:
        if src not in suspects and dst not in suspects:
            yield check.result(
                Status.FAIL, f"{src} -> {dst}", "dead on every source port", "alive",
                "both NICs reach others", suspect=Suspect.FABRIC,
                meaning="a route or a rule between these two is missing",
                remedy="compare routes and access lists on the way",
            )  # fmt: skip


def _paths(
    survey: Survey, pairs: Sequence[PairPaths], topology: Topology | None
) -> Iterator[Result]:
    check = AllPaths()
    partly = [p for p in pairs if (p.lost or p.lost_back) and not _dead(p)]
    if not partly:
        return
    ports = sum(p.sent for p in partly)
    lost = sum(len(p.lost) for p in partly)
    back = sum(len(p.lost_back) for p in partly)
    said = f"{len(partly)} directions: of {ports} flows {lost} lost, {back} replies lost"
    places: dict[str, list[Culprit]] = defaultdict(list)
    for culprit in culprits(survey):
        places[_place(culprit, topology)].append(culprit)
    for place, group in sorted(places.items()):
        flows = [flow for culprit in group for flow in culprit.flows]
        hops = ", ".join(culprit.after or "the sender" for culprit in group)
        example = flows[0]
        yield check.result(
            Status.FAIL, place, f"{len(flows)} traced flows end here", "all pass",
            f"last answers from {hops}; for example {example.src} to {example.dst} from port "
            f"{example.sport}, while other ports pass; {said}",
        )  # fmt: skip
    if not places:
        worst = max(partly, key=lambda p: len(p.lost) + len(p.lost_back))
        yield check.result(
            Status.FAIL, FLEET, said, "all pass",
            f"no lost flow could be traced; worst {worst.src} to {worst.dst}: "
            f"{len(worst.lost)} lost, {len(worst.lost_back)} replies lost of {worst.sent}",
            suspect=Suspect.FABRIC,
        )  # fmt: skip


def _place(culprit: Culprit, topology: Topology | None) -> str:
    """The cable behind the last hop that answered, as far as it can be told."""
    names = {} if topology is None else topology.by_address
    after = names.get(culprit.after, culprit.after)
    alive = {names.get(hop, hop) for hop in culprit.alive}
    if topology is not None and after in topology.neighbours:
        ways = [_next_hops(topology, after, flow.dst) for flow in culprit.flows]
        left = set.intersection(*ways) - alive if ways else set()
        if len(left) == 1:
            return cable_name(after, left.pop())
    return f"behind {after or culprit.flows[0].src}"


def _next_hops(topology: Topology, here: str, nic: str) -> set[str]:
    """Neighbours of a switch that are nearer to a NIC than it is."""
    away = {nic: 0}
    todo = deque([nic])
    ends = {ComponentKind.NIC, ComponentKind.HOST}
    while todo:
        device = todo.popleft()
        for other in topology.neighbours.get(device, ()):
            if other not in away and topology.kind_of(other) not in ends:
                away[other] = away[device] + 1
                todo.append(other)
    return {
        other
        for other in topology.neighbours.get(here, ())
        if other in away and away[other] < away.get(here, 0)
    }


def _mtu(survey: Survey) -> Iterator[Result]:
    check = PathMtu()
    usual = usual_mtu(survey.nics)
    small = {
        (o.flow.src, o.flow.dst)
        for o in survey.outcomes
        if not o.flow.size
        and o.flow.sport == FIRST_PORT
        and (o.answered or o.flow in survey.arrived)
    }
    big = {
        (o.flow.src, o.flow.dst): o.answered or o.flow in survey.arrived
        for o in survey.outcomes
        if o.flow.size and (o.flow.src, o.flow.dst) in small
    }
    wrong = [pair for pair, passed in big.items() if not passed]
    odd = {str(nic): nic.mtu for nic in survey.nics if nic.mtu != usual}
    for nic, mtu in odd.items():
        out = sum(pair[0] == nic for pair in wrong)
        into = sum(pair[1] == nic for pair in wrong)
        yield check.result(
            Status.FAIL if out or into or mtu < usual else Status.WARN, nic, f"MTU {mtu}",
            f"MTU {usual}", f"packets of {usual} bytes: {out} directions from it and {into} to it "
            f"lose them; {sum(n.mtu == usual for n in survey.nics)} other NICs have {usual}",
            suspect=Suspect.NIC, remedy=f"set the MTU of {nic} to {usual}",
        )  # fmt: skip
    left = [pair for pair in wrong if not odd.keys() & set(pair)]
    suspects = bad_nics(left, big)
    for nic in suspects:
        yield check.result(
            Status.FAIL, nic, f"{sum(nic in p for p in left)} directions lose {usual} bytes",
            f"{usual} bytes pass", "the NIC's own MTU is right: its switch port's is not",
            suspect=Suspect.PORT,
        )  # fmt: skip
    rest = [pair for pair in left if not set(suspects) & set(pair)]
    if rest:
        yield check.result(
            Status.FAIL, FLEET, f"{len(rest)} directions lose {usual} bytes", "none",
            f"small packets pass: {_some(f'{a} to {b}' for a, b in rest)}", suspect=Suspect.FABRIC,
        )  # fmt: skip
    if not big:
        yield _unknown(check, "no pair answers at all, or no MTU is known")


def _hops(survey: Survey) -> Iterator[Result]:
    check = HopRails()
    cabling = hop_cabling(survey)
    if cabling is None:
        yield check.result(Status.SKIP, FLEET, evidence="no two NICs have one router in between")
        return
    for result in Rails().test(cabling):
        yield msgspec.structs.replace(
            result, check=check.id, evidence=f"by hop counts: {result.evidence}"
        )


def _routers(survey: Survey) -> dict[Pair, int]:
    """Number of routers of every pair that answered."""
    return {
        (outcome.flow.src, outcome.flow.dst): outcome.hops
        for outcome in survey.outcomes
        if outcome.answered and not outcome.flow.size
    }


def _latency(survey: Survey) -> Iterator[Result]:
    """A pair is slow only if it is in both directions: user space adds its own noise to one."""
    check = PairLatency()
    hops = _routers(survey)
    same_rail = {pair: float(ns) for pair, ns in survey.quiet_ns.items() if pair in hops}
    if not same_rail:
        yield _unknown(check, "nothing answered")
        return
    usual = slow_pairs(same_rail, hops)
    slow = {
        pair: median
        for pair, median in usual.items()
        if same_rail[pair] > median + NOISE_NS and pair[::-1] in usual
    }
    suspects = bad_nics(slow, same_rail)
    for nic in suspects:
        mine = [pair for pair in slow if nic in pair]
        yield check.result(
            Status.WARN, nic, f"{max(same_rail[p] for p in mine) / 1e3:.1f} µs",
            f"{slow[mine[0]] / 1e3:.1f} µs", f"smallest round trips of {len(mine)} of its pairs",
            suspect=Suspect.NIC,
        )  # fmt: skip
    for pair, median in slow.items():
        if not set(suspects) & set(pair):
            yield check.result(
                Status.WARN, f"{pair[0]} -> {pair[1]}", f"{same_rail[pair] / 1e3:.1f} µs",
                f"{median / 1e3:.1f} µs", f"smallest round trip over {hops[pair]} routers",
            )  # fmt: skip


def _one_way(survey: Survey, delays: Mapping[Pair, Direction] | None) -> Iterator[Result]:
    check = OneWayDelay()
    if not delays:
        yield check.result(Status.SKIP, FLEET, evidence="no controller with probe rows was asked")
        return
    hops = _routers(survey)
    skew: dict[Pair, float] = {}
    for (src, dst), there in delays.items():
        back = delays.get((dst, src))
        if back is not None and (src, dst) in hops:
            skew[src, dst] = there.median_ns - back.median_ns
    if not skew:
        yield _unknown(check, "no pair has delays in both directions")
        return
    by_hops: dict[int, list[float]] = defaultdict(list)
    for pair, ns in skew.items():
        by_hops[hops[pair]].append(abs(ns))
    for pair, ns in sorted(skew.items()):
        limit, median = limit_of(by_hops[hops[pair]])
        error = 3 * (delays[pair].clk_err_ns + delays[pair[1], pair[0]].clk_err_ns)
        if ns > limit + error:
            yield check.result(
                Status.WARN, f"{pair[0]} -> {pair[1]}", f"{ns / 1e3:.1f} µs more than back",
                f"{(limit + error) / 1e3:.1f} µs at most",
                f"{delays[pair].median_ns / 1e3:.1f} µs there; usual difference over {hops[pair]} "
                f"routers {median / 1e3:.1f} µs",
            )  # fmt: skip


def _floor(
    survey: Survey, topology: Topology | None, delays: Mapping[Pair, Direction] | None
) -> Iterator[Result]:
    check = DelayFit()
    if topology is None:
        yield check.result(Status.SKIP, FLEET, evidence="no topology file says how many hops")
        return
    trips = {pair: float(ns) for pair, ns in survey.quiet_ns.items()}
    floor = {pair: each.floor_ns for pair, each in delays.items()} if delays else trips
    planned = _planned_hops(topology, floor)
    known = {pair: ns for pair, ns in floor.items() if pair in planned}
    try:
        off = off_the_line(planned, known)
    except ValueError as error:
        yield _unknown(check, str(error))
        return
    for each in off:
        yield check.result(
            Status.WARN, each.nic, f"delays as of {each.hops:+g} hops", "on the line",
            f"{each.pairs} of {each.tested} of its pairs are off the line of delay over hops",
        )  # fmt: skip


def _planned_hops(topology: Topology, pairs: Iterable[Pair]) -> dict[Pair, int]:
    """Switches between two NICs, as planned: those of leaves are looked up once."""
    wanted = list(pairs)
    leaf = {
        nic: near[0]
        for nic in {nic for pair in wanted for nic in pair}
        if len(near := topology.neighbours.get(nic, ())) == 1
    }
    away = {start: _distances(topology, start) for start in set(leaf.values())}
    return {
        (a, b): away[leaf[a]][leaf[b]] + 1
        for a, b in wanted
        if a in leaf and b in leaf and leaf[b] in away[leaf[a]]
    }


def _distances(topology: Topology, start: str) -> dict[str, int]:
    ends = {ComponentKind.NIC, ComponentKind.HOST}
    away = {start: 0}
    todo = deque([start])
    while todo:
        here = todo.popleft()
        for other in topology.neighbours.get(here, ()):
            if other not in away and topology.kind_of(other) not in ends:
                away[other] = away[here] + 1
                todo.append(other)
    return away


def _some(names: Iterable[str]) -> str:
    listed = list(Counter(names))
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return ", ".join(listed[:_LISTED]) + more
