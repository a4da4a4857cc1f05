"""Incidents: opened when a rule has been broken for long enough, one for each cause. Sans IO.

The book is the only place where incidents change. It is fed evaluations and commands, with the time
as an argument, and returns what has changed; what it holds can be written down and read back, so
that a restart neither loses an incident nor opens it again.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from syntony.alerts.causes import Related, explains, is_reported, precedes
from syntony.alerts.observations import Containment, Measured, Observation
from syntony.alerts.rules import Rule, Severity
from syntony.alerts.silences import Silence, silenced
from syntony.alerts.telling import hurt, update
from syntony.errors import UsageError
from syntony.model import S

REOPEN_NS = 15 * 60 * S
"""A condition that comes back so soon after it was resolved is the same incident, not another."""
OFFENDER_NS = 7 * 24 * 3600 * S
"""Incidents of the same rule and subject within so long make a repeat offender."""
KEPT_NS = 30 * 24 * 3600 * S
"""Resolved incidents are forgotten after so long; the store keeps them."""
MAX_KEPT = 10_000
"""… and the oldest sooner, where there are more: all are in memory."""


class IncidentState(enum.StrEnum):
    """Where an incident is in its life."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    """Somebody is on it: no further pages."""
    RESOLVED = "resolved"


class Incident(msgspec.Struct, kw_only=True):
    """One thing that is wrong, with everything a person needs. Instants are fleet time."""

    number: int
    rule: str
    subject: str
    severity: Severity
    state: IncidentState
    summary: str
    remedy: str
    opened_ns: int
    updated_ns: int
    resolved_ns: int = 0
    value: float = 0.0
    worst: float = 0.0
    unit: str = ""
    """Of both: ``ratio``, ``ns``, or none."""
    evidence: tuple[str, ...] = ()
    """Lines that differ in their numbers alone are one, the newest, with how often it was seen."""
    jobs: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    """What it is about, where its subject names several by one phrase."""
    span_ns: int = 0
    """How far back its value reaches."""
    pending: bool = False
    """More is being found out: no page yet."""
    apart_from: tuple[str, ...] = ()
    """Metrics whose incidents do not explain it."""
    cause: int = 0
    """The incident that explains this one, over or not; 0 if none: then it is a page of its own."""
    caused: float = 0.0
    """The largest value while that was there."""
    held_ns: int = 0
    """From when `wait` counts: when it opened, was reopened, or its cause was last over; later by
    as long as it was not bad since, while it has never paged."""
    paged: bool = False
    """Whether a page went out for it, and no all-clear yet."""
    paged_as: Severity | None = None
    """How severe it was when it paged; None: it did not since it was opened or reopened."""
    pages: int = 0
    """How often it paged."""
    silenced: bool = False
    reopened: int = 0
    repeats: int = 0
    """Earlier incidents of the same rule and subject within a week."""
    acknowledged_by: str = ""
    comment: str = ""

    @property
    def live(self) -> bool:
        return self.state is not IncidentState.RESOLVED


class ChangeKind(enum.StrEnum):
    """What became of an incident."""

    OPENED = "opened"
    REOPENED = "reopened"
    EXPLAINED = "explained"
    """It turned out to be evidence of another."""
    UNEXPLAINED = "unexplained"
    """Its cause is gone and it is still there."""
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    PAGE = "page"
    """Send a page."""
    CLEAR = "clear"
    """Tell those who were paged that it is over."""


class IncidentChange(NamedTuple):
    """One change, and the incident after it."""

    at_ns: int
    kind: ChangeKind
    incident: Incident


class Streak(msgspec.Struct):
    """One rule on one subject: how long it has been bad or good."""

    bad: int = 0
    good: int = 0
    last_bad_ns: int = 0
    good_ns: int = 0
    """Since when it has been good."""


class BookState(msgspec.Struct, kw_only=True):
    """All that a restart must not lose."""

    next_number: int = 1
    incidents: list[Incident] = msgspec.field(default_factory=list)
    streaks: dict[str, Streak] = msgspec.field(default_factory=dict)
    """By ``rule|subject``."""
    silences: list[Silence] = msgspec.field(default_factory=list)
    next_silence: int = 1


class Book:
    """All incidents of a fleet.

    Args:
        rules: those in force.
        state: of an earlier life, or nothing.
    """

    def __init__(self, rules: Iterable[Rule], state: BookState | None = None) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self.state = state or BookState()
        self._live = {
            (incident.rule, incident.subject): incident
            for incident in self.state.incidents
            if incident.live
        }

    @property
    def incidents(self) -> Sequence[Incident]:
        """All that are remembered, oldest first."""
        return self.state.incidents

    def find(self, number: int) -> Incident:
        """One incident. Raises `UsageError`: there is none of that number."""
        for incident in self.state.incidents:
            if incident.number == number:
                return incident
        raise UsageError(f"no incident {number}; `syntony incidents list --all` shows them")

    def evaluate(self, now_ns: int, seen: Measured, topology: Containment) -> list[IncidentChange]:
        """Hold what was measured against the rules.

        Args:
            now_ns: fleet time.
            seen: what was measured, and which metrics were.
            topology: what is part of what.
        """
        changes: list[IncidentChange] = []
        by_metric: dict[str, dict[str, Observation]] = {}
        for observation in seen.observations:
            by_metric.setdefault(observation.metric, {})[observation.subject] = observation
        for rule in self._rules.values():
            if rule.metric in seen.metrics:
                changes += self._apply(now_ns, rule, by_metric.get(rule.metric, {}))
        changes += self._drop_orphans(now_ns)
        changes += self._explain(now_ns, topology)
        changes += self._page(now_ns)
        self._forget(now_ns)
        return changes

    def acknowledge(self, number: int, who: str, comment: str, now_ns: int) -> list[IncidentChange]:
        """Somebody is on it. Raises `UsageError`: no such incident, or it is over."""
        incident = self.find(number)
        if not incident.live:
            raise UsageError(f"incident {number} is resolved already")
        incident.state = IncidentState.ACKNOWLEDGED
        incident.acknowledged_by, incident.comment = who, comment
        incident.updated_ns = now_ns
        return [IncidentChange(now_ns, ChangeKind.ACKNOWLEDGED, incident)]

    def resolve(self, number: int, who: str, now_ns: int) -> list[IncidentChange]:
        """Clear by hand; it opens again if it is still bad. Raises `UsageError`."""
        incident = self.find(number)
        if not incident.live:
            raise UsageError(f"incident {number} is resolved already")
        incident.comment = incident.comment or f"cleared by {who}"
        self.state.streaks.pop(_key(incident.rule, incident.subject), None)
        return self._close(incident, now_ns)

    def silence(self, silence: Silence) -> Silence:
        """No pages for what it matches, for its time. Returns it with its number."""
        numbered = msgspec.structs.replace(silence, number=self.state.next_silence)
        self.state.next_silence += 1
        self.state.silences.append(numbered)
        return numbered

    def unsilence(self, number: int) -> None:
        """End a silence early. Raises `UsageError`: there is none of that number."""
        kept = [silence for silence in self.state.silences if silence.number != number]
        if len(kept) == len(self.state.silences):
            raise UsageError(f"no silence {number}; `syntony incidents silence --list` shows them")
        self.state.silences = kept

    # --- one rule ---

    def _apply(self, now_ns: int, rule: Rule, seen: dict[str, Observation]) -> list[IncidentChange]:
        changes: list[IncidentChange] = []
        for observation in seen.values():
            changes += self._judge(now_ns, rule, observation)
        prefix = f"{rule.name}|"
        for key in [key for key in self.state.streaks if key.startswith(prefix)]:
            subject = key.removeprefix(prefix)
            if subject not in seen:
                changes += self._good(now_ns, rule, subject)
        return changes

    def _judge(self, now_ns: int, rule: Rule, observation: Observation) -> list[IncidentChange]:
        if observation.value is None:
            return []
        if rule.is_bad(observation.value):
            return self._bad(now_ns, rule, observation, observation.value)
        return self._good(now_ns, rule, observation.subject, observation.value)

    def _bad(
        self, now_ns: int, rule: Rule, observation: Observation, value: float
    ) -> list[IncidentChange]:
        subject = observation.subject
        streak = self.state.streaks.setdefault(_key(rule.name, subject), Streak())
        incident = self._live.get((rule.name, subject))
        if incident is not None and streak.good:
            _hold_longer(incident, now_ns - streak.good_ns)
        streak.bad, streak.good, streak.last_bad_ns = streak.bad + 1, 0, now_ns
        changes: list[IncidentChange] = []
        if incident is None:
            if streak.bad < rule.open_after:
                return []
            changes.append(self._open(now_ns, rule, subject))
            incident = changes[0].incident
        update(incident, rule, observation, value, now_ns)
        return changes

    def _good(
        self, now_ns: int, rule: Rule, subject: str, value: float | None = None
    ) -> list[IncidentChange]:
        key = _key(rule.name, subject)
        streak = self.state.streaks.get(key)
        if streak is None:
            return []
        if not streak.good:
            streak.good_ns = now_ns
        streak.bad, streak.good = 0, streak.good + 1
        incident = self._live.get((rule.name, subject))
        if incident is None:
            del self.state.streaks[key]
            return []
        if value is not None:
            incident.value = value
        # Without a page there is no second one to spare anybody. What it counts goes on.
        unknown = not incident.paged and not rule.counts
        stable = unknown or now_ns - streak.last_bad_ns >= rule.stable_ns
        if streak.good < rule.clear_after or not stable or self._goes_on(incident):
            return []
        del self.state.streaks[key]
        _hold_longer(incident, now_ns - streak.good_ns)
        return self._close(incident, now_ns)

    def _open(self, now_ns: int, rule: Rule, subject: str) -> IncidentChange:
        past = [
            incident
            for incident in self.state.incidents
            if (incident.rule, incident.subject) == (rule.name, subject)
            and now_ns - incident.resolved_ns < OFFENDER_NS
        ]
        if past and now_ns - past[-1].resolved_ns < REOPEN_NS:
            incident = past[-1]
            gap_ns = now_ns - incident.resolved_ns
            incident.state, incident.resolved_ns = IncidentState.OPEN, 0
            incident.severity = Severity.INFO
            incident.reopened += 1
            incident.cause, incident.caused, incident.paged_as = 0, 0.0, None
            kind = ChangeKind.REOPENED
            _hold_longer(incident, gap_ns)
            if incident.pages or gap_ns >= rule.stable_ns:
                incident.held_ns = now_ns
        else:
            incident = Incident(
                number=self.state.next_number,
                rule=rule.name,
                subject=subject,
                severity=Severity.INFO,
                state=IncidentState.OPEN,
                summary="",
                remedy=rule.remedy,
                opened_ns=now_ns,
                updated_ns=now_ns,
                held_ns=now_ns,
                repeats=len(past),
            )
            self.state.next_number += 1
            self.state.incidents.append(incident)
            kind = ChangeKind.OPENED
        self._live[rule.name, subject] = incident
        return IncidentChange(now_ns, kind, incident)

    def _close(self, incident: Incident, now_ns: int) -> list[IncidentChange]:
        self._live.pop((incident.rule, incident.subject), None)
        incident.state = IncidentState.RESOLVED
        incident.resolved_ns = incident.updated_ns = now_ns
        changes = [IncidentChange(now_ns, ChangeKind.RESOLVED, incident)]
        if incident.paged:
            incident.paged = False
            changes.append(IncidentChange(now_ns, ChangeKind.CLEAR, incident))
        return changes

    # --- causes and pages ---

    def _drop_orphans(self, now_ns: int) -> list[IncidentChange]:
        """Incidents of rules that are no more: nothing would ever clear them."""
        gone = [incident for incident in self._live.values() if incident.rule not in self._rules]
        return [change for incident in gone for change in self._close(incident, now_ns)]

    def _explain(self, now_ns: int, topology: Containment) -> list[IncidentChange]:
        changes = []
        standing = Related(filter(self._stands, self._live.values()), topology)
        over = Related(self._just_over(now_ns), topology)
        for incident in self._live.values():
            cause = self._cause(incident, standing, topology)
            if cause is not None:
                incident.caused = max(incident.caused, incident.value)
                number = cause.number
                hurt(cause, incident, self._rules[incident.rule])
            else:
                number = self._past_cause(now_ns, incident, over, topology)
            if number == incident.cause:
                continue
            kind = ChangeKind.EXPLAINED if number else ChangeKind.UNEXPLAINED
            incident.cause = number
            if not number:
                incident.held_ns = now_ns
            changes.append(IncidentChange(now_ns, kind, incident))
        return changes

    def _cause(
        self, incident: Incident, others: Related, topology: Containment, since_ns: int = -1
    ) -> Incident | None:
        """The incident that explains this one: of the same rule as `precedes`, else one that it is
        the continuation of, else of the first rule that has one, the oldest."""
        for other in others.to(incident, incident.rule, since_ns):
            if precedes(other, incident, topology):
                return other
        rule = self._rules[incident.rule]
        for name in rule.joins:
            for other in others.to(incident, name, since_ns):
                if self._continues(incident, other, topology):
                    return other
        for name in rule.explained_by:
            wider = self._rules.get(name)  # None: switched off
            if wider is None or wider.metric in incident.apart_from:
                continue
            holds = topology.may_hold if wider.proven else topology.holds
            for other in others.to(incident, name, since_ns):
                if explains(other, incident, holds) and not self._renames(other, incident):
                    return other
        return None

    def _just_over(self, now_ns: int) -> list[Incident]:
        """Incidents that ended within the reach of some live one's value. What vanished before it
        paged explains nothing, as while it was live (`_stands`)."""
        oldest_ns = now_ns - max((each.span_ns for each in self._live.values()), default=0)
        return [
            each
            for each in self.state.incidents
            if each.resolved_ns > oldest_ns and not each.live and (each.paged_as or each.silenced)
        ]

    def _past_cause(
        self, now_ns: int, incident: Incident, over: Related, topology: Containment
    ) -> int:
        """The number of the incident that is over and still explains this one: nothing was counted
        since, or its end lies within what the value reaches back to."""
        if self._rules[incident.rule].counts:
            return incident.cause if incident.value <= incident.caused else 0
        cause = self._cause(incident, over, topology, now_ns - incident.span_ns)
        return cause.number if cause else 0

    def _continues(self, incident: Incident, other: Incident, topology: Containment) -> bool:
        """Whether one is there instead of another that paged, and may be the same."""
        instead = other.paged and not other.cause and not self._lasts(other)
        one, two = incident.subject, other.subject
        return instead and (topology.may_hold(one, two) or topology.may_hold(two, one))

    def _renames(self, other: Incident, incident: Incident) -> bool:
        """Whether one that has not paged is no cause of one that has: it may be the same by
        another name, which is no news."""
        joins = incident.rule in self._rules[other.rule].joins
        return joins and incident.paged and not other.paged and not self._lasts(incident)

    def _goes_on(self, incident: Incident) -> bool:
        """Whether it goes by another name now."""
        return any(
            each.cause == incident.number and incident.rule in self._rules[each.rule].joins
            for each in self._live.values()
        )

    def _lasts(self, incident: Incident) -> bool:
        """Whether it was bad when it was measured last."""
        streak = self.state.streaks.get(_key(incident.rule, incident.subject))
        return streak is not None and streak.bad > 0

    def _stands(self, incident: Incident) -> bool:
        """Whether it can stand for others: it is there, or it paged. What vanished
        before that explains nothing."""
        return self._lasts(incident) or incident.paged

    def _page(self, now_ns: int) -> list[IncidentChange]:
        changes = []
        live = Counter(incident.rule for incident in self._live.values())
        for incident in self._live.values():
            rule = self._rules[incident.rule]
            incident.silenced = silenced(
                self.state.silences, incident.rule, incident.subject, now_ns
            )
            # What its cause left behind may still be in the window that it is measured over.
            due = now_ns - incident.held_ns >= _wait_ns(incident, rule, live[rule.name])
            due = due and not incident.pending
            wanted = (
                incident.state is IncidentState.OPEN
                and not incident.cause
                and not incident.silenced
            )
            if wanted and due and self._lasts(incident) and not is_reported(incident):
                incident.paged, incident.paged_as = True, incident.severity
                incident.pages += 1
                changes.append(IncidentChange(now_ns, ChangeKind.PAGE, incident))
        return changes

    def _forget(self, now_ns: int) -> None:
        over = [each.resolved_ns for each in self.state.incidents if not each.live]
        oldest_ns = now_ns - KEPT_NS
        if len(over) > MAX_KEPT:
            oldest_ns = max(oldest_ns, sorted(over)[-MAX_KEPT - 1])
        self.state.incidents = [
            incident
            for incident in self.state.incidents
            if incident.live or incident.resolved_ns > oldest_ns
        ]
        self.state.silences = [
            silence for silence in self.state.silences if silence.last_ns > now_ns
        ]


def _wait_ns(incident: Incident, rule: Rule, live: int) -> int:
    """How long its page is held back. What was explained or over once may be a remainder of that,
    whether or not jobs use it, and so may one of several live incidents of its rule."""
    fresh = not incident.reopened and not incident.caused and live == 1
    return rule.idle_wait_ns if fresh and not incident.jobs else rule.wait_ns


def _hold_longer(incident: Incident, away_ns: int) -> None:
    """Time in which it was not bad brings no first page nearer; what was bad before that counts:
    one that comes and goes pages when its times add up to the wait."""
    if not incident.pages:
        incident.held_ns += away_ns


def explained(book: Book, number: int) -> list[Incident]:
    """The live incidents that one explains, and what those explain."""
    found: list[Incident] = []
    causes = {number}
    while fresh := [i for i in book.incidents if i.live and i.cause in causes and i not in found]:
        found += fresh
        causes = {incident.number for incident in fresh}
    return sorted(found, key=lambda incident: incident.number)


def _key(rule: str, subject: str) -> str:
    return f"{rule}|{subject}"
