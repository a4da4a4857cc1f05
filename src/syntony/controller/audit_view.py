"""An audit's verdicts for a screen: the tree with counts, failed checks, the table of ports."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from syntony.audit.changes import compare
from syntony.audit.check import Section
from syntony.audit.registry import every_check
from syntony.audit.report.ports import port_rows
from syntony.audit.report.summary import worst_first
from syntony.audit.reported import host_report, verdicts
from syntony.audit.result import HostReport, Result, Status
from syntony.audit.spec import EMPTY
from syntony.controller.audits import AuditRuns
from syntony.wire.audit import (
    AuditChange,
    AuditPort,
    AuditSection,
    AuditVerdict,
    AuditView,
    AuditViewQuery,
)

MAX_VERDICTS = 20_000
"""Maximum number in one answer."""
_WRONG = frozenset({Status.FAIL, Status.WARN, Status.UNKNOWN})


def audit_view(audits: AuditRuns, query: AuditViewQuery) -> AuditView:
    """One audit, and its differences from another one.

    Raises:
        UsageError: no such audit, or no longer stored.
        StateError: the reports cannot be read.
    """
    runs = audits.views()
    order = query.order or (runs[-1].order if runs else "")
    if not order:
        return _nothing()
    orders = [run.order for run in runs]
    before = orders[: orders.index(order)] if order in orders else []
    against = query.against or (before[-1] if before else "")
    reports, waiting = _reports(audits, order)
    results = list(verdicts(reports, EMPTY))
    sections = {check.id: check.section for check in every_check()}
    chosen = [each for each in results if query.everything or each.status in _WRONG]
    shown = worst_first(chosen)[:MAX_VERDICTS]
    changes = []
    if against and not waiting:
        changes = compare(verdicts(_reports(audits, against)[0], EMPTY), results)
    return AuditView(
        runs=runs,
        order=order,
        against=against,
        taken_ns=max((report.taken_ns for report in reports), default=0),
        waiting=waiting,
        sections=tuple(_sections(results, sections)),
        verdicts=tuple(_verdict(each, _place(each, sections)) for each in shown),
        left_out=len(chosen) - len(shown),
        ports=tuple(
            AuditPort(
                host=row.host,
                nic=row.nic,
                initialized=row.initialized or "",
                active=row.active or "",
                gid=row.gid or "",
                connectivity=row.connectivity or "",
                gid_index=row.gid_index,
            )
            for row in port_rows(results)
        ),
        changes=tuple(
            AuditChange(
                change=each.change,
                check=each.check,
                subject=each.subject,
                before=each.before,
                after=each.after,
            )
            for each in changes
        ),
    )


def _nothing() -> AuditView:
    return AuditView(
        runs=(), order="", against="", taken_ns=0, waiting=(), sections=(), verdicts=(),
        left_out=0, ports=(), changes=(),
    )  # fmt: skip


def _reports(audits: AuditRuns, order: str) -> tuple[list[HostReport], tuple[str, ...]]:
    found, waiting = audits.all_reports(order)
    return [host_report(each.host, each.report, each.refused, 0) for each in found], waiting


def _place(result: Result, sections: dict[str, Section]) -> Section:
    return sections.get(result.check, Section.NODE)


def _sections(results: Iterable[Result], sections: dict[str, Section]) -> Iterable[AuditSection]:
    counts: defaultdict[Section, Counter[str]] = defaultdict(Counter)
    idle: dict[Section, str] = {}
    for each in results:
        place = _place(each, sections)
        counts[place][each.status.value] += 1
        if each.status is Status.SKIP:
            idle.setdefault(place, each.evidence)
    for section in Section:
        if section in counts:
            found = dict(counts[section])
            why = idle[section] if set(found) == {Status.SKIP.value} else ""
            branch, name = section.value
            yield AuditSection(branch=branch, section=name, counts=found, why=why)


def _verdict(result: Result, section: Section) -> AuditVerdict:
    branch, name = section.value
    return AuditVerdict(
        branch=branch,
        section=name,
        check=result.check,
        status=result.status,
        subject=result.subject,
        expected=result.expected,
        got=result.got,
        evidence=result.evidence,
        meaning=result.meaning,
        remedy=result.remedy,
        suspect=result.suspect,
    )
