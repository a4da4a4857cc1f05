"""Audits through agents: the orders, and the reports until they are fetched.

Runs and reports are control state: a restart in the middle of an audit does not lose reports that
have arrived.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Collection

from syntony.errors import UsageError
from syntony.model import HOUR_NS, S
from syntony.model.names import is_name
from syntony.state import ControlState, DatabaseConnection, log_change
from syntony.wire.audit import (
    AuditCommand,
    AuditOrder,
    AuditReport,
    AuditReports,
    AuditReportsQuery,
    AuditRunView,
    AuditStarted,
    HostAudit,
)
from syntony.wire.control import Issuer

_log = logging.getLogger(__name__)
EXPIRE_NS = 60 * S
"""An order that has not reached its agent within this time is void."""
MAX_DEADLINE_NS = HOUR_NS
MAX_RUNS = 8
"""Number of stored runs; the oldest is removed first."""
MAX_REPORT_BYTES = 2 << 20
MAX_ANSWER_BYTES = 8 << 20
MAX_CHECKS = 500
GRACE_NS = 15 * S
"""Time beyond an audit's deadline, for processes to start and reports to arrive."""
MORE = ("…",)
"""Used as the list of missing hosts while further reports are waiting to be fetched."""
_MAX_TEXT = 200
_NAMED = 4


class _Run:
    def __init__(self, hosts: int, waiting: Collection[str], by: str, until_ns: int) -> None:
        self.hosts = hosts
        self.waiting = set(waiting)
        self.by = by
        self.until_ns = until_ns
        """Fleet time after which missing reports are given up."""


