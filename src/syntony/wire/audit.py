"""What is asked and answered about audits; part of `syntony.wire.messages`."""

from __future__ import annotations

from typing import Any

import msgspec

from syntony.wire.query import Query


class AuditReport(msgspec.Struct, frozen=True, kw_only=True, tag="audit-report"):
    """What came of an audit's order; never spooled."""

    order: str
    report: bytes = b""
    """JSON of `syntony.audit.result.HostReport`."""
    refused: str = ""
    """Why there is none."""


class AuditOrder(msgspec.Struct, frozen=True, kw_only=True, tag="audit-order"):
    """Run checks and report. Checks go by name: no command line crosses the wire."""

    order: str
    """Never used twice."""
    host: str
    """Whom it is for: no other agent obeys it."""
    checks: tuple[str, ...]
    """Ids or beginnings of them; empty for all."""
    limits: dict[str, dict[str, Any]]
    """Check → limits, as a spec sets them."""
    active: bool
    deadline_ns: int
    """For the checks together."""
    expires_ns: int
    """Fleet time after which nobody obeys it."""
    by: str
    backend: tuple[str, ...] = ()
    """Shell patterns of the ports that carry the job, as a spec's role says; none: found out."""


class AuditCommand(Query["AuditStarted"], frozen=True, kw_only=True, tag="audit-command"):
    """A command: agents audit their hosts."""

    hosts: tuple[str, ...] = ()
    """Empty: all that are connected."""
    checks: tuple[str, ...] = ()
    limits: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - msgspec copies it
    active: bool = False
    deadline_ns: int = 60_000_000_000
    by: str
    """Who says so, beside the name in the certificate."""
    backend: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - msgspec copies it
    """Host → shell patterns of the ports that carry the job; of hosts that are not in it the agents
    find out."""


class AuditReportsQuery(Query["AuditReports"], frozen=True, kw_only=True, tag="audit-reports"):
    """Reports of an audit that have come in since the first `after`."""

    order: str
    after: int = 0


class AuditStarted(msgspec.Struct, frozen=True, kw_only=True, tag="audit-started"):
    """The order is out."""

    order: str
    hosts: tuple[str, ...]
    """Agents that were reported."""
    absent: tuple[str, ...]
    """Asked for, but not connected."""


class HostAudit(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent answered; `host` is the name in its certificate."""

    host: str
    report: bytes
    refused: str


class AuditReports(msgspec.Struct, frozen=True, kw_only=True, tag="audit-reports"):
    reports: tuple[HostAudit, ...]
    after: int
    """For the next question."""
    waiting: tuple[str, ...]
    """Hosts that have not answered; empty when all have."""
