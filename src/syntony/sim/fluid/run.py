"""Runs: flows to their ends, event by event, or for as long as a policy needs to settle. Pure."""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple

import numpy as np

from syntony.errors import InputError
from syntony.sim.fluid.field import Field, Telemetry
from syntony.sim.fluid.net import Net, Numbers
from syntony.sim.fluid.policies import POLICIES, PlacingPolicy
from syntony.sim.fluid.policies.base import Tools
from syntony.sim.fluid.traffic import SimulatedTraffic, TriggerBoard
from syntony.traffic.fair import Floats

PAYLOAD, HEADER = 4096, 64
"""Bytes of a packet on the wire: 4,160 for 4,096 of the flow, as in the packet-level reference."""
SAME_NS = 1e-3
"""Ends closer than this are one event: they differ only by rounding."""
QUIET = 20
"""A policy that has not moved for this many epochs plus the age of its telemetry has settled:
longer than the mover's first hold-down of a flow."""


class RunSettings(NamedTuple):
    hop_ns: float = 1_000.0
    """Propagation and forwarding of one link."""
    epoch_ns: float = 100_000.0
    """Interval at which a policy gets telemetry."""
    age: int = 0
    """Age of its telemetry in epochs."""
    noise: float = 0.0
    """Relative error (1 sigma) of every measurement."""
    max_epochs: int = 300
    seed: int = 1


class Finished(NamedTuple):
    """Flows run to their ends."""

    end_ns: Floats
    """When the sender of each has its last acknowledgement, (flows,)."""
    moves: int
    epochs: int
    events: int


class Settled(NamedTuple):
    """The first wave, without end, once its policy has settled or run out of epochs."""

    share: Floats
    """Rate of each flow as a share of its ideal rate, (wave,)."""
    history: Floats
    """Mean share before each epoch and at the end, (epochs + 1,)."""
    moves: int
    epochs: int
    """Until the last move."""


def make_policy(
    name: str, net: Net, traffic: SimulatedTraffic, settings: RunSettings, tools: Tools
) -> tuple[Field, PlacingPolicy]:
    kind = POLICIES[name]
    field = Field(net, traffic, share=tools.share, sprayed=kind.sprays)
    rng = np.random.default_rng([settings.seed, 1])
    return field, kind(field, rng, settings.epoch_ns, tools)


class _Observer:
    """Telemetry, `age` epochs late."""

    def __init__(self, field: Field, settings: RunSettings) -> None:
        self._field, self._noise = field, settings.noise
        self._rng = np.random.default_rng([settings.seed, 2])
        self._pipe: deque[Telemetry] = deque(maxlen=settings.age + 1)

    def look(self, now_ns: float) -> Telemetry | None:
        """The newest telemetry that has arrived; None before the first."""
        self._pipe.append(self._field.observe(now_ns, self._noise, self._rng))
        return self._pipe[0] if len(self._pipe) == self._pipe.maxlen else None


def settle(field: Field, policy: PlacingPolicy, settings: RunSettings) -> Settled:
    """Start the first wave and let the policy act until it has settled."""
    wave = field.traffic.first_wave
    field.start(wave, policy.start(wave))
    field.settle()
    ideal_rates = field.ideal_rates(wave)
    observer = _Observer(field, settings)
    history = [_mean_share(field.rate[wave], ideal_rates)]
    moved = last = 0
    for epoch in range(1, settings.max_epochs + 1 if policy.moves else 1):
        now_ns = epoch * settings.epoch_ns
        telemetry = observer.look(now_ns)
        if telemetry is not None:
            moves = policy.step(telemetry, now_ns)
            if len(moves.flows):
                field.move(moves.flows, moves.pick)
                field.settle()
                moved, last = moved + len(moves.flows), epoch
        history.append(_mean_share(field.rate[wave], ideal_rates))
        if epoch - last > QUIET + 2 * settings.age:
            break
    moved += policy.made_room
    return Settled(field.rate[wave] / ideal_rates, np.array(history), moved, last)


def _mean_share(rate: Floats, ideal_rates: Floats) -> float:
    return float((rate / ideal_rates).mean())


