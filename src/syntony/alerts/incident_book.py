"""The book of incidents: opened when a rule has been broken for long enough, one for each cause.
Sans IO.

Incidents change only in the book. Its methods take evaluations and commands, with the time as an
argument, and return the changes. Its state can be stored and loaded, so that a restart neither
loses an incident nor opens it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from syntony.alerts import paging
from syntony.alerts.causes import (
    Related,
    ended_after,
    explains,
    is_as_severe,
    is_explained_by,
    is_reported,
    is_too_mild,
    joint_cause,
    joint_page,
    precedes,
    was_reached_over,
    was_reported,
)
from syntony.alerts.incident_names import choose, may_rename, rename, take_words
from syntony.alerts.incident_texts import copy_effect, update
from syntony.alerts.incidents import (
    BookState,
    ChangeKind,
    Incident,
    IncidentChange,
    IncidentState,
    Streak,
    forget,
)
from syntony.alerts.observations import Containment, Measured, Observation
from syntony.alerts.rules import Rule, Severity
from syntony.alerts.silences import Silence
from syntony.errors import UsageError
from syntony.model import DAY_NS, S

SAME_NS = 30 * S
"""A part that begins to be bad later than this is not why a group has paged that may be anything:
faults of single parts are named within seconds."""
REPEAT_NS = 7 * DAY_NS
"""Incidents of the same rule and subject within this time are counted as repeats."""
_Known = Mapping[int, Incident]


class Book:
    """All incidents of a fleet.

    Args:
        state: stored before a restart; None: a new book.
    """

    def __init__(self, rules: Iterable[Rule], state: BookState | None = None) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self.state = state or BookState()
        self._live = self._find_live()

    @property
    def incidents(self) -> Sequence[Incident]:
        """All live and recent ones, oldest first."""
        return self.state.incidents

    def find(self, number: int) -> Incident:
        """One incident. Raises `UsageError`: no incident has this number."""
        for incident in self.state.incidents:
            if incident.number == number:
                return incident
        raise UsageError(f"no incident {number}; `syntony incidents list --all` shows them")

    def evaluate(
        self, now_ns: int, measured: Measured, topology: Containment
    ) -> list[IncidentChange]:
        """Evaluate all rules.

        Args:
            now_ns: fleet time.
            measured: observations, and which metrics were measured.
            topology: which components contain which.
        """
        changes: list[IncidentChange] = []
        by_metric: dict[str, dict[str, Observation]] = {}
        for observation in measured.observations:
            by_metric.setdefault(observation.metric, {})[observation.subject] = observation
        for rule in self._rules.values():
            if rule.metric in measured.metrics:
                found = self._apply(now_ns, rule, by_metric.get(rule.metric, {}))
                paging.wait_from(measured.at_ns.get(rule.metric, now_ns), found, now_ns)
                changes += found
        self._live = self._find_live()  # in the order of their numbers
        changes += self._drop_orphans(now_ns)
        unknown = {key for key, rule in self._rules.items() if rule.metric not in measured.metrics}
        changes += paging.all_clears(now_ns, self.state.incidents, unknown)
        known = {incident.number: incident for incident in self.state.incidents}
        changes += self._explain(now_ns, topology, known)
        changes += self._rename(now_ns, topology, known)
        changes += self._page(now_ns, measured, topology)
        forget(self.state, now_ns)
        return changes

    def acknowledge(self, number: int, who: str, comment: str, now_ns: int) -> list[IncidentChange]:
        """Acknowledge an incident. Raises `UsageError`: it does not exist, or is resolved."""
        incident = self.find(number)
        if not incident.live:
            raise UsageError(f"incident {number} is resolved already")
        incident.state = IncidentState.ACKNOWLEDGED
        incident.acknowledged_by, incident.comment = who, comment
        incident.updated_ns = now_ns
        return [IncidentChange(now_ns, ChangeKind.ACKNOWLEDGED, incident)]

    def resolve(self, number: int, who: str, now_ns: int) -> list[IncidentChange]:
        """Resolve an incident; it opens again if it is still bad. Raises `UsageError`."""
        incident = self.find(number)
        if incident.over:
            raise UsageError(f"incident {number} is resolved already")
        incident.comment = incident.comment or f"cleared by {who}"
        self.state.streaks.pop(_key(incident.rule, incident.subject), None)
        incident.quiet_ns = 0
        closed = self._close(incident, now_ns) if incident.live else []
        return closed + paging.all_clears(now_ns, [incident])

    def silence(self, silence: Silence) -> Silence:
        """Add a silence. Returns it with its number."""
        numbered = msgspec.structs.replace(silence, number=self.state.next_silence)
        self.state.next_silence += 1
        self.state.silences.append(numbered)
        return numbered

    def unsilence(self, number: int) -> None:
        """End a silence early. Raises `UsageError`: no silence has this number."""
        kept = [silence for silence in self.state.silences if silence.number != number]
        if len(kept) == len(self.state.silences):
            raise UsageError(f"no silence {number}; `syntony incidents silence --list` shows them")
        self.state.silences = kept

    def _find_live(self) -> dict[tuple[str, str], Incident]:
        return {(each.rule, each.subject): each for each in self.state.incidents if each.live}

    # --- one rule ---

    def _apply(
        self, now_ns: int, rule: Rule, measured: dict[str, Observation]
    ) -> list[IncidentChange]:
        changes: list[IncidentChange] = []
        for observation in measured.values():
            changes += self._evaluate(now_ns, rule, observation)
        prefix = f"{rule.name}|"
        for key in [key for key in self.state.streaks if key.startswith(prefix)]:
            subject = key.removeprefix(prefix)
            if subject not in measured:
                changes += self._good(now_ns, rule, subject)
        return changes

    def _evaluate(self, now_ns: int, rule: Rule, observation: Observation) -> list[IncidentChange]:
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
            paging.postpone(incident, now_ns - streak.good_ns)
        streak.bad, streak.good = streak.bad + 1, 0
        changes: list[IncidentChange] = []
        if incident is None:
            if streak.bad < rule.open_after:
                return []
            changes.append(self._open(now_ns, rule, subject))
            incident = changes[0].incident
        update(incident, rule, observation, value, now_ns)
        incident.bad_ns = now_ns
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
        # Stable times avoid repeated pages: before the first one, by any name, only counts need it.
        unknown = not (incident.paged or incident.continues or rule.counts)
        stable = unknown or now_ns - incident.bad_ns >= rule.stable_ns
        if streak.good < rule.clear_after or not stable or self._is_continued(incident):
            return []
        del self.state.streaks[key]
        paging.postpone(incident, now_ns - streak.good_ns)
        return self._close(incident, now_ns)

    def _open(self, now_ns: int, rule: Rule, subject: str) -> IncidentChange:
        past = [
            incident
            for incident in self.state.incidents
            if (incident.rule, incident.subject) == (rule.name, subject)
            and now_ns - incident.resolved_ns < REPEAT_NS
        ]
        if past and now_ns - past[-1].resolved_ns < paging.REOPEN_NS:
            incident = past[-1]
            gap_ns = now_ns - incident.resolved_ns
            incident.state, incident.began_ns, incident.resolved_ns = IncidentState.OPEN, now_ns, 0
            incident.severity = Severity.INFO
            incident.reopened += 1
            incident.quiet_ns = max(incident.quiet_ns, now_ns - incident.bad_ns)
            incident.cause, incident.caused = 0, 0.0
            if not incident.paged:
                incident.paged_as = None
            incident.named_by, incident.named_ns, incident.announced = 0, 0, 0.0
            kind = ChangeKind.REOPENED
            paging.postpone(incident, gap_ns)
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
                began_ns=now_ns,
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
        return [IncidentChange(now_ns, ChangeKind.RESOLVED, incident)]

    # --- causes and pages ---

    def _drop_orphans(self, now_ns: int) -> list[IncidentChange]:
        """Close incidents of removed rules, which nothing else would clear."""
        orphans = [incident for incident in self._live.values() if incident.rule not in self._rules]
        return [change for incident in orphans for change in self._close(incident, now_ns)]

    def _explain(self, now_ns: int, topology: Containment, known: _Known) -> list[IncidentChange]:
        changes = []
        able = (each for each in self._live.values() if self._is_bad_now(each) or each.paged)
        active = Related(able, topology)
        oldest_ns = now_ns - max((each.span_ns for each in self._live.values()), default=0)
        ended = Related(ended_after(oldest_ns, self.state.incidents), topology)
        for incident in self._live.values():
            continued = incident.continues
            cause = self._cause(incident, active, topology)
            if cause is not None and not is_explained_by(cause, incident, known):
                incident.caused = max(incident.caused, incident.value)
                number = cause.number
                incident.continues = self._may_continue(incident, cause, topology)
                copy_effect(cause, incident, self._rules[incident.rule])
            else:
                past = self._past_cause(now_ns, incident, ended, topology)
                number = 0 if is_explained_by(known.get(past), incident, known) else past
                incident.continues = False
            if number == incident.cause:
                continue
            kind = ChangeKind.EXPLAINED if number else ChangeKind.UNEXPLAINED
            incident.cause = number
            if not number and not continued:
                incident.held_ns = now_ns
            changes.append(IncidentChange(now_ns, kind, incident))
        return changes

    def _cause(
        self, incident: Incident, others: Related, topology: Containment, since_ns: int = -1
    ) -> Incident | None:
        """The incident that explains this one: one of the same rule by `precedes`; else one that it
        continues; else the oldest of the first rule in `explained_by` that has one."""
        for other in others.to(incident, incident.rule, since_ns):
            if precedes(other, incident, topology):
                return other
        rule = self._rules[incident.rule]
        for name in rule.joins:
            for other in others.to(incident, name, since_ns):
                if name in self._rules and self._continues(incident, other, topology):
                    return other
        wider = [
            self._rules[name]
            for name in rule.explained_by
            if name in self._rules and self._rules[name].metric not in incident.apart_from
        ]
        for each in wider:
            holds = topology.may_hold if each.proven else topology.holds
            for other in others.to(incident, each.name, since_ns):
                if explains(other, incident, holds) and not self._is_no_cause(
                    other, incident, topology
                ):
                    return other
        if len(incident.members) < 2:
            return None
        several = [
            other
            for each in wider
            for other in others.to(incident, each.name, since_ns, jointly=True)
            if not self._is_no_cause(other, incident, topology)
        ]
        parts = [
            other
            for name in rule.joins
            for other in others.to(incident, name, since_ns, jointly=True)
            if not incident.paged and not other.cause and is_as_severe(other, incident)
        ]
        return joint_cause(incident, several, topology.holds) or joint_page(
            incident, parts, topology.names
        )

    def _past_cause(
        self, now_ns: int, incident: Incident, ended: Related, topology: Containment
    ) -> int:
        """The number of a resolved incident that still explains this one: the count has not risen
        since, or the incident ended within the value's window. One that nobody was paged for
        explains nothing; a count may have had another explanation meanwhile."""
        since_ns = now_ns - incident.span_ns
        if self._rules[incident.rule].counts:
            if incident.value > incident.caused:
                return 0
            if was_reported(incident.cause, self.state.incidents):
                return incident.cause
            since_ns = incident.opened_ns
            ended = Related(ended_after(since_ns, self.state.incidents), topology)
        cause = self._cause(incident, ended, topology, since_ns)
        return cause.number if cause else 0

    def _continues(self, incident: Incident, other: Incident, topology: Containment) -> bool:
        """Whether another one has paged for the same fault: for one of the names of this one if
        this one is proven, else for the same part, what this one has replaced and may be, or may be
        besides if one is a group; a proven one if its subject was reached over what this names."""
        if not other.paged or other.cause:
            return False
        one, two = incident.subject, other.subject
        if self._is_named_by(incident, other, topology):
            return True
        if self._rules[incident.rule].proven:
            return False
        if self._rules[other.rule].proven:
            return was_reached_over(other, incident, topology)
        same = topology.names(one, two) and topology.names(two, one)
        either = topology.may_hold(one, two) or topology.may_hold(two, one)
        replaced = either and not self._is_bad_now(other)
        again = replaced or (same and is_as_severe(other, incident))
        return again or self._is_group_of(incident, other, topology)

    def _may_continue(self, incident: Incident, cause: Incident, topology: Containment) -> bool:
        """Whether an incident may be the same fault as its cause, and then keeps it open: no count,
        which outlasts the fault. A proven one is only if the cause named all of it, as a port is
        not all of a host with two NICs, or is of the same rule, but less or more exact."""
        rule, same = self._rules[incident.rule], incident.rule == cause.rule
        if rule.counts or cause.rule not in rule.joins:
            return False
        proven = rule.proven or self._rules[cause.rule].proven
        return same or not proven or self._continues(incident, cause, topology)

    def _is_named_by(self, incident: Incident, other: Incident, topology: Containment) -> bool:
        """Whether the page of another one, no less severe, named all that is proven now, or what
        that is reached over."""
        known = other.paged and not incident.paged and is_as_severe(other, incident)
        if not (known and self._rules[incident.rule].proven):
            return False
        pairs = [(other.subject, incident.subject)]
        pairs += [(via, incident.subject) for via in other.via]
        pairs += [(other.subject, via) for via in incident.via if not incident.members]
        return any(topology.names(*pair) for pair in pairs)

    def _is_no_cause(self, other: Incident, incident: Incident, topology: Containment) -> bool:
        """Whether `other` is too mild to explain `incident`, or has not paged and may be the same
        fault as `incident`, which has, under another name."""
        if is_too_mild(other, incident, self._rules):
            return True
        if incident.rule not in self._rules[other.rule].joins:
            return False
        if self._is_named_by(other, incident, topology):
            return True
        silence = self._rules[incident.rule].proven and was_reached_over(incident, other, topology)
        one = silence or self._is_group_of(other, incident, topology)
        return incident.paged > other.paged and (one or not self._is_bad_now(incident))

    def _is_group_of(self, incident: Incident, other: Incident, topology: Containment) -> bool:
        """Whether one of two is a group that may include the other, which is no less severe: the
        paths of a group may have lost what is found to be lost at a part. A part that was measured
        apart from the group is another fault, and so is one that is bad long after what may be
        anything."""
        one, two = incident.subject, other.subject
        if topology.is_anything(two) and incident.since_ns - other.since_ns > SAME_NS:
            return False
        apart = {*incident.apart_from, *other.apart_from}
        if apart & {self._rules[each.rule].metric for each in (incident, other)}:
            return False
        either = topology.may_include(one, two) or topology.may_include(two, one)
        return either and is_as_severe(other, incident)

    def _is_continued(self, incident: Incident) -> bool:
        """Whether an incident of another name continues it."""
        return any(each.continues and each.cause == incident.number for each in self._live.values())

    def _is_bad_now(self, incident: Incident) -> bool:
        """Whether it was bad at its last measurement."""
        streak = self.state.streaks.get(_key(incident.rule, incident.subject))
        return streak is not None and streak.bad > 0

    def _rename(self, now_ns: int, topology: Containment, known: _Known) -> list[IncidentChange]:
        """Give incidents that have paged the words of what continues them."""
        joined: dict[int, list[Incident]] = {}
        for incident in self._live.values():
            joined.setdefault(incident.cause, []).append(incident)
        changes = []
        for incident in self._live.values():
            with_it = joined.get(incident.number, [])
            if incident.cause or not incident.paged or not (with_it or incident.named_by):
                continue
            live = {each.number: each for each in (incident, *with_it)}
            streaks = self.state.streaks
            named = known.get(incident.named_by)
            new = choose(incident, with_it, self._rules, streaks, topology, named=named)
            current = live.get(incident.named_by or incident.number)
            if new is None or new is current:
                if new is not None and new is not incident:
                    take_words(incident, new, self._rules)
            elif may_rename(
                incident, new, current, rules=self._rules, streaks=streaks, now_ns=now_ns
            ):
                rename(incident, new, self._rules, now_ns)
                changes.append(IncidentChange(now_ns, ChangeKind.RENAMED, incident))
        return changes

    def _page(self, now_ns: int, measured: Measured, topology: Containment) -> list[IncidentChange]:
        """Page for incidents whose metrics were measured this time. Delays of pages are counted in
        the times of measurements: one that arrives late does not make a fault last longer."""
        due = []
        live = Counter(incident.rule for incident in self._live.values())
        for incident in self._live.values():
            rule = self._rules[incident.rule]
            incident.silenced = paging.is_silenced(
                self.state.silences, incident, topology, now_ns, proven=rule.proven
            )
            # Afterwards it falls with the window of a count, so that any new event shows.
            keep = max if incident.silenced else min
            incident.announced = keep(incident.announced, incident.value)
            # Effects of an ended cause may still be in the measuring window.
            at_ns = measured.at_ns.get(rule.metric, now_ns)
            waited = at_ns - incident.held_ns >= paging.wait_ns(incident, rule, live[rule.name])
            may_page = (
                incident.state is IncidentState.OPEN
                and rule.metric in measured.metrics
                and not incident.cause
                and not incident.silenced
                and not incident.pending
                and not ((rule.counts or incident.past) and incident.value <= incident.announced)
            )
            if may_page and waited and self._is_bad_now(incident) and not is_reported(incident):
                due.append(incident)
        changes: list[IncidentChange] = []
        for incident in paging.exact_first(due, topology):
            joins = self._rules[incident.rule].joins
            if any(
                each.incident.rule in joins and self._continues(incident, each.incident, topology)
                for each in changes
            ):
                # The next evaluation adds it to what pages now.
                continue
            incident.paged, incident.paged_as = True, incident.severity
            incident.pages += 1
            changes.append(IncidentChange(now_ns, ChangeKind.PAGE, incident))
        return changes


def _key(rule: str, subject: str) -> str:
    return f"{rule}|{subject}"
