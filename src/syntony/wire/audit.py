"""Requests and answers about audits; part of `syntony.wire.messages`."""

from __future__ import annotations

from typing import Any

import msgspec

from syntony.wire.query import Query


class AuditReport(msgspec.Struct, frozen=True, kw_only=True, tag="audit-report"):
    """The result of an audit's order; never spooled."""

    order: str
    report: bytes = b""
    """JSON of `syntony.audit.result.HostReport`."""
    refused: str = ""
    """The reason why there is no report."""


class AuditOrder(msgspec.Struct, frozen=True, kw_only=True, tag="audit-order"):
    """Run checks and report. Checks go by name: no command line crosses the wire."""

    order: str
    """Unique id of the order."""
    host: str
    """The host to audit: no other agent obeys the order."""
    checks: tuple[str, ...]
    """Ids of checks, or prefixes of ids; empty: all."""
    limits: dict[str, dict[str, Any]]
    """Check → limits, as a spec sets them."""
    active: bool
    deadline_ns: int
    """Time limit of all checks together."""
    expires_ns: int
    """Fleet time after which the order is ignored."""
    by: str
    backend: tuple[str, ...] = ()
    """Shell patterns of the back-end ports, as in a spec's role; empty: detected by the agent."""


class AuditCommand(Query["AuditStarted"], frozen=True, kw_only=True, tag="audit-command"):
    """A command: agents audit their hosts."""

    hosts: tuple[str, ...] = ()
    """Hosts to audit; empty: all connected ones."""
    checks: tuple[str, ...] = ()
    limits: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - msgspec copies it
    active: bool = False
    deadline_ns: int = 60_000_000_000
    by: str
    """The user, in addition to the name in the certificate."""
    backend: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - msgspec copies it
    """Host → shell patterns of the back-end ports; agents of other hosts detect theirs."""


class AuditReportsQuery(Query["AuditReports"], frozen=True, kw_only=True, tag="audit-reports"):
    """Reports of an audit that have come in since the first `after`."""

    order: str
    after: int = 0


class AuditStarted(msgspec.Struct, frozen=True, kw_only=True, tag="audit-started"):
    """The order has been sent."""

    order: str
    hosts: tuple[str, ...]
    """Hosts to whose agents the order was sent."""
    absent: tuple[str, ...]
    """Requested hosts that are not connected."""


class HostAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one agent; `host` is the name in its certificate."""

    host: str
    report: bytes
    refused: str


class AuditReports(msgspec.Struct, frozen=True, kw_only=True, tag="audit-reports"):
    reports: tuple[HostAudit, ...]
    after: int
    """Value for the next request."""
    waiting: tuple[str, ...]
    """Hosts that have not answered; empty when all have."""


class AuditViewQuery(Query["AuditView"], frozen=True, kw_only=True, tag="audit-view"):
    """Verdicts of an audit, as far as reports have come in, for a screen."""

    order: str = ""
    """Empty: the newest."""
    against: str = ""
    """The audit to compare with; empty: the one before."""
    everything: bool = False
    """Also verdicts that pass, do not apply or have nothing to be compared with."""


class AuditRunView(msgspec.Struct, frozen=True, kw_only=True):
    """One stored audit."""

    order: str
    by: str
    until_ns: int
    """Fleet time until which hosts may answer."""
    hosts: int
    waiting: int


class AuditSection(msgspec.Struct, frozen=True, kw_only=True):
    """One section of the tree of checks."""

    branch: str
    """``Configuration``."""
    section: str
    """``Software``; empty: the branch has no sections."""
    counts: dict[str, int]
    """Verdicts by status."""
    why: str
    """The reason, if everything in it was skipped."""


class AuditVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict of one check (`syntony.audit.result.Result`), and its place in the tree."""

    branch: str
    section: str
    check: str
    status: str
    subject: str
    expected: str
    got: str
    evidence: str
    meaning: str
    remedy: str
    suspect: str


class AuditPort(msgspec.Struct, frozen=True, kw_only=True):
    """One back-end port; a status is empty if no check set it."""

    host: str
    nic: str
    initialized: str
    active: str
    gid: str
    connectivity: str
    gid_index: str


class AuditChange(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict that differs from the audit before."""

    change: str
    """``worse``, ``new``, ``gone``, ``changed`` or ``better``."""
    check: str
    subject: str
    before: str
    after: str


class AuditView(msgspec.Struct, frozen=True, kw_only=True, tag="audit-view"):
    """Empty if no audit is stored."""

    runs: tuple[AuditRunView, ...]
    """Oldest first."""
    order: str
    against: str
    taken_ns: int
    """When the newest report was made, UTC, by its host's clock; 0: none came in."""
    waiting: tuple[str, ...]
    """Hosts that have not answered."""
    sections: tuple[AuditSection, ...]
    verdicts: tuple[AuditVerdict, ...]
    """Worst first."""
    left_out: int
    """Verdicts beyond these."""
    ports: tuple[AuditPort, ...]
    changes: tuple[AuditChange, ...]
