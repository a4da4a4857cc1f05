"""Audits under way: orders to agents, what came back, until whoever asked has fetched it."""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING

from syntony.errors import UsageError
from syntony.model import S
from syntony.model.names import is_name
from syntony.wire.audit import (
    AuditCommand,
    AuditOrder,
    AuditReport,
    AuditReports,
    AuditReportsQuery,
    AuditStarted,
    HostAudit,
)

if TYPE_CHECKING:
    from collections.abc import Collection

_log = logging.getLogger(__name__)
EXPIRE_NS = 60 * S
"""An order that has not reached its agent by then is void."""
MAX_DEADLINE_NS = 3600 * S
MAX_RUNS = 8
"""Kept for being fetched; the oldest goes first."""
MAX_REPORT_BYTES = 2 << 20
MAX_ANSWER_BYTES = 8 << 20
MAX_CHECKS = 500
GRACE_NS = 15 * S
"""Beyond an audit's deadline: for processes to start and reports to travel."""
_MAX_TEXT = 200
_NAMED = 4


class _Run:
    """One audit."""

    def __init__(self, waiting: Collection[str], by: str, until_ns: int) -> None:
        self.waiting = set(waiting)
        self.by = by
        self.until_ns = until_ns
        """Fleet time at which who has not answered never will."""
        self.reports: list[HostAudit] = []


class AuditDesk:
    """One per controller; used on its event loop only."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self.ordered = self.reported = 0
        """Audits, and hosts' reports, since this began."""

    @property
    def waiting(self) -> int:
        """Hosts whose report is not in."""
        return sum(len(run.waiting) for run in self._runs.values())

    def start(
        self, command: AuditCommand, by: str, connected: Collection[str], fleet_ns: int
    ) -> tuple[AuditStarted, list[AuditOrder]]:
        """The orders for agents.

        Args:
            by: who gives the order.
            connected: hosts whose agents are there.
            fleet_ns: now.

        Raises:
            UsageError: it asks for what cannot be, or another audit is under way
                on one of the hosts: an order that waits for its agent would be replaced by ours,
                and an agent audits once at a time.
        """
        if not 0 < command.deadline_ns <= MAX_DEADLINE_NS:
            raise UsageError(f"an audit takes up to {MAX_DEADLINE_NS // S} s")
        if len(command.checks) > MAX_CHECKS or not all(map(is_name, command.checks)):
            raise UsageError("a check has a name that cannot be one")
        wanted = command.hosts or tuple(sorted(connected))
        told = tuple(host for host in wanted if host in connected)
        self._refuse_while_busy(frozenset(told), fleet_ns)
        order = secrets.token_hex(16)
        until_ns = fleet_ns + EXPIRE_NS + command.deadline_ns + GRACE_NS
        self._runs[order] = _Run(told, by, until_ns)
        self.ordered += 1
        while len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        _log.warning("audit ordered order=%s hosts=%d by=%s", order, len(told), by)
        absent = tuple(host for host in wanted if host not in connected)
        orders = [
            AuditOrder(
                order=order,
                host=host,
                checks=command.checks,
                limits=command.limits,
                active=command.active,
                deadline_ns=command.deadline_ns,
                expires_ns=fleet_ns + EXPIRE_NS,
                by=by,
            )
            for host in told
        ]
        return AuditStarted(order=order, hosts=told, absent=absent), orders

    def _refuse_while_busy(self, told: frozenset[str], fleet_ns: int) -> None:
        for run in self._runs.values():
            busy = sorted(told & run.waiting)
            if busy and fleet_ns < run.until_ns:
                left_s = (run.until_ns - fleet_ns) // S
                named = ", ".join(busy[:_NAMED]) + (" …" if len(busy) > _NAMED else "")
                raise UsageError(
                    f"an audit by {run.by} is under way on {len(busy)} of these hosts ({named}); "
                    f"wait for it, {left_s} s at most, or name other hosts"
                )

    def take(self, host: str, report: AuditReport) -> None:
        """An agent's answer; one that nobody waits for is dropped."""
        run = self._runs.get(report.order)
        if run is None or host not in run.waiting:
            _log.warning("audit report dropped host=%s order=%s", host, report.order[:40])
            return
        run.waiting.discard(host)
        self.reported += 1
        refused = report.refused[: 2 * _MAX_TEXT]
        if len(report.report) > MAX_REPORT_BYTES:
            refused = f"a report of {len(report.report)} bytes is too long"
        run.reports.append(
            HostAudit(host=host, report=b"" if refused else report.report, refused=refused)
        )

    def reports(self, query: AuditReportsQuery) -> AuditReports:
        """What has come in, as much as fits an answer.

        Raises:
            UsageError: no such audit, or no longer.
        """
        run = self._runs.get(query.order)
        if run is None:
            raise UsageError(f"no audit {query.order[:40]!r} is kept; run it again")
        found: list[HostAudit] = []
        size = 0
        for report in run.reports[max(0, query.after) :]:
            size += len(report.report)
            if found and size > MAX_ANSWER_BYTES:
                break
            found.append(report)
        after = max(0, query.after) + len(found)
        whole = after == len(run.reports)
        waiting = tuple(sorted(run.waiting)) if whole else ("…",)
        return AuditReports(reports=tuple(found), after=after, waiting=waiting)
