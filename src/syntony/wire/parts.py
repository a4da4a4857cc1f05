"""State of the parts of an agent; part of `syntony.wire.messages`."""

from __future__ import annotations

import enum

import msgspec


class PartState(enum.StrEnum):
    """State of one part of an agent."""

    RUNNING = "running"
    WAITING = "waiting"
    """It lacks something of this machine: a NIC, a port, a permission. Tried again."""
    FAILED = "failed"
    """It broke; tried again."""


class PartStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One part of an agent."""

    name: str
    """For example ``nic:eth0``, ``failover``, ``spool``; docs/reference/parts.md lists them."""
    state: PartState
    reason: str = ""
    """Why it does not run; one line."""
    age_ns: int = 0
    """For how long it has been so."""


class PartsReport(msgspec.Struct, frozen=True, kw_only=True, tag="parts"):
    """Every part of one agent: sent when one changes, and every few seconds."""

    parts: tuple[PartStatus, ...]
