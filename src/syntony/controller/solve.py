"""Solves the clocks once a second: agents' edges in, timelines out to agents and the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from syntony.clock.anchored import AnchoredSolver, FleetMemory
from syntony.controller.batches import BatchPiece
from syntony.controller.fleet_time import FleetTime
from syntony.controller.own_rows import OwnRows
from syntony.io.clocks import SyntheticClock
from syntony.model import ClockState, Edge, S, Timeline, Utc, UtcReading
from syntony.wire.clocks import Timelines
from syntony.wire.tables import CLOCK

SOLVE_INTERVAL_NS = 1 * S
"""A clock's drift stays valid far longer; shorter intervals would send agents the same again."""


class SolveLoop:
    """Collects edges, solves, and returns the results. Not thread-safe, except that `step` may run
    in a separate thread while `take` runs in another.

    Args:
        solver: of all clocks.
        is_clock: whether the fleet has a clock of that name.
        true: in a lab, the clocks that its hosts read.
    """

    def __init__(
        self,
        solver: AnchoredSolver,
        is_clock: Callable[[str], bool],
        true: Sequence[SyntheticClock] = (),
    ) -> None:
        self.timelines: tuple[Timeline, ...] = ()
        """Of all clocks, but for those that nothing measures and the fleet no longer has: of NICs
        that were exchanged or renamed, of hosts that were removed."""
        self.true = tuple(true)
        """In a lab: the clocks that its hosts read."""
        self._solver, self._is_clock = solver, is_clock
        self._waiting: dict[str, tuple[tuple[Edge, ...], tuple[UtcReading, ...]]] = {}
        self._newest: dict[str, tuple[Edge, ...]] = {}
        self._epochs: dict[str, int] = {}
        self._new_epoch = False
        self._time = FleetTime()
        self._own_rows = OwnRows(CLOCK)
        self._solved_ns: int | None = None
        self._nodes: frozenset[str] = frozenset()
        """Clocks that have a timeline."""
        self._unsolved = False
        """Whether a clock without a timeline was reported."""
        self.steps = 0
        """Steps of fleet time to UTC since this began."""
        self.last_step = 0
        """Identifies the last step of fleet time; 0 before the first."""

    @property
    def utc(self) -> Utc | None:
        """The offset of UTC, from the last solve; None without anchors."""
        return self._solver.utc

    @property
    def stepped_ns(self) -> int:
        """Size of the step of fleet time in the last solve."""
        return self._solver.stepped_ns

    def take(
        self,
        host: str,
        edges: Sequence[Edge],
        utc: Sequence[UtcReading] = (),
        epochs: Mapping[str, int] | None = None,
    ) -> None:
        """Take the newest edges and UTC readings of one agent, and its clocks' present epochs, as
        filtered by `clock_evidence.credible`."""
        reported = dict(epochs or {})
        self._new_epoch |= any(
            self._epochs.get(node, epoch) != epoch for node, epoch in reported.items()
        )
        self._epochs |= reported
        self._newest[host] = tuple(edges)
        self._unsolved |= not self._nodes.issuperset({edge.a for edge in edges})
        self._waiting[host] = (self._newest[host], tuple(utc))

    def edges(self) -> tuple[Edge, ...]:
        return tuple(edge for _, edges in sorted(self._newest.items()) for edge in edges)

    def inherit(self, memory: FleetMemory) -> None:
        """Continue from a predecessor's timelines; before the first step."""
        self._solver.inherit(memory)

    def memory(self) -> FleetMemory | None:
        """The state from which a successor continues; None while there is none."""
        memory = self._solver.memory()
        return memory if memory.lines else None

    def now(self, now_ns: int) -> int | None:
        """Current fleet time by the newest timelines; None before any."""
        return self._time.now(now_ns)

    def due(self, now_ns: int) -> bool:
        """Once a second; at once for a clock without fleet time, or one that has lost it."""
        return (
            self._new_epoch
            or self._unsolved
            or self._solved_ns is None
            or now_ns - self._solved_ns >= SOLVE_INTERVAL_NS
        )

    def step(self, now_ns: int) -> tuple[Timeline, ...]:
        """Solve with the received edges; `now_ns` is monotonic."""
        self._solved_ns = now_ns
        self._new_epoch = self._unsolved = False
        waiting, self._waiting = self._waiting, {}
        edges = [edge for edges, _ in waiting.values() for edge in edges]
        self._solver.update(edges, now_ns, self._epochs.copy())
        self._solver.add_readings(reading for _, utc in waiting.values() for reading in utc)
        self.timelines = tuple(
            line
            for line in self._solver.solve(now_ns)
            if line.state is ClockState.SYNCHRONIZED or self._is_clock(line.node)
        )
        self._nodes = frozenset(line.node for line in self.timelines)
        if self._solver.stepped_ns:
            self._time = FleetTime()
            self.last_step = now_ns
            self.steps += 1
        for timeline in self.timelines:
            if timeline.state is ClockState.SYNCHRONIZED:
                fleet_ns = timeline.to_fleet_ns(timeline.ref_ns)
                self._time.observe(timeline.node, fleet_ns, now_ns)
        return self.timelines

    def rows(self, now_ns: int) -> BatchPiece | None:
        """The last solve as rows of `clock_1s`; None while there is no fleet time."""
        fleet_ns = self._time.now(now_ns)
        if fleet_ns is None or fleet_ns <= 0 or not self.timelines:
            return None
        return self._own_rows.piece([
            {
                "ts_ns": fleet_ns,
                "node": timeline.node,
                "ref_ns": timeline.ref_ns,
                "offset_ns": timeline.offset_ns,
                "drift_ppb": timeline.drift_ppb,
                "sigma_ns": timeline.sigma_ns,
                "state": timeline.state.value,
                "drift_sigma_ppb": timeline.drift_sigma_ppb,
                "bound_ns": timeline.bound_ns(timeline.to_local_ns(fleet_ns)),
                "reason": timeline.reason,
            }
            for timeline in self.timelines
        ])  # fmt: skip


class Solved:
    """Result of one solve, to be sent to hosts.

    Args:
        timelines: of all clocks.
        utc: the offset of UTC.
        step: identifies the last step of fleet time.
        before: of the previous solve; None: there was none.
    """

    def __init__(
        self,
        timelines: Iterable[Timeline],
        utc: Utc | None = None,
        step: int = 0,
        before: Solved | None = None,
    ) -> None:
        self._lines = {line.node: line for line in timelines}
        self._utc, self._step = utc, step
        self._common = step, None if utc is None else utc.state
        self._urgent = {
            node: (line.state, line.epoch, line.component) for node, line in self._lines.items()
        }
        self._changed: frozenset[str] | None = None
        """Clocks with an urgent change; None: all clocks."""
        if before is not None and before._common == self._common:
            changed = self._urgent.items() ^ before._urgent.items()
            self._changed = frozenset(node for node, _ in changed)

    def is_urgent(self, clocks: frozenset[str]) -> bool:
        """Whether one of these clocks is new, gone, or changes its state, epoch or part."""
        return self._changed is None or not self._changed.isdisjoint(clocks)

    def of(self, clocks: frozenset[str]) -> Timelines:
        """The part about these clocks, for a host."""
        known = sorted(clocks & self._lines.keys())
        return Timelines(
            timelines=tuple(map(self._lines.__getitem__, known)), utc=self._utc, step=self._step
        )
