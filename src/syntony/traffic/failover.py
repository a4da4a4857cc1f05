"""The failover state machine of one host: events in, instructions out, time an argument.

It knows connections, paths and NICs, never mechanisms. What it is not told it does not assume:
every decision follows from the present state (`Steering.settle`), so a lost event costs time, not
correctness.
"""

from __future__ import annotations

import errno
import heapq
from collections.abc import Iterable, Sequence

from syntony.model import MS, S
from syntony.model.paths import (
    FlowSample,
    FourTuple,
    LinkEvent,
    LivenessEvent,
    PathEvent,
    StallEvent,
    ip_version,
)
from syntony.traffic import events
from syntony.traffic.connection import Connection, Remote, State, Subflow
from syntony.traffic.health import Health
from syntony.traffic.instructions import (
    Cause,
    Create,
    Instruction,
    Note,
    Reason,
    Refused,
    RestoreRoutes,
    Watch,
)
from syntony.traffic.moving import Order
from syntony.traffic.pairs import LocalNic, Pair, WatchedFlow
from syntony.traffic.plain import PlainPaths
from syntony.traffic.policy import Policy, is_named
from syntony.traffic.relocate import Relocation
from syntony.traffic.sounding import HANGS_NS, HANGS_RTTS, Sounding
from syntony.traffic.steering import Steering, Turn

FORGET_NS = 5 * S
"""What the kernel's own listing has not shown for so long is gone: the event was lost."""
WATCH_EVERY_NS = 50 * MS
"""Between two looks at which paths are in use: a job makes its connections all at once."""
_MAX_RAILS = 31
_CONNECTION_GONE = (errno.ESRCH, errno.ENOTCONN)

ConnectionNews = events.ConnectionEvent | events.AddressEvent | events.JobFound | Refused
Event = PathEvent | ConnectionNews | events.PlainEvent


