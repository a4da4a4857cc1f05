"""Instructions of failover. Refusals by the kernel come back as `KernelRefusal` events."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from syntony.model.paths import FourTuple


class Cause(enum.StrEnum):
    """Cause of a failure or change, as far as this host knows."""

    JOIN = "join"
    """No failure: a path is taken into use for the first time."""
    LOCAL_CARRIER = "local-carrier"
    """This host's NIC has lost its carrier or was set down."""
    LOCAL_NIC = "local-nic"
    """No peer is reached through this NIC, while other NICs reach theirs."""
    REMOTE_NIC = "remote-nic"
    """Only paths to this one NIC are dead."""
    PEER = "peer"
    """The peer has withdrawn the address."""
    PATH = "path"
    """Dead between two NICs; too few other paths to say where."""
    FABRIC = "fabric"
    """The NICs reach each other, but not on this flow's path."""
    ADDRESS = "address"
    """The local address is gone."""
    SURPLUS = "surplus"
    """Both ends replaced the same subflow; one of the two is enough."""
    RETURN = "return"
    """A failed path works again, and its hold-down is over."""
    CONTENTION = "contention"
    """Nothing failed: the controller has a better path for this flow."""
    DEGRADED = "degraded"
    """Nothing new failed: a rail has had no living path for some seconds."""
    SLOW = "slow"
    """It works, but its delay costs the connection more than it carries."""
    REFUSED = "refused"
    """The kernel refused an order."""
    DEAD_MAN = "dead-man"
    """A move made it worse, and the controller that ordered it is silent."""


class Reason(NamedTuple):
    """Why something is done."""

    cause: Cause
    evidence: str
    at_ns: int
    """When it was detected."""
    since_ns: int
    """When all was last known to work."""


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Begin a subflow from a chosen source port."""

    token: int
    job: str
    flow: FourTuple
    local_id: int
    reason: Reason
    old: FourTuple | None = None
    """The subflow that it replaces."""
    quiet: bool = False
    """Not logged for operators: one of several joins at once, or of a series that fails."""


class Destroy(msgspec.Struct, frozen=True, kw_only=True):
    """End a subflow, at once."""

    token: int
    job: str
    flow: FourTuple
    reason: Reason
    new: FourTuple | None = None
    """The subflow that replaces it, or one that remains."""


class Retire(msgspec.Struct, frozen=True, kw_only=True):
    """Send no new data on a subflow, at either end; data under way may still arrive."""

    token: int
    job: str
    flow: FourTuple
    reason: Reason
    retired: bool = True
    """False: use it again."""


class Announce(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the peer where it may join."""

    token: int
    address: str
    port: int
    """0: the connection's own."""
    local_id: int
    listen_port: int = 0
    """Accept joins at this port, on which no socket may listen yet; 0: at the agents' own."""
    joined: bool = False
    """A subflow that the peer has joined at this address carries data."""


class Withdraw(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the peer that an address, announced before, is dead."""

    token: int
    address: str
    port: int
    local_id: int


class Expect(msgspec.Struct, frozen=True, kw_only=True):
    """Deliver packets that arrive on these wires to a plain connection. Replaces earlier wires.
    No wires: the connection has ended."""

    flow: FourTuple
    wires: tuple[FourTuple, ...]


class Redirect(msgspec.Struct, frozen=True, kw_only=True):
    """Send a plain connection's packets on another wire, or on its own 4-tuple again."""

    token: int
    """Inode of its socket, which identifies a plain connection."""
    job: str
    flow: FourTuple
    wire: FourTuple
    old: FourTuple
    reason: Reason


class ShortenTimeout(msgspec.Struct, frozen=True, kw_only=True):
    """Let the kernel retransmit a plain connection's data sooner: data lost on a dead wire are
    retransmitted only by the connection's own timer."""

    inode: int
    rto_ns: int
    """Minimum retransmission timeout in addition to the round trip."""


class RestoreRoutes(msgspec.Struct, frozen=True, kw_only=True):
    """Put back the routes that the kernel dropped while a NIC was down."""

    nic: str


class WatchPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Probe these paths fast, all others slowly. Replaces the previous instruction."""

    paths: frozenset[tuple[str, str]]
    """(local NIC's name, remote address)."""
    suspect: frozenset[tuple[str, str]] = frozenset()
    """Those of them to probe on more source ports now, for a moment."""
    partial: frozenset[tuple[str, str]] = frozenset()
    """Those to probe on more source ports until the next instruction."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A log entry for operators: what would have been done, what was not done, or the result of an
    order, and why."""

    token: int
    job: str
    action: str
    reason: Reason
    old: FourTuple | None = None
    new: FourTuple | None = None
    quiet: bool = False
    """Count it only; do not log it."""
    process: int = 0
    """PID of the process that sends by queue pairs, if the entry is about these."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Tell processes of jobs that move their own flows whether a path is usable."""

    path: tuple[str, str]
    """Local and remote address, for all traffic between them."""
    usable: bool
    """False: leave it, unless it is the last one."""
    reason: Reason
    expires_ns: int = 0
    """Void from then on, CLOCK_MONOTONIC; 0: never."""


class Avoid(msgspec.Struct, frozen=True, kw_only=True):
    """Tell one process of a job to avoid a path that works, and send by its other rails."""

    process: int
    """PID on this host."""
    path: tuple[str, str]
    """Local and remote address."""
    at_ns: int
    """When it was decided, CLOCK_MONOTONIC."""
    expires_ns: int
    """Void from then on; 0: the path may be used again."""


class KernelRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """An event: the kernel refused an instruction."""

    at_ns: int
    instruction: Create | Destroy | Retire | Announce | Withdraw
    errno: int
    text: str = ""
    """The kernel's message."""


Steer = Create | Destroy | Retire | Announce | Withdraw
"""Instructions about one MPTCP connection."""
Instruction = (
    Steer | Expect | Redirect | ShortenTimeout | RestoreRoutes | WatchPaths | Note | Notice | Avoid
)
