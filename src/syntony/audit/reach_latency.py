"""Delays of a survey: by class of hops, by direction, under load, and against a plan. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from syntony.audit.checks.network import DelayFit, LoadedDelay, OneWayDelay, PairLatency
from syntony.audit.latency import misplaced_nics
from syntony.audit.pairs import MIN_CLASS, limit_of, slow_pairs
from syntony.audit.reach import Survey, bad_nics
from syntony.audit.result import FLEET, Result, Status, Suspect
from syntony.fabric.graph import Topology

NOISE_NS = 100_000
"""What the scheduler adds to a round trip between two programs; one-way delays are finer."""
LOADED_NOISE_NS = 1_000_000
"""The same while other programs fill the paths."""
SLOW_SHARE = 0.5
"""Share of the rate that fills other paths below which a link is slower."""
LOADED_TIMES = 4.0
"""Equal queues filled by TCP were seen to differ by a factor of three."""
Pair = tuple[str, str]


class DirectionDelay(NamedTuple):
    """One direction's delay, by the fleet's clocks."""

    median_ns: float
    floor_ns: float
    clk_err_ns: float


def _routers(survey: Survey) -> dict[Pair, int]:
    return {each.pair: each.hops for each in survey.seen if each.answered}


def pair_latency(survey: Survey) -> Iterator[Result]:
    """A pair is slow only if both directions are: user space adds noise to one."""
    check = PairLatency()
    hops = _routers(survey)
    same_rail = {pair: float(ns) for pair, ns in survey.quiet_ns.items() if pair in hops}
    if not same_rail:
        yield check.result(Status.UNKNOWN, FLEET, evidence="nothing answered")
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


def one_way(survey: Survey, delays: Mapping[Pair, DirectionDelay] | None) -> Iterator[Result]:
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
        yield check.result(Status.UNKNOWN, FLEET, evidence="no pair has delays both ways")
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


def loaded(survey: Survey) -> Iterator[Result]:
    """Compare the delay that load adds to each direction with others of as many hops."""
    check = LoadedDelay()
    if not survey.loaded:
        yield check.result(Status.SKIP, FLEET, evidence="it loads the fabric: ask with --load")
        return
    hops = _routers(survey)
    added: dict[Pair, float] = {
        pair: float(each.loaded_ns - each.idle_ns)
        for pair, each in survey.loaded.items()
        if pair in hops
    }
    by_hops: dict[int, list[float]] = defaultdict(list)
    for pair, ns in added.items():
        by_hops[hops[pair]].append(ns)
    limits = {n: limit_of(each) for n, each in by_hops.items() if len(each) >= MIN_CLASS}
    if not limits:
        text = f"{len(added)} directions: fewer than {MIN_CLASS} of any class say what is usual"
        yield check.result(Status.UNKNOWN, FLEET, evidence=text)
        return
    rates = {
        n: statistics.median(each.rate_bps for pair, each in survey.loaded.items()
                             if hops.get(pair) == n)
        for n in limits
    }  # fmt: skip
    for pair, ns in sorted(added.items()):
        limit, median = limits.get(hops[pair], (ns, ns))
        usual_bps = rates.get(hops[pair], 0.0)
        if survey.loaded[pair].rate_bps < SLOW_SHARE * usual_bps:
            yield check.result(
                Status.WARN, f"{pair[0]} -> {pair[1]}",
                f"{survey.loaded[pair].rate_bps / 1e6:.0f} Mb/s fill it",
                f"{usual_bps / 1e6:.0f} Mb/s",
                f"{ns / 1e3:.0f} µs more under load, {median / 1e3:.0f} µs is usual over "
                f"{hops[pair]} routers",
            )  # fmt: skip
        elif ns > max(limit, LOADED_TIMES * median) + LOADED_NOISE_NS:
            each = survey.loaded[pair]
            yield check.result(
                Status.WARN, f"{pair[0]} -> {pair[1]}", f"{ns / 1e3:.0f} µs more under load",
                f"{median / 1e3:.0f} µs more",
                f"{each.idle_ns / 1e3:.0f} µs idle, {each.loaded_ns / 1e3:.0f} µs while "
                f"{each.rate_bps / 1e6:.0f} Mb/s filled it; class of {hops[pair]} routers, "
                f"{len(by_hops[hops[pair]])} directions",
            )  # fmt: skip


def fitted(
    survey: Survey, topology: Topology | None, delays: Mapping[Pair, DirectionDelay] | None
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
        off = misplaced_nics(planned, known)
    except ValueError as error:
        yield check.result(Status.UNKNOWN, FLEET, evidence=str(error))
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
    away = {start: topology.distances(start) for start in set(leaf.values())}
    return {
        (a, b): away[leaf[a]][leaf[b]] + 1
        for a, b in wanted
        if a in leaf and b in leaf and leaf[b] in away[leaf[a]]
    }
