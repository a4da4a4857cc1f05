"""One plain TCP connection of a job: which way what it sends takes, and whether it gets through."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field

from syntony.model import MS
from syntony.model.paths import FlowSample, FourTuple
from syntony.traffic.connection import Subflow, SubflowState
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Reason
from syntony.traffic.policy import Policy

GRACE_NS = 150 * MS
"""On a new way silence counts this much later: the peer may have to find out by itself that what it
answers is lost."""


@dataclass(slots=True, eq=False)
class PlainFlow:
    """Known by the inode of its socket."""

    sample: InitVar[FlowSample]
    """The first one."""
    nic: InitVar[str | None]
    flow: FourTuple = field(init=False)
    inode: int = field(init=False)
    job: str | None = None
    """None: not known yet; empty: not managed."""
    owner_lookups: int = 0
    subflow: Subflow = field(init=False)
    wire: FourTuple = field(init=False)
    """4-tuple of the packets sent; its own unless it is on a detour."""
    claimed: tuple[FourTuple, ...] = ()
    """All its other wires."""
    wires: tuple[FourTuple, ...] = ()
    """Those that no other connection may use."""
    failed: dict[FourTuple, HoldDown] = field(default_factory=dict)
    """Wires on which it stalled."""
    tried: set[FourTuple] = field(default_factory=set)
    """Wires on which it stalled since data were last acknowledged. The kernel's timer doubles each
    time and soon exceeds a hold-down, so none of them is tried again while there are others."""
    detour_reason: Reason | None = None
    """Why it is on a detour."""
    follows_peer: bool = False
    """It is on a detour because the peer is, not because its own data stalled."""
    peer_received_ns: int = 0
    """When the peer was last received on the detour followed."""
    received: int = field(init=False)
    backoff: int = 0
    """Backoff of the kernel's timer at the last sample."""
    alive_ns: int = 0
    """When it was last seen to receive or deliver data."""
    ignore_peer_until_ns: int = 0
    """Until then the peer is not followed: it may be following us. If both follow each other, one
    has to return first."""
    moved_ns: int | None = None
    """When it was put on another wire; None once the kernel has retransmitted there."""
    repeats: int = 0
    tries: int = 1
    """Retransmissions by the kernel before a stall on the new wire counts."""
    peer_wire: FourTuple = field(init=False)
    """The other wire on which the peer was last received, if any."""
    peer_ns: int = 0
    waits: bool = False
    """Whether the last sample reported data under way and no progress."""
    wait: HoldDown = field(default_factory=HoldDown)
    """Hold-down before it returns to its own wire."""

    def __post_init__(self, sample: FlowSample, nic: str | None) -> None:
        self.flow = self.wire = self.peer_wire = sample.flow
        self.inode, self.received = sample.inode, sample.bytes_received
        self.subflow = Subflow(sample.flow, nic, SubflowState.UP, sample.at_ns)

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
