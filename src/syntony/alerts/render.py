"""Message bodies about incidents for Alertmanager, PagerDuty, Slack and webhooks. Pure.

Sources: Alertmanager's OpenAPI v2 (``POST /api/v2/alerts``), PagerDuty's Events API v2, Slack's
incoming webhooks. Alertmanager identifies alerts by their labels, so values that change (counts,
instants, texts) are annotations.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from syntony.alerts.incidents import ChangeKind, Incident
from syntony.alerts.paging import clear_ns
from syntony.model import S, format_ns

FIRING_NS = 5 * 60 * S
"""Alertmanager resolves an alert that is not repeated within this time (resolve_timeout)."""
_PAGERDUTY_SEVERITY = {"info": "info", "warning": "warning", "critical": "critical"}
_PAGERDUTY_SUMMARY = 1024
"""Longest summary that PagerDuty accepts."""
_SLACK_COLOURS = {"info": "#3b82f6", "warning": "#f59e0b", "critical": "#dc2626"}
_WELL_COLOUR = "#16a34a"


class FleetName(NamedTuple):
    name: str
    id: str
    """Unique, unlike the name."""


def identity(incident: Incident, fleet: FleetName) -> str:
    """Deduplication key of all messages about one incident."""
    return f"{key(fleet)}/{incident.number}"


def key(fleet: FleetName) -> str:
    """Prefix that makes a fleet's keys globally unique."""
    return f"syntony/{fleet.name}/{fleet.id}"


def alertmanager(
    incidents: Iterable[Incident], fleet: FleetName, now_ns: int, ahead_ns: int = 0
) -> list[dict[str, Any]]:
    """The body for all incidents that fire, or have just been resolved.

    Args:
        now_ns: fleet time.
        ahead_ns: fleet time minus UTC. Alertmanager compares ``endsAt`` with its own clock, and an
            alert with an end in the future still fires.
    """
    return [_alert(incident, fleet, now_ns, ahead_ns) for incident in incidents]


def _alert(incident: Incident, fleet: FleetName, now_ns: int, ahead_ns: int) -> dict[str, Any]:
    labels = {
        "alertname": incident.rule,
        "severity": incident.reported_severity.value,
        "cluster": fleet.name,
        "fleet": fleet.id,
        "component": incident.subject,
        **_place(incident.subject),
    }
    annotations = {
        "summary": incident.summary,
        "description": "; ".join(incident.evidence),
        "remedy": incident.remedy,
        "incident": str(incident.number),
        "jobs": ", ".join(incident.jobs),
        "repeats": str(incident.repeats),
        "formerly": "; ".join(incident.former_words),
    }
    ends_ns = incident.resolved_ns if incident.over else now_ns + FIRING_NS
    return {
        "labels": labels,
        "annotations": {name: text for name, text in annotations.items() if text},
        "startsAt": instant(incident.since_ns - ahead_ns),
        "endsAt": instant(ends_ns - ahead_ns),
    }


def pagerduty(
    kind: ChangeKind, incident: Incident, fleet: FleetName, ahead_ns: int = 0
) -> dict[str, Any]:
    """One event: trigger, acknowledge or resolve. The sender adds the ``routing_key``.
    `ahead_ns` as for `alertmanager`."""
    actions = {
        ChangeKind.PAGE: "trigger",
        ChangeKind.RENAMED: "trigger",  # of an open incident: it is updated, nobody is called
        ChangeKind.ACKNOWLEDGED: "acknowledge",
        ChangeKind.CLEAR: "resolve",
    }
    event: dict[str, Any] = {
        "event_action": actions[kind],
        "dedup_key": identity(incident, fleet),
    }
    if event["event_action"] == "trigger":
        event["payload"] = {
            "summary": incident.summary[:_PAGERDUTY_SUMMARY],
            "source": incident.subject,
            "severity": _PAGERDUTY_SEVERITY[incident.severity],
            "timestamp": instant(incident.since_ns - ahead_ns),
            "component": incident.subject,
            "group": fleet.name,
            "class": incident.rule,
            "custom_details": {
                "remedy": incident.remedy,
                "evidence": list(incident.evidence),
                "formerly": list(incident.former_words),
                "jobs": list(incident.jobs),
                "repeats": incident.repeats,
                "reopened": incident.reopened,
            },
        }
    return event


