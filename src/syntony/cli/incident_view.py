"""Formats one incident for one screen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from syntony.alerts.incident_texts import measured
from syntony.model import format_ns
from syntony.model.names import some

Line = tuple[str, str]
"""Subject, and what is reported about it."""
MAX_EVIDENCE = 6
MAX_RULES = 4
"""Rules listed of what an incident explains …"""
MAX_NAMES = 3
"""… and subjects listed for each rule."""
MAX_JOBS = 8
MORE = "`--json` has all"
STYLES = {"critical": "bold red", "warning": "yellow", "info": "dim"}


def lines(incident: dict[str, Any], children: Sequence[dict[str, Any]]) -> list[Line]:
    """At most 20 lines: what is broken, since when, what it affects, the confidence, what to do,
    and what it explains.

    Args:
        children: incidents that it explains.
    """
    return [*_facts(incident), *_evidence(incident["evidence"]), *_explained(children)]


def _facts(incident: dict[str, Any]) -> list[Line]:
    facts = [
        ("rule", f"{incident['rule']} ({incident['severity']})"),
        ("state", incident["state"]),
        ("since", _since(incident)),
    ]
    if incident["resolved"]:
        until = f"{incident['resolved']}, {format_ns(lasted_ns(incident))} later"
        if incident.get("clear"):  # an older controller has none
            until += f"; all-clear at {incident['clear']} unless it returns"
        facts.append(("until", until))
    if incident["unit"]:  # otherwise it is true or not
        facts.append(("worst", measured(incident["worst"], incident["unit"])))
    facts.append(("do", incident["remedy"]))
    if incident["repeats"]:
        facts.append(("repeats", f"{incident['repeats']} within the past week"))
    if incident["jobs"]:
        facts.append(("jobs", some(incident["jobs"], MAX_JOBS)))
    if incident["acknowledged_by"]:
        facts.append(("on it", f"{incident['acknowledged_by']} {incident['comment']}".strip()))
    if incident["cause"]:
        facts.append(("part of", f"incident {incident['cause']}"))
    elif incident.get("former_words"):  # an older controller has none
        facts.append(("formerly", incident["former_words"][-1]))
    return facts


def lasted_ns(incident: dict[str, Any]) -> int:
    """How long a resolved incident lasted since it was last opened."""
    # A controller of an older version, and the store, have only the first opening.
    return int(incident["resolved_ns"] - incident.get("began_ns", incident["opened_ns"]))


def _since(incident: dict[str, Any]) -> str:
    times = incident["reopened"]
    if not times:
        return str(incident["opened"])
    reopened = f"reopened {'once' if times == 1 else f'{times} times'}"
    if "began" not in incident:
        return f"{incident['opened']}, {reopened}"
    return f"{incident['began']}, {reopened}, first {incident['opened']}"


def _evidence(evidence: Sequence[str]) -> Iterable[Line]:
    """The newest evidence, which comes last."""
    older = len(evidence) - MAX_EVIDENCE
    if older > 0:
        yield "evidence", f"{older + 1} older lines: {MORE}"
        evidence = evidence[older + 1 :]
    yield from (("evidence", line) for line in evidence)


def _explained(children: Sequence[dict[str, Any]]) -> Iterable[Line]:
    """One line per rule; a single incident with its own text."""
    by_rule: dict[str, list[dict[str, Any]]] = {}
    for child in children:
        by_rule.setdefault(child["rule"], []).append(child)
    rules = list(by_rule)
    if len(rules) > MAX_RULES:
        rest = sum(len(by_rule[rule]) for rule in rules[MAX_RULES - 1 :])
        rules = rules[: MAX_RULES - 1]
    else:
        rest = 0
    for rule in rules:
        mine = by_rule[rule]
        if len(mine) == 1:
            yield "explains", f"{mine[0]['number']}: {mine[0]['summary']}"
        else:
            names = some([child["subject"] for child in mine], MAX_NAMES)
            yield "explains", f"{len(mine)} incidents of {rule}: {names}"
    if rest:
        yield "explains", f"{rest} more of other rules: {MORE}"
