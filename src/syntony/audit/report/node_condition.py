"""Turns a host's audit into a condition and a taint of its Kubernetes node.

Pure: the patches are computed from the node as the API server gave it, and sent by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from syntony.audit.report.summary import ExitStyle, exit_code, subject_host, worst_first
from syntony.audit.result import Result, Status

CONDITION = "FleetAuditFailed"
"""Type of the node condition, the same as in deploy/kubernetes/node-problem-detector.json."""
TAINT_KEY = "syntony/audit-failed"
"""Key of our taint, and of the label by which tainted nodes are listed."""
_MESSAGE_CHARACTERS = 512


class Condition(NamedTuple):
    """A node condition without its times."""

    status: str
    """``True``: failed; ``False``: passed; ``Unknown``: undecided."""
    reason: str
    message: str


def condition_of(results: Iterable[Result]) -> Condition:
    """The condition that an audit's results give: unknown is neither failed nor passed."""
    listed = worst_first(results)
    code = exit_code((result.status for result in listed), ExitStyle.NPD)
    if code == 0:
        return Condition("False", "AuditPasses", "the passive audit passes")
    wanted = Status.FAIL if code == 1 else Status.UNKNOWN
    found = [_words(result) for result in listed if result.status is wanted]
    message = "; ".join(found) or "nothing was judged"
    if len(message) > _MESSAGE_CHARACTERS:
        message = f"{message[: _MESSAGE_CHARACTERS - 1]}…"
    return Condition(
        *(("True", "AuditFails") if code == 1 else ("Unknown", "AuditUnknown")), message
    )


def _words(result: Result) -> str:
    """``be.act.rate mlx5_0:1: 200 Gb/s, expected 400 Gb/s``; the node says which host it is."""
    place = result.subject.removeprefix(subject_host(result)).lstrip("/")
    what = result.got or result.evidence
    expected = f", expected {result.expected}" if result.got and result.expected else ""
    return f"{' '.join(filter(None, (result.check, place)))}: {what}{expected}"


def condition_patch(node: dict[str, Any], condition: Condition, now: str) -> dict[str, Any]:
    """Strategic merge patch of ``nodes/NAME/status``; the API server merges conditions by type.

    Args:
        node: as read from the API server.
        now: RFC 3339. The transition time changes only with the status.
    """
    before = [
        each for each in node.get("status", {}).get("conditions") or [] if each["type"] == CONDITION
    ]
    same = before and before[0]["status"] == condition.status
    entry = {
        "type": CONDITION,
        **condition._asdict(),
        "lastHeartbeatTime": now,
        "lastTransitionTime": (before[0].get("lastTransitionTime") or now) if same else now,
    }
    return {"status": {"conditions": [entry]}}


def is_tainted(node: dict[str, Any]) -> bool:
    """The node has our taint and the label that goes with it."""
    labelled = TAINT_KEY in (node["metadata"].get("labels") or {})
    return labelled and any(taint["key"] == TAINT_KEY for taint in _taints(node))


def taint_patch(node: dict[str, Any], effect: str | None) -> dict[str, Any] | None:
    """JSON merge patch of ``nodes/NAME`` that sets our taint and label, or takes them away.

    Taints are one list that a patch replaces whole, so the patch names the version of the node
    that it was made from: if somebody else changed the node meanwhile, it is refused (409).

    Args:
        effect: ``NoSchedule``, ``PreferNoSchedule`` or ``NoExecute``; None takes the taint away.

    Returns:
        None if nothing is to be changed.
    """
    others = [taint for taint in _taints(node) if taint["key"] != TAINT_KEY]
    wanted = [*others, {"key": TAINT_KEY, "effect": effect}] if effect else others
    labels = node["metadata"].get("labels") or {}
    if (TAINT_KEY in labels) == bool(effect) and _plain(_taints(node)) == _plain(wanted):
        return None
    return {
        "metadata": {
            "resourceVersion": node["metadata"]["resourceVersion"],
            "labels": {TAINT_KEY: "true" if effect else None},
        },
        "spec": {"taints": wanted},
    }


def _taints(node: dict[str, Any]) -> list[dict[str, Any]]:
    return node.get("spec", {}).get("taints") or []


def _plain(taints: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((taint["key"], taint["effect"]) for taint in taints)
