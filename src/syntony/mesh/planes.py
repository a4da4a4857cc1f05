"""Where probing over UDP and over verbs disagree, class by class. Pure.

NICs have another pipeline, other queues and other priorities for RDMA than for UDP: what UDP shows
need not be what a job sees. Delays of the two are not compared as they are, since stamps are taken
elsewhere: a pair of NICs is compared with the others of its class, and a class with the others.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from syntony.model import US
from syntony.model.sla import Latency

MIN_PROBES = 100
"""Over each plane, of a direction in a class; with fewer nothing is said."""
MIN_LOSS = 0.01
"""Difference of the shares lost."""
LOSS_SIGMA = 4.0
"""… beyond that of two samples of one share: once in 30,000 directions by chance."""
MIN_PAIRS = 4
"""Whose median is what is usual."""
MIN_DELAY_NS = 50 * US
"""Beyond what is usual."""
FAR = 6.0
"""… in median absolute deviations of the class."""

Place = tuple[str, str, int]
"""Source and target (``host/nic``), DSCP."""


class What(enum.StrEnum):
    """How the planes disagree."""

    LOSS = "loss"
    DELAY = "delay"
    """One pair of NICs, against the others of its class."""
    CLASS = "class"
    """A class, against the one that is the least delayed."""


class Disagreement(NamedTuple):
    """One finding; `udp` and `verbs` are shares lost, or medians in ns."""

    what: What
    src: str
    """Empty: everywhere."""
    dst: str
    dscp: int
    udp: float
    verbs: float
    usual_ns: float = 0.0
    """Verbs less UDP, where that is as usual."""


def disagreements(
    udp: Mapping[Place, Latency], verbs: Mapping[Place, Latency]
) -> tuple[Disagreement, ...]:
    """All of them, worst first.

    Args:
        udp: what UDP shows; a class that it does not probe is compared with its class 0.
        verbs: what verbs show.
    """
    both = {
        place: (beside, seen)
        for place, seen in verbs.items()
        if (beside := udp.get(place, udp.get((*place[:2], 0)))) is not None
    }
    found = [each for place, pair in both.items() if (each := _loss(place, *pair)) is not None]
    found.sort(key=lambda each: -abs(each.verbs - each.udp))
    return (*found, *_delays(both))


def _loss(place: Place, udp: Latency, verbs: Latency) -> Disagreement | None:
    if min(udp.sent, verbs.sent) < MIN_PROBES:
        return None
    ours, theirs = udp.lost / udp.sent, verbs.lost / verbs.sent
    together = (udp.lost + verbs.lost) / (udp.sent + verbs.sent)
    sigma = math.sqrt(together * (1 - together) * (1 / udp.sent + 1 / verbs.sent))
    if abs(theirs - ours) < max(MIN_LOSS, LOSS_SIGMA * sigma):
        return None
    return Disagreement(What.LOSS, *place, ours, theirs)


def _delays(both: Mapping[Place, tuple[Latency, Latency]]) -> list[Disagreement]:
    classes: dict[int, dict[Place, tuple[int, int]]] = defaultdict(dict)
    for place, (udp, verbs) in both.items():
        enough = min(udp.measured, verbs.measured) >= MIN_PROBES
        if enough and udp.p50_ns is not None and verbs.p50_ns is not None:
            classes[place[2]][place] = (udp.p50_ns, verbs.p50_ns)
    known = {dscp: pairs for dscp, pairs in classes.items() if len(pairs) >= MIN_PAIRS}
    excess = {
        dscp: median(theirs - ours for ours, theirs in pairs.values())
        for dscp, pairs in known.items()
    }
    found: list[Disagreement] = []
    for dscp, pairs in known.items():
        least = min(excess.values())
        if excess[dscp] - least >= MIN_DELAY_NS:
            ours = median(pair[0] for pair in pairs.values())
            theirs = median(pair[1] for pair in pairs.values())
            found.append(Disagreement(What.CLASS, "", "", dscp, ours, theirs, least))
        found += _odd_pairs(pairs, excess[dscp])
    return sorted(found, key=lambda each: -abs(each.verbs - each.udp - each.usual_ns))


def _odd_pairs(pairs: Mapping[Place, tuple[int, int]], usual_ns: float) -> list[Disagreement]:
    spread = median(abs(theirs - ours - usual_ns) for ours, theirs in pairs.values())
    return [
        Disagreement(What.DELAY, *place, ours, theirs, usual_ns)
        for place, (ours, theirs) in pairs.items()
        if abs(theirs - ours - usual_ns) >= max(MIN_DELAY_NS, FAR * spread)
    ]