def slack(
    kind: ChangeKind,
    incident: Incident,
    fleet: FleetName,
    children: Sequence[Incident] = (),
    ahead_ns: int = 0,
) -> dict[str, Any]:
    """Render a Slack message with one attachment. `ahead_ns` as for `alertmanager`."""
    over = kind is ChangeKind.CLEAR
    head = incident.severity.value.capitalize()
    if incident.reopened and incident.pages > 1:
        head += ", reopened"
    if over:
        head = "Resolved"
    elif kind is ChangeKind.RENAMED:
        head = f"{incident.severity.value.capitalize()}, known better now"
    elif kind is ChangeKind.ACKNOWLEDGED:
        head = f"Acknowledged by {incident.acknowledged_by}: {incident.comment}".rstrip(": ")
    lines = [_span(incident, ahead_ns), *incident.evidence[-5:]]
    lines += incident.former_words[-1:]
    if children:
        lines.append(f"explains {len(children)} more, for example {children[0].summary}")
    if incident.jobs:
        lines.append(f"jobs: {', '.join(incident.jobs)}")
    if not over:
        lines.append(f"→ {incident.remedy}")
    return {
        "text": _escaped(f"{head}: {incident.summary} ({fleet.name}, incident {incident.number})"),
        "attachments": [
            {
                "color": _WELL_COLOUR if over else _SLACK_COLOURS[incident.severity],
                "text": _escaped("\n".join(lines)),
                "mrkdwn_in": [],
            }
        ],
    }


def webhook(
    kind: ChangeKind, incident: Incident, fleet: FleetName, children: Sequence[Incident] = ()
) -> dict[str, Any]:
    """The webhook's JSON format, with all fields of the incident."""
    return {
        "version": 1,
        "event": kind.value,
        "cluster": fleet.name,
        "key": identity(incident, fleet),
        "incident": plain(incident),
        "explains": [plain(child) for child in children],
    }


def plain(incident: Incident) -> dict[str, Any]:
    """One incident as plain data; instants in ns of fleet time and as text. ``clear``: when the
    all-clear of a resolved one is sent that has paged and may return."""
    waits = incident.paged and not incident.live
    return {
        "number": incident.number,
        "rule": incident.rule,
        "subject": incident.subject,
        "severity": incident.severity.value,
        "state": incident.state.value,
        "summary": incident.summary,
        "remedy": incident.remedy,
        "opened_ns": incident.opened_ns,
        "opened": instant(incident.opened_ns),
        "began_ns": incident.since_ns,
        "began": instant(incident.since_ns),
        "updated_ns": incident.updated_ns,
        "resolved_ns": None if incident.live else incident.resolved_ns,
        "resolved": None if incident.live else instant(incident.resolved_ns),
        "clear_ns": clear_ns(incident) if waits else None,
        "clear": instant(clear_ns(incident)) if waits else None,
        "value": incident.value,
        "worst": incident.worst,
        "unit": incident.unit,
        "evidence": list(incident.evidence),
        "jobs": list(incident.jobs),
        "members": list(incident.members),
        "pending": incident.pending,
        "cause": incident.cause or None,
        "named_by": incident.named_by or None,
        "former_words": list(incident.former_words),
        "silenced": incident.silenced,
        "reopened": incident.reopened,
        "repeats": incident.repeats,
        "pages": incident.pages,
        "acknowledged_by": incident.acknowledged_by,
        "comment": incident.comment,
    }


def _span(incident: Incident, ahead_ns: int) -> str:
    """Since when it lasts, or from when to when it lasted."""
    since = instant(incident.since_ns - ahead_ns)
    if incident.live:
        return f"since {since}"
    lasted_ns = incident.resolved_ns - incident.since_ns
    return f"from {since} to {instant(incident.resolved_ns - ahead_ns)}: {format_ns(lasted_ns)}"


def _place(subject: str) -> dict[str, str]:
    """Labels for host and NIC, if the subject is a NIC."""
    if "->" in subject or "--" in subject:
        return {}
    host, slash, nic = subject.partition("/")
    return {"host": host, "nic": nic} if slash else {}


def instant(at_ns: int) -> str:
    """RFC 3339, UTC, milliseconds."""
    moment = dt.datetime.fromtimestamp(at_ns // S, dt.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ns // 1_000_000 % 1000:03d}Z"


def _escaped(text: str) -> str:
    """Escape ``&``, ``<`` and ``>`` for Slack."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
