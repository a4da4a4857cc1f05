"""Clock fault: delays to one NIC rise by as much as those from it fall, for all its peers
together."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from syntony.model import format_ns
from syntony.model.names import host_of
from syntony.workload.bundle import Floats
from syntony.workload.classes._weigh import weigh
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import CLOCK_SIGMAS
from syntony.workload.grid import Grid, episodes, median
from syntony.workload.probe_streams import ProbeStreams
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

AGREE = 0.3
"""Maximum ratio of the spread of three quarters of a NIC's pairs to their median at which they
moved together."""
MIN_PART = 0.5
"""Minimum clock error, relative to a path's delay, to be reported from paths of unequal length."""
SUM_MOVES, PATHS_DIFFER = 0.5, 0.2
"""A queue moves the sum of both directions by twice as much as half their difference; a clock does
not move the sum. The second value allows for differences of sums between near and far NICs."""
LOWER, BELOW = 0.35, 0.5
"""Quantile of the delays of paths of one length that is their floor; and the share of the clock
error by which one direction must be below that floor. A queue only makes the other direction
longer."""
LOWEST = 0.1
"""Quantile of the delays between other hosts, by paths as long, that one direction must be below as
well: where most directions wait, as before a parameter server, the others do not stand out."""
ALWAYS = 0.75
"""Minimum share of windows that show it: a wrong clock is always wrong, queues come and go."""
ACTION = "do not trust delays of this NIC; look at its time stamping and at `syntony clock status`"


OFTEN_SEEN, MOST_TOGETHER = 0.6, 4
"""Share of windows with data of a direction from which on windows are evaluated one by one;
otherwise up to this many are combined."""


class _Sides(NamedTuple):
    """Delays of one NIC's pairs, (pairs, windows)."""

    half: Floats
    """Half of delay in minus delay out, in ns."""
    total: Floats
    """Delay in plus delay out."""
    floor: Floats
    """Delay of each pair's paths without queueing, in ns, (pairs, 1)."""
    peers: list[str]


class _Source(NamedTuple):
    """Delay by directed pair of NICs, (windows,) in ns; hops of each; 1-sigma of clocks in ns."""

    grid: Grid
    width: int
    """Number of windows of the grid that are combined."""
    delays: dict[tuple[str, str], Floats]
    lengths: dict[tuple[str, str], int]
    sigma_ns: float


def find(facts: BundleFacts) -> list[RuleFinding]:
    """NICs whose clock is wrong. Their delays are removed from the facts for all later rules."""
    found: list[RuleFinding] = []
    for source in _sources(facts):
        usual = _usual_total(source.delays)
        floors = _floors(source.delays, source.lengths)
        for nic, sides in _by_nic(source.delays, floors).items():
            finding = _judge(nic, sides, source, usual)
            if finding is not None and finding.subjects not in {each.subjects for each in found}:
                found.append(finding)
        known = {each.subjects[0] for each in found}
        found += [each for each in _before_sent(source) if each.subjects[0] not in known]
    facts.distrust(each.subjects[0] for each in found)
    return found


def _before_sent(source: _Source) -> list[RuleFinding]:
    """NICs with negative delays from, or to, all of two peers or more: one of both clocks is wrong,
    and not that of each peer, whose delays with most others are possible."""
    grid, width, delays, _, sigma_ns = source
    least_ns = CLOCK_SIGMAS * np.nan_to_num(sigma_ns)
    negative = {pair: float(median(values)) for pair, values in delays.items()}
    bad = {pair for pair, value in negative.items() if value < -least_ns}
    found = []
    for nic in sorted({end for pair in bad for end in pair}):
        for place in (0, 1):
            own = [pair for pair in delays if pair[place] == nic]
            peers = {pair[1 - place] for pair in own}
            often = any(2 * sum(peer in pair for pair in bad) > sum(peer in pair for pair in delays)
                        for peer in peers)  # fmt: skip
            if len(own) < 2 or not bad.issuperset(own) or often:
                continue
            both = np.array([delays[pair] for pair in own])
            typical = median(both, axis=0)
            with np.errstate(invalid="ignore"):
                shown = (np.nanmax(both, axis=0, initial=-np.inf) < -least_ns) & (
                    np.nanmax(np.abs(both - typical), axis=0, initial=0.0)
                    < AGREE * np.abs(typical) + least_ns)  # fmt: skip
            stretch = episodes(shown[None, :], np.isfinite(typical)[None, :]).get(0)
            if stretch is None or stretch.share < ALWAYS:
                continue
            off = float(median(typical[stretch.first : stretch.last + 1]))
            way = ("from it to", "to it from")[place]
            found.append(RuleFinding(
                fault=FaultClass.CLOCK_FAULT, subjects=(nic,),
                onset_ns=grid.instant(width * stretch.first),
                last_ns=grid.instant(width * (stretch.last + 1)),
                confidence=confidence(stretch.share, None),
                evidence=(Evidence("owd_p50_ns", f"delays {way} all of its {len(own)} peers are"
                                   f" {format_ns(off)}: before they were sent", off, 0.0),),
                alternatives=(weigh(FaultClass.CONTENTION, True, "no queue makes a delay"
                                    " negative"),),
                action=ACTION, hosts=frozenset({host_of(nic)}),
            ))  # fmt: skip
            break
    return found


