"""Decides which of two incidents is the cause of the other, by their subjects. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from syntony.alerts.incident_texts import RANK
from syntony.alerts.incidents import Incident
from syntony.alerts.observations import Containment
from syntony.alerts.rules import Rule


def is_reported(incident: Incident) -> bool:
    """Whether it has paged with its present severity, or a higher one."""
    return incident.paged and RANK[incident.severity] <= RANK[incident.reported_severity]


def is_as_severe(other: Incident, incident: Incident) -> bool:
    """Whether the page of another one is, or will be, no less severe."""
    return RANK[incident.severity] <= RANK[other.reported_severity]


def is_too_mild(cause: Incident, incident: Incident, rules: Mapping[str, Rule]) -> bool:
    """Whether a cause hurts less than its rule says, and a proven incident more than it: a switch
    that loses little is no reason for a port at it that is down."""
    calm = cause.severity is not rules[cause.rule].severity
    return calm and rules[incident.rule].proven and not is_as_severe(cause, incident)


def was_paged_for(incident: Incident) -> bool:
    """Whether somebody was paged for it, or would have been but for a silence."""
    return bool(incident.paged_as or incident.silenced)


def ended_after(instant_ns: int, incidents: Iterable[Incident]) -> list[Incident]:
    """Incidents that ended later. One that ended before it paged explains nothing, as while it was
    live and not bad."""
    return [
        each
        for each in incidents
        if each.resolved_ns > instant_ns and not each.live and was_paged_for(each)
    ]


def was_reported(number: int, incidents: Iterable[Incident]) -> bool:
    """Whether a cause, of that number, is live, or somebody was paged for it, or for what explained
    it, before it ended."""
    ended = {each.number: each for each in incidents if not each.live}
    while incident := ended.pop(number, None):
        if was_paged_for(incident):
            return True
        if not incident.cause:
            return False
        number = incident.cause
    return number > 0


def explained(number: int, incidents: Iterable[Incident]) -> list[Incident]:
    """The live incidents that an incident, of that number, explains, directly or through others."""
    live = [each for each in incidents if each.live]
    found: list[Incident] = []
    causes = {number}
    while more := [each for each in live if each.cause in causes and each not in found]:
        found += more
        causes = {each.number for each in more}
    return sorted(found, key=lambda incident: incident.number)


def precedes(one: Incident, other: Incident, topology: Containment) -> bool:
    """Whether, of two incidents of one rule, the second is evidence of the first: the narrower one
    (a cable's direction) of the wider one. If only the narrower one has paged, the wider one is
    evidence of it, and so is the other direction."""
    if one.paged > other.paged and (
        topology.holds(other.subject, one.subject) or topology.mirrors(one.subject, other.subject)
    ):
        return True
    return one.paged >= other.paged and topology.holds(one.subject, other.subject)


def explains(cause: Incident, incident: Incident, holds: Callable[[str, str], bool]) -> bool:
    """Whether all subjects of an incident, or all that they are reached over, are or fail with the
    subject of another one."""
    return any(
        all(_affects(cause, name, holds) for name in names)
        for names in (incident.members or (incident.subject,), incident.via)
        if names
    )


def joint_cause(
    incident: Incident, others: Sequence[Incident], holds: Callable[[str, str], bool]
) -> Incident | None:
    """One of several incidents that together explain all subjects of another one, such as hosts
    that fell silent at once because two switches died."""
    for names in (incident.members, incident.via) if others else ():
        found = [
            next((each for each in others if _affects(each, name, holds)), None) for name in names
        ]
        if found and all(found):
            return found[0]
    return None


def joint_page(
    incident: Incident, parts: Sequence[Incident], names: Callable[[str, str], bool]
) -> Incident | None:
    """One of several incidents that together name what each component of another one is reached
    over, and page for it."""
    named = [
        next((each for each in parts if names(each.subject, via)), None) for via in incident.via
    ]
    return named[0] if named and all(named) else None


def was_reached_over(silence: Incident, incident: Incident, topology: Containment) -> bool:
    """Whether an incident names what the silent hosts of another one were reached over."""
    return any(topology.names(via, incident.subject) for via in silence.via)


def is_explained_by(
    incident: Incident | None, cause: Incident, known: Mapping[int, Incident]
) -> bool:
    """Whether it is explained by another one, directly or through others, live or resolved, or is
    the same. Of two that contain each other, as a host and its only NIC, one must page."""
    seen: set[int] = set()
    while incident is not None and incident is not cause and incident.number not in seen:
        seen.add(incident.number)
        incident = known.get(incident.cause)
    return incident is cause


def _affects(cause: Incident, name: str, holds: Callable[[str, str], bool]) -> bool:
    return name == cause.subject or name in cause.members or holds(cause.subject, name)


class Related:
    """Index of incidents by rule and subject, so that each is compared only with those that may be
    related: comparing thousands with each other takes seconds.

    Args:
        incidents: oldest first.
        topology: which components contain which.
    """

    def __init__(self, incidents: Iterable[Incident], topology: Containment) -> None:
        self._incidents = tuple(incidents)
        self._roots, self._around = cache(topology.roots), cache(topology.around)
        self._named: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._within: dict[tuple[str, str], list[int]] = defaultdict(list)
        """By the roots of names that may contain them."""
        for place, each in enumerate(self._incidents):
            names = (each.subject, *each.members, *each.via)
            for root in set[str]().union(*map(self._roots, names)):
                self._named[each.rule, root].append(place)
            for root in self._around(each.subject):
                self._within[each.rule, root].append(place)

    def to(
        self, incident: Incident, rule: str, since_ns: int, *, jointly: bool = False
    ) -> Iterator[Incident]:
        """All incidents of a rule that may explain an incident or be a part of it, oldest first,
        and some others; of resolved ones those that ended after `since_ns` (fleet time).
        `jointly`: also those that may explain only some of its subjects."""
        places: set[int] = set()
        # What alone explains it contains all of its members.
        members = incident.members if jointly else incident.members[:1]
        for root in self._around(incident.subject).union(*map(self._around, members)):
            places.update(self._named.get((rule, root), ()))
        for root in self._roots(incident.subject):
            places.update(self._within.get((rule, root), ()))
        found = map(self._incidents.__getitem__, sorted(places))
        return (each for each in found if each is not incident and each.resolved_ns > since_ns)
