"""The failover state machine of one host: events in, instructions out, time an argument.

It handles connections, paths and NICs, independent of the kernel's mechanisms. Every decision
follows from the present state (`Steering.settle`), so a lost event costs time, not correctness.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from syntony.model import MS, S
from syntony.model.paths import (
    FlowSample,
    FourTuple,
    LinkEvent,
    LivenessEvent,
    PathEvent,
    StallEvent,
)
from syntony.traffic import events
from syntony.traffic.connection import MptcpConnection
from syntony.traffic.connection_table import ConnectionTable
from syntony.traffic.extra_ports import HANGS_NS, HANGS_RTTS, ExtraPortProbing, with_witnesses
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.health import Health
from syntony.traffic.instructions import (
    Create,
    Instruction,
    KernelRefusal,
    RestoreRoutes,
    WatchPaths,
)
from syntony.traffic.moving import MoveOrder
from syntony.traffic.pairs import LocalNic, Pair, WatchedFlow
from syntony.traffic.path_notices import PathNotices, ProcessPath
from syntony.traffic.plain import PlainPaths
from syntony.traffic.policy import Policy
from syntony.traffic.rail_moves import RailMoves, RailOrder
from syntony.traffic.relocate import Relocation
from syntony.traffic.steering import Steering
from syntony.traffic.turn import Turn

WATCH_EVERY_NS = 50 * MS
"""Interval at which the paths in use are collected: a job opens its connections all at once."""
LISTED_NS = 1 * S
"""With an older listing it is unknown which connections have ended."""

ConnectionNews = events.ConnectionEvent | events.AddressEvent | events.JobFound | KernelRefusal
Event = PathEvent | ConnectionNews | events.PlainEvent


class Failover:
    """All connections of one host.

    Args:
        nics: this host's NICs that jobs may use.
        seed: of the source ports drawn.
    """

    def __init__(self, policy: Policy, nics: Iterable[LocalNic], seed: int) -> None:
        self._policy = policy
        self.health = Health(policy, nics)
        self.steering = Steering(policy, self.health, seed)
        self.relocation = Relocation(policy, self.steering)
        self.table = ConnectionTable(policy, self.health, self.steering.ports)
        self.connections = self.table.by_token
        self.plain = PlainPaths(policy, self.health, lambda: self.steering.acting)
        self.notices = PathNotices(self.health)
        self.rails = RailMoves(
            policy, self.health, lambda: self.steering.acting, self.relocation.outcomes.append
        )
        self._due: list[tuple[int, int]] = []
        self._watched: frozenset[tuple[str, str]] = frozenset()
        self._extra_ports = ExtraPortProbing()
        self._watch_due_ns: int | None = None
        self._listed_ns = 0
        """Newest listing by the kernel, of MPTCP or plain connections."""
        self._resumed_ns = -LISTED_NS
        """End of this process's last pause: the first sample after it is not yet a full listing."""
        self._watched_ns = -WATCH_EVERY_NS

    # --- commands ---

    def watch(self, flows: Sequence[WatchedFlow], now_ns: int) -> list[Instruction]:
        """Take a new probe plan."""
        self.health.watch(flows)
        self.table.replan()
        out = [*self._settle_all(now_ns), *self.plain.replan(now_ns)]
        return [*out, *self._update_watched(now_ns)]

    def stop(self, *, stopped: bool, now_ns: int) -> list[Instruction]:
        """The stop switch: change nothing until started again."""
        self.steering.stopped = stopped
        return self._settle_all(now_ns)

    def use(
        self, paths: frozenset[ProcessPath], now_ns: int, rails: Sequence[ReportedFlow] = ()
    ) -> None:
        """Take the paths that jobs' processes report to use, which are probed and reported on, and
        the flows that they send by queue pairs."""
        self.rails.use(rails)
        if self.notices.use(paths):
            self._watch(now_ns)

    def move(self, order: MoveOrder | RailOrder, now_ns: int) -> list[Instruction]:
        """Carry out a controller's order to move a subflow, or the queue pairs of a rail."""
        if isinstance(order, RailOrder):
            return self.rails.order(order, now_ns)
        turn = self.relocation.begin(self.connections, order, now_ns)
        return [] if turn is None else self._orders(turn)

    def confirm(self, moves: frozenset[str]) -> None:
        """Moves that the controller found to help: keep them even if the controller is lost."""
        self.relocation.confirm(self.connections.values(), moves)
        self.rails.confirm(moves)

    # --- events ---

    def handle(self, event: Event) -> list[Instruction]:
        """Take one event; returns what to do at once."""
        if isinstance(event, FlowSample):  # by far the most frequent
            return self._sample(event)
        if isinstance(event, LinkEvent | LivenessEvent | StallEvent):
            return self._of_machine(event)
        if isinstance(event, events.SocketOwner):
            self._watch(event.at_ns)
            return self.plain.owner(event)
        if isinstance(event, events.WireReceived):
            return self.plain.wire_received(event)
        return self._of_connection(event)

    def _of_machine(self, event: LinkEvent | LivenessEvent | StallEvent) -> list[Instruction]:
        match event:
            case LivenessEvent():
                return self._liveness(event)
            case LinkEvent():
                return self._link(event)
            case StallEvent():
                return self._stall(event)

    def _of_connection(self, event: ConnectionNews) -> list[Instruction]:
        if isinstance(event, events.ConnectionUp):
            return self._settle(self.table.established(event), event.at_ns)
        if isinstance(event, events.ConnectionDown):
            if self.connections.pop(event.token, None) is not None:
                self._watch(event.at_ns)
            return []
        conn = self.table.find(event)
        if conn is None:
            return []
        reported = self.table.take(conn, event)
        self._watch(event.at_ns)
        return [*reported, *self._settle(conn, event.at_ns)]

    def round_trips(self, rtts: Mapping[int, int], now_ns: int) -> list[Instruction]:
        """Take round-trip times of probes; to be called every `round_trips.LOOK_NS`.

        Args:
            rtts: probed flows that are answered, to their round trip in ns.
            now_ns: CLOCK_MONOTONIC.
        """
        self.steering.round_trips.take(self.health.plan.shortest(rtts))
        concerned = [c for c in self.connections.values() if self.steering.standby.concerns(c)]
        return [order for conn in concerned for order in self._settle(conn, now_ns)]

    def events_read(self, until_ns: int) -> None:
        """All kernel events up to this time have been handled. With a thousand connections events
        are read late: a join whose success was not read yet has not failed."""
        self.steering.events_read_ns = until_ns

    def join_started(self, create: Create, now_ns: int) -> None:
        """A join was handed to the kernel, maybe as the last of many: its timeout starts now."""
        conn = self.connections.get(create.token)
        subflow = conn.subflows.get(create.flow) if conn is not None else None
        if subflow is not None:
            subflow.since_ns = now_ns

    def next_due_ns(self) -> int | None:
        """When `tick` should be called; None: after the next event."""
        dues = (
            self.health.due_ns(), self._first_due(), self._watch_due_ns, self.plain.due_ns(),
            self._extra_ports.due_ns(), self.notices.due_ns(), self.rails.due_ns(),
        )  # fmt: skip
        return min((due for due in dues if due is not None), default=None)

    def tick(
        self, now_ns: int, *, revived: bool = False, presumed: Sequence[Pair] = ()
    ) -> list[Instruction]:
        """Do what is due.

        Args:
            now_ns: CLOCK_MONOTONIC.
            revived: a path that was presumed dead is alive and may be used.
            presumed: pairs that answer on none of the probed ports while data wait.
        """
        undecided = self.health.undecided
        dead = self.health.decide_deaths(now_ns)
        out = self._settle_pairs(dead, now_ns) if dead else []
        if revived or self.health.undecided - undecided:
            out += self._settle_all(now_ns)
        out += self._probe_dying(presumed, now_ns)
        out += self.plain.tick(now_ns)
        while self._due and self._due[0][0] <= now_ns:
            _, token = heapq.heappop(self._due)
            conn = self.connections.get(token)
            if conn is not None:
                out += self._settle(conn, now_ns)
        extra_due_ns = self._extra_ports.due_ns()
        if extra_due_ns is not None and extra_due_ns <= now_ns:
            partial = self._extra_ports.partial
            ended = self._extra_ports.end(now_ns, lambda pair: self.health.is_partial(*pair))
            out += self._watch_orders() if ended else []
            # Connections cut off because of a few ports need not wait for a recovery.
            out += self._settle_all(now_ns) if self._extra_ports.partial - partial else []
        if self._watch_due_ns is not None and self._watch_due_ns <= now_ns:
            out += self._update_watched(now_ns)
        out += self.rails.look(now_ns)  # free the stand-in path before it is reported dead
        return [*out, *self.notices.look(now_ns, acting=self.steering.acting)]

    def forget(self, now_ns: int) -> list[Instruction]:
        """Drop what the kernel no longer lists. To be called every second or so."""
        if now_ns - self._listed_ns > LISTED_NS or now_ns - self._resumed_ns < LISTED_NS:
            return []  # no listing, or not a full one yet
        fewer = self.table.forget(now_ns)
        self._watch(now_ns)
        out = [order for conn in fewer for order in self._settle(conn, now_ns)]
        return [*out, *self.plain.forget(now_ns)]

    # --- events of this host ---

    def _link(self, event: LinkEvent) -> list[Instruction]:
        before = {nic.name for nic in self.health.nics() if self.health.dead(nic.name, "") is None}
        if not self.health.link(event):
            return []
        out: list[Instruction] = []
        if event.admin_up and event.nic not in before:
            out.append(RestoreRoutes(nic=event.nic))
        self.table.renamed(event)
        self._watch(event.at_ns)
        return [*out, *self._settle_all(event.at_ns), *self.plain.replan(event.at_ns)]

    def _liveness(self, event: LivenessEvent) -> list[Instruction]:
        back = self.health.liveness(event)
        if not event.alive:
            # `tick` decides on deaths, after the jobs' own data were examined.
            flow = self.health.plan.flows.get(event.flow_id)
            return self._probe_dying([(flow.nic, flow.remote)] if flow else [], event.at_ns)
        if back:
            return self._settle_all(event.at_ns)
        # If all died at once no pair was given up. Connections without a path need not wait.
        stranded = [c for c in self.connections.values() if c.alone_ns is not None]
        settled = [order for conn in stranded for order in self._settle(conn, event.at_ns)]
        return [*settled, *self.plain.settle_stranded(event.at_ns)]

    def _stall(self, event: StallEvent) -> list[Instruction]:
        self._resumed_ns = event.at_ns
        self.health.stall(event)
        self.table.excuse(event.at_ns)
        for known in self.plain.managed():
            known.subflow.excuse(event.at_ns)
        return []

    def _sample(self, sample: FlowSample) -> list[Instruction]:
        """Take one connection of the kernel's listing: its progress, and what events missed."""
        self._listed_ns = max(self._listed_ns, sample.at_ns)
        if not sample.token:
            known = self.plain.flows.get(sample.inode)
            out = self.plain.sample(sample)
            if known is not None and known.job:
                out += self._probe_hanging(known.wire, sample, known.subflow.acked_ns)
            return out
        conn, subflow = self.table.sampled(sample)
        if subflow is None:
            return []
        partial_ns = self.health.partial_ns(*subflow.pair)
        stalled = subflow.take(sample, self._policy, partial_ns)
        out = self._settle(conn, sample.at_ns) if stalled else []
        return (
            out + self._probe_hanging(subflow.flow, sample, subflow.acked_ns) if conn.job else out
        )

    def _probe_hanging(
        self, way: FourTuple, sample: FlowSample, acked_ns: int
    ) -> list[Instruction]:
        """If a job's data hang, probe their path on more ports."""
        waits_ns = min(sample.last_ack_ns, sample.at_ns - acked_ns) if sample.unacked else 0
        if waits_ns < max(HANGS_NS, HANGS_RTTS * sample.rtt_ns):
            return []
        nic = self.health.nic_of(way.local) or ""
        if self.health.unanswered(nic, way.remote):
            return []
        return self._probe_extra_ports([(nic, self.health.plan.probed(way.remote))], sample.at_ns)

    def _probe_extra_ports(self, pairs: Iterable[Pair], now_ns: int) -> list[Instruction]:
        begun = [self._extra_ports.begin(pair, now_ns) for pair in pairs if pair in self._watched]
        return self._watch_orders() if any(begun) else []

    def _probe_dying(self, pairs: Iterable[Pair], now_ns: int) -> list[Instruction]:
        """Probe pairs that are silent on all watched ports on further ports."""
        return self._probe_extra_ports(
            (pair for pair in pairs if self.health.may_be_partial(*pair)), now_ns
        )

    # --- within ---

    def _settle(self, conn: MptcpConnection, now_ns: int) -> list[Instruction]:
        turn = self.steering.settle(conn, now_ns)
        self.relocation.advance(turn)
        return self._orders(turn)

    def _orders(self, turn: Turn) -> list[Instruction]:
        """The instructions of a turn; schedules its next check."""
        if turn.dues:
            due_ns = max(min(turn.dues), turn.now_ns + 1)
            heapq.heappush(self._due, (due_ns, turn.conn.token))
        return turn.out

    def _settle_all(self, now_ns: int) -> list[Instruction]:
        return [
            instruction
            for conn in self.connections.values()
            for instruction in self._settle(conn, now_ns)
        ] + self.plain.settle_all(now_ns)

    def _settle_pairs(self, pairs: Sequence[tuple[str, str]], now_ns: int) -> list[Instruction]:
        touched = set(pairs)
        return [
            instruction
            for conn in self.connections.values()
            if any(
                (s.nic, self.health.plan.probed(s.flow.remote)) in touched
                for s in conn.subflows.values()
            )
            for instruction in self._settle(conn, now_ns)
        ] + self.plain.settle_pairs(touched, now_ns)

    def _first_due(self) -> int | None:
        return self._due[0][0] if self._due else None

    def _watch(self, now_ns: int) -> None:
        """The paths in use may have changed: collect them soon, once for many changes."""
        if self._watch_due_ns is None:
            self._watch_due_ns = max(now_ns, self._watched_ns + WATCH_EVERY_NS)

    def _update_watched(self, now_ns: int) -> list[Instruction]:
        """Watch every pair that a managed connection uses or may use, and witnesses."""
        self._watch_due_ns, self._watched_ns = None, now_ns
        used = self.plain.pairs() | self.table.pairs() | self.notices.pairs()
        pairs = {(nic, self.health.plan.probed(remote)) for nic, remote in used}
        watched = with_witnesses(
            pairs, self.health.plan, lambda nic: self.health.dead(nic, "") is None
        )
        if watched == self._watched:
            return []
        self._watched = watched
        return self._watch_orders()

    def _watch_orders(self) -> list[Instruction]:
        """The instruction which paths to probe fast from now on."""
        suspect, partial = self._extra_ports.suspect, self._extra_ports.partial
        return [WatchPaths(paths=self._watched, suspect=suspect, partial=partial)]
