"""Find disagreements between probes over UDP and over verbs, by class. Pure.

NICs process RDMA in another pipeline than UDP, with other queues and priorities, so a job may see
delays and losses that probes over UDP do not. The delays of the two planes are not compared
directly, because their stamps are taken at different points. Instead, the difference of a pair of
NICs is compared with that of other pairs of its class, and a class with the other classes.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from syntony.model import US
from syntony.model.sla import Latency
from syntony.wire.probes import Plane

MIN_PROBES = 100
"""Minimum probes of a direction in a class over each plane."""
MIN_LOSS = 0.01
"""Minimum difference of the shares lost."""
CHANCE = 1e-5
"""… and maximum probability that two samples with equal losses differ as much."""
MIN_PAIRS = 4
"""Minimum pairs of a class, whose median is the usual difference of delays."""
MIN_DELAY_NS = 50 * US
"""Minimum excess of a difference of delays over the usual one."""
MIN_ALIKE = 3
"""Minimum NICs of a rail with an RDMA port from which another one should have it, too."""
FAR = 6.0
"""The same, in median absolute deviations of the class."""

Place = tuple[str, str, int]
"""Source and target (``host/nic``), DSCP."""


class DisagreementKind(enum.StrEnum):
    """How the planes disagree."""

    LOSS = "loss"
    DELAY = "delay"
    """One pair of NICs, against the others of its class."""
    CLASS = "class"
    """A class, against the one that is the least delayed."""


class Absence(NamedTuple):
    """Both planes should be probed, and one is not: not a probe was sent, lost or answered."""

    place: Place
    plane: Plane
    """The one that is absent."""
    sent: int
    """Probes over the other one."""


class Disagreement(NamedTuple):
    """One finding; `udp` and `verbs` are shares lost, or medians in ns."""

    what: DisagreementKind
    src: str
    """Empty: all."""
    dst: str
    dscp: int
    udp: float
    verbs: float
    usual_ns: float = 0.0
    """Usual difference of verbs less UDP."""


def disagreements(
    udp: Mapping[Place, Latency], verbs: Mapping[Place, Latency]
) -> tuple[Disagreement, ...]:
    """All disagreements, worst first.

    Args:
        udp: what UDP shows; a class that it does not probe is compared with its class 0.
        verbs: what verbs show.
    """
    both = {
        place: (plain, seen)
        for place, seen in verbs.items()
        if (plain := udp.get(place, udp.get((*place[:2], 0)))) is not None
    }
    found = [each for place, pair in both.items() if (each := _loss(place, *pair)) is not None]
    found.sort(key=lambda each: -abs(each.verbs - each.udp))
    return (*found, *_delays(both))


def absences(
    planned: Iterable[Place], udp: Mapping[Place, Latency], verbs: Mapping[Place, Latency]
) -> tuple[Absence, ...]:
    """Pairs that are probed over one plane, while the other has no probes at all.

    Args:
        planned: what was to be probed over both for as long as is looked at.
        udp: what UDP shows; of a class that it does not probe, its class 0.
        verbs: what verbs show.
    """
    found = []
    for place in planned:
        ours = max(_sent(udp, place), _sent(udp, (*place[:2], 0)))
        theirs = _sent(verbs, place)
        if ours >= MIN_PROBES and not theirs:
            found.append(Absence(place, Plane.VERBS, ours))
        elif theirs >= MIN_PROBES and not ours:
            found.append(Absence(place, Plane.UDP, theirs))
    return tuple(found)


def without_rdma(nics: Iterable[tuple[str, int, str]]) -> dict[str, tuple[int, int]]:
    """NICs without an RDMA port where most of their rail have one.

    Args:
        nics: of each its name, its rail, and the link layer of its RDMA port or nothing.

    Returns:
        NIC → how many of its rail have one, and how many there are.
    """
    rails: dict[int, dict[str, str]] = defaultdict(dict)
    for nic, rail, layer in nics:
        rails[rail][nic] = layer
    found: dict[str, tuple[int, int]] = {}
    for there in rails.values():
        having = sum(bool(layer) for layer in there.values())
        if having >= MIN_ALIKE and 2 * having > len(there):
            found |= {nic: (having, len(there)) for nic, layer in there.items() if not layer}
    return found


def _sent(seen: Mapping[Place, Latency], place: Place) -> int:
    return seen[place].sent if place in seen else 0


def _loss(place: Place, udp: Latency, verbs: Latency) -> Disagreement | None:
    if min(udp.sent, verbs.sent) < MIN_PROBES:
        return None
    ours, theirs = udp.lost / udp.sent, verbs.lost / verbs.sent
    if abs(theirs - ours) < MIN_LOSS or not _unlike(udp, verbs):
        return None
    return Disagreement(DisagreementKind.LOSS, *place, ours, theirs)


def _unlike(one: Latency, other: Latency) -> bool:
    """Whether two samples lose so differently as those of one share do less often than `CHANCE`.

    Of all that is lost, or of all that arrives, as many should be of each sample as it has probes;
    the tail of that binomial is at most exp(-n KL), by Chernoff, also where it is a handful.
    """
    share = one.sent / (one.sent + other.sent)
    of_lost = (one.lost, other.lost)
    of_arrived = (one.sent - one.lost, other.sent - other.lost)
    odds = max(_divergence(*of_lost, share), _divergence(*of_arrived, share))
    return odds > math.log(4 / CHANCE)


def _divergence(ours: int, theirs: int, share: float) -> float:
    """n KL(seen ‖ expected) of counts of which `share` should be ours, in nats."""
    total = ours + theirs
    return sum(
        count * math.log(count / (total * expected))
        for count, expected in ((ours, share), (theirs, 1 - share))
        if count
    )


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
            found.append(Disagreement(DisagreementKind.CLASS, "", "", dscp, ours, theirs, least))
        found += _odd_pairs(pairs, excess[dscp])
    return sorted(found, key=lambda each: -abs(each.verbs - each.udp - each.usual_ns))


def _odd_pairs(pairs: Mapping[Place, tuple[int, int]], usual_ns: float) -> list[Disagreement]:
    spread = median(abs(theirs - ours - usual_ns) for ours, theirs in pairs.values())
    return [
        Disagreement(DisagreementKind.DELAY, *place, ours, theirs, usual_ns)
        for place, (ours, theirs) in pairs.items()
        if abs(theirs - ours - usual_ns) >= max(MIN_DELAY_NS, FAR * spread)
    ]
