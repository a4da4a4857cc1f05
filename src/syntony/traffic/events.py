"""Events of failover in addition to `syntony.model.paths`: connections, commands, owners.

Instants are ns of the host's CLOCK_MONOTONIC. A connection is known by its local MPTCP token.
"""

from __future__ import annotations

import msgspec

from syntony.model.paths import FourTuple


class ConnectionUp(msgspec.Struct, frozen=True, kw_only=True):
    """An MPTCP connection may have further subflows from now on."""

    at_ns: int
    token: int
    flow: FourTuple
    """Its first subflow."""
    accepted: bool
    """Whether the peer made it (we are its server side)."""


class ConnectionDown(msgspec.Struct, frozen=True, kw_only=True):
    """An MPTCP connection is over."""

    at_ns: int
    token: int


class SubflowUp(msgspec.Struct, frozen=True, kw_only=True):
    """A further subflow can carry data: its handshake went through, both ways."""

    at_ns: int
    token: int
    flow: FourTuple
    local_id: int
    remote_id: int


class SubflowDown(msgspec.Struct, frozen=True, kw_only=True):
    """A subflow is over, or never came to be."""

    at_ns: int
    token: int
    flow: FourTuple
    error: int
    """errno, 0 if it was closed in order."""


class AddressAnnounced(msgspec.Struct, frozen=True, kw_only=True):
    """The peer can be joined at one more address."""

    at_ns: int
    token: int
    remote_id: int
    address: str
    port: int
    """0: the connection's own."""


class AddressWithdrawn(msgspec.Struct, frozen=True, kw_only=True):
    """The peer has given one of its addresses up."""

    at_ns: int
    token: int
    remote_id: int


class JobFound(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a connection is; an empty job: of no job that is ours to manage."""

    at_ns: int
    token: int
    job: str


class SocketOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a plain TCP connection is, by the inode of its socket; an empty job: of none."""

    at_ns: int
    inode: int
    job: str


class WireHeard(msgspec.Struct, frozen=True, kw_only=True):
    """A plain connection's packet came on another way than its own."""

    at_ns: int
    wire: FourTuple
    """As it travelled, our end first."""


PlainEvent = SocketOwner | WireHeard
ConnectionEvent = ConnectionUp | ConnectionDown | SubflowUp | SubflowDown
AddressEvent = AddressAnnounced | AddressWithdrawn
