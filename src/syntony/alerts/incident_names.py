"""Words of an incident that has paged: its own, or those of an incident that continues it and says
better what the fault is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from syntony.alerts.incident_texts import own_summary, with_effects
from syntony.alerts.incidents import Incident, Streak
from syntony.alerts.observations import Containment
from syntony.alerts.render import instant
from syntony.alerts.rules import Rule
from syntony.model import S

CONFIRM_TIMES = 5
"""Consecutive bad evaluations after which an inferred name may replace another one, …"""
CONFIRM_NS = 10 * S
"""… which has not been bad for this long. A proven name needs neither."""
RENAME_NS = 60 * S
"""Minimum interval of two changes: each is a message to the receivers."""
MAX_FORMER = 5
"""Earlier words that are kept."""


def choose(
    incident: Incident,
    joined: Iterable[Incident],
    rules: Mapping[str, Rule],
    streaks: Mapping[str, Streak],
    topology: Containment,
    *,
    named: Incident | None,
) -> Incident | None:
    """The incident whose words say best what the fault of `incident` is; None: nothing is bad now,
    or it is about several components, of which others name one each.

    Args:
        incident: one that has paged.
        joined: the live incidents that it explains directly.
        rules: by name.
        streaks: by ``rule|subject``.
        topology: which components contain which.
        named: the incident that names it now, live or resolved.
    """

    def is_group(one: Incident) -> bool:
        return topology.may_include(one.subject, one.subject)

    def is_bad(one: Incident, times: int = 1) -> bool:
        return _streak(one, streaks).bad >= times

    def is_proof(one: Incident) -> bool:
        # What is reached over the part that paged is evidence of it, no better name.
        return rules[one.rule].proven and not rules[incident.rule].proven and not one.via

    def is_wider(one: Incident) -> bool:
        return one.rule == incident.rule and topology.holds(one.subject, incident.subject)

    def is_exact(one: Incident) -> bool:
        # Of a group that explains all that is in it, one part is no better name.
        is_part = topology.may_include(incident.subject, one.subject)
        return is_part and not is_group(one) and not topology.holds(incident.subject, one.subject)

    now = named or incident

    def is_vaguer(one: Incident) -> bool:
        # Paths may be unknown again for a while: of what is found then a part that was named is no
        # group, and a group no wider one.
        anything = topology.is_anything(one.subject) and not topology.is_anything(now.subject)
        wider = anything or topology.holds(one.subject, now.subject)
        return is_group(one) and (wider if is_group(now) else named is not None)

    if len(incident.members) > 1:
        return None
    by_number = {incident.number: incident} | {each.number: each for each in joined}
    current = by_number.get(incident.named_by, incident)
    names = [
        each
        for each in by_number.values()
        if each is not incident
        and (each.continues or is_wider(each))
        and is_bad(each, 1 if is_proof(each) else CONFIRM_TIMES)
    ]
    better = [*filter(is_proof, names)] or [*filter(is_wider, names)] or [*filter(is_exact, names)]
    if not better:
        better = [incident] if is_bad(incident) else names
    better = [each for each in better if not is_vaguer(each)]
    return current if current in better else next(iter(better), None)


def may_rename(
    incident: Incident,
    new: Incident,
    current: Incident | None,
    *,
    rules: Mapping[str, Rule],
    streaks: Mapping[str, Streak],
    now_ns: int,
) -> bool:
    """Whether the words of `current` (None: it is resolved) may be replaced now by those of `new`:
    seldom, and, unless these are proven, of a wider component or of a part of a group, only after
    `current` has ended."""
    if incident.named_ns and now_ns - incident.named_ns < RENAME_NS:
        return False
    if current is None or (new is not incident and rules[new.rule].proven):
        return True
    was = _streak(current, streaks)
    if current is incident and (new.rule == incident.rule or was.bad):
        return True
    return was.bad == 0 and now_ns - was.good_ns >= CONFIRM_NS


def _streak(incident: Incident, streaks: Mapping[str, Streak]) -> Streak:
    return streaks.get(f"{incident.rule}|{incident.subject}", Streak())


def rename(incident: Incident, new: Incident, rules: Mapping[str, Rule], now_ns: int) -> None:
    """Give an incident the words of another one, or its own again."""
    former = f"until {instant(now_ns)}: {incident.summary}"
    incident.former_words = (*incident.former_words, former)[-MAX_FORMER:]
    incident.named_by = 0 if new is incident else new.number
    incident.named_ns = now_ns
    take_words(incident, new, rules)


def take_words(incident: Incident, new: Incident, rules: Mapping[str, Rule]) -> None:
    """Copy the present summary, remedy, evidence and jobs of `new`, the incident that names it."""
    incident.summary = own_summary(new, rules[new.rule])
    incident.remedy = rules[new.rule].remedy
    if new is not incident:
        incident.evidence = with_effects(new.evidence, incident.evidence)
    incident.jobs = tuple(sorted({*incident.jobs, *new.jobs}))
