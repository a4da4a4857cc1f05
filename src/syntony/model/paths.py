"""Events about flows, links and paths, on which traffic control decides.

Instants are ns of the host's CLOCK_MONOTONIC: what happens within one host, in milliseconds, needs
no fleet time, and a clock that is being slewed must not look like a stall.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import NamedTuple, Protocol, Self

import msgspec


class Ends(Protocol):
    """Any object with both ends of a flow: a report, or an order."""

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
    """The kernel's count of carrier losses; events may be merged, the counter is exact."""
    ifindex: int = 0
    """The kernel's number of the interface: stays when it is renamed; 0: not known."""


class LivenessEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A probed path (one `ProbeFlow`) stopped answering, or answers again."""

    at_ns: int
    flow_id: int
    alive: bool
    since_ns: int
    """The last instant in the previous state: of the last reply, if the path died."""
    misses: int
    """Number of consecutive unanswered (dead) or answered (alive) probes."""


class FlowSample(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's state of one TCP connection or subflow (`tcp_info`)."""

    at_ns: int
    flow: FourTuple
    token: int
    """The MPTCP connection's local token; 0 for plain TCP."""
    local_id: int = 0
    """MPTCP's id of the subflow's local address; 0: the connection's first."""
    inode: int
    """Inode of its socket, to find its process; 0: a subflow, whose connection has the socket."""
    bytes_acked: int
    bytes_received: int
    unacked: int
    """Segments sent and not acknowledged."""
    retransmits: int
    """Segments retransmitted since the flow began."""
    backoff: int
    """Number of consecutive retransmission timeouts now."""
    last_ack_ns: int
    """Time since the newest acknowledgement (the kernel counts in ms)."""
    rtt_ns: int
    delivery_bps: int
    busy_ns: int = 0
    """Total time with data in flight or waiting to be sent (in ticks)."""
    window_limited_ns: int = -1
    """Part of that time in which data waited for the peer's window; -1: unknown."""
    dscp: int = -1
    """DSCP of packets that this end sends; -1: unknown."""


class StallEvent(msgspec.Struct, frozen=True, kw_only=True):
    """This host's own watcher was not scheduled: silence of that while proves nothing."""

    at_ns: int
    lasted_ns: int


PathEvent = LinkEvent | LivenessEvent | FlowSample | StallEvent
