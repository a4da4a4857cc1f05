"""Incidents as the systems that page people want to read them. Bodies only; sending is elsewhere.

Sources: Alertmanager's OpenAPI v2 (``POST /api/v2/alerts``), PagerDuty's Events API v2, Slack's
incoming webhooks. In Alertmanager labels are identity, so that what changes (counts, instants,
texts) goes into annotations.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from syntony.alerts.incidents import ChangeKind, Incident, State
from syntony.model import S

FIRING_NS = 5 * 60 * S
"""An alert that is not sent again within so long is over for Alertmanager (its resolve_timeout)."""
_PAGERDUTY_SEVERITY = {"info": "info", "warning": "warning", "critical": "critical"}
_PAGERDUTY_SUMMARY = 1024
"""Longest summary that PagerDuty takes."""
_SLACK_COLOURS = {"info": "#3b82f6", "warning": "#f59e0b", "critical": "#dc2626"}
_WELL_COLOUR = "#16a34a"


def identity(incident: Incident, cluster: str) -> str:
    """The same for every message about one incident, and for no other."""
    return f"syntony/{cluster}/{incident.number}"


def alertmanager(
    incidents: Iterable[Incident], cluster: str, now_ns: int, ahead_ns: int = 0
) -> list[dict[str, Any]]:
    """The body for all incidents that are to fire, or have just been resolved.

    Args:
        incidents: to be told of.
        cluster: names the fleet.
        now_ns: fleet time.
        ahead_ns: fleet time minus what the world calls the time. Alertmanager holds ``endsAt``
            against its own clock: an end that is still to come has not come.
    """
    return [_alert(incident, cluster, now_ns, ahead_ns) for incident in incidents]


def _alert(incident: Incident, cluster: str, now_ns: int, ahead_ns: int) -> dict[str, Any]:
    labels = {
        "alertname": incident.rule,
        "severity": incident.severity.value,
        "cluster": cluster,
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
    }
    ends_ns = now_ns + FIRING_NS if incident.live else incident.resolved_ns
    return {
        "labels": labels,
        "annotations": {name: text for name, text in annotations.items() if text},
        "startsAt": _instant(incident.opened_ns - ahead_ns),
        "endsAt": _instant(ends_ns - ahead_ns),
    }


def pagerduty(
    kind: ChangeKind, incident: Incident, cluster: str, routing_key: str
) -> dict[str, Any]:
    """One event: trigger, acknowledge or resolve."""
    actions = {
        ChangeKind.PAGE: "trigger",
        ChangeKind.ACKNOWLEDGED: "acknowledge",
        ChangeKind.CLEAR: "resolve",
    }
    event: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": actions[kind],
        "dedup_key": identity(incident, cluster),
    }
    if kind is ChangeKind.PAGE:
        event["payload"] = {
            "summary": incident.summary[:_PAGERDUTY_SUMMARY],
            "source": incident.subject,
            "severity": _PAGERDUTY_SEVERITY[incident.severity],
            "timestamp": _instant(incident.opened_ns),
            "component": incident.subject,
            "group": cluster,
            "class": incident.rule,
            "custom_details": {
                "remedy": incident.remedy,
                "evidence": list(incident.evidence),
                "jobs": list(incident.jobs),
                "repeats": incident.repeats,
            },
        }
    return event


def slack(
    kind: ChangeKind, incident: Incident, cluster: str, children: Sequence[Incident] = ()
) -> dict[str, Any]:
    """One message with one attachment."""
    over = kind is ChangeKind.CLEAR
    head = "Resolved" if over else incident.severity.value.capitalize()
    lines = [*incident.evidence[-5:]]
    if children:
        lines.append(f"explains {len(children)} more, for example {children[0].summary}")
    if incident.jobs:
        lines.append(f"jobs: {', '.join(incident.jobs)}")
    if not over:
        lines.append(f"→ {incident.remedy}")
    return {
        "text": _escaped(f"{head}: {incident.summary} ({cluster}, incident {incident.number})"),
        "attachments": [
            {
                "color": _WELL_COLOUR if over else _SLACK_COLOURS[incident.severity],
                "text": _escaped("\n".join(lines)),
                "mrkdwn_in": [],
            }
        ],
    }


def webhook(
    kind: ChangeKind, incident: Incident, cluster: str, children: Sequence[Incident] = ()
) -> dict[str, Any]:
    """Our own form: everything that is known."""
    return {
        "version": 1,
        "event": kind.value,
        "cluster": cluster,
        "key": identity(incident, cluster),
        "incident": plain(incident),
        "explains": [plain(child) for child in children],
    }


def plain(incident: Incident) -> dict[str, Any]:
    """One incident as plain data; instants in ns of fleet time and as text."""
    return {
        "number": incident.number,
        "rule": incident.rule,
        "subject": incident.subject,
        "severity": incident.severity.value,
        "state": incident.state.value,
        "summary": incident.summary,
        "remedy": incident.remedy,
        "opened_ns": incident.opened_ns,
        "opened": _instant(incident.opened_ns),
        "updated_ns": incident.updated_ns,
        "resolved_ns": None if incident.state is not State.RESOLVED else incident.resolved_ns,
        "value": incident.value,
        "worst": incident.worst,
        "evidence": list(incident.evidence),
        "jobs": list(incident.jobs),
        "cause": incident.cause or None,
        "silenced": incident.silenced,
        "reopened": incident.reopened,
        "repeats": incident.repeats,
        "acknowledged_by": incident.acknowledged_by,
        "comment": incident.comment,
    }


def _place(subject: str) -> dict[str, str]:
    """Host and NIC as labels of their own, where the subject is one."""
    if "->" in subject or "--" in subject:
        return {}
    host, slash, nic = subject.partition("/")
    return {"host": host, "nic": nic} if slash else {}


def _instant(at_ns: int) -> str:
    """RFC 3339, UTC, milliseconds."""
    moment = dt.datetime.fromtimestamp(at_ns // S, dt.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ns // 1_000_000 % 1000:03d}Z"


def _escaped(text: str) -> str:
    """Slack reads ``&``, ``<`` and ``>`` as marks."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