class Failover:
    """All connections of one host.

    Args:
        policy: what may be done.
        nics: this host's NICs that jobs may use.
        seed: of the source ports drawn.
    """

    def __init__(self, policy: Policy, nics: Iterable[LocalNic], seed: int) -> None:
        self._policy = policy
        self.health = Health(policy, nics)
        self.steering = Steering(policy, self.health, seed)
        self.relocation = Relocation(policy, self.steering)
        self.connections: dict[int, Connection] = {}
        self.plain = PlainPaths(policy, self.health, lambda: self.steering.acting)
        self._due: list[tuple[int, int]] = []
        self._watched: frozenset[tuple[str, str]] = frozenset()
        self._sounding = Sounding()
        self._watch_due_ns: int | None = None
        self._watched_ns = -WATCH_EVERY_NS
        self._newest_sample_ns = 0

    # --- commands ---

    def watch(self, flows: Sequence[WatchedFlow], now_ns: int) -> list[Instruction]:
        """A new probe plan: who can be asked about which path."""
        self.health.watch(flows)
        for conn in self.connections.values():
            for remote_id, remote in conn.remotes.items():
                remote.rail = self._rail(remote.address, remote_id)
        out = [*self._settle_all(now_ns), *self.plain.replan(now_ns)]
        return [*out, *self._rewatch(now_ns)]

    def stop(self, *, stopped: bool, now_ns: int) -> list[Instruction]:
        """The stop switch: nothing is touched until started again."""
        self.steering.stopped = stopped
        return self._settle_all(now_ns)

    def move(self, order: Order, now_ns: int) -> list[Instruction]:
        """The controller has a better path for one subflow."""
        turn = self.relocation.begin(self.connections, order, now_ns)
        return [] if turn is None else self._taken(turn)

    def confirm(self, moves: frozenset[str]) -> None:
        """Moves that the controller has found to help: they are kept whatever happens to it."""
        self.relocation.confirm(self.connections.values(), moves)

    # --- events ---

    def handle(self, event: Event) -> list[Instruction]:
        """One event, and what follows from it at once."""
        if isinstance(event, FlowSample):  # by far the most frequent
            return self._sample(event)
        if isinstance(event, LinkEvent | LivenessEvent | StallEvent):
            return self._of_machine(event)
        if isinstance(event, events.SocketOwner):
            self._watch(event.at_ns)
            return self.plain.owner(event)
        if isinstance(event, events.WireHeard):
            return self.plain.heard(event)
        return self._of_connection(event)

    def _of_machine(self, event: LinkEvent | LivenessEvent | StallEvent) -> list[Instruction]:
        match event:
            case LivenessEvent():
                back = self.health.liveness(event)
                if not event.alive:
                    # A death is concluded by `tick`: before it the jobs' own data are looked at.
                    flow = self.health.plan.flows.get(event.flow_id)
                    return self._sound_dying([(flow.nic, flow.remote)] if flow else [], event.at_ns)
                if back:
                    return self._settle_all(event.at_ns)
                return self.plain.settle_stranded(event.at_ns)
            case LinkEvent():
                return self._link(event)
            case StallEvent():
                return self._stall(event)

    def _of_connection(self, event: ConnectionNews) -> list[Instruction]:
        if isinstance(event, events.ConnectionUp):
            return self._connection_up(event)
        token = event.instruction.token if isinstance(event, Refused) else event.token
        conn = self.connections.get(token)
        if conn is None and isinstance(event, events.AddressAnnounced):
            # The peer's side is established first; its announcement may overtake our own event.
            conn = self.connections[token] = Connection(token, event.at_ns, accepted=True)
        if conn is None:
            return []
        if isinstance(event, events.ConnectionDown):
            del self.connections[token]
            self._watch(event.at_ns)
            return []
        out = _first_of_several(conn, event) if isinstance(event, events.SubflowUp) else []
        self._take(conn, event)
        if isinstance(event, Refused) and event.errno in _CONNECTION_GONE:
            return []  # of its end we shall hear, or miss it in the kernel's listing
        self._watch(event.at_ns)
        return [*out, *self._settle(conn, event.at_ns)]

    def _take(
        self, conn: Connection, event: events.JobFound | events.SubflowUp | events.SubflowDown
        | events.AddressEvent | Refused,
    ) -> None:  # fmt: skip
        match event:
            case events.JobFound():
                self._job(conn, event)
            case events.SubflowUp():
                self._subflow_up(conn, event)
            case events.SubflowDown():
                self._subflow_down(conn, event)
            case events.AddressAnnounced():
                self._announced(conn, event)
            case events.AddressWithdrawn():
                _withdrawn(conn, event)
            case Refused():
                self._refused(conn, event)

    def heard(self, until_ns: int) -> None:
        """All that the kernel told until then has been handled. Whoever has a thousand connections
        to look after reads late: a join is not in vain because nobody has read that it is up."""
        self.steering.heard_ns = until_ns

    def begun(self, create: Create, now_ns: int) -> None:
        """A join was handed to the kernel, as the last of many maybe: its time begins now."""
        conn = self.connections.get(create.token)
        subflow = conn.subflows.get(create.flow) if conn is not None else None
        if subflow is not None:
            subflow.since_ns = now_ns

    def next_due_ns(self) -> int | None:
        """When `tick` should be called; None: after the next event."""
        dues = (
            self.health.due_ns(), self._first_due(), self._watch_due_ns, self.plain.due_ns(),
            self._sounding.due_ns(),
        )  # fmt: skip
        return min((due for due in dues if due is not None), default=None)

    def tick(
        self, now_ns: int, *, back: bool = False, presumed: Sequence[Pair] = ()
    ) -> list[Instruction]:
        """What has become due.

        Args:
            now_ns: CLOCK_MONOTONIC.
            back: a path that was presumed dead is not, and may be used.
            presumed: pairs that answer nothing on the ports they are asked on while data wait.
        """
        isolated = self.health.isolated
        dead = self.health.conclude(now_ns)
        out = self._settle_pairs(dead, now_ns) if dead else []
        if back or (self.health.isolated and not isolated):
            out += self._settle_all(now_ns)
        out += self._sound_dying(presumed, now_ns)
        out += self.plain.tick(now_ns)
        while self._due and self._due[0][0] <= now_ns:
            _, token = heapq.heappop(self._due)
            conn = self.connections.get(token)
            if conn is not None:
                out += self._settle(conn, now_ns)
        sounded_ns = self._sounding.due_ns()
        if sounded_ns is not None and sounded_ns <= now_ns:
            torn = self._sounding.torn
            out += self._asked() if self._sounding.end(now_ns, self._is_torn) else []
            # Who was cut off by the word of a few ports need not wait for any return.
            out += self._settle_all(now_ns) if self._sounding.torn - torn else []
        if self._watch_due_ns is not None and self._watch_due_ns <= now_ns:
            out += self._rewatch(now_ns)
        return out

    def forget(self, now_ns: int) -> list[Instruction]:
        """Drop what the kernel no longer lists. To be called every second or so."""
        if now_ns - self._newest_sample_ns > S:
            return []  # nobody lists anything
        for token, conn in list(self.connections.items()):
            for flow, subflow in list(conn.subflows.items()):
                if subflow.state is State.UP and now_ns - subflow.seen_ns > FORGET_NS:
                    del conn.subflows[flow]
            if not conn.subflows and now_ns - conn.seen_ns > FORGET_NS:
                del self.connections[token]
        self._watch(now_ns)
        return self.plain.forget(now_ns)

    # --- what the machine says ---

    def _link(self, event: LinkEvent) -> list[Instruction]:
        before = {nic.name for nic in self.health.nics() if self.health.dead(nic.name, "") is None}
        if not self.health.link(event):
            return []
        out: list[Instruction] = []
        if event.admin_up and event.nic not in before:
            out.append(RestoreRoutes(nic=event.nic))
        self._renamed(event)
        self._watch(event.at_ns)
        return [*out, *self._settle_all(event.at_ns), *self.plain.replan(event.at_ns)]

    def _renamed(self, event: LinkEvent) -> None:
        for conn in self.connections.values():
            for subflow in conn.subflows.values():
                if subflow.nic is not None and subflow.flow.local in event.addresses:
                    if subflow.nic in conn.announced and subflow.nic != event.nic:
                        conn.announced[event.nic] = conn.announced.pop(subflow.nic)
                    subflow.nic = event.nic

    def _stall(self, event: StallEvent) -> list[Instruction]:
        self.health.stall(event)
        for conn in self.connections.values():
            for subflow in conn.subflows.values():
                subflow.excuse(event.at_ns)
        for known in self.plain.managed():
            known.judge.excuse(event.at_ns)
        return []

    def _sample(self, sample: FlowSample) -> list[Instruction]:
        """The kernel's listing: progress, and whatever its events have not told us."""
        self._newest_sample_ns = max(self._newest_sample_ns, sample.at_ns)
        if not sample.token:
            known = self.plain.flows.get(sample.inode)
            out = self.plain.sample(sample)
            if known is not None and known.job:
                out += self._doubt(known.wire, sample, known.judge.acked_ns)
            return out
        conn = self.connections.get(sample.token)
        if conn is None:
            conn = self._listed(sample)
        conn.seen_ns = sample.at_ns
        subflow = conn.subflows.get(sample.flow)
        if subflow is None and sample.flow in conn.ended:
            return []
        if subflow is None:
            subflow = self._add(conn, sample.flow, State.UP, sample.at_ns)
        torn_ns = self.health.torn_ns(subflow.nic or "", sample.flow.remote)
        stalled = subflow.take(sample, self._policy, torn_ns)
        out = self._settle(conn, sample.at_ns) if stalled else []
        return out + self._doubt(subflow.flow, sample, subflow.acked_ns) if conn.job else out

    def _doubt(self, way: FourTuple, sample: FlowSample, acked_ns: int) -> list[Instruction]:
        """Where a job's data hang, the fabric is asked on more ports."""
        waits_ns = min(sample.last_ack_ns, sample.at_ns - acked_ns) if sample.unacked else 0
        if waits_ns < max(HANGS_NS, HANGS_RTTS * sample.rtt_ns):
            return []
        nic = self.health.nic_of(way.local) or ""
        if self.health.doubtful(nic, way.remote):
            return []
        return self._sound([(nic, self.health.plan.probed(way.remote))], sample.at_ns)

    def _sound(self, pairs: Iterable[Pair], now_ns: int) -> list[Instruction]:
        begun = [self._sounding.begin(pair, now_ns) for pair in pairs if pair in self._watched]
        return self._asked() if any(begun) else []

    def _sound_dying(self, pairs: Iterable[Pair], now_ns: int) -> list[Instruction]:
        """What is silent on all ports that are watched may live on others."""
        return self._sound((pair for pair in pairs if self.health.may_be_torn(*pair)), now_ns)

    def _listed(self, sample: FlowSample) -> Connection:
        """A connection older than we are. Who made it, the port tells: chosen by the kernel for
        the initiator, by the application for the other."""
        ours = sample.flow.local_port == self._policy.port
        accepted = ours or sample.flow.local_port < sample.flow.remote_port
        conn = Connection(sample.token, sample.at_ns, accepted=accepted)
        self.connections[sample.token] = conn
        return conn

    # --- connections ---

    def _connection_up(self, event: events.ConnectionUp) -> list[Instruction]:
        conn = Connection(event.token, event.at_ns, accepted=event.accepted)
        known = self.connections.get(event.token)
        if known is not None:
            conn.job, conn.remotes = known.job, known.remotes
        self.connections[event.token] = conn
        self._add(conn, event.flow, State.UP, event.at_ns)
        return self._settle(conn, event.at_ns)

    def _job(self, conn: Connection, event: events.JobFound) -> None:
        managed = event.job and is_named(event.job, self._policy.jobs)
        # A connection that began on another network (front end, loopback) stays there.
        ours = any(subflow.nic is not None for subflow in conn.subflows.values())
        conn.job = event.job if managed and ours else ""

    def _announced(self, conn: Connection, event: events.AddressAnnounced) -> None:
        rail = self._rail(event.address, event.remote_id)
        port = event.port or next((flow.remote_port for flow in conn.subflows), 0)
        conn.remotes[event.remote_id] = Remote(event.address, port, rail)

    def _subflow_up(self, conn: Connection, event: events.SubflowUp) -> None:
        subflow = conn.subflows.get(event.flow)
        if subflow is None:
            if event.flow not in conn.ended:  # given up a moment ago: the kernel ends it
                self._add(conn, event.flow, State.UP, event.at_ns)
            return
        subflow.state = State.UP
        subflow.since_ns = subflow.acked_ns = subflow.seen_ns = event.at_ns
        conn.tries(*subflow.pair).succeeded()
        conn.lost.pop(subflow.pair, None)

    def _subflow_down(self, conn: Connection, event: events.SubflowDown) -> None:
        subflow = conn.subflows.pop(event.flow, None)
        if subflow is not None:
            pair = subflow.pair
            tries = conn.tries(*pair)
            tries.failed(event.at_ns, self._policy)
            if subflow.state is State.UP and not conn.uses(pair):
                evidence = "ended by the peer or the kernel"
                conn.lost[pair] = Reason(Cause.PEER, evidence, event.at_ns, subflow.acked_ns)
            # The whole connection may be closing: its other subflows go within a moment.
            tries.next_ns = max(tries.next_ns, event.at_ns + self._policy.join_ns)

    def _refused(self, conn: Connection, event: Refused) -> None:
        instruction = event.instruction
        if isinstance(instruction, Create):
            subflow = conn.subflows.pop(instruction.flow, None)
            flow = instruction.flow
            self.steering.ports.avoid(flow.local, flow.remote, flow.local_port)
            if subflow is None:
                return
            tries = conn.tries(subflow.nic or "", flow.remote)
            taken = event.errno == errno.EADDRINUSE
            (tries.port_taken if taken else tries.failed)(event.at_ns, self._policy)

    # --- within ---

    def _add(self, conn: Connection, flow: FourTuple, state: State, now_ns: int) -> Subflow:
        subflow = Subflow(flow, self.health.nic_of(flow.local), state, now_ns)
        conn.subflows[flow] = subflow
        if not conn.local:
            conn.local, conn.local_port = flow.local, flow.local_port
        for remote in conn.remotes.values():
            if remote.address == flow.remote:
                remote.withdrawn = None  # who joins from there has it again
        return subflow

    def _rail(self, address: str, remote_id: int) -> int:
        """From the plan if the address is of it, else by the agents' convention; -1: unknown."""
        known = self.health.plan.known(address)
        if known is not None:
            return known.remote_rail
        return remote_id - 1 if 1 <= remote_id <= _MAX_RAILS else -1

    def _settle(self, conn: Connection, now_ns: int) -> list[Instruction]:
        turn = self.steering.settle(conn, now_ns)
        self.relocation.advance(turn)
        return self._taken(turn)

    def _taken(self, turn: Turn) -> list[Instruction]:
        """What a turn wants done; when to look again is noted."""
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
        """What is used may have changed; looked at soon, for many changes at once."""
        if self._watch_due_ns is None:
            self._watch_due_ns = max(now_ns, self._watched_ns + WATCH_EVERY_NS)

    def _rewatch(self, now_ns: int) -> list[Instruction]:
        """Every pair that a managed connection uses or would use, if that is news."""
        self._watch_due_ns, self._watched_ns = None, now_ns
        used = self.plain.pairs() | self._pairs()
        pairs = {(nic, self.health.plan.probed(remote)) for nic, remote in used}
        if pairs == self._watched:
            return []
        self._watched = frozenset(pairs)
        return self._asked()

    def _asked(self) -> list[Instruction]:
        """What is to be probed fast from now on."""
        doubted, torn = self._sounding.doubted, self._sounding.torn
        return [Watch(paths=self._watched, doubted=doubted, torn=torn)]

    def _is_torn(self, pair: Pair) -> bool:
        return self.health.is_torn(*pair)

    def _pairs(self) -> set[tuple[str, str]]:
        """(NIC, remote address) that managed connections use, or would if they heard of them."""
        rails = {nic.rail: nic.name for nic in self.health.nics()}
        managed = [conn for conn in self.connections.values() if conn.job]
        used = {
            (each.nic, each.flow.remote)
            for conn in managed
            for each in conn.subflows.values()
            if each.nic is not None
        }
        announced = {
            (remote.address, remote.rail) for conn in managed for remote in conn.remotes.values()
        }
        planned = {
            (address, rail)
            for peer in {remote for _, remote in used}
            for address, rail in self.health.plan.addresses_of(peer).items()
            if ip_version(address) == ip_version(peer)
        }
        return used | {
            (rails[rail], address) for address, rail in announced | planned if rail in rails
        }


def _first_of_several(conn: Connection, event: events.SubflowUp) -> list[Instruction]:
    """What was not told when it was begun."""
    subflow = conn.subflows.get(event.flow)
    if subflow is None or subflow.one_of is None:
        return []
    begun, subflow.one_of = subflow.one_of, None
    note = Note(
        token=begun.token,
        job=begun.job,
        action="create",
        reason=begun.reason,
        old=begun.old,
        new=begun.flow,
    )
    return [note]


def _withdrawn(conn: Connection, event: events.AddressWithdrawn) -> None:
    remote = conn.remotes.get(event.remote_id)
    if remote is not None:
        evidence = "the peer has withdrawn the address"
        remote.withdrawn = Reason(Cause.PEER, evidence, event.at_ns, event.at_ns)
