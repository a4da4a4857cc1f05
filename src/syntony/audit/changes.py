"""Compares two runs: verdicts that changed, appeared or disappeared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from syntony.audit.judge import UNREACHABLE
from syntony.audit.registry import fleet_checks
from syntony.audit.report.summary import ORDER, subject_host
from syntony.audit.result import Result, Status


class VerdictChange(msgspec.Struct, frozen=True, kw_only=True):
    check: str
    subject: str
    change: str
    """``worse``, ``better``, ``changed`` (as bad as before), ``new`` or ``gone``."""
    before: str
    """Status and value; empty where there was none."""
    after: str
    result: Result
    """The newer verdict; of a ``gone`` one, the older."""


_Place = tuple[str, str, str]
_QUIET = frozenset({Status.SKIP, Status.PASS, Status.NOT_COMPARED})
"""Statuses whose appearance or disappearance is not reported: none is better than another."""
_TOLD = frozenset({Status.FAIL, Status.WARN, Status.NOT_COMPARED})
"""Statuses for which a changed value is reported; counters and dates, which always differ, pass or
are unknown."""


def compare(before: Iterable[Result], after: Iterable[Result]) -> list[VerdictChange]:
    """Worse first, then by subject. Of a pass, an unknown or a skip, another value is no change."""
    before, after = list(before), list(after)
    lost = _hosts(before) - _hosts(after)
    old = _by_place(each for each in before if subject_host(each) not in lost)
    new = _by_place(after)
    found = [_lost(host) for host in lost]
    for place in old.keys() | new.keys():
        change = _one(place, old.get(place), new.get(place))
        if change is not None:
            found.append(change)
    kinds = ("worse", "new", "gone", "changed", "better")
    return sorted(found, key=lambda each: (kinds.index(each.change), each.subject, each.check))


def _hosts(results: Iterable[Result]) -> set[str]:
    """The hosts of a run; subjects of fleet-wide checks may be cables."""
    fleet = {check.id for check in fleet_checks()}
    return {subject_host(each) for each in results if each.check not in fleet}


def _lost(host: str) -> VerdictChange:
    gone = Result(
        check=UNREACHABLE, status=Status.UNKNOWN, subject=host,
        evidence="the newer run did not ask this host",
    )  # fmt: skip
    return VerdictChange(check=UNREACHABLE, subject=host, change="gone", before="asked",
                  after="not asked", result=gone)  # fmt: skip


def _by_place(results: Iterable[Result]) -> dict[_Place, Result]:
    """Results by check, subject and place. Several results of a check on one subject differ by the
    expected value, or by their order."""
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[_Place, Result] = {}
    for result in results:
        key = (result.check, result.subject)
        found[*key, f"{seen[key]}"] = result
        seen[key] += 1
    return found


def _one(place: _Place, old: Result | None, new: Result | None) -> VerdictChange | None:
    if old is None or new is None:
        kept = new or old
        # A subject that is no longer audited is reported only if it had a verdict.
        if kept is None or kept.status in _QUIET:
            return None
        change = "new" if new else "gone"
    elif old.status is not new.status and {old.status, new.status} <= _QUIET:
        kept, change = new, "changed"
    elif old.status is not new.status:
        kept = new
        change = "worse" if ORDER.index(new.status) < ORDER.index(old.status) else "better"
    elif new.status in _TOLD and old.got != new.got:
        kept, change = new, "changed"
    else:
        return None
    return VerdictChange(
        check=place[0],
        subject=place[1],
        change=change,
        before=_describe(old),
        after=_describe(new),
        result=kept,
    )


def _describe(result: Result | None) -> str:
    return "" if result is None else f"{result.status} {result.got}".strip()
