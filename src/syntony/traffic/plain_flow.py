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
        "detour_reason",
        "failed",
        "flow",
        "follows_peer",
        "ignore_peer_until_ns",
        "inode",
        "job",
        "moved_ns",
        "owner_lookups",
        "peer_ns",
        "peer_received_ns",
        "peer_wire",
        "received",
        "repeats",
        "subflow",
        "tried",
        "tries",
        "wait",
        "waits",
        "wire",
        "wires",
    )  # fmt: skip

    def __init__(self, sample: FlowSample, nic: str | None) -> None:
        self.flow = sample.flow
        self.inode = sample.inode
        self.job: str | None = None
        """None: not known yet; empty: not managed."""
        self.owner_lookups = 0
        self.subflow = Subflow(sample.flow, nic, SubflowState.UP, sample.at_ns)
        self.wire = sample.flow
        """4-tuple of the packets sent; its own unless it is on a detour."""
        self.claimed: tuple[FourTuple, ...] = ()
        """All its other wires."""
        self.wires: tuple[FourTuple, ...] = ()
        """Those that no other connection may use."""
        self.failed: dict[FourTuple, HoldDown] = {}
        """Wires on which it stalled."""
        self.tried: set[FourTuple] = set()
        """Wires on which it stalled since data were last acknowledged. The kernel's timer doubles
        each time and soon exceeds a hold-down, so none of them is tried again while there are
        others."""
        self.detour_reason: Reason | None = None
        """Why it is on a detour."""
        self.follows_peer = False
        """It is on a detour because the peer is, not because its own data stalled."""
        self.peer_received_ns = 0
        """When the peer was last received on the detour followed."""
        self.received = sample.bytes_received
        self.backoff = 0
        """Backoff of the kernel's timer at the last sample."""
        self.alive_ns = 0
        """When it was last seen to receive or deliver data."""
        self.ignore_peer_until_ns = 0
        """Until then the peer is not followed: it may be following us. If both follow each other,
        one has to return first."""
        self.moved_ns: int | None = None
        """When it was put on another wire; None once the kernel has retransmitted there."""
        self.repeats = 0
        self.tries = 1
        """Retransmissions by the kernel before a stall on the new wire counts."""
        self.peer_wire = sample.flow
        """The other wire on which the peer was last received, if any."""
        self.peer_ns = 0
        self.waits = False
        """Whether the last sample reported data under way and no progress."""
        self.wait = HoldDown()
        """Hold-down before it returns to its own wire."""

    @property
    def stuck(self) -> bool:
        """Whether it has data under way without progress."""
        return self.waits or self.subflow.stalled is not None

    @property
    def detoured(self) -> bool:
        return self.wire != self.flow

    def take(self, sample: FlowSample, policy: Policy, partial_ns: int | None = None) -> bool:
        """Take a sample; returns whether it shows a new stall. On a new wire a stall counts only
        after the kernel has retransmitted there, by its own timer."""
        if (sample.bytes_acked, sample.bytes_received) != (self.subflow.acked, self.received):
            self.alive_ns, self.received = sample.at_ns, sample.bytes_received
        self.backoff = sample.backoff
        self.waits = sample.bytes_acked == self.subflow.acked and sample.unacked > 0
        if not self.waits:
            self.tried.clear()
        if self.moved_ns is None:
            return self.subflow.take(sample, policy, partial_ns)
        if sample.at_ns <= self.moved_ns:  # sampled before the move
            self.subflow.take(sample, policy)
            self.subflow.stalled = None
            self.repeats = sample.retransmits
            return False
        if sample.bytes_acked == self.subflow.acked and sample.unacked:
            self.subflow.seen_ns = sample.at_ns
            if sample.retransmits - self.repeats < self.tries:
                return False
            self.subflow.acked_ns = sample.at_ns + GRACE_NS
        self.moved_ns = None
        return self.subflow.take(sample, policy, partial_ns)

    def put(self, wire: FourTuple, now_ns: int) -> None:
        """Send on this wire from now on.

        On another pair of NICs, whose probes are answered, a stall counts from the second
        retransmission: the peer's reply to the first still takes its old wire.
        """
        self.wire = wire
        self.tries = 1 if wire[0::2] == self.flow[0::2] else 2
        self.moved_ns = now_ns
        self.repeats = self.subflow.retransmits_now
        self.subflow.stalled = None
        self.subflow.reported = ""