class FluidRun:
    """Runs the flows of a traffic to their ends.

    Between events rates are constant, so ends are exact: an event is a flow that starts or ends,
    or an epoch of the policy.
    """

    def __init__(self, field: Field, policy: PlacingPolicy, settings: RunSettings) -> None:
        self._field, self._policy, self._settings = field, policy, settings
        traffic = field.traffic
        self._size = traffic.size * 8 * (PAYLOAD + HEADER) / PAYLOAD
        self._bits = self._size.copy()
        self._end_ns = np.full(traffic.flows, np.nan)
        self._board = TriggerBoard(traffic)
        self._starts: list[tuple[float, int]] = [
            (float(traffic.start_ns[flow]), flow)
            for flow in np.flatnonzero(traffic.waits < 0).tolist()
        ]
        heapq.heapify(self._starts)
        self._observer = _Observer(field, settings)
        self._now_ns = 0.0
        self._epochs = self._moved = self._events = 0

    def run_to_end(self) -> Finished:
        """Run. Raises `InputError`: flows are left that get nothing."""
        next_epoch_ns = self._settings.epoch_ns
        while True:
            ends_ns, first_end_ns = self._coming_ends()
            due = [first_end_ns, self._starts[0][0] if self._starts else np.inf]
            if not np.isfinite(min(due)):
                break
            if self._policy.moves and self._field.active.any():
                due.append(max(next_epoch_ns, self._now_ns))
            at_ns = min(due)
            self._advance(at_ns)
            self._events += 1
            changed = self._finish(ends_ns) if first_end_ns <= at_ns + SAME_NS else False
            changed |= self._begin()
            if self._policy.moves and at_ns >= next_epoch_ns:
                changed |= self._act()
                next_epoch_ns = at_ns + self._settings.epoch_ns
            if changed:
                self._field.settle()
        if np.isnan(self._end_ns).any():
            flow = self._field.traffic.name(int(np.argmax(np.isnan(self._end_ns))))
            raise InputError("starved", f"flow {flow} gets no bandwidth on the path it has")
        moved = self._moved + self._policy.made_room
        return Finished(self._end_ns, moved, self._epochs, self._events)

    def _coming_ends(self) -> tuple[Floats, float]:
        """When each flow under way would have sent its last bit, (flows,), and the first."""
        field = self._field
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.where(field.active, self._now_ns + self._bits / field.rate, np.inf)
        return ends, float(ends.min())

    def _advance(self, at_ns: float) -> None:
        running = self._field.running
        self._bits[running] -= self._field.rate[running] * (at_ns - self._now_ns)
        self._now_ns = at_ns

    def _finish(self, ends_ns: Floats) -> bool:
        done = np.flatnonzero(ends_ns <= self._now_ns + SAME_NS)
        self._policy.ended(done)
        forward_ns, back_ns = self._latencies_ns(done)
        self._field.end(done)
        traffic = self._field.traffic
        self._end_ns[done] = self._now_ns + forward_ns + back_ns
        for flow, way_ns in zip(done.tolist(), forward_ns.tolist(), strict=True):
            for trigger, later_ns in (
                (int(traffic.fires[flow]), float(self._end_ns[flow]) - self._now_ns),
                (int(traffic.fires_received[flow]), way_ns),
            ):
                for next_flow in self._board.fire(trigger):
                    heapq.heappush(self._starts, (self._now_ns + later_ns, next_flow))
        return True

    def _latencies_ns(self, flows: Numbers) -> tuple[Floats, Floats]:
        """From the last bit that leaves the sender to the receiver, and of the acknowledgement
        back: every switch takes a packet in as a whole before it sends it on."""
        field = self._field
        ways = field.path(flows, field.pick[flows])
        with np.errstate(divide="ignore"):
            per_bit_ns = 1 / np.append(field.net.capacity, np.inf)[ways]
        there = (ways >= 0).sum(axis=1) * self._settings.hop_ns
        packet = np.minimum(8 * (PAYLOAD + HEADER), self._size[flows])
        # The first link's own time is in the flow's rate.
        forward = there + packet * (per_bit_ns.sum(axis=1) - per_bit_ns[:, 0])
        return forward, there + 8 * HEADER * per_bit_ns.sum(axis=1)

    def _begin(self) -> bool:
        due = []
        while self._starts and self._starts[0][0] <= self._now_ns + SAME_NS:
            due.append(heapq.heappop(self._starts)[1])
        if not due:
            return False
        flows = np.array(due, dtype=np.int64)
        self._field.start(flows, self._policy.start(flows))
        return True

    def _act(self) -> bool:
        self._epochs += 1
        telemetry = self._observer.look(self._now_ns)
        if telemetry is None:
            return False
        moves = self._policy.step(telemetry, self._now_ns)
        if not len(moves.flows):
            return False
        self._field.move(moves.flows, moves.pick)
        self._moved += len(moves.flows)
        return True
