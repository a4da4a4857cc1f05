"""Updates texts of an incident: summary, severity, and evidence with similar lines merged."""

from __future__ import annotations

import re
from collections.abc import Iterable

from syntony.alerts.incidents import Incident
from syntony.alerts.observations import Observation
from syntony.alerts.rules import Rule, Severity
from syntony.model import S, format_ns

MAX_EVIDENCE = 20
MAX_JOBS = 8
"""Maximum number of jobs named in a line."""
DIMENSIONS = frozenset({"ns", "s", "ratio"})
"""Units of values that are not counts."""
_HURTS = "hurts "
RANK = {severity: rank for rank, severity in enumerate(Severity)}


def shown(value: float, unit: str) -> str:
    """A value as text, in its rule's unit; a count without what is counted."""
    match unit:
        case "ns":
            return format_ns(value)
        case "s":
            return format_ns(value * S)
        case "ratio":
            return f"{value * 100:.3g}%"
        case _:
            return f"{value:g}"


def measured(value: float, unit: str) -> str:
    """The same, also with the name of what is counted."""
    text = shown(value, unit)
    return f"{text} {unit}" if unit not in DIMENSIONS else text


def update(
    incident: Incident, rule: Rule, observation: Observation, value: float, now_ns: int
) -> None:
    """Update an incident with a new measurement."""
    worse = max if rule.above is not None else min
    incident.value = value
    incident.worst = (
        value if incident.updated_ns == incident.opened_ns else worse(incident.worst, value)
    )
    incident.updated_ns = max(now_ns, incident.opened_ns + 1)
    if not incident.named_by:
        incident.summary = own_summary(incident, rule)
    incident.unit, incident.span_ns = rule.unit, observation.span_ns
    incident.members, incident.via = observation.members, observation.via
    incident.pending, incident.past = observation.pending, observation.past
    incident.apart_from = tuple(sorted(observation.apart_from))
    calm = observation.mild and rule.severity is Severity.CRITICAL
    severity = Severity.WARNING if calm else rule.severity
    # Severity never decreases while the incident is live.
    incident.severity = max(incident.severity, severity, key=RANK.__getitem__)
    if not incident.named_by:
        incident.evidence = _merged_evidence(incident.evidence, observation.evidence)
    incident.jobs = tuple(sorted({*incident.jobs, *observation.jobs}))


def own_summary(incident: Incident, rule: Rule) -> str:
    """Its summary in the words of its rule."""
    return rule.summary.format(
        subject=incident.subject,
        value=shown(incident.value, rule.unit),
        limit=shown(rule.limit, rule.unit),
    )


def copy_effect(cause: Incident, effect: Incident, rule: Rule) -> None:
    """Add the jobs that an incident names to its cause, if its rule is about jobs."""
    if rule.of_jobs:
        cause.jobs = tuple(sorted({*cause.jobs, *effect.jobs}))
        named = ", ".join(effect.jobs[:MAX_JOBS])
        more = f" and {len(effect.jobs) - MAX_JOBS} more" if len(effect.jobs) > MAX_JOBS else ""
        line = f"{_HURTS}{named}{more}: {effect.rule} {effect.subject}"
        kept = (each for each in cause.evidence if _hurt_by(each) != _hurt_by(line))
        cause.evidence = (*kept, line)[-MAX_EVIDENCE:]


def with_effects(evidence: tuple[str, ...], own: Iterable[str]) -> tuple[str, ...]:
    """Evidence of another incident for a fault, with the jobs that only this one is known to
    hurt."""
    known = {"", *map(_hurt_by, evidence)}
    return (*evidence, *(line for line in own if _hurt_by(line) not in known))[-MAX_EVIDENCE:]


def _hurt_by(line: str) -> str:
    """Rule and subject of a line of evidence about jobs; empty: it is about something else."""
    return line.rpartition(": ")[2] if line.startswith(_HURTS) else ""


_TIMES = re.compile(r" \((\d+) times\)$")
_NUMBER = re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z|(?<![\w/:.-])[+-]?\d+(\.\d+)?")
"""A number that is not part of a name, or an instant."""


def _merged_evidence(old: tuple[str, ...], new: Iterable[str]) -> tuple[str, ...]:
    """Merge evidence: lines that differ only in numbers become one, the newest."""
    by_form: dict[str, tuple[str, int]] = {}
    for line in old:
        times = _TIMES.search(line)
        text = _TIMES.sub("", line)
        by_form[_NUMBER.sub("#", text)] = text, int(times[1]) if times else 1
    for text in new:
        form = _NUMBER.sub("#", text)
        before, count = by_form.pop(form, ("", 0))
        # An unchanged line is not counted again.
        by_form[form] = text, count + (text != before)
    lines = [f"{text} ({count} times)" if count > 1 else text for text, count in by_form.values()]
    return tuple(lines[-MAX_EVIDENCE:])
