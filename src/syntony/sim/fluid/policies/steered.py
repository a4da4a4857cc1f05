"""Syntony's policy: placement where flows are known, D-mod-K where not, then the mover on
telemetry."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from syntony.sim.fluid.field import Field, Telemetry
from syntony.sim.fluid.net import Numbers
from syntony.sim.fluid.policies.base import NO_MOVES, PlacingPolicy, PolicyMoves, Tools
from syntony.sim.fluid.policies.central import Coloured, place_new
from syntony.sim.fluid.policies.distributed import by_destination
from syntony.traffic.demand import CandidatePath, Flow, Priority
from syntony.traffic.measurements import LinkLoad, MeasuredRate, Measurements, PathDelay
from syntony.traffic.mover import Mover
from syntony.traffic.moves import MovePolicy

GBPS = 1e9
SHORT = 0.9
"""As `MovePolicy.short`: below this part of what it could get, a flow is looked at."""
QUEUE_NS = 10_000
MANY = 50_000
"""Flows from which on like ones are placed by edge colouring: chains of moves hold every path of
every flow in memory."""
MAX_AGE = 8
"""Epochs of age that the mover's patience is made for."""


class Steered(PlacingPolicy):
    """The controller's own code (`traffic.place`, `traffic.mover`), its times scaled to epochs.

    From `MANY` flows on, like ones are placed by edge colouring instead, which only the simulator
    uses.
    """

    name: ClassVar[str] = "syntony"
    moves: ClassVar[bool] = True

    def __init__(
        self, field: Field, rng: np.random.Generator, epoch_ns: float, tools: Tools
    ) -> None:
        super().__init__(field, rng, epoch_ns, tools)
        epoch = max(1, round(epoch_ns))
        policy = MovePolicy(
            queue_ns=QUEUE_NS,
            short=SHORT,
            stale_ns=MAX_AGE * epoch,
            settle_ns=epoch,
            act_ns=MAX_AGE * epoch,
            judge_ns=4 * MAX_AGE * epoch,
            hold_down_ns=2 * MAX_AGE * epoch,
            hold_down_max_ns=1_000 * epoch,
            decay_ns=1_000 * epoch,
            max_moves=1_000_000,
            max_moves_per_s=10**12 // epoch,
        )
        self.mover = Mover(policy, tools.place)
        self._paths: dict[tuple[int, int], tuple[tuple[CandidatePath, ...], dict[str, int]]] = {}
        self._names: list[str] = []

        many = field.traffic.flows > MANY and tools.known and Coloured.fits(field)
        self._coloured = Coloured(self) if many else None

    def start(self, flows: Numbers) -> Numbers:
        if self._coloured is not None:
            return self._coloured.start(flows)
        return place_new(self, flows) if self.tools.known else by_destination(self, flows)

    def ended(self, flows: Numbers) -> None:
        if self._coloured is not None:
            self._coloured.ended(flows)

    def step(self, telemetry: Telemetry, now_ns: float) -> PolicyMoves:
        running = self.field.running
        if self._coloured is not None:  # has no crowded link, and would take moves back
            return NO_MOVES
        if not len(running) or not (self._any_suffers(telemetry) or self.mover.on_trial):
            return NO_MOVES
        self.mover.update([self._flow(flow) for flow in running.tolist()])
        moves = self.mover.step(self._records(telemetry), round(now_ns))
        flows = [int(move.flow_id) for move in moves]
        for move in moves:
            self.mover.done(move.flow_id, round(now_ns), ok=True)
        pick = [self._of_pair(flow)[1][move.new] for flow, move in zip(flows, moves, strict=True)]
        return PolicyMoves(np.array(flows, dtype=np.int64), np.array(pick, dtype=np.int64))

    def _any_suffers(self, telemetry: Telemetry) -> bool:
        flows = np.flatnonzero(telemetry.active & self.field.active)
        if not len(flows):
            return False
        ways = self.field.path(flows, telemetry.pick[flows])
        short = telemetry.rate[flows] < SHORT * self.field.ideal_rates(flows)
        return bool((short | (telemetry.delay_ns(ways) >= QUEUE_NS)).any())

    def _of_pair(self, flow: int) -> tuple[tuple[CandidatePath, ...], dict[str, int]]:
        """A flow's candidates as records, and the pick of each."""
        field = self.field
        src, dst = field.traffic.src[flow : flow + 1], field.traffic.dst[flow : flow + 1]
        key = (int(src[0]), int(dst[0]))
        if key not in self._paths:
            if not self._names:
                self._names = [field.net.link_name(link) for link in range(field.net.links)]
            found = field.net.candidates(src, dst)
            paths = tuple(
                CandidatePath(str(pick), tuple(self._names[link] for link in way if link >= 0))
                for pick, way in zip(found.pick.tolist(), found.ways.tolist(), strict=True)
            )
            self._paths[key] = (paths, {str(pick): pick for pick in found.pick.tolist()})
        return self._paths[key]

    def _flow(self, flow: int) -> Flow:
        traffic = self.field.traffic
        return Flow(
            flow_id=str(flow),
            job=f"job{traffic.job[flow]}",
            paths=self._of_pair(flow)[0],
            path_id=str(self.field.pick[flow]),
            priority=Priority.STANDARD
            if traffic.priority is None
            else Priority(int(traffic.priority[flow])),
            weight=1.0 if traffic.weight is None else float(traffic.weight[flow]),
        )

    def _records(self, telemetry: Telemetry) -> Measurements:
        at_ns = round(telemetry.at_ns)
        flows = np.flatnonzero(telemetry.active & self.field.active)
        queues = telemetry.delay_ns(self.field.path(flows, telemetry.pick[flows]))
        used = np.flatnonzero(telemetry.load > 0).tolist()
        return Measurements(
            loads={self._names[k]: LinkLoad(at_ns, GBPS * float(telemetry.load[k])) for k in used},
            rates={
                str(flow): MeasuredRate(
                    at_ns, GBPS * float(telemetry.rate[flow]), str(telemetry.pick[flow])
                )
                for flow in flows.tolist()
            },
            delays={
                (str(flow), str(telemetry.pick[flow])): PathDelay(at_ns, round(queue_ns), 0)
                for flow, queue_ns in zip(flows.tolist(), queues.tolist(), strict=True)
            },
            capacities={
                name: round(GBPS * gbps)
                for name, gbps in zip(self._names, self.field.net.capacity.tolist(), strict=True)
            },
        )
