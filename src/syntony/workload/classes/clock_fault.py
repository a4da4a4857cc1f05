"""Clock fault: delays to one NIC rise by what those from it fall, with all its peers together."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from syntony.model import format_ns
from syntony.workload.classes._weigh import weigh
from syntony.workload.flows import CLOCK_SIGMAS
from syntony.workload.grid import Grid, episodes, median
from syntony.workload.verdict import Evidence, FaultClass, Finding, confidence

if TYPE_CHECKING:
    from syntony.workload.bundle import Floats
    from syntony.workload.facts import Facts

AGREE = 0.3
"""Spread of a NIC's pairs over their median within which they moved together."""
MIN_PART = 0.5
"""Of a path's delay that a clock must be wrong by to be told from paths of unequal length."""
SUM_MOVES, PATHS_DIFFER = 0.5, 0.2
"""A queue moves the sum of both directions by twice what it moves half their difference, a clock
does not move it; sums differ by so much of a path between NICs near and far."""
ACTION = "do not trust delays of this NIC; look at its time stamping and at `syntony clock status`"


class _Sides(NamedTuple):
    """What one NIC's pairs show, (pairs, windows)."""

    half: Floats
    """Half of delay in minus delay out, in ns."""
    total: Floats
    """Delay in plus delay out."""
    peers: list[str]


def find(facts: Facts) -> list[Finding]:
    """NICs whose clock is wrong. Their delays are taken out of the facts of all later rules."""
    found: list[Finding] = []
    for grid, delays, sigma_ns in _sources(facts):
        usual = _usual_total(delays)
        for nic, sides in _by_nic(delays).items():
            finding = _judge(nic, sides, grid, usual, sigma_ns)
            if finding is not None and finding.subjects not in {each.subjects for each in found}:
                found.append(finding)
    facts.distrust(each.subjects[0] for each in found)
    return found


def _sources(facts: Facts) -> list[tuple[Grid, dict[tuple[str, str], Floats], float]]:
    """Delay by directed pair of NICs, of probes and of flows."""
    found: list[tuple[Grid, dict[tuple[str, str], Floats], float]] = []
    if facts.probes is not None:
        streams: dict[tuple[str, str], list[int]] = defaultdict(list)
        for index, key in enumerate(zip(facts.probes.src, facts.probes.dst, strict=True)):
            streams[key].append(index)
        delays = {key: median(facts.probes.delay[rows], axis=0) for key, rows in streams.items()}
        found.append((facts.probes.grid, delays, float(median(facts.probes.clock_err_ns))))
    if facts.flows is not None:
        members: dict[tuple[str, str], list[int]] = defaultdict(list)
        for index, key in enumerate(zip(facts.flows.src, facts.flows.dst, strict=True)):
            members[key].append(index)
        delays = {key: median(facts.flows.delay[rows], axis=0) for key, rows in members.items()}
        found.append((facts.flows.grid, delays, float(median(facts.flows.clock_err_ns))))
    return found


def _usual_total(delays: dict[tuple[str, str], Floats]) -> float:
    totals = [delays[a, b] + delays[b, a] for a, b in delays if a < b and (b, a) in delays]
    if not totals or not np.isfinite(totals).any():
        return float("nan")
    return float(np.nanquantile(np.array(totals), 0.25))


def _by_nic(delays: dict[tuple[str, str], Floats]) -> dict[str, _Sides]:
    half: dict[str, list[Floats]] = defaultdict(list)
    total: dict[str, list[Floats]] = defaultdict(list)
    peers: dict[str, list[str]] = defaultdict(list)
    for (peer, nic), into in delays.items():
        out = delays.get((nic, peer))
        if out is not None:
            half[nic].append((into - out) / 2)
            total[nic].append(into + out)
            peers[nic].append(peer)
    return {nic: _Sides(np.array(half[nic]), np.array(total[nic]), peers[nic])
            for nic in sorted(half) if len(half[nic]) >= 2}  # fmt: skip


def _judge(
    nic: str, sides: _Sides, grid: Grid, usual_total: float, sigma_ns: float
) -> Finding | None:
    typical = median(sides.half, axis=0)
    spread = np.nanmax(np.abs(sides.half - typical), axis=0, initial=0.0)
    smallest = np.nanmin(np.abs(sides.half), axis=0, initial=np.inf)
    least = max(CLOCK_SIGMAS * np.nan_to_num(sigma_ns), MIN_PART * usual_total / 2)
    moved = np.abs(median(sides.total, axis=0) - usual_total)
    unmoved = moved < SUM_MOVES * np.abs(typical) + PATHS_DIFFER * usual_total
    with np.errstate(invalid="ignore"):
        bad = (np.abs(typical) > least) & (smallest > least) & unmoved & (
            spread < AGREE * np.abs(typical) + MIN_PART * usual_total / 2)  # fmt: skip
    stretch = episodes(bad[None, :], np.isfinite(typical)[None, :]).get(0)
    if stretch is None:
        return None
    part = slice(stretch.first, stretch.last + 1)
    off = float(median(typical[part]))
    into = sides.total[:, part] / 2 + sides.half[:, part]
    negative = float(np.nanmin([into, sides.total[:, part] - into]))
    evidence = [
        Evidence("owd_p50_ns", f"delays to it and from it differ by {format_ns(2 * abs(off))}, with"
                 f" all of its {len(sides.peers)} peers; their sum is as usual", off, 0.0),
    ]  # fmt: skip
    if negative < -CLOCK_SIGMAS * sigma_ns:
        evidence.append(Evidence("owd_p50_ns", f"delays down to {format_ns(negative)}: before they"
                                 " were sent", negative, 0.0))  # fmt: skip
    return Finding(
        fault=FaultClass.CLOCK_FAULT, subjects=(nic,), onset_ns=grid.instant(stretch.first),
        last_ns=grid.instant(stretch.last + 1), confidence=confidence(stretch.share, True),
        evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.CONTENTION, True, "packets do not wait: both directions together take"
                  " as long as others"),
            weigh(FaultClass.HOST_JITTER, True, "delays from it fall by what those to it rise"),
        ),
        action=ACTION, hosts=frozenset({nic.split("/", maxsplit=1)[0]}),
    )  # fmt: skip
