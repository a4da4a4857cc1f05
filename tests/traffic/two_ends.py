"""One plain TCP connection between two hosts over a fabric of two rails and two spines: the real
state machines at both ends, TCP with one segment at a time and its doubling timer between them."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from tests.traffic.flow_samples import flow_sample

from syntony.model import MS
from syntony.model.paths import FlowSample, FourTuple, LivenessEvent
from syntony.traffic import events
from syntony.traffic.failover import Event, Failover
from syntony.traffic.instructions import Instruction, Redirect
from syntony.traffic.pairs import LocalNic, WatchedFlow
from syntony.traffic.policy import FailoverMode, Policy

WIRE_NS = 1 * MS
AGENT_NS = 3 * MS
"""From a packet's arrival until an agent has been reported."""
PAUSE_NS = 10 * MS
"""Between an acknowledgement and the next segment."""
RTO_NS = 200 * MS
SAMPLE_NS, ALL_NS, HEARD_NS = 15 * MS, 500 * MS, 500 * MS
INODE = 9
SPINES = 2
Cable = tuple[str, int]
"""Rail (as the second figure of an address) and spine."""


class End:
    """A host, and its socket."""

    def __init__(self, number: int, flow: FourTuple, *, talks: bool) -> None:
        self.flow = self.wire = flow
        self.talks = talks
        """Whether it sends data by itself, and not only answers."""
        self.sent = self.acked = self.got = 0
        self.retransmits = self.backoff = 0
        self.since_ns = self.heard_ns = self.timer = 0
        self.reported = False
        self.reported_ns: dict[FourTuple, int] = {}
        self.moves: list[tuple[int, Redirect]] = []
        nics = [LocalNic(name=f"n{k}", rail=k, addresses=(f"10.{k}.0.{number}",)) for k in (0, 1)]
        peer = 3 - number
        plan = [WatchedFlow(k, f"n{k}", f"10.{k}.0.{peer}", f"h{peer}/n{k}", k) for k in (0, 1)]
        self.machine = Failover(Policy(mode=FailoverMode.ACT), nics, seed=number)
        self.machine.watch(plan, 0)


class TwoEnds:
    """A simulation, by its seed; cables named in `cut` swallow what crosses them."""

    def __init__(self, seed: int, *, answers: int = 0, port: int = 40_000) -> None:
        self.now_ns = 0
        self.salt = seed
        self.random = random.Random(seed)
        self.cut: set[Cable] = set()
        self.answers = answers
        """One segment from the other end after so many; 0: none."""
        flow = FourTuple("10.0.0.1", port, "10.0.0.2", 5_000)
        self.a = End(1, flow, talks=True)
        self.b = End(2, flow.reverse, talks=False)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()
        for end in (self.a, self.b):
            for flow_id in (0, 1):
                self.tell(end, LivenessEvent(
                    at_ns=0, flow_id=flow_id, alive=True, since_ns=0, misses=0
                ))  # fmt: skip
            self.tell(end, self._sample(end, 0))
            self.tell(end, events.SocketOwner(at_ns=0, inode=INODE, job="train"))
            self.at(self.random.randrange(SAMPLE_NS), partial(self._look, end, 0))
        self._say(self.a)

    def cable(self, wire: FourTuple) -> Cable:
        """What a packet crosses, by a hash of what it says of itself; each direction its own."""
        return wire.local.split(".")[1], random.Random(f"{self.salt} {wire}").randrange(SPINES)

    def run(self, duration_ns: int) -> None:
        end_ns = self.now_ns + duration_ns
        while True:
            dues = [(end.machine.next_due_ns(), end) for end in (self.a, self.b)]
            due_ns, end = min(
                ((due, end) for due, end in dues if due is not None),
                key=lambda each: each[0],
                default=(end_ns, None),
            )
            if min(due_ns, self._queue[0][0]) >= end_ns:
                self.now_ns = end_ns
                return
            if end is not None and due_ns < self._queue[0][0]:
                self.now_ns = max(self.now_ns, due_ns)
                self._do(end, end.machine.tick(self.now_ns))
            else:
                self.now_ns, _, do = heapq.heappop(self._queue)
                do()

    def at(self, delay_ns: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_ns + delay_ns, next(self._count), do))

    def tell(self, end: End, event: Event) -> None:
        self._do(end, end.machine.handle(event))

    def _do(self, end: End, instructions: Sequence[Instruction]) -> None:
        for each in instructions:
            if isinstance(each, Redirect):
                end.wire = each.wire
                end.moves.append((self.now_ns, each))

    # --- TCP ---

    def _say(self, end: End) -> None:
        """The next segment."""
        if end.sent == end.acked:
            end.sent += 1
            end.since_ns, end.reported = self.now_ns, False
            self._send(end)
            self._arm(end)

    def _arm(self, end: End) -> None:
        end.timer += 1
        armed = end.timer

        def fire() -> None:
            if end.timer == armed and end.sent > end.acked:
                end.retransmits += 1
                end.backoff += 1
                self._send(end)
                self._arm(end)

        self.at(RTO_NS << end.backoff, fire)

    def _send(self, end: End) -> None:
        peer = self.b if end is self.a else self.a
        if self.cable(end.wire) not in self.cut:
            packet = (end.wire.reverse, end.sent if end.sent > end.acked else 0, end.got)
            self.at(WIRE_NS, lambda: self._arrive(peer, *packet))

    def _arrive(self, end: End, wire: FourTuple, data: int, ack: int) -> None:
        if wire != end.flow and self.now_ns >= end.reported_ns.get(wire, 0):
            end.reported_ns[wire] = self.now_ns + HEARD_NS
            # The kernel answers at once, the agent is told meanwhile: that answer goes the old way.
            self.at(AGENT_NS, lambda: self.tell(
                end, events.WireReceived(at_ns=self.now_ns, wire=wire)
            ))  # fmt: skip
        end.heard_ns = self.now_ns
        if ack > end.acked:
            end.acked, end.backoff = ack, 0
            if end.talks:
                self.at(PAUSE_NS, lambda: self._say(end))
        if not data:
            return
        fresh, end.got = data > end.got, max(end.got, data)
        if fresh and self.answers and not end.talks and data % self.answers == 0:
            self._say(end)
        self._send(end)

    # --- what the agent sees ---

    def _look(self, end: End, all_ns: int) -> None:
        silent = end.sent > end.acked and self.now_ns - end.since_ns >= 2 * SAMPLE_NS
        if silent and not end.reported:  # first as it was when it last moved, as the agent tells it
            end.reported = True
            before = self._sample(end, end.since_ns)
            self.tell(end, msgspec.structs.replace(before, unacked=0, last_ack_ns=0))
        if silent or self.now_ns >= all_ns:
            all_ns = all_ns if silent else self.now_ns + ALL_NS
            self.tell(end, self._sample(end, self.now_ns))
        self.at(SAMPLE_NS, lambda: self._look(end, all_ns))

    def _sample(self, end: End, at_ns: int) -> FlowSample:
        return flow_sample(
            end.flow, at_ns, token=0, inode=INODE, bytes_acked=end.acked, bytes_received=end.got,
            unacked=end.sent - end.acked, retransmits=end.retransmits, backoff=end.backoff,
            last_ack_ns=self.now_ns - end.heard_ns, rtt_ns=2 * WIRE_NS,
        )  # fmt: skip
