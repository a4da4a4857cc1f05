"""One MPTCP connection over paths of different delay, as a fluid of chunks; with or without the
agent's state machine beside it.

Foreign to the rule that it tests: nothing here knows of costs or gains. Each path has a rate, a
delay, a window that opens as TCP's does and closes after a rest, delayed acknowledgements; the
scheduler gives the next chunk to the path whose queue drains first (mptcp_subflow_get_send).
"""

from __future__ import annotations

import random
from typing import NamedTuple

from tests.traffic.flow_samples import flow_sample

from syntony.model import MS, S
from syntony.model.paths import FourTuple, LivenessEvent
from syntony.traffic import events
from syntony.traffic.failover import Event, Failover
from syntony.traffic.instructions import Create, Instruction, KernelRefusal, Note, Retire
from syntony.traffic.pairs import LocalNic, WatchedFlow
from syntony.traffic.policy import FailoverMode, Policy

TICK_NS = 1 * MS
CHUNK = 5_792
WINDOW_CHUNKS = 4
"""Of a path that has rested."""
SAMPLE_NS = 500 * MS
TOKEN = 7


class Shape(NamedTuple):
    """A path."""

    rate_bps: int
    delay_ns: int
    """One way; back as well."""


class Job(NamedTuple):
    """A message of so many bytes, then a rest; no bytes: it streams."""

    message_bytes: int
    rest_ns: int = 1 * MS
    accepted: bool = False
    """Whether the sender's end was the one that accepted the connection."""


class Path:
    def __init__(self, rail: int, shape: Shape, *, accepted: bool) -> None:
        port = 5_000 if accepted else 40_000 + rail
        self.flow = FourTuple(f"10.{rail}.0.1", port, f"10.{rail}.0.2", 45_000)
        self.shape = shape
        self.backup = False
        self.queued = 0
        """Bytes given to it that have not left yet."""
        self.flying: list[tuple[int, int]] = []
        """(arrives, bytes), oldest first."""
        self.window = WINDOW_CHUNKS * CHUNK
        self.unacked: list[tuple[int, int]] = []
        """(acknowledged, bytes)."""
        self.acked = self.busy_ns = self.rested_ns = 0
        self.credit = 0.0
        self.delivery_bps = 0
        self._since: list[tuple[int, int]] = []

    @property
    def under_way(self) -> int:
        return sum(size for _, size in self.unacked) + self.queued

    def room(self) -> bool:
        return self.under_way + CHUNK <= self.window

    def step(self, now_ns: int, rng: random.Random) -> int:
        """One tick; bytes that arrive in it."""
        busy = bool(self.under_way)
        self.busy_ns += TICK_NS * busy
        self.rested_ns = 0 if busy else self.rested_ns + TICK_NS
        if self.rested_ns > 200 * MS:
            self.window = WINDOW_CHUNKS * CHUNK
        rate = self.shape.rate_bps / 8 * TICK_NS / S
        self.credit = min(self.credit + rate, 2 * rate + CHUNK) if self.queued else rate
        sent = min(self.queued, int(self.credit))
        self.credit -= sent
        self.queued -= sent
        if sent:
            late_ns = self.shape.delay_ns + int(rng.expovariate(1 / (0.3 * MS)))
            self.flying.append((now_ns + late_ns, sent))
            # The last segment's acknowledgement may be held back (TCP_DELACK_MIN, _MAX).
            held_ns = 0 if self.queued else rng.choice((0, 0, 20 * MS, 40 * MS))
            self.unacked.append((now_ns + late_ns + self.shape.delay_ns + held_ns, sent))
        arrived = sum(size for at_ns, size in self.flying if at_ns <= now_ns)
        self.flying = [each for each in self.flying if each[0] > now_ns]
        acked = sum(size for at_ns, size in self.unacked if at_ns <= now_ns)
        self.unacked = [each for each in self.unacked if each[0] > now_ns]
        if acked and self.window < 1_000_000:
            self.window += acked
        self.acked += acked
        self._measure(now_ns, acked)
        return arrived

    def _measure(self, now_ns: int, acked: int) -> None:
        """As the kernel: the rate of the last round trip with enough to send, or a higher one."""
        rtt_ns = max(2 * self.shape.delay_ns, 10 * MS)
        self._since = [
            each for each in (*self._since, (now_ns, acked)) if each[0] > now_ns - rtt_ns
        ]
        rate_bps = sum(size for _, size in self._since) * 8 * S // rtt_ns
        if self.queued or rate_bps > self.delivery_bps:
            self.delivery_bps = rate_bps


