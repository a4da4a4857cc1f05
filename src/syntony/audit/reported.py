"""Reports of hosts as they come in, and the verdicts on all of them together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from syntony.audit.consequences import Consequences
from syntony.audit.judge import Golden, Judge, Majority
from syntony.audit.result import HostReport, Result
from syntony.audit.spec import Spec
from syntony.model.names import host_of

_MAX_REASON = 300


def unreachable(host: str, why: str, now_ns: int) -> HostReport:
    """A report of a host that could not be reached."""
    reason = " ".join(why.split())[:_MAX_REASON] or "?"
    return HostReport(host=host, taken_ns=now_ns, unreachable=reason)


def host_report(host: str, data: bytes, refused: str, now_ns: int) -> HostReport:
    """Decode an agent's answer; a host whose answer is unusable is unreachable, with the reason.

    Args:
        host: the name in the agent's certificate: it speaks for no other host.
        data: JSON of a `HostReport`.
        refused: why there is none.
    """
    if refused:
        return unreachable(host, f"its agent refused: {refused}", now_ns)
    try:
        report = msgspec.json.decode(data, type=HostReport)
    except msgspec.DecodeError as error:
        return unreachable(host, f"its agent sent no report: {error}", now_ns)
    subjects = [each.subject for each in report.results]
    subjects += [each.subject for each in report.readings]
    foreign = any(host_of(subject) != host for subject in subjects)
    if foreign or report.host != host:
        return unreachable(host, "its agent reported on another host", now_ns)
    return report


def verdicts(
    reports: Iterable[HostReport], spec: Spec, golden: Golden | None = None
) -> Iterator[Result]:
    """Verdicts on all reports, in three passes: count votes, find consequences, judge.

    Args:
        reports: can be gone through several times.
    """
    majority = Majority(spec)
    for report in reports:
        majority.count(report)
    judge = Judge(spec, golden, majority)
    consequences = Consequences(result for report in reports for result in judge.verdicts(report))
    for report in reports:
        yield from map(consequences.reported, judge.verdicts(report))
