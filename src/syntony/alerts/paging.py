"""Whether and when an incident may page, which of several pages first, and when the all-clear is
sent. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from syntony.alerts.incidents import ChangeKind, Incident, IncidentChange
from syntony.alerts.observations import Containment
from syntony.alerts.rules import Rule
from syntony.alerts.silences import Silence
from syntony.model import S

REOPEN_NS = 15 * 60 * S
"""A condition that returns within this time after it was resolved reopens its incident."""


def wait_ns(incident: Incident, rule: Rule, live: int) -> int:
    """How long its page is delayed. `idle_wait` is only for an incident that was never explained or
    reopened, is the only live one of its rule, and affects no known job."""
    first = not incident.reopened and not incident.caused and live == 1
    return rule.idle_wait_ns if first and not incident.jobs else rule.wait_ns


def exact_first(due: Sequence[Incident], topology: Containment) -> list[Incident]:
    """Incidents with groups after what these may include."""
    names = [each.subject for each in due]
    groups = {name for name in names if topology.may_include(name, name)}
    wide = {each: sum(topology.may_include(each, name) for name in names) for each in groups}
    return sorted(due, key=lambda each: wide.get(each.subject, 0))


def postpone(incident: Incident, good_ns: int) -> None:
    """Do not count time in which it was not bad towards the delay of its first page: an
    intermittent fault pages once its bad times add up to the delay."""
    if not incident.pages:
        incident.held_ns += good_ns


def wait_from(at_ns: int, changes: Iterable[IncidentChange], now_ns: int) -> None:
    """Let delays of pages that begin now begin when the metric was measured, at `at_ns`."""
    for incident in (change.incident for change in changes):
        if incident.held_ns == now_ns:
            incident.held_ns = at_ns


def clear_ns(incident: Incident) -> int:
    """When the all-clear of an incident is due, if it is resolved. One that has returned is first
    given twice the time after which it returned: an intermittent fault does not page each time."""
    return incident.bad_ns + min(2 * incident.quiet_ns, REOPEN_NS)


def all_clears(
    now_ns: int, incidents: Iterable[Incident], unknown: Container[str] = ()
) -> list[IncidentChange]:
    """Send the all-clears that are due, except for rules whose metrics are not measured now."""
    changes = []
    for incident in incidents:
        waits = incident.live or incident.rule in unknown
        if incident.paged and not waits and now_ns >= clear_ns(incident):
            incident.paged, incident.updated_ns = False, now_ns
            changes.append(IncidentChange(now_ns, ChangeKind.CLEAR, incident))
    return changes


def is_silenced(
    silences: Iterable[Silence],
    incident: Incident,
    topology: Containment,
    now_ns: int,
    *,
    proven: bool,
) -> bool:
    """Whether an incident is silenced now: its subject or a part of that, or each of the components
    that it describes, or all that these were reached over.

    Args:
        silences: also those that are over, or have not begun.
        incident: what may page.
        topology: what its subject consists of.
        now_ns: fleet time.
        proven: whether its rule is.
    """
    active = [each for each in silences if each.first_ns <= now_ns < each.last_ns]
    if not active:
        return False

    def is_covered(name: str) -> bool:
        names = {name, *topology.parts(name)}
        return any(silence.matches(incident.rule, names) for silence in active)

    members = incident.members if proven else ()
    groups = (members, incident.via, topology.hosts(incident.subject))
    return is_covered(incident.subject) or any(
        each and all(map(is_covered, each)) for each in groups
    )