class Run:
    """A connection between two hosts for a while.

    Args:
        seed: of everything random.
        shapes: one path a rail.
        job: what is sent.
        agent: whether the state machine may act.
    """

    def __init__(self, seed: int, shapes: list[Shape], job: Job, *, agent: bool) -> None:
        self.rng = random.Random(seed)
        self.now_ns = 0
        self.job = job
        self.paths = [Path(k, each, accepted=job.accepted) for k, each in enumerate(shapes)]
        self.left = self.wanted = self.done = 0
        """Bytes of the message not given to a path yet, not arrived yet; all that arrived."""
        self.rest_ns = 0
        self.boast = 1
        """Times the truth that the kernel says a path can carry."""
        self.refusals = 0
        """So many orders more are refused."""
        self.reported: list[tuple[int, Note]] = []
        rails = range(len(shapes))
        self.machine = Failover(
            Policy(mode=FailoverMode.ACT if agent else FailoverMode.OBSERVE),
            [LocalNic(name=f"n{k}", rail=k, addresses=(f"10.{k}.0.1",)) for k in rails],
            seed,
        )
        self._do(self.machine.watch(
            [WatchedFlow(k, f"n{k}", f"10.{k}.0.2", f"b/n{k}", k) for k in rails], 0
        ))  # fmt: skip
        for k in rails:
            self._hear(LivenessEvent(at_ns=0, flow_id=k, alive=True, since_ns=0, misses=0))
        first, *others = self.paths
        self._hear(events.ConnectionUp(at_ns=0, token=TOKEN, flow=first.flow,
                                       accepted=job.accepted))  # fmt: skip
        for k, path in enumerate(others, 1):
            self._hear(events.SubflowUp(at_ns=0, token=TOKEN, flow=path.flow, local_id=k,
                                        remote_id=k))  # fmt: skip
        self._hear(events.JobFound(at_ns=0, token=TOKEN, job="train"))

    def run(self, duration_ns: int) -> float:
        """Goes on for so long; what arrived meanwhile, in bits per second."""
        began, end_ns = self.done, self.now_ns + duration_ns
        while self.now_ns < end_ns:
            self._tick()
        return (self.done - began) * 8 * S / duration_ns

    def drop(self, path: Path) -> None:
        """A path goes, and what it had under way goes over the others."""
        self.paths.remove(path)
        self.left += path.queued + sum(size for _, size in path.flying)
        self._hear(events.SubflowDown(at_ns=self.now_ns, token=TOKEN, flow=path.flow, error=110))

    def actions(self, kind: str) -> list[Note]:
        return [note for _, note in self.reported if note.action == kind]

    def _tick(self) -> None:
        self.now_ns += TICK_NS
        self._schedule()
        arrived = sum(path.step(self.now_ns, self.rng) for path in self.paths)
        self.done += arrived
        self.wanted -= arrived
        if self.now_ns % SAMPLE_NS == 0:
            self._look()
        due_ns = self.machine.next_due_ns()
        if due_ns is not None and due_ns <= self.now_ns:
            self._do(self.machine.tick(self.now_ns))

    def _schedule(self) -> None:
        if not self.job.message_bytes:
            self.left = 1 << 40
        elif self.wanted <= 0:
            self.rest_ns -= TICK_NS
            if self.rest_ns <= 0:
                self.rest_ns = int(self.job.rest_ns * self.rng.uniform(0.8, 1.2))
                self.left = self.wanted = self.job.message_bytes
        while self.left > 0:
            open_ = [path for path in self.paths if not path.backup and path.room()]
            if not open_:
                return
            path = min(open_, key=lambda each: each.queued / each.shape.rate_bps)
            size = min(CHUNK, self.left)
            path.queued += size
            self.left -= size

    def _look(self) -> None:
        for path in self.paths:
            self._hear(flow_sample(
                path.flow, self.now_ns, token=TOKEN, bytes_acked=path.acked,
                unacked=len(path.unacked), rtt_ns=2 * path.shape.delay_ns,
                delivery_bps=self.boast * path.delivery_bps, busy_ns=path.busy_ns,
            ))  # fmt: skip
        rtts = {
            k: int(2 * path.shape.delay_ns + self.rng.expovariate(1 / (0.4 * MS))
                   + path.queued * 8 * S / path.shape.rate_bps)
            for k, path in enumerate(self.paths)
        }  # fmt: skip
        self._do(self.machine.round_trips(rtts, self.now_ns))

    def _hear(self, event: Event) -> None:
        self._do(self.machine.handle(event))

    def _do(self, instructions: list[Instruction]) -> None:
        for each in instructions:
            if isinstance(each, Retire) and self.refusals:
                self.refusals -= 1
                self._hear(
                    KernelRefusal(at_ns=self.now_ns, instruction=each, errno=105, text="no room")
                )
            elif isinstance(each, Retire):
                for path in self.paths:
                    if path.flow == each.flow:
                        path.backup = each.retired
            elif isinstance(each, Note):
                self.reported.append((self.now_ns, each))
            elif isinstance(each, Create):
                self._do(self.machine.handle(events.SubflowDown(
                    at_ns=self.now_ns, token=TOKEN, flow=each.flow, error=111
                )))  # fmt: skip
