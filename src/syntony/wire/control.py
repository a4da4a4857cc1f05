"""The controller in charge, and the audit log of changes; part of `syntony.wire.messages`."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from syntony.model import DAY_NS
from syntony.wire.query import Query

CHANGES_LIMIT = 1_000
"""Maximum number of changes in one answer."""
MAX_EPOCH = (1 << 62) - 1
"""Maximum epoch of a controller; epochs count its starts."""


class TakeoverCommand(Query["EpochRaised"], frozen=True, kw_only=True, tag="takeover"):
    """Let this controller lead agents that have obeyed a later epoch, after its control state was
    restored from a backup."""

    above: int
    """The epoch that agents have seen."""
    by: str
    comment: str = ""


class EpochRaised(msgspec.Struct, frozen=True, kw_only=True, tag="epoch"):
    epoch: int


class ControllerQuery(Query["ControllerStatus"], frozen=True, kw_only=True, tag="controller"):
    """Which controller is in charge."""


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway, as known to its leader."""

    name: str
    """In its certificate."""
    version: str
    connected: bool
    silent_ns: int
    """Time since its last message."""
    agents: int
    """Attached to it."""
    lag_ns: int
    """Age of the oldest batch that it has not stored."""
    queued_bytes: int
    store_up: bool
    rows: int
    """Rows stored since it started."""
    left: bool = False
    """Whether it is disconnected because it was stopped on purpose."""


class ControllerStatus(msgspec.Struct, frozen=True, kw_only=True, tag="controller"):
    """The controller that answers; a standby does not answer requests."""

    name: str
    """In its certificate."""
    version: str
    epoch: int
    """Epoch of its start; agents obey the highest that they have received."""
    seen_epoch: int
    """The highest that an agent has reported: beyond `epoch`, another controller took over."""
    durable: bool
    """Whether its control state survives its process."""
    up_ns: int
    """Time since it began to lead."""
    agents: int
    """Number of agents attached to it or to its gateways."""
    gateways: tuple[GatewayStatus, ...] = ()
    """Gateways that are expected, or were connected since it took charge."""


class Issuer(NamedTuple):
    """The sender of an order, as its receiver knows it."""

    who: str
    """The name in the certificate, and the user that the command line gives."""
    origin: str
    """The peer's address in gRPC's format, or ``local`` for the local socket."""


class ChangesQuery(Query["Changes"], frozen=True, kw_only=True, tag="changes"):
    """The audit log: changes of the last `window_ns`, the newest `limit` of them."""

    window_ns: int = DAY_NS
    limit: int = 100


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the audit log."""

    number: int
    at_ns: int
    """Fleet time, or the controller's clock before fleet time is known."""
    who: str
    origin: str
    what: str
    """What was changed, for example ``failover switch``."""
    before: str
    """Empty: it was never set."""
    after: str
    comment: str


class Changes(msgspec.Struct, frozen=True, kw_only=True, tag="changes"):
    """Oldest first."""

    changes: tuple[Change, ...]