class AuditRuns:
    """Runs audits through agents, and stores their reports.

    One per controller. Thread-safe; methods wait for the disk.

    Args:
        state: where runs and reports are stored.

    Raises:
        StateError: they cannot be read.
    """

    def __init__(self, state: ControlState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        reported = set(state.read("SELECT run, host FROM audit_report"))
        for order, by, until_ns, hosts in state.read(
            "SELECT name, issuer, until_ns, hosts FROM audit_run ORDER BY number"
        ):
            ordered = json.loads(hosts)
            waiting = [host for host in ordered if (order, host) not in reported]
            self._runs[order] = _Run(len(ordered), waiting, by, until_ns)
        self.ordered = self.reported = 0
        """Number of audits, and of hosts' reports, since this began."""

    @property
    def waiting(self) -> int:
        """Number of hosts whose report is missing."""
        return sum(len(run.waiting) for run in self._runs.values())

    def start(
        self, command: AuditCommand, issuer: Issuer, connected: Collection[str], fleet_ns: int
    ) -> tuple[AuditStarted, list[AuditOrder]]:
        """The orders for agents.

        Args:
            issuer: who gives the order.
            connected: hosts whose agents are connected.
            fleet_ns: now.

        Raises:
            UsageError: the request is invalid, or another audit runs on one of the hosts: an order
                that waits for its agent would be replaced by ours, and an agent runs one audit at a
                time.
            StateError: it could not be recorded; nothing is ordered.
        """
        if not 0 < command.deadline_ns <= MAX_DEADLINE_NS:
            raise UsageError(f"the deadline of an audit is at most {MAX_DEADLINE_NS // S} s")
        if len(command.checks) > MAX_CHECKS or not all(map(is_name, command.checks)):
            raise UsageError("a check has an invalid name")
        hosts = command.hosts or tuple(sorted(connected))
        reported = tuple(host for host in hosts if host in connected)
        order, by = secrets.token_hex(16), issuer.who
        until_ns = fleet_ns + EXPIRE_NS + command.deadline_ns + GRACE_NS
        run = _Run(len(reported), reported, by, until_ns)
        with self._lock:
            self._refuse_while_busy(frozenset(reported), fleet_ns)
            old = [*self._runs, order][:-MAX_RUNS]
            with self._state.transaction() as connection:
                _record(connection, order, run, old)
                change = (f"audit {order}", "", "started", f"{len(reported)} hosts")
                log_change(connection, fleet_ns, issuer, change)
            self._runs[order] = run
            for each in old:
                del self._runs[each]
        self.ordered += 1
        _log.warning("audit ordered order=%s hosts=%d by=%s", order, len(reported), by)
        absent = tuple(host for host in hosts if host not in connected)
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
                backend=command.backend.get(host, ()),
            )
            for host in reported
        ]
        return AuditStarted(order=order, hosts=reported, absent=absent), orders

    def _refuse_while_busy(self, reported: frozenset[str], fleet_ns: int) -> None:
        for run in self._runs.values():
            busy = sorted(reported & run.waiting)
            if busy and fleet_ns < run.until_ns:
                left_s = (run.until_ns - fleet_ns) // S
                named = ", ".join(busy[:_NAMED]) + (" …" if len(busy) > _NAMED else "")
                raise UsageError(
                    f"an audit by {run.by} is under way on {len(busy)} of these hosts ({named}); "
                    f"wait for it, {left_s} s at most, or name other hosts"
                )

    def take(self, host: str, report: AuditReport) -> None:
        """Take an agent's report; one that is not expected, or is stored already, is dropped.

        Raises:
            StateError: it is not stored, as far as known.
        """
        refused = report.refused[: 2 * _MAX_TEXT]
        if len(report.report) > MAX_REPORT_BYTES:
            refused = f"a report of {len(report.report)} bytes is too long"
        with self._lock:
            run = self._runs.get(report.order)
            if run is None or host not in run.waiting:
                _log.info("audit report dropped host=%s order=%.40r", host, report.order)
                return
            with self._state.transaction() as connection:
                connection.execute(
                    "INSERT INTO audit_report (run, host, report, refused) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (run, host) DO NOTHING",
                    (report.order, host, b"" if refused else report.report, refused),
                )
            run.waiting.discard(host)
        self.reported += 1

    def views(self) -> tuple[AuditRunView, ...]:
        """Stored audits, oldest first."""
        with self._lock:
            return tuple(
                AuditRunView(
                    order=order,
                    by=run.by,
                    until_ns=run.until_ns,
                    hosts=run.hosts,
                    waiting=len(run.waiting),
                )
                for order, run in self._runs.items()
            )

    def all_reports(self, order: str) -> tuple[tuple[HostAudit, ...], tuple[str, ...]]:
        """All reports of one audit, and the hosts without one.

        Raises:
            UsageError: no such audit, or no longer stored.
            StateError: the reports cannot be read.
        """
        found: list[HostAudit] = []
        while True:
            answer = self.reports(AuditReportsQuery(order=order, after=len(found)))
            found += answer.reports
            if not answer.reports or answer.waiting != MORE:
                return tuple(found), answer.waiting

    def reports(self, query: AuditReportsQuery) -> AuditReports:
        """As many reports as fit into an answer.

        Raises:
            UsageError: no such audit, or no longer stored.
            StateError: the reports cannot be read.
        """
        with self._lock:
            run = self._runs.get(query.order)
            if run is None:
                raise UsageError(f"no audit {query.order[:40]!r} is kept; run it again")
            waiting = tuple(sorted(run.waiting))
            after = max(0, query.after)
            sizes = self._state.read(
                "SELECT length(report) FROM audit_report WHERE run = ? ORDER BY number",
                query.order,
            )
            count = _fitting([size for (size,) in sizes[after:]])
            rows = self._state.read(
                "SELECT host, report, refused FROM audit_report WHERE run = ? ORDER BY number "
                "LIMIT ? OFFSET ?",
                query.order,
                count,
                after,
            )
        found = tuple(HostAudit(host=row[0], report=row[1], refused=row[2]) for row in rows)
        whole = after + count >= len(sizes)
        return AuditReports(reports=found, after=after + count, waiting=waiting if whole else MORE)


def _record(connection: DatabaseConnection, order: str, run: _Run, old: Collection[str]) -> None:
    """Add a run, and remove old ones with their reports."""
    for each in old:
        connection.execute("DELETE FROM audit_report WHERE run = ?", (each,))
        connection.execute("DELETE FROM audit_run WHERE name = ?", (each,))
    connection.execute(
        "INSERT INTO audit_run (name, issuer, until_ns, hosts) VALUES (?, ?, ?, ?)",
        (order, run.by, run.until_ns, json.dumps(sorted(run.waiting))),
    )


def _fitting(sizes: list[int]) -> int:
    """How many of the first reports fit into an answer; at least one."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if count and total > MAX_ANSWER_BYTES:
            return count
    return len(sizes)
