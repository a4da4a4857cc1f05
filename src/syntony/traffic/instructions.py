"""What failover wants done; anyone who carries it out reports refusals back as `KernelRefusal`."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from syntony.model.paths import FourTuple


class Cause(enum.StrEnum):
    """Whose fault a failure is, as far as three points of view can tell."""

    JOIN = "join"
    """No failure: a path is taken into use for the first time."""
    LOCAL_CARRIER = "local-carrier"
    """This host's NIC has lost its carrier or was set down."""
    LOCAL_NIC = "local-nic"
    """No peer is reached through this NIC, while other NICs reach theirs."""
    REMOTE_NIC = "remote-nic"
    """Only paths to this one NIC are dead."""
    PEER = "peer"
    """The peer itself has given the address up."""
    PATH = "path"
    """Dead between two NICs; too few points of view to say where."""
    FABRIC = "fabric"
    """The NICs reach each other, but not on this flow's way."""
    ADDRESS = "address"
    """The local address is gone."""
    SURPLUS = "surplus"
    """Both ends replaced the same subflow; one of the two is enough."""
    RETURN = "return"
    """What had failed is well again, and its hold-down is over."""
    CONTENTION = "contention"
    """Nothing failed: the controller has a better path for this flow."""
    DEGRADED = "degraded"
    """Nothing new failed: a rail has had no living path for some seconds."""
    SLOW = "slow"
    """It lives, but its delay costs the connection more than it carries."""
    REFUSED = "refused"
    """The kernel would not do what was ordered."""
    DEAD_MAN = "dead-man"
    """A move made it worse, and the controller that ordered it says nothing any more."""


class Reason(NamedTuple):
    """Why something is done."""

    cause: Cause
    evidence: str
    at_ns: int
    """When it was known."""
    since_ns: int
    """The last instant all was well, as far as is known."""


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Begin a subflow from a chosen source port."""

    token: int
    job: str
    flow: FourTuple
    local_id: int
    reason: Reason
    old: FourTuple | None = None
    """The subflow that it shall replace."""
    quiet: bool = False
    """No operator reads that it was asked for: one of several, or of a row that failed."""


class Destroy(msgspec.Struct, frozen=True, kw_only=True):
    """End a subflow, at once."""

    token: int
    job: str
    flow: FourTuple
    reason: Reason
    new: FourTuple | None = None
    """The subflow that replaces it, or one that remains."""


class Retire(msgspec.Struct, frozen=True, kw_only=True):
    """Send nothing new on a subflow, at either end; what is under way may arrive."""

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
    """Joins are to be expected at this port, where nobody may listen yet; 0: at the agents' own."""
    joined: bool = False
    """A subflow that the peer has joined at this address carries data."""


class Withdraw(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the peer that an address, announced before, is dead."""

    token: int
    address: str
    port: int
    local_id: int


class Expect(msgspec.Struct, frozen=True, kw_only=True):
    """Take what arrives on these ways for a plain connection's own; replaces what was said before.
    None: the connection is over."""

    flow: FourTuple
    wires: tuple[FourTuple, ...]


class Redirect(msgspec.Struct, frozen=True, kw_only=True):
    """Send what a plain connection sends another way; its own way is the connection itself."""

    token: int
    """Inode of its socket: what names a plain connection."""
    job: str
    flow: FourTuple
    wire: FourTuple
    old: FourTuple
    reason: Reason


class Quicken(msgspec.Struct, frozen=True, kw_only=True):
    """Let the kernel retransmit a plain connection's data sooner: what was lost with a way is sent
    again by the connection's own timer only, whichever way is open by then."""

    inode: int
    rto_ns: int
    """The shortest timeout, over and above the round trip."""


class RestoreRoutes(msgspec.Struct, frozen=True, kw_only=True):
    """Put back the routes that the kernel dropped while a NIC was down."""

    nic: str


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """Probe these paths fast, all others slowly. Replaces what was asked before."""

    paths: frozenset[tuple[str, str]]
    """(local NIC's name, remote address)."""
    suspect: frozenset[tuple[str, str]] = frozenset()
    """Of these, those to be asked on more source ports, at once and for a moment."""
    partial: frozenset[tuple[str, str]] = frozenset()
    """Those to be asked on more source ports until the next instruction."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something an operator should read, with nothing to be done: what would have been done, what
    was left alone, what became of an order, and why."""

    token: int
    job: str
    action: str
    reason: Reason
    old: FourTuple | None = None
    new: FourTuple | None = None
    quiet: bool = False
    """To be counted only."""
    process: int = 0
    """PID of who sends by queue pairs, where it is about these."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the processes of jobs, which move their own flows, of a path."""

    path: tuple[str, str]
    """Local and remote address, whatever goes between them."""
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
    """An event: the kernel would not carry an instruction out."""

    at_ns: int
    instruction: Create | Destroy | Retire | Announce | Withdraw
    errno: int
    text: str = ""
    """In the kernel's words."""


Steer = Create | Destroy | Retire | Announce | Withdraw
"""What concerns one MPTCP connection."""
Instruction = Steer | Expect | Redirect | Quicken | RestoreRoutes | Watch | Note | Notice | Avoid
