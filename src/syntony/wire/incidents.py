"""Requests about incidents, and actions on them; part of `syntony.wire.messages`."""

from __future__ import annotations

from typing import Any

import msgspec

from syntony.wire.query import Query


class IncidentsQuery(Query["IncidentsReply"], frozen=True, kw_only=True, tag="incidents"):
    """Incidents that are live, or one and what it explains."""

    number: int = 0
    resolved: bool = False
    """Include resolved incidents."""
    since_ns: int = 0
    """Incidents that changed within this time, read from the store."""


class RulesQuery(Query["RulesReply"], frozen=True, kw_only=True, tag="rules"):
    """The rules in force."""


class IncidentAction(Query["IncidentsReply"], frozen=True, kw_only=True, tag="incident-action"):
    """A command: acknowledge an incident (``ack``), or resolve it (``resolve``)."""

    number: int
    what: str
    by: str
    """The user, in addition to the name in the certificate."""
    comment: str = ""


class SilenceAction(Query["IncidentsReply"], frozen=True, kw_only=True, tag="silence-action"):
    """A command: no pages for matching incidents for a while, or an end to that."""

    rule: str = ""
    """Shell pattern; empty for every one."""
    subject: str = ""
    in_ns: int = 0
    """Delay until it begins, for a future maintenance window."""
    for_ns: int = 0
    by: str = ""
    comment: str = ""
    end: int = 0
    """Number of the silence to end."""


class IncidentsReply(msgspec.Struct, frozen=True, kw_only=True, tag="incidents"):
    incidents: tuple[dict[str, Any], ...]
    """As in docs/reference/incidents.md; newest first, or the requested one and then those that it
    explains."""
    silences: tuple[dict[str, Any], ...]
    waiting: int
    """Number of messages not yet accepted by receivers."""
    warning: str = ""
    """Why the new silence may be a mistake; it is in force nevertheless."""


class RulesReply(msgspec.Struct, frozen=True, kw_only=True, tag="rules"):
    rules: tuple[dict[str, Any], ...]
