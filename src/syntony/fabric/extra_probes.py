"""Choose additional pairs of NICs to probe, to distinguish suspects. Pure.

Suspects are twins because all probed paths cross both. A mesh is sparse: other pairs, and other
source ports of the same pairs, take other paths. Their possible paths follow from the links in
learnt paths and from the switches that NICs are at. If no shortest path between any two NICs
crosses one suspect without the other, no probe can distinguish them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from syntony.fabric.link_graph import LinkGraph
from syntony.fabric.names import ARROW, cable_name, link_ends, link_name, same_place
from syntony.model.findings import Finding
from syntony.model.names import host_of

MAX_WAYS = 64
"""Equal-cost paths of a pair that are considered."""
MAX_PAIRS_TRIED, NICS_TRIED = 2_000, 200
NICS_PER_SWITCH = 2
"""Apart from suspects, NICs at one switch are equivalent: this many of them are tried."""

Pair = tuple[str, str]


RIVAL_SHARE = 0.5
"""An alternative at least this likely, relative to the best, is a suspect too."""


class SuspectNote(NamedTuple):
    """State of the question which of several suspects is at fault."""

    text: str
    """Text for operators."""
    pending: bool
    """Whether an answer may come within seconds."""


class ExtraProbe(NamedTuple):
    """What to probe."""

    pairs: tuple[Pair, ...]
    """NICs, from and to; best first."""
    together: tuple[Pair, ...]
    """Suspects that no pair distinguishes."""


def suspected(found: Finding) -> tuple[str, ...]:
    """Suspects of a finding, by name: one, or all that it cannot distinguish and that need
    different repairs. If the direction of a link is unknown, its cable."""
    odds = tuple(zip(found.alternatives, found.probabilities, strict=False))[found.twins :]
    rivals = {name for name, share in odds if share >= RIVAL_SHARE * found.confidence}
    names = {found.component, *found.alternatives[: found.twins], *rivals}
    if not same_place(names):
        return tuple(sorted(names))
    # A fault seen in one direction only is named by that direction: its cable is a twin, not an
    # alternative.
    ends = {frozenset(link_ends(name) or ()) for name in (found.component, *rivals)}
    cable = next(iter(ends)) if rivals and len(ends) == 1 else ()
    return (cable_name(*cable),) if cable else (found.component,)


def separating(
    suspects: Collection[str],
    links: Iterable[str],
    homes: Mapping[str, str],
    *,
    planned: Collection[Pair] = (),
    limit: int,
) -> ExtraProbe:
    """Pairs whose paths distinguish these suspects.

    Args:
        suspects: components; groups have no known paths and cannot be distinguished.
        links: known names of links between switches, by direction; others are ignored.
        homes: NIC → the switch that it is at.
        planned: pairs that are probed already; these are chosen last, for their other paths.
        limit: maximum number of pairs.
    """
    ways = _Ways(links, homes)
    tried = _tried(suspects, homes)
    chosen: dict[Pair, None] = {}
    together: list[Pair] = []
    for one, other in itertools.combinations(sorted(suspects), 2):
        reported = {pair: _telling(ways.of(pair), one, other) for pair in tried}
        best = sorted(
            (pair for pair, share in reported.items() if share > 0),
            key=lambda pair: (pair in planned, -reported[pair], pair),
        )
        if not best:
            together.append((one, other))
        # A single pair may be down for another reason.
        chosen |= dict.fromkeys(best[:2])
    return ExtraProbe(tuple(chosen)[:limit], tuple(together))


def _tried(suspects: Collection[str], homes: Mapping[str, str]) -> list[Pair]:
    """Pairs worth trying: first those with an end at a suspect."""
    ends = {end for name in suspects for end in (link_ends(name) or (name,))}
    near = ends | {nic for nic in homes if host_of(nic) in ends}
    at: dict[str, list[str]] = defaultdict(list)
    for nic in sorted(homes, key=lambda nic: (nic not in near, nic)):
        own = sum(each in near for each in at[homes[nic]])
        if nic in near or len(at[homes[nic]]) < NICS_PER_SWITCH + own:
            at[homes[nic]].append(nic)
    nics = [nic for each in at.values() for nic in each]
    first = [nic for nic in nics if nic in near or homes[nic] in near]
    rng = np.random.default_rng(0)
    found: dict[Pair, None] = {}
    for some in (first, nics):
        pairs = [(a, b) for a in _drawn(some, rng) for b in _drawn(nics, rng)]
        for number in rng.permutation(len(pairs)).tolist():
            a, b = pairs[number]
            if host_of(a) != host_of(b) and len(found) < MAX_PAIRS_TRIED:
                found |= {(a, b): None, (b, a): None}
    return list(found)


def _drawn(nics: Sequence[str], rng: np.random.Generator) -> list[str]:
    chosen = rng.permutation(len(nics))[:NICS_TRIED].tolist()
    return [nics[number] for number in chosen]


def _telling(ways: Collection[frozenset[str]], one: str, other: str) -> float:
    """The share of these paths that cross exactly one of the two."""
    telling = sum((one in way) is not (other in way) for way in ways)
    return telling / len(ways) if ways else 0.0


class _Ways:
    """Shortest paths over known links, each as the components that it crosses; arguments as
    `separating`."""

    def __init__(self, links: Iterable[str], homes: Mapping[str, str]) -> None:
        between = [
            name
            for name in links
            if ARROW in name and not any("/" in end for end in link_ends(name) or ())
        ]
        # One NIC at each switch shows which tier that switch is.
        ends = {switch: nic for nic, switch in homes.items()}
        leaves = [cable_name(nic, switch) for switch, nic in ends.items()]
        self._graph = LinkGraph([*between, *leaves], {*ends.values()}.__contains__)
        self._homes = homes
        self._known: dict[Pair, tuple[tuple[str, ...], ...]] = {}

    def of(self, pair: Pair) -> list[frozenset[str]]:
        """Of a pair of NICs, one direction."""
        src, dst = pair
        between = self._between(self._homes[src], self._homes[dst])
        return [_components((src, *way, dst)) for way in between]

    def _between(self, near: str, far: str) -> tuple[tuple[str, ...], ...]:
        if (near, far) not in self._known:
            shortest = self._graph.shortest(near, far)
            self._known[near, far] = tuple(itertools.islice(shortest, MAX_WAYS))
        return self._known[near, far]


def _components(devices: tuple[str, ...]) -> frozenset[str]:
    pairs = list(itertools.pairwise(devices))
    links = (name(a, b) for a, b in pairs for name in (link_name, cable_name))
    hosts = (host_of(nic) for nic in (devices[0], devices[-1]))
    return frozenset((*devices, *links, *hosts))
