"""One plain TCP connection of a job: which way what it sends takes, and whether it gets through."""

from __future__ import annotations

from syntony.model import MS
from syntony.model.paths import FlowSample, FourTuple
from syntony.traffic.connection import Subflow, SubflowState
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Reason
from syntony.traffic.policy import Policy

GRACE_NS = 150 * MS
"""On a new way silence counts this much later: the peer may have to find out by itself that what it
answers is lost."""


class PlainFlow:
    """Known by the inode of its socket."""

    __slots__ = (
        "alive_ns",
        "backoff",
        "claimed",
        "deaf_ns",
        "failed",
        "flow",
        "follows",
        "heard_ns",
        "inode",
        "job",
        "judge",
        "kept",
        "moved_ns",
        "peer_ns",
        "peer_wire",
        "received",
        "repeats",
        "requested",
        "tried",
        "tries",
        "wait",
        "waits",
        "ways",
        "wire",
    )  # fmt: skip

    def __init__(self, sample: FlowSample, nic: str | None) -> None:
        self.flow = sample.flow
        self.inode = sample.inode
        self.job: str | None = None
        """None: not known yet; empty: not ours to manage."""
        self.requested = 0
        self.judge = Subflow(sample.flow, nic, SubflowState.UP, sample.at_ns)
        self.wire = sample.flow
        """The way of what we send; its own unless it is on a detour."""
        self.claimed: tuple[FourTuple, ...] = ()
        """The others that there are."""
        self.ways: tuple[FourTuple, ...] = ()
        """Those that are nobody else's."""
        self.failed: dict[FourTuple, HoldDown] = {}
        """Ways on which it stalled."""
        self.tried: set[FourTuple] = set()
        """Those on which it stalled since anything was acknowledged. The kernel sends again after
        twice the time each time, a hold-down is soon shorter than that: a way is not tried a second
        time while there are others."""
        self.kept: Reason | None = None
        """Why it is on a detour."""
        self.follows = False
        """It is there because the peer is, not because anything was wrong with what we sent."""
        self.heard_ns = 0
        """When the peer was last heard on the way that we follow it on."""
        self.received = sample.bytes_received
        self.backoff = 0
        """Of the kernel's timer, as last seen."""
        self.alive_ns = 0
        """When it was last seen to have received or delivered anything."""
        self.deaf_ns = 0
        """Until then a peer is not followed: it may be following us. Of two that follow each other
        one has to go back first."""
        self.moved_ns: int | None = None
        """When it was put on another way, until the kernel has sent something again there."""
        self.repeats = 0
        self.tries = 1
        """How often the kernel has to have sent something again before the new way is judged."""
        self.peer_wire = sample.flow
        """The way on which the peer was last heard, if not on its own."""
        self.peer_ns = 0
        self.waits = False
        """Whether the last sample reported data under way and no progress."""
        self.wait = HoldDown()
        """Before it goes back to its own way."""

    @property
    def stuck(self) -> bool:
        """Whether something of ours is under way that nobody has acknowledged yet."""
        return self.waits or self.judge.stalled is not None

    @property
    def detoured(self) -> bool:
        return self.wire != self.flow

    def take(self, sample: FlowSample, policy: Policy, partial_ns: int | None = None) -> bool:
        """Whether it is stalled since this very sample. On a new way that is not judged before the
        kernel has tried it, which it does by its own timer."""
        if (sample.bytes_acked, sample.bytes_received) != (self.judge.acked, self.received):
            self.alive_ns, self.received = sample.at_ns, sample.bytes_received
        self.backoff = sample.backoff
        self.waits = sample.bytes_acked == self.judge.acked and sample.unacked > 0
        if not self.waits:
            self.tried.clear()
        if self.moved_ns is None:
            return self.judge.take(sample, policy, partial_ns)
        if sample.at_ns <= self.moved_ns:  # how it was before
            self.judge.take(sample, policy)
            self.judge.stalled = None
            self.repeats = sample.retransmits
            return False
        if sample.bytes_acked == self.judge.acked and sample.unacked:
            self.judge.seen_ns = sample.at_ns
            if sample.retransmits - self.repeats < self.tries:
                return False
            self.judge.acked_ns = sample.at_ns + GRACE_NS
        self.moved_ns = None
        return self.judge.take(sample, policy, partial_ns)

    def put(self, wire: FourTuple, now_ns: int) -> None:
        """What we send takes this way from now on.

        Of another pair of NICs, whose probes are answered, the second retransmission counts: what
        the peer answers to the first it sends on its way of before, and then it knows."""
        self.wire = wire
        self.tries = 1 if wire[0::2] == self.flow[0::2] else 2
        self.moved_ns = now_ns
        self.repeats = self.judge.retransmits_now
        self.judge.stalled = None
        self.judge.reported = ""
