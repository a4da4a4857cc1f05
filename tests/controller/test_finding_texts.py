"""What whoever is woken up reads of a finding."""

from __future__ import annotations

import msgspec
import pytest

from syntony.controller.finding_texts import component_text, effect_text, suspects_text
from syntony.model.findings import Finding


def finding(
    fault: str = "loss",
    paths: int = 4,
    alternatives: tuple[str, ...] = (),
    probabilities: tuple[float, ...] = (),
    twins: int = 0,
) -> Finding:
    return Finding(
        component="leaf0->spine0", kind="link", fault=fault, loss=0.1, delay_ns=5e4, window="30s",
        confidence=1 - sum(probabilities), explains=30.0, paths=paths, alternatives=alternatives,
        probabilities=probabilities, twins=twins,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "paths", "told"),
    [
        ("loss", 4, "4 paths lose packets, over 30s"),
        ("loss", 1, "1 path loses packets, over 30s"),
        ("blackhole", 2, "2 paths lose all or nearly all, over 30s"),
        ("delay", 7, "7 paths became slower, over 30s"),
    ],
)
def test_what_suffers(fault: str, paths: int, told: str) -> None:
    assert effect_text(finding(fault, paths)) == told


def test_a_fault_of_some_flows_says_how_many_suffer() -> None:
    some = msgspec.structs.replace(finding("blackhole", 2), flows=0.4)
    assert effect_text(some) == "2 paths lose all or nearly all, 40% of those across it, over 30s"


def test_how_sure_it_is() -> None:
    assert suspects_text(finding()) == "leaf0->spine0 100%: no other part explains nearly as much"
    cable = finding(alternatives=("leaf0--spine0",), probabilities=(0.12,))
    assert suspects_text(cable) == "leaf0->spine0 88%, leaf0--spine0 12%"


def test_a_dozen_suspects_are_one_line_and_all_that_the_incident_is_named_by_stay() -> None:
    others = tuple(f"h{number}/rail0" for number in range(8))
    told = suspects_text(finding(alternatives=others, probabilities=(0.1,) * 8))
    assert told == ("leaf0->spine0 20%, h0/rail0 10%, h1/rail0 10%, h2/rail0 10% and 5 more")
    twins = suspects_text(finding(alternatives=others, probabilities=(0.1,) * 8, twins=6))
    assert "h5/rail0 10% and 2 more" in twins


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("*..leaf1", "leaf0..*", "leaf0..leaf1"), "between leaf0 and leaf1"),
        (("*..leaf1", "spine0"), "next to leaf1"),
        (("leaf0..*",), "next to leaf0"),
        (("*..*", "leaf0..*"), "next to leaf0"),
    ],
)
def test_a_group_is_told_by_what_it_lies_between(names: tuple[str, ...], told: str) -> None:
    reason = "paths there are not learnt part by part"
    assert [*component_text(finding(), names)] == [f"somewhere {told}: {reason}"]
    both = msgspec.structs.replace(finding(), both_ways=True)
    assert [*component_text(both, names)] == [f"somewhere {told}, in both directions: {reason}"]


def test_what_is_not_known_anywhere_has_words_that_say_where_to_look() -> None:
    (told,) = component_text(finding(), ("*..*",))
    assert told.startswith(
        "in a part that no path lists by name, most likely a switch that answers"
    )


def test_known_parts_need_no_words() -> None:
    assert [*component_text(finding(), ("leaf0--spine0", "spine0"))] == []


def test_one_of_parallel_cables_is_said_to_be_one() -> None:
    one = msgspec.structs.replace(finding(), one_of=4)
    (told,) = component_text(one, ("leaf0->spine0",))
    assert told.startswith("one of 4 parallel cables between leaf0 and spine0: no path tells which")