def _sources(facts: BundleFacts) -> list[_Source]:
    """Delays of probes and of flows, without halves of round trips, which involve one clock
    only."""
    found = []
    for each in (facts.probes, facts.flows):
        if each is None:
            continue
        delay = each.delay if isinstance(each, ProbeStreams) else each.between_nics
        members: dict[tuple[str, str], list[int]] = defaultdict(list)
        for index, key in enumerate(zip(each.src, each.dst, strict=True)):
            members[key].append(index)
        delays = {key: median(delay[rows], axis=0) for key, rows in members.items()}
        width = _together(delays)
        delays = {key: _coarse(values, width) for key, values in delays.items()}
        lengths = {key: len(each.hops[rows[0]]) for key, rows in members.items()}
        sigma_ns = float(median(each.clock_err_ns))
        found.append(_Source(each.grid, width, delays, lengths, sigma_ns))
    return found


def _together(delays: dict[tuple[str, str], Floats]) -> int:
    """Number of windows to combine so that most pairs have data of both directions: some jobs
    alternate between directions."""
    known = [np.isfinite(each) for each in delays.values()]
    share = float(np.median([each.mean() for each in known])) if known else 0.0
    return min(MOST_TOGETHER, max(1, int(np.ceil(1 / share)))) if 0 < share < OFTEN_SEEN else 1


