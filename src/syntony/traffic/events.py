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
    """Whether the peer opened it."""


class ConnectionDown(msgspec.Struct, frozen=True, kw_only=True):
    """An MPTCP connection has ended."""

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
    """A subflow has ended, or could not be made."""

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
    """The peer has withdrawn one of its addresses."""

    at_ns: int
    token: int
    remote_id: int


class JobFound(msgspec.Struct, frozen=True, kw_only=True):
    """The job that owns an MPTCP connection; empty: none that is managed."""

    at_ns: int
    token: int
    job: str


class SocketOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The job that owns a plain TCP connection, by the inode of its socket; empty: none."""

    at_ns: int
    inode: int
    job: str


class WireReceived(msgspec.Struct, frozen=True, kw_only=True):
    """A plain connection's packet arrived on another wire than its own 4-tuple."""

    at_ns: int
    wire: FourTuple
    """4-tuple of the packet, local end first."""


PlainEvent = SocketOwner | WireReceived
ConnectionEvent = ConnectionUp | ConnectionDown | SubflowUp | SubflowDown
AddressEvent = AddressAnnounced | AddressWithdrawn
