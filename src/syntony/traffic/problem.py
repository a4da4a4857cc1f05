"""Flows, candidate paths and capacities as arrays: what the algorithms here work on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.traffic.demand import Capacities, Flow, Priority
from syntony.traffic.fair import Floats, Ints, max_min

DEAD = -1
"""As a flow's choice: none of its candidates is alive, or it has none."""


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """Arrays; candidates of flow f are rows ``first[f] … first[f + 1] - 1`` of `ways`."""

    first: NDArray[np.int64]
    """(flows + 1,)."""
    ways: Ints
    """Links of each candidate, (candidates, hops); -1 where a path has fewer. Links that all
    candidates of a flow share may be missing: they do not affect the choice."""
    capacity: Floats
    """Of each link, (links,)."""
    ideal_bps: Floats
    """Ideal rate of each flow: what it would get if only its own ends limited it, (flows,)."""
    priority: NDArray[np.int8]
    """(flows,)."""
    barred: NDArray[np.bool_] | None = None
    """Candidates that must not be chosen, unless a flow is already on them, (candidates,)."""

    @property
    def flows(self) -> int:
        return len(self.first) - 1

    @property
    def open(self) -> NDArray[np.bool_]:
        """Candidates that can be chosen: alive and not barred, (candidates,)."""
        alive = self.alive
        return alive if self.barred is None else alive & ~self.barred

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Candidates without a dead link, (candidates,)."""
        return np.asarray((np.append(self.capacity, 1.0)[self.ways] > 0).all(axis=1))

    def load(self, chosen: NDArray[np.int64]) -> Floats:
        """Wanted bandwidth on each link, (links,).

        Args:
            chosen: row of `ways` for each flow, or `DEAD`.
        """
        placed = np.flatnonzero(chosen >= 0)
        links = self.ways[chosen[placed]]
        weights = np.repeat(self.ideal_bps[placed], links.shape[1])
        found = np.bincount(links.ravel() + 1, weights, len(self.capacity) + 1)
        return np.asarray(found[1:], dtype=np.float64)


def known_capacities(links: Sequence[str], capacities: Capacities) -> Floats:
    """Capacities in bits per second; the median of the known where it is not known, else 1."""
    reported = [capacities.get(link) for link in links]
    alive = [value for value in reported if value]
    usual = float(np.median(alive)) if alive else 1.0
    return np.array([usual if value is None else float(max(value, 0)) for value in reported])


def link_names(flows: Iterable[Flow]) -> list[str]:
    """All links that any candidate crosses, in order of appearance."""
    return list(dict.fromkeys(link for f in flows for path in f.paths for link in path.links))


def make_problem(flows: Sequence[Flow], links: Sequence[str], capacity: Floats) -> PlacementProblem:
    """Arrays from records.

    Args:
        flows: in the order of the arrays.
        links: names, in the order of `capacity`; all that any candidate crosses.
        capacity: (links,).
    """
    number = {name: place for place, name in enumerate(links)}
    first = np.cumsum([0] + [len(flow.paths) for flow in flows])
    paths = [[number[link] for link in path.links] for flow in flows for path in flow.paths]
    ways = np.full((len(paths), max([1, *map(len, paths)])), -1, dtype=np.int32)
    for row, path in enumerate(paths):
        ways[row, : len(path)] = path
    return PlacementProblem(
        first=first,
        ways=ways,
        capacity=capacity,
        ideal_bps=_ideal_bps(flows, ways, first, capacity),
        priority=np.array([flow.priority for flow in flows], dtype=np.int8),
    )


def _ideal_bps(flows: Sequence[Flow], ways: Ints, first: NDArray[np.int64], cap: Floats) -> Floats:
    """Max-min rates over the links that flows cannot avoid, each class as if alone."""
    unavoidable = []
    for number in range(len(flows)):
        mine = ways[first[number] : first[number + 1]]
        common = set(mine[0].tolist()) if len(mine) else set()
        for way in mine[1:]:
            common &= set(way.tolist())
        unavoidable.append(sorted(common - {-1}))
    links = np.full((len(flows), max([1, *map(len, unavoidable)])), -1, dtype=np.int32)
    for number, each in enumerate(unavoidable):
        links[number, : len(each)] = each
    demand = np.array([np.inf if f.demand_bps is None else f.demand_bps for f in flows])
    weight = np.array([flow.weight for flow in flows], dtype=np.float64)
    ideal_bps = np.zeros(len(flows))
    for priority in Priority:
        mine = np.array([f.priority is priority for f in flows], dtype=bool)
        ideal_bps[mine] = max_min(links[mine], cap, weight[mine], demand[mine])
    usual = float(np.median(cap[cap > 0])) if (cap > 0).any() else 1.0
    # A flow without any unavoidable link would fill a usual link.
    return np.where(np.isfinite(ideal_bps), ideal_bps, usual * weight)


def link_groups(first: NDArray[np.int64], ways: Ints, links: int) -> NDArray[np.int64]:
    """Links that are alternatives to each other at one stage of some flow's paths (all cables up
    from a leaf, for example) have one number, that of the least of them, (links,)."""
    group = np.arange(links)
    counts = np.diff(first)
    owner = np.repeat(np.arange(len(counts)), counts)
    if not len(owner):
        return group
    head = ways[np.minimum(first[:-1], len(ways) - 1)]
    while True:
        before = group.copy()
        for hop in range(ways.shape[1]):
            mine, lead = ways[:, hop], head[owner, hop]
            both = (mine >= 0) & (lead >= 0)
            low = np.minimum(group[mine[both]], group[lead[both]])
            np.minimum.at(group, mine[both], low)
            np.minimum.at(group, lead[both], low)
        group = group[group]
        if (group == before).all():
            return np.asarray(group)
