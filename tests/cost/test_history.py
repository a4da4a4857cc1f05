"""Failures counted from a fleet's incidents."""

from __future__ import annotations

from typing import Any

import pytest

from syntony.alerts.rules import default_rules
from syntony.cost import observed
from syntony.cost.model import HOSTS, NETWORK
from syntony.wire.cost import YEAR_NS

NOW_NS = 10 * YEAR_NS
PERIOD_NS = YEAR_NS // 4


def incident(rule: str = "port-down", **others: Any) -> dict[str, Any]:
    return {
        "rule": rule, "severity": "critical", "cause": None, "opened_ns": NOW_NS - PERIOD_NS // 2,
    } | others  # fmt: skip


def test_each_kind_is_counted_and_scaled_to_a_year() -> None:
    found = observed(
        [incident(), incident("link-loss"), incident("host-silent"), incident("job-hang")],
        PERIOD_NS,
        NOW_NS,
    )
    assert (found.network, found.hosts, found.other) == (2, 1, 1)
    assert found.per_year == 12
    assert found.period_ns == PERIOD_NS


@pytest.mark.parametrize(
    "other",
    [
        {"severity": "warning"},
        {"cause": 7},
        {"opened_ns": NOW_NS - PERIOD_NS - 1},
        {"opened_ns": NOW_NS + 1},
    ],
    ids=["warning", "symptom", "earlier", "later"],
)
def test_what_is_no_failure_of_the_period_is_not_counted(other: dict[str, Any]) -> None:
    found = observed([incident(**other)], PERIOD_NS, NOW_NS)
    assert (found.network, found.hosts, found.other, found.per_year) == (0, 0, 0, 0)


def test_both_ends_of_the_period_count() -> None:
    ends = [incident(opened_ns=NOW_NS - PERIOD_NS), incident(opened_ns=NOW_NS)]
    assert observed(ends, PERIOD_NS, NOW_NS).network == 2


def test_every_rule_named_here_exists() -> None:
    assert {rule.name for rule in default_rules()} >= NETWORK | HOSTS
