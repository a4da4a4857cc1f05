"""`syntony incidents show`: what is told of one incident fits one screen, whatever there is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.cli.incident_view import MORE, lines

SCREEN = 24
"""Lines of the smallest terminal; the summary and the prompt take two."""


def incident(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "number": number, "rule": "switch-down", "severity": "critical", "state": "open",
        "subject": "leaf0", "summary": "leaf0: nothing at it answers",
        "opened": "2026-11-25T03:00:00Z", "opened_ns": 0, "resolved": "", "resolved_ns": 0,
        "reopened": 0, "worst": 1.0, "unit": "", "remedy": "check its power", "repeats": 0,
        "jobs": [], "acknowledged_by": "", "comment": "", "cause": 0, "evidence": [],
    } | changes  # fmt: skip


def child(number: int, rule: str) -> dict[str, Any]:
    subject = f"h{number}/rail0"
    return incident(number, rule=rule, subject=subject, summary=f"{subject}: {rule}")


def of(name: str, found: list[tuple[str, str]]) -> list[str]:
    return [text for each, text in found if each == name]


@given(
    st.integers(0, 30), st.integers(0, 200),
    st.lists(st.sampled_from([f"rule{n}" for n in range(9)]), max_size=60), st.booleans(),
)  # fmt: skip
def test_it_fits_one_screen(evidence: int, jobs: int, rules: list[str], everything: bool) -> None:
    more: dict[str, Any] = {
        "resolved": "2026-11-25T03:00:09Z", "resolved_ns": 9_000_000_000, "repeats": 3,
        "clear": "2026-11-25T03:01:09Z", "reopened": 2, "acknowledged_by": "ann",
        "comment": "cable ordered", "cause": 7,
        "former_words": ["until 2026-11-25T03:00:05Z: leaf0: loses 100%"],
    }  # fmt: skip
    found = lines(
        incident(
            evidence=[f"line {n}" for n in range(evidence)],
            jobs=[f"job{n}" for n in range(jobs)],
            **(more if everything else {}),
        ),
        [child(number, rule) for number, rule in enumerate(rules)],
    )
    assert len(found) <= SCREEN - 2
    assert all(len(text) < 200 for _, text in found)
    explained = of("explains", found)
    assert bool(explained) == bool(rules)
    first = [text.split()[0] for text in explained]
    assert sum(1 if each.endswith(":") else int(each) for each in first) == len(rules)


def test_a_dead_leaf_of_forty_hosts_is_one_line_of_evidence() -> None:
    found = lines(incident(), [child(n, "port-down") for n in range(40)])
    assert of("explains", found) == [
        "40 incidents of port-down: h0/rail0, h1/rail0, h2/rail0 and 37 more"
    ]


def test_single_incidents_speak_for_themselves_and_many_rules_are_counted() -> None:
    children = [child(1, "a"), child(2, "b"), child(3, "b"), child(4, "c")]
    assert of("explains", lines(incident(), children)) == [
        "1: h1/rail0: a", "2 incidents of b: h2/rail0, h3/rail0", "4: h4/rail0: c",
    ]  # fmt: skip
    children += [child(5, "d"), child(6, "e"), child(7, "e")]
    assert of("explains", lines(incident(), children)) == [
        "1: h1/rail0: a", "2 incidents of b: h2/rail0, h3/rail0", "4: h4/rail0: c",
        f"3 more of other rules: {MORE}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "first"), [(0, []), (6, ["line 0"]), (7, [f"2 older lines: {MORE}", "line 2"])]
)
def test_the_newest_evidence_is_shown(count: int, first: list[str]) -> None:
    shown = of("evidence", lines(incident(evidence=[f"line {n}" for n in range(count)]), []))
    assert shown[: len(first)] == first
    assert len(shown) == min(count, 6)
    assert shown[-1:] == [f"line {count - 1}"][:count]


@pytest.mark.parametrize(
    ("worst", "unit", "said"),
    [(1.0, "", []), (4.0, "flaps", ["4 flaps"]), (1.0, "ratio", ["100%"]), (9.5, "s", ["9.5 s"])],
)
def test_a_value_is_told_where_there_is_more_or_less_of_it(
    worst: float, unit: str, said: list[str]
) -> None:
    assert of("worst", lines(incident(worst=worst, unit=unit), [])) == said


@pytest.mark.parametrize(
    ("reopened", "since"),
    [(0, "03:00:00Z"), (1, "03:00:00Z, reopened once"), (2, "03:00:00Z, reopened 2 times")],
)
def test_what_came_back_says_how_often(reopened: int, since: str) -> None:
    assert of("since", lines(incident(reopened=reopened), []))[0].partition("T")[2] == since


def test_what_came_back_lasts_since_then_and_was_first_there_earlier() -> None:
    found = lines(
        incident(
            began="2026-11-25T03:05:00Z", began_ns=300_000_000_000, reopened=1,
            resolved="2026-11-25T03:05:40Z", resolved_ns=340_000_000_000,
        ),
        [],
    )  # fmt: skip
    assert of("since", found) == ["2026-11-25T03:05:00Z, reopened once, first 2026-11-25T03:00:00Z"]
    assert of("until", found) == ["2026-11-25T03:05:40Z, 40 s later"]


def test_earlier_words_are_shown() -> None:
    found = lines(incident(former_words=["until 1: old", "until 2: newer"]), [])
    assert of("formerly", found) == ["until 2: newer"]


def test_facts() -> None:
    found = lines(
        incident(
            rule="component-delay", severity="warning", unit="ns", worst=5_087_790.0,
            resolved="2026-11-25T03:01:30Z", resolved_ns=90_000_000_000, reopened=2, repeats=4,
            jobs=[f"job{n}" for n in range(9)], acknowledged_by="ann", comment="", cause=7,
        ),
        [],
    )  # fmt: skip
    assert dict(found) == {
        "rule": "component-delay (warning)",
        "state": "open",
        "since": "2026-11-25T03:00:00Z, reopened 2 times",
        "until": "2026-11-25T03:01:30Z, 90 s later",
        "worst": "5.09 ms",
        "do": "check its power",
        "repeats": "4 within the past week",
        "jobs": "job0, job1, job2, job3, job4, job5, job6, job7 and 1 more",
        "on it": "ann",
        "part of": "incident 7",
    }
