"""What an audit means for a Kubernetes node: the condition, its times, the taint."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from syntony.audit.report.node_condition import (
    CONDITION,
    TAINT_KEY,
    condition_of,
    condition_patch,
    is_tainted,
    taint_patch,
)
from syntony.audit.result import Result, Status

NOW = "2026-11-25T12:00:00Z"
BEFORE = "2026-11-25T11:00:00Z"
OTHERS = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]


def result(status: Status, got: str = "", expected: str = "", evidence: str = "") -> Result:
    return Result(check="be.act.rate", status=status, subject="gpu001/mlx5_0:1", got=got,
                  expected=expected, evidence=evidence)  # fmt: skip


PASSES = ("False", "AuditPasses", "the passive audit passes")
RATE = "be.act.rate mlx5_0:1: 200, expected 400"
UNREAD = "be.act.rate mlx5_0:1: no right to read it"
NOTHING = ("Unknown", "AuditUnknown", "nothing was judged")
FAIL = result(Status.FAIL, "200", "400")
UNKNOWN = result(Status.UNKNOWN, evidence="no right to read it")


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([result(Status.PASS)], PASSES),
        ([result(Status.PASS), result(Status.WARN)], PASSES),
        ([UNKNOWN, FAIL], ("True", "AuditFails", RATE)),
        ([FAIL, FAIL], ("True", "AuditFails", f"{RATE}; {RATE}")),
        ([result(Status.PASS), UNKNOWN], ("Unknown", "AuditUnknown", UNREAD)),
        ([], NOTHING),
        ([result(Status.SKIP)], NOTHING),
    ],
)
def test_condition(results: list[Result], expected: tuple[str, str, str]) -> None:
    assert condition_of(results) == expected


def test_a_long_message_is_cut() -> None:
    found = condition_of([FAIL] * 100)
    assert len(found.message) == 512
    assert found.message.endswith("…")


@pytest.mark.parametrize(
    ("before", "since"),
    [(None, NOW), ("True", BEFORE), ("False", NOW), ("Unknown", NOW)],
)
def test_the_transition_time_changes_only_with_the_status(before: str | None, since: str) -> None:
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "never"}]
    if before:
        conditions.append({"type": CONDITION, "status": before, "lastTransitionTime": BEFORE})
    patch = condition_patch({"status": {"conditions": conditions}}, condition_of([FAIL]), NOW)
    (entry,) = patch["status"]["conditions"]
    assert (entry["lastTransitionTime"], entry["lastHeartbeatTime"]) == (since, NOW)
    assert (entry["type"], entry["status"], entry["reason"]) == (CONDITION, "True", "AuditFails")


def node(*taints: dict[str, str], labelled: bool = False) -> dict[str, Any]:
    labels = {TAINT_KEY: "true"} if labelled else {}
    spec = {"taints": list(taints)} if taints else {}
    return {"metadata": {"resourceVersion": "7", "labels": {"zone": "a", **labels}}, "spec": spec}


OURS = {"key": TAINT_KEY, "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("before", "effect", "taints"),
    [
        (node(), "NoSchedule", [OURS]),
        (node(*OTHERS), "NoSchedule", [*OTHERS, OURS]),
        (node(OURS, *OTHERS, labelled=True), "NoSchedule", None),
        (node(*OTHERS, OURS), "NoSchedule", [*OTHERS, OURS]),  # without its label
        (node(*OTHERS, labelled=True), "NoSchedule", [*OTHERS, OURS]),  # somebody removed the taint
        (node(OURS, labelled=True), "NoExecute", [{**OURS, "effect": "NoExecute"}]),
        (node(OURS, *OTHERS, labelled=True), None, OTHERS),
        (node(*OTHERS), None, None),
        (node(), None, None),
        (node(*OTHERS, labelled=True), None, OTHERS),
    ],
)
def test_taint(
    before: dict[str, Any], effect: str | None, taints: list[dict[str, str]] | None
) -> None:
    kept = copy.deepcopy(before)
    patch = taint_patch(before, effect)
    assert before == kept
    if taints is None:
        assert patch is None
        return
    assert patch == {
        "metadata": {"resourceVersion": "7", "labels": {TAINT_KEY: "true" if effect else None}},
        "spec": {"taints": taints},
    }


def test_tainted_is_taint_and_label() -> None:
    assert is_tainted(node(OURS, labelled=True))
    assert not is_tainted(node(OURS))
    assert not is_tainted(node(*OTHERS, labelled=True))
