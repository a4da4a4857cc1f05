"""A small world for the mover: true paths, true max-min rates, telemetry that may lie."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from syntony.model import S
from syntony.traffic.demand import Flow
from syntony.traffic.fair import max_min
from syntony.traffic.measurements import LinkLoad, MeasuredRate, Measurements, PathDelay
from syntony.traffic.mover import Mover
from syntony.traffic.moves import FlowMove

GBPS = 1e9


class World:
    """Steps of half a second; moves are carried out at once."""

    def __init__(
        self,
        flows: Sequence[Flow],
        *,
        seed: int = 0,
        age: int = 0,
        noise: float = 0.0,
        truth: dict[tuple[str, str], tuple[str, ...]] | None = None,
        capacity: dict[str, float] | None = None,
        delays: bool = True,
    ) -> None:
        self.flows = {flow.flow_id: flow for flow in flows}
        self.at_ns = 0
        self.moves: list[FlowMove] = []
        self.by_step: list[int] = []
        self._rng = np.random.default_rng(seed)
        self._noise = noise
        self._delays = delays
        self._truth = truth or {}
        """(flow, path) to the links it really takes, where the map is wrong."""
        self.capacity = capacity or {}
        self._pipe: deque[Measurements] = deque(maxlen=age + 1)

    def links(self, flow: Flow) -> tuple[str, ...]:
        current = flow.current
        assert current is not None
        return self._truth.get((flow.flow_id, flow.path_id), current.links)

    def rates(self) -> dict[str, float]:
        """True rates in bits per second."""
        flows = list(self.flows.values())
        names: dict[str, int] = {}
        rows = [[names.setdefault(k, len(names)) for k in self.links(flow)] for flow in flows]
        width = max(map(len, rows))
        table = np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int32)
        room = np.array([self.capacity.get(name, 100 * GBPS) for name in names])
        demand = np.array([f.demand_bps or np.inf for f in flows])
        found = max_min(table, room, None, demand)
        return {flow.flow_id: float(rate) for flow, rate in zip(flows, found, strict=True)}

    def _measure(self) -> Measurements:
        rates = self.rates()
        loads: dict[str, float] = {}
        for flow_id, rate in rates.items():
            for link in self.links(self.flows[flow_id]):
                loads[link] = loads.get(link, 0.0) + rate

        def noisy(value: float) -> float:
            return value * (1 + self._noise * float(self._rng.normal()))

        delays = {}
        for flow_id, flow in self.flows.items():
            full = any(
                loads[k] > 0.999 * self.capacity.get(k, 100 * GBPS) for k in self.links(flow)
            )
            waits = full and rates[flow_id] < 0.99 * 100 * GBPS
            owd_ns = 10_000 + (200_000 if waits else 0)
            delays[flow_id, flow.path_id] = PathDelay(self.at_ns, owd_ns, 10_000)
        return Measurements(
            loads={link: LinkLoad(self.at_ns, noisy(bps)) for link, bps in loads.items()},
            rates={
                flow_id: MeasuredRate(self.at_ns, noisy(rate), self.flows[flow_id].path_id)
                for flow_id, rate in rates.items()
            },
            delays=delays if self._delays else {},
            capacities={link: int(bps) for link, bps in self.capacity.items()},
        )

    def run(self, mover: Mover, steps: int) -> None:
        for _ in range(steps):
            self.at_ns += S // 2
            self._pipe.append(self._measure())
            mover.update(list(self.flows.values()))
            moves = mover.step(self._pipe[0], self.at_ns)
            requested = [move.flow_id for move in moves]
            assert len(requested) == len(set(requested)), "two moves of one flow at once"
            assert set(requested) == mover.under_way
            for move in moves:
                flow = self.flows[move.flow_id]
                assert move.old == flow.path_id
                self.flows[move.flow_id] = replace(flow, path_id=move.new)
                mover.done(move.flow_id, self.at_ns, ok=True)
            self.moves += moves
            self.by_step.append(len(moves))
