"""What the machine says of flows, links and paths: the events that traffic control decides on.

Instants are ns of the host's CLOCK_MONOTONIC: what happens within one host, in milliseconds, needs
no fleet time, and a clock that is being slewed must not look like a stall.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import NamedTuple, Protocol, Self

import msgspec


class Ends(Protocol):
    """Anything that has a flow's two ends: a report of it, an order about it."""

    @property
    def local(self) -> str: ...
    @property
    def local_port(self) -> int: ...
    @property
    def remote(self) -> str: ...
    @property
    def remote_port(self) -> int: ...


class FourTuple(NamedTuple):
    """One TCP connection or MPTCP subflow, seen from this host. Addresses are text."""

    local: str
    local_port: int
    remote: str
    remote_port: int

    @classmethod
    def of(cls, ends: Ends) -> Self:
        """What is reported there, without the rest."""
        return cls(ends.local, ends.local_port, ends.remote, ends.remote_port)

    @property
    def reverse(self) -> FourTuple:
        """As the other end sees it."""
        return FourTuple(self.remote, self.remote_port, self.local, self.local_port)


@lru_cache(4096)
def ip_version(address: str) -> int:
    """4 or 6."""
    return ipaddress.ip_address(address).version


class LinkEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A NIC gained or lost its carrier, was set up or down, or changed its name or addresses."""

    at_ns: int
    nic: str
    carrier: bool
    admin_up: bool
    addresses: tuple[str, ...]
    carrier_down_count: int
    """The kernel's own count of losses: events may be merged, the counter is the truth."""


class LivenessEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A probed path (one `ProbeFlow`) stopped answering, or answers again."""

    at_ns: int
    flow_id: int
    alive: bool
    since_ns: int
    """The last instant the path was known to be as it was before: the last reply when it died."""
    misses: int
    """Probes in a row unanswered (dead) or answered (alive)."""


class FlowSample(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel says of one TCP connection or subflow now (`tcp_info`)."""

    at_ns: int
    flow: FourTuple
    token: int
    """The MPTCP connection's local token; 0 for plain TCP."""
    local_id: int = 0
    """MPTCP's id of the subflow's local address; 0: the connection's first."""
    inode: int
    """Of its socket: which process holds it. 0 for a subflow, whose connection holds it."""
    bytes_acked: int
    bytes_received: int
    unacked: int
    """Segments sent and not acknowledged."""
    notsent_bytes: int
    retransmits: int
    """Segments retransmitted since the flow began."""
    backoff: int
    """Retransmission timeouts in a row, now."""
    last_ack_ns: int
    """Since the newest acknowledgement arrived (the kernel counts in ms)."""
    rtt_ns: int
    pacing_bps: int
    delivery_bps: int
    busy_ns: int = 0
    """How long data have been under way or waiting to be, since the flow began (in ticks)."""
    window_limited_ns: int = -1
    """… and of that, how long they waited for the peer to open its window; -1: not known."""
    dscp: int = -1
    """Of what this end sends; -1: not known."""


class StallEvent(msgspec.Struct, frozen=True, kw_only=True):
    """This host's own watcher was not scheduled: silence of that while proves nothing."""

    at_ns: int
    lasted_ns: int


PathEvent = LinkEvent | LivenessEvent | FlowSample | StallEvent
