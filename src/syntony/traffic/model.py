"""The mover's model of the fabric: flows on links, their demands, and which suffer. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from syntony.traffic.chains import FULL
from syntony.traffic.demand import Flow
from syntony.traffic.fair import Floats
from syntony.traffic.measurements import FreshMeasurements, Measurements
from syntony.traffic.moves import MoveCause, MovePolicy
from syntony.traffic.problem import (
    DEAD,
    PlacementProblem,
    known_capacities,
    link_names,
    make_problem,
)

HEADROOM = 1.25
"""Factor by which an unrestricted flow may send more in the next window."""
FORGET = 0.5
"""Share of a flow's demand that is still assumed one step later."""
LEAST_LEFT = 0.05
"""Share of a link assumed free although others fill it: they yield a little to one more flow."""
Choice = NDArray[np.int64]


class Model:
    """Arrays of one set of flows, kept while the set stays the same."""

    def __init__(self, flows: Sequence[Flow]) -> None:
        self.flows = flows
        self.number = {flow.flow_id: place for place, flow in enumerate(flows)}
        self.names = link_names(flows)
        self.link = {name: place for place, name in enumerate(self.names)}
        self._capacities: dict[str, int | None] = {}
        self._peak_bps = 1.0
        self._background: Floats | None = None
        self._problem = self._made(known_capacities(self.names, {}))
        self._requested = self._problem.ideal_bps.copy()
        """Estimated demand of each flow, bits per second."""
        self._row = {
            (flow.flow_id, path.path_id): int(self._problem.first[number]) + place
            for number, flow in enumerate(flows)
            for place, path in enumerate(flow.paths)
        }

    def _made(self, capacity: Floats) -> PlacementProblem:
        return make_problem(self.flows, self.names, capacity)

    @property
    def ideal_bps(self) -> dict[str, float]:
        """Ideal rate of each flow: what it would get if only its own ends limited it."""
        return dict(zip(self.number, self._problem.ideal_bps.tolist(), strict=True))

    def row(self, flow_id: str, path_id: str) -> int:
        """Row of a candidate path; `DEAD` for a path that is none."""
        return self._row.get((flow_id, path_id), DEAD)

    def path(self, number: int, row: int) -> str:
        return self.flows[number].paths[row - int(self._problem.first[number])].path_id

    def learn_capacities(self, measured: Measurements) -> None:
        """Take capacities; if they changed, compute again what depends on them. If none is known,
        every link is assumed to carry the largest load measured on any."""
        reported = {
            name: measured.capacities[name] for name in self.names if name in measured.capacities
        }
        if not any(reported.values()):
            self._peak_bps = max(self._peak_bps, self._most(measured))
            reported = {name: reported.get(name) for name in self.names}
            usual = round(self._peak_bps)
            reported = {name: usual if value is None else value for name, value in reported.items()}
        if reported == self._capacities:
            return
        self._capacities = reported
        before = self._problem.ideal_bps
        self._problem = self._made(known_capacities(self.names, reported))
        self._requested = np.where(
            self._requested < before, self._requested, self._problem.ideal_bps
        )

    def _most(self, measured: Measurements) -> float:
        """Largest load of any link, measured or the sum of the known flows' rates."""
        sums: Counter[str] = Counter()
        for flow in self.flows:
            rate = measured.rates.get(flow.flow_id)
            path = next((p for p in flow.paths if rate and p.path_id == rate.path_id), None)
            for link in path.links if rate and path else ():
                sums[link] += round(rate.bps) if rate else 0
        loads = (load.bps for load in measured.loads.values())
        return max((*loads, *map(float, sums.values())), default=0.0)

    def alive(self, row: int) -> bool:
        return bool((self._problem.capacity[self.links(row)] > 0).all())

    def background(self, fresh: FreshMeasurements, policy: MovePolicy, choice: Choice) -> Floats:
        """Background traffic on each link, bits per second: the measured load less what the known
        flows sent over it then."""
        found = np.zeros(len(self._problem.capacity))
        ours = np.zeros(len(found))
        for number, flow in enumerate(self.flows):
            rate = fresh.rate(flow.flow_id)
            if rate is None:
                continue
            row = self.row(flow.flow_id, rate.path_id) if rate.path_id else int(choice[number])
            if row != DEAD:
                ours[self.links(row)] += rate.bps
        for place, name in enumerate(self.names):
            load = fresh.load(name)
            if load is not None:
                found[place] = load - ours[place]
        if self._background is not None:
            found = self._background + policy.background_weight * (found - self._background)
        self._background = found
        return np.where(found > policy.background_floor * self._problem.capacity, found, 0.0)

    def suffering(
        self, fresh: FreshMeasurements, policy: MovePolicy, choice: Choice, background: Floats
    ) -> dict[str, tuple[MoveCause, str]]:
        """Flows that should or may be moved, with the evidence. Also updates demands: an
        unrestricted flow that sends little has little demand."""
        congested = self._congested_links(fresh, policy, self.use(choice, background))
        found: dict[str, tuple[MoveCause, str]] = {}
        for number, flow in enumerate(self.flows):
            row = int(choice[number])
            if row == DEAD:
                found[flow.flow_id] = (MoveCause.UNPLACED, "no path yet")
            elif not self.alive(row):
                found[flow.flow_id] = (MoveCause.DEAD, "a link of its path is dead")
            else:
                held = bool(congested[self.links(row)].any())
                why = self._why(number, self.path(number, row), fresh, policy, held)
                if why:
                    found[flow.flow_id] = (MoveCause.CROWDED, why)
        return found

    def _congested_links(
        self, fresh: FreshMeasurements, policy: MovePolicy, use: Floats
    ) -> NDArray[np.bool_]:
        """Links whose demand exceeds their capacity, or that are measured full."""
        congested = np.asarray(use > FULL)
        for place, name in enumerate(self.names):
            load = fresh.load(name)
            if load is not None and load >= policy.full * self._problem.capacity[place]:
                congested[place] = True
        return congested

    def _why(
        self, number: int, path_id: str, fresh: FreshMeasurements, policy: MovePolicy, held: bool
    ) -> str:
        """Evidence that a flow suffers; empty if there is none."""
        flow_id = self.flows[number].flow_id
        ideal_bps = float(self._problem.ideal_bps[number])
        queue_ns, rate = fresh.queue_ns(flow_id, path_id), fresh.rate(flow_id)
        queued = queue_ns is not None and queue_ns >= policy.queue_ns
        short = rate is not None and rate.bps < policy.short * ideal_bps and held
        if rate is not None:
            idle = not queued and not short
            least = max(HEADROOM * rate.bps, FORGET * float(self._requested[number]))
            self._requested[number] = min(ideal_bps, least) if idle else ideal_bps
        if queued and queue_ns is not None:
            return f"queues {queue_ns // 1000} µs"
        if short and queue_ns is None and rate is not None and not self.flows[number].striped:
            return f"gets {rate.bps / 1e9:.3g} of {ideal_bps / 1e9:.3g} Gb/s"
        return ""

    def use(self, choice: Choice, background: Floats) -> Floats:
        """Demand of each link as a share of its capacity; infinite for a dead link."""
        problem = self._problem
        requested = replace(problem, ideal_bps=self._requested)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(
                problem.capacity > 0,
                (requested.load(choice) + background) / problem.capacity,
                np.inf,
            )

    def worth(self, links: Iterable[str], before: Floats, after: Floats, gain: float) -> bool:
        """Whether some links improve: the worst of them, or the excess demand of all.

        Args:
            links: by name.
            before: use of every link as things are.
            after: use of every link as they would be.
            gain: how much better is worth a move.
        """
        places = [self.link[name] for name in links if name in self.link]
        if not places:
            return False
        was, will = before[places], after[places]
        if will.max() > was.max() * (1 + gain):
            return False
        excess = [float(np.maximum(use[np.isfinite(use)] - 1, 0).sum()) for use in (was, will)]
        return bool(will.max() <= was.max() * (1 - gain)) or excess[1] <= excess[0] - gain

    def to_solve(self, background: Floats, barred: Callable[[int, int], bool]) -> PlacementProblem:
        """What is to be placed now.

        Args:
            background: of others, (links,).
            barred: whether a flow (its number) may not go to a row.
        """
        problem = self._problem
        first = problem.first.tolist()
        rows = [
            barred(number, row)
            for number in range(problem.flows)
            for row in range(first[number], first[number + 1])
        ]
        least = LEAST_LEFT * problem.capacity
        return replace(
            problem,
            capacity=np.maximum(problem.capacity - background, least),
            ideal_bps=self._requested,
            barred=np.array(rows, dtype=bool),
        )

    def on_links(self, links: Iterable[str], choice: Choice) -> set[str]:
        """Flows whose path crosses one of the links."""
        wanted = {self.link[name] for name in links if name in self.link}
        mask = np.zeros(len(self._problem.capacity) + 1, dtype=bool)
        mask[list(wanted)] = True
        placed = np.flatnonzero(choice != DEAD)
        hit = mask[self._problem.ways[choice[placed]]].any(axis=1)
        return {self.flows[number].flow_id for number in placed[hit].tolist()}

    def choice(self, paths: Mapping[str, str]) -> Choice:
        """Rows of the flows' present paths."""
        return np.array(
            [self.row(flow.flow_id, paths.get(flow.flow_id, "")) for flow in self.flows],
            dtype=np.int64,
        )

    def links(self, row: int) -> NDArray[np.int32]:
        links = self._problem.ways[row]
        return np.asarray(links[links >= 0])