def _coarse(values: Floats, width: int) -> Floats:
    """Medians over this many windows each."""
    padded = np.full(-(-len(values) // width) * width, np.nan)
    padded[: len(values)] = values
    return median(padded.reshape(-1, width), axis=1)


def _floors(
    delays: dict[tuple[str, str], Floats], lengths: dict[tuple[str, str], int]
) -> dict[tuple[str, str], float]:
    """Delay without queueing of paths of the same length, in ns: the lower third of all such paths.

    A wrong clock lowers as many directions as it raises; queues only raise.
    """
    usual = {key: float(median(values)) for key, values in delays.items()}
    by_length: dict[int, list[float]] = defaultdict(list)
    for key, value in usual.items():
        if np.isfinite(value):
            by_length[lengths[key]].append(value)
    floor = {length: float(np.quantile(values, LOWER)) for length, values in by_length.items()}
    return {key: floor.get(lengths[key], np.nan) for key in delays}


def _usual_total(delays: dict[tuple[str, str], Floats]) -> float:
    totals = [delays[a, b] + delays[b, a] for a, b in delays if a < b and (b, a) in delays]
    if not totals or not np.isfinite(totals).any():
        return float("nan")
    return float(np.nanquantile(np.array(totals), 0.25))


def _by_nic(
    delays: dict[tuple[str, str], Floats], floors: dict[tuple[str, str], float]
) -> dict[str, _Sides]:
    half: dict[str, list[Floats]] = defaultdict(list)
    total: dict[str, list[Floats]] = defaultdict(list)
    peers: dict[str, list[str]] = defaultdict(list)
    floor: dict[str, list[float]] = defaultdict(list)
    for (peer, nic), into in delays.items():
        out = delays.get((nic, peer))
        if out is not None:
            half[nic].append((into - out) / 2)
            total[nic].append(into + out)
            peers[nic].append(peer)
            floor[nic].append((floors[peer, nic] + floors[nic, peer]) / 2)
    return {nic: _Sides(np.array(half[nic]), np.array(total[nic]),
                        np.array(floor[nic])[:, None], peers[nic])
            for nic in sorted(half) if len(half[nic]) >= 2}  # fmt: skip


def _most(apart: Floats) -> Floats:
    """Limit that three of four known values of each column do not exceed, so with up to three the
    largest: of many pairs, one has a queue now and then."""
    ordered = np.sort(apart, axis=0)  # NaN comes last
    known = np.isfinite(apart).sum(axis=0)
    place = np.maximum(np.ceil(0.75 * known).astype(int) - 1, 0)
    most: Floats = np.nan_to_num(np.take_along_axis(ordered, place[None, :], axis=0)[0])
    return most


def _lowest_elsewhere(nic: str, peers: list[str], source: _Source) -> Floats:
    """The lowest usual delay between other hosts, by paths as long as those to each peer, in ns,
    (peers,); infinite if there are none."""
    elsewhere: dict[int, list[float]] = defaultdict(list)
    for pair, values in source.delays.items():
        if host_of(nic) not in {host_of(end) for end in pair}:
            elsewhere[source.lengths[pair]].append(float(median(values)))
    lowest = {length: float(np.nanquantile(values, LOWEST))
              for length, values in elsewhere.items() if np.isfinite(values).any()}  # fmt: skip
    return np.array([
        np.mean([lowest.get(source.lengths[pair], np.inf) for pair in ((nic, peer), (peer, nic))])
        for peer in peers
    ])  # fmt: skip


def _judge(nic: str, sides: _Sides, source: _Source, usual_total: float) -> RuleFinding | None:
    grid, width, _, _, sigma_ns = source
    typical = median(sides.half, axis=0)
    spread = _most(np.abs(sides.half - typical))
    smallest = np.nanmin(np.abs(sides.half), axis=0, initial=np.inf)
    least = max(CLOCK_SIGMAS * np.nan_to_num(sigma_ns), MIN_PART * usual_total / 2)
    moved = np.abs(median(sides.total, axis=0) - usual_total)
    unmoved = moved < SUM_MOVES * np.abs(typical) + PATHS_DIFFER * usual_total
    lower = sides.total / 2 - np.abs(sides.half)
    below = median(sides.floor - lower, axis=0)
    with np.errstate(invalid="ignore"):
        bad = (np.abs(typical) > least) & (smallest > least) & unmoved & (
            below > BELOW * np.abs(typical)) & (
            spread < AGREE * np.abs(typical) + MIN_PART * usual_total / 2)  # fmt: skip
    stretch = episodes(bad[None, :], np.isfinite(typical)[None, :]).get(0)
    if stretch is None or stretch.share < ALWAYS:
        return None
    part = slice(stretch.first, stretch.last + 1)
    off = float(median(typical[part]))
    others = _lowest_elsewhere(nic, sides.peers, source)
    if float(median(others - median(lower[:, part], axis=1))) <= BELOW * abs(off):
        return None
    into = sides.total[:, part] / 2 + sides.half[:, part]
    negative = float(np.nanmin([into, sides.total[:, part] - into]))
    evidence = [
        Evidence("owd_p50_ns", f"delays to it and from it differ by {format_ns(2 * abs(off))}, with"
                 f" all of its {len(sides.peers)} peers; their sum is as usual", off, 0.0),
    ]  # fmt: skip
    if negative < -CLOCK_SIGMAS * sigma_ns:
        evidence.append(Evidence("owd_p50_ns", f"delays down to {format_ns(negative)}: before they"
                                 " were sent", negative, 0.0))  # fmt: skip
    return RuleFinding(
        fault=FaultClass.CLOCK_FAULT, subjects=(nic,), onset_ns=grid.instant(width * stretch.first),
        last_ns=grid.instant(width * (stretch.last + 1)),
        confidence=confidence(stretch.share, True),
        evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.CONTENTION, True, "packets do not wait: both directions together take"
                  " as long as others"),
            weigh(FaultClass.HOST_JITTER, True, "delays from it fall by what those to it rise"),
        ),
        action=ACTION, hosts=frozenset({host_of(nic)}),
    )  # fmt: skip
