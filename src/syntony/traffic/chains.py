"""Assign flows to paths, and relieve congested links by chains of moves. Pure.

See `syntony.traffic.place` for what it is for.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from syntony.traffic.fair import Floats
from syntony.traffic.problem import DEAD, PlacementProblem, link_groups

FULL = 1.0 + 1e-6
"""Demand, as a share of a link's capacity, above which it counts as congested (rounding)."""
ROUNDING = 1e-9
LEAST_LEFT = 0.05
"""Share of a link's capacity assumed for a lower class where higher ones demand all of it: twenty
times worse than an empty link, and still better than a dead one."""
MAX_CHAIN = 65_536
"""Links examined for one chain. With 512 one placement in twenty of 2,048 flows on a full fabric
left two flows on one link; most links that cannot be relieved are known before (`_room_beside`)."""
Step = tuple[int, int]
"""A flow and the row it goes to."""


class Board:
    """An assignment of flows to paths, with the demand of each link in bit/s.

    A *row* is a candidate path: a row of `PlacementProblem.ways`.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        self._problem = problem
        self._capacity = np.append(np.maximum(problem.capacity, ROUNDING), np.inf)
        self._open = problem.open
        self._group = link_groups(problem.first, problem.ways, len(problem.capacity))
        order = np.argsort(self._group, kind="stable")
        numbers, starts = np.unique(self._group[order], return_index=True)
        parts = np.split(order, starts[1:]) if len(starts) else []
        self._members = dict(zip(numbers.tolist(), parts, strict=True))
        sizes = problem.ideal_bps[problem.ideal_bps > 0]
        alike = len(sizes) > 0 and float(np.ptp(sizes)) <= ROUNDING * float(sizes.max())
        self._least = float(sizes.min()) * (1 - ROUNDING) if alike else ROUNDING
        """Minimum growth of a link's load: flows of different sizes could otherwise change places
        for ever smaller gains."""
        self._alive = problem.alive
        self._load = np.zeros(len(problem.capacity) + 1)
        self._on: list[list[int]] = [[] for _ in range(len(problem.capacity) + 1)]
        """Flows of the class that is being placed, by link."""
        self.chosen: NDArray[np.int64] = np.full(problem.flows, DEAD, dtype=np.int64)
        self.moves = 0

    def alive(self, row: int) -> bool:
        return bool(self._alive[row])

    def put(self, flow: int, row: int) -> None:
        old = int(self.chosen[flow])
        ideal_bps = self._problem.ideal_bps[flow]
        if old != DEAD:
            self.moves += 1
            for link in self._links(old):
                self._load[link] -= ideal_bps
                self._on[link].remove(flow)
        self.chosen[flow] = row
        if row != DEAD:
            for link in self._links(row):
                self._load[link] += ideal_bps
                self._on[link].append(flow)

    def emptiest(self, flow: int) -> int:
        """The open candidate whose worst link is least loaded, then the one with the emptiest
        links; `DEAD` if there is none."""
        first, last = self._problem.first[flow], self._problem.first[flow + 1]
        ways = self._problem.ways[first:last]
        if not len(ways):
            return DEAD
        after = (self._load[ways] + self._problem.ideal_bps[flow]) / self._capacity[ways]
        worst = np.maximum(after.max(axis=1), 1.0)
        worst[~self._open[first:last]] = np.inf
        best = int(np.lexsort((after.sum(axis=1), np.round(worst, 9)))[0])
        return DEAD if np.isinf(worst[best]) else int(first) + best

    def settle(self) -> None:
        """Relieve every congested link as far as chains can; then subtract the demand of these
        flows from the capacities: the next class gets the rest, and never moves these flows."""
        self._relieve_all()
        self._lower_the_worst()
        left = self._capacity[:-1] - self._load[:-1]
        self._capacity[:-1] = np.maximum(left, LEAST_LEFT * self._capacity[:-1])
        self._load[:] = 0
        self._on = [[] for _ in self._on]

    def _links(self, row: int) -> list[int]:
        return [link for link in self._problem.ways[row].tolist() if link >= 0]

    def _use(self) -> Floats:
        return np.asarray(self._load[:-1] / self._capacity[:-1])

    def _relieve_all(self) -> None:
        """Bring every link below its capacity, where chains can."""
        for link in np.flatnonzero(self._use() > FULL).tolist():
            while self._load[link] > FULL * self._capacity[link] and self._relieve(link, FULL):
                pass

    def _lower_the_worst(self) -> None:
        """Relieve the most loaded links by chains that leave every other link less loaded."""
        stuck: set[int] = set()
        while True:  # every round relieves a link, or marks it as stuck
            use = self._use()
            movable = [k for k in np.flatnonzero(use > FULL).tolist() if self._on[k]]
            congested = [k for k in movable if k not in stuck]
            if not congested:
                return
            link = max(congested, key=lambda each: use[each])
            least = min(self._problem.ideal_bps[f] for f in self._on[link])
            # No link of the chain may become as loaded as this one.
            limit = max(FULL, float(use[link]) - 0.5 * least / self._capacity[link])
            if not self._relieve(link, limit):
                stuck.add(link)

    def _relieve(self, link: int, limit: float) -> bool:
        """Do one chain that takes a flow off a link and brings no other above `limit`."""
        if not self._room_beside(link, limit):
            return False
        parents: dict[int, tuple[int, Step]] = {}
        queue = deque([link])
        looked = 0
        while queue and looked < MAX_CHAIN:
            here = queue.popleft()
            looked += 1
            comer = DEAD if here == link else parents[here][1][0]
            load = self._without(comer)
            for flow in tuple(self._on[here]):
                if comer != DEAD and not self._frees(here, flow, comer, limit):
                    continue
                over_limit, rows = self._options(flow, here, limit, load)
                for row in rows[over_limit == 0].tolist():
                    if self._carry_out(link, self._chain(link, here, parents, (flow, row)), limit):
                        return True
                for row in rows[over_limit == 1].tolist():
                    there = self._over_limit(flow, row, limit, load)
                    if there != link and there not in parents and self._on[there]:
                        parents[there] = (here, (flow, row))
                        queue.append(there)
        return False

    def _room_beside(self, link: int, limit: float) -> bool:
        """Whether any alternative to a link could carry more: if none can, no chain helps, and most
        links that cannot be relieved (a leaf with fewer ways up than flows) are such."""
        others = self._members[int(self._group[link])]
        room = limit * self._capacity[others] - self._load[others]
        return bool((room[others != link] >= self._least).any())

    def _without(self, flow: int) -> Floats:
        """The load when a flow has left: the next step of a chain may use what the last one freed,
        as Kempe chains do."""
        if flow == DEAD:
            return self._load
        load = self._load.copy()
        load[self._links(int(self.chosen[flow]))] -= self._problem.ideal_bps[flow]
        return load

    def _options(
        self, flow: int, link: int, limit: float, load: Floats
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Open candidates that avoid a link, and how many links each would bring above the
        limit."""
        first, last = self._problem.first[flow], self._problem.first[flow + 1]
        ways = self._problem.ways[first:last]
        usable = ~(ways == link).any(axis=1) & self._open[first:last]
        ways = ways[usable]
        rows = first + np.flatnonzero(usable)
        staying = np.isin(ways, self._problem.ways[self.chosen[flow]])
        after = (load[ways] + self._problem.ideal_bps[flow]) / self._capacity[ways]
        over_limit = ((after > limit) & ~staying).sum(axis=1)
        order = np.argsort(after.max(axis=1), kind="stable")
        return over_limit[order], rows[order]

    def _over_limit(self, flow: int, row: int, limit: float, load: Floats) -> int:
        """The one link that a move would bring above the limit."""
        staying = set(self._links(int(self.chosen[flow])))
        ideal_bps = self._problem.ideal_bps[flow]
        return next(
            link
            for link in self._links(row)
            if link not in staying and (load[link] + ideal_bps) / self._capacity[link] > limit
        )

    def _frees(self, link: int, flow: int, comer: int, limit: float) -> bool:
        """Whether a link has room for one flow after another has left."""
        ideal_bps = self._problem.ideal_bps
        after = self._load[link] + ideal_bps[comer] - ideal_bps[flow]
        return flow != comer and bool(after <= limit * self._capacity[link])

    @staticmethod
    def _chain(
        link: int, here: int, parents: dict[int, tuple[int, Step]], last: Step
    ) -> list[Step]:
        steps = [last]
        while here != link:
            here, step = parents[here]
            steps.append(step)
        return steps

    def _carry_out(self, link: int, steps: list[Step], limit: float) -> bool:
        """Do a chain, last step first; undo it if its steps conflict."""
        if len({flow for flow, _ in steps}) < len(steps):
            return False
        before = [(flow, int(self.chosen[flow])) for flow, _ in steps]
        touched = {k for _, row in steps for k in self._links(row)} | {link}
        was = {k: self._load[k] for k in touched}
        for flow, row in steps:
            self.put(flow, row)
        fits = all(
            self._load[k] <= max(limit * self._capacity[k], was[k]) * (1 + ROUNDING)
            for k in touched
        )
        if fits and self._load[link] < was[link] * (1 - ROUNDING):
            return True
        for flow, row in before:
            self.put(flow, row)
        return False
