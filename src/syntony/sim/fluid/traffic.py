"""Traffic of a simulation: flows with sizes, starts and triggers, as checked arrays. Pure."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syntony.errors import InputError
from syntony.sim.fluid.net import Numbers

NEVER = -1
"""As a trigger: none."""


class TriggerKind(enum.StrEnum):
    """What a trigger does when flows fire it; as in the connection matrices of htsim."""

    ONESHOT = "oneshot"
    """The first that fires starts all that wait."""
    MULTISHOT = "multishot"
    """Each that fires starts the next that waits."""
    BARRIER = "barrier"
    """When `count` have fired, all that wait start."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Between the end of some flows and the start of others."""

    kind: TriggerKind
    count: int = 1
    """Of a barrier."""


@dataclass(frozen=True, kw_only=True)
class SimulatedTraffic:
    """Flows of some jobs; all arrays are (flows,). See `check_traffic`."""

    src: Numbers
    """NIC numbers."""
    dst: Numbers
    size: NDArray[np.float64]
    """Bytes."""
    job: Numbers
    start_ns: NDArray[np.float64]
    """Of flows that wait for no trigger."""
    waits: Numbers
    """Trigger that starts the flow; `NEVER`: it starts by the clock."""
    fires: Numbers
    """Trigger fired when the sender has the last acknowledgement; `NEVER`: none."""
    fires_received: Numbers
    """Trigger fired when the receiver has the last byte; `NEVER`: none."""
    triggers: Mapping[int, Trigger] = field(default_factory=dict)
    weight: NDArray[np.float64] | None = None
    """Of each flow; None: all 1."""
    priority: NDArray[np.int8] | None = None
    """`traffic.demand.Priority` of each; None: all standard."""
    names: Sequence[str] | None = None

    @property
    def flows(self) -> int:
        return len(self.src)

    @cached_property
    def waiting(self) -> dict[int, list[int]]:
        """Trigger to the flows that it starts, in order."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for flow in np.flatnonzero(self.waits != NEVER).tolist():
            found[int(self.waits[flow])].append(flow)
        return dict(found)

    @cached_property
    def first_wave(self) -> Numbers:
        """Flows that start by the clock at the earliest start."""
        free = np.flatnonzero(self.waits == NEVER)
        return np.asarray(free[self.start_ns[free] == self.start_ns[free].min()])

    def name(self, flow: int) -> str:
        return str(flow) if self.names is None else self.names[flow]


def make_traffic(
    src: Iterable[int],
    dst: Iterable[int],
    size: Iterable[float] | float,
    job: Iterable[int],
    *,
    waits: Iterable[int] | None = None,
    fires: Iterable[int] | None = None,
    triggers: Mapping[int, Trigger] | None = None,
) -> SimulatedTraffic:
    """Traffic that starts at once but for triggers."""
    a, b = np.fromiter(src, dtype=np.int64), np.fromiter(dst, dtype=np.int64)
    none = np.full(len(a), NEVER, dtype=np.int64)
    return SimulatedTraffic(
        src=a,
        dst=b,
        size=np.broadcast_to(np.asarray(size, dtype=np.float64), len(a)).copy(),
        job=np.fromiter(job, dtype=np.int64),
        start_ns=np.zeros(len(a)),
        waits=none if waits is None else np.fromiter(waits, dtype=np.int64),
        fires=none.copy() if fires is None else np.fromiter(fires, dtype=np.int64),
        fires_received=none.copy(),
        triggers=triggers or {},
    )


def check_traffic(traffic: SimulatedTraffic, nics: int) -> SimulatedTraffic:
    """The same traffic, if it can be run to its end. Raises `InputError`: no flows, a NIC that is
    not there, a flow to itself, a size of nothing, a trigger that is not defined or that never
    starts what waits for it."""
    if not traffic.flows:
        raise InputError("empty", "the traffic holds no flows")
    for ends, what in ((traffic.src, "sends"), (traffic.dst, "receives")):
        wrong = np.flatnonzero((ends < 0) | (ends >= nics))
        if len(wrong):
            raise InputError(
                "unknown-host",
                f"flow {traffic.name(int(wrong[0]))}: NIC {ends[wrong[0]]} {what}, and there are "
                f"{nics} (0 to {nics - 1})",
            )
    _refuse(traffic, traffic.src == traffic.dst, "to-itself", "sends to itself")
    fine = np.isfinite(traffic.size) & (traffic.size > 0)
    _refuse(traffic, ~fine, "bad-size", "has no size above zero")
    _refuse(traffic, ~(traffic.start_ns >= 0), "bad-start", "starts before time zero")
    _check_triggers(traffic)
    return traffic


def _refuse(traffic: SimulatedTraffic, wrong: NDArray[np.bool_], name: str, text: str) -> None:
    if wrong.any():
        raise InputError(name, f"flow {traffic.name(int(np.argmax(wrong)))} {text}")


def _check_triggers(traffic: SimulatedTraffic) -> None:
    used = set(traffic.waits.tolist()) | set(traffic.fires.tolist())
    used |= set(traffic.fires_received.tolist())
    unknown = sorted(used - {NEVER} - set(traffic.triggers))
    if unknown:
        raise InputError("unknown-trigger", f"trigger {unknown[0]} is used and not defined")
    stuck = np.flatnonzero(~_started(traffic))
    if len(stuck):
        flow = int(stuck[0])
        raise InputError(
            "trigger-cycle",
            f"flow {traffic.name(flow)} never starts: trigger {traffic.waits[flow]} waits for "
            f"itself, or for fewer flows than it needs ({len(stuck)} flows in all)",
        )


def _started(traffic: SimulatedTraffic) -> NDArray[np.bool_]:
    """Which flows start at all, whatever the times, (flows,)."""
    board = TriggerBoard(traffic)
    started = np.asarray(traffic.waits == NEVER)
    front = np.flatnonzero(started).tolist()
    while front:
        following: list[int] = []
        for flow in front:
            for trigger in (int(traffic.fires[flow]), int(traffic.fires_received[flow])):
                following += board.fire(trigger)
        started[following] = True
        front = following
    return started


class TriggerBoard:
    """How often each trigger has been fired."""

    def __init__(self, traffic: SimulatedTraffic) -> None:
        self._traffic = traffic
        self._fired: defaultdict[int, int] = defaultdict(int)

    def fire(self, trigger: int) -> list[int]:
        """Flows that start now."""
        if trigger == NEVER:
            return []
        self._fired[trigger] += 1
        fired, rule = self._fired[trigger], self._traffic.triggers[trigger]
        waiting = self._traffic.waiting.get(trigger, [])
        if rule.kind is TriggerKind.MULTISHOT:
            return waiting[fired - 1 : fired]
        needed = rule.count if rule.kind is TriggerKind.BARRIER else 1
        return list(waiting) if fired == needed else []
