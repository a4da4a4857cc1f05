"""The list of costly tests names tests that there are, and keeps to the budget."""

from __future__ import annotations

from tests.costly import BUDGET_S, LIST, find_costly, kept_cases, read_costly


def test_the_list_names_tests() -> None:
    """Under a new name what is listed would run, and cost, every time."""
    gone = []
    for name in read_costly():
        file, *parts = name.split("::")
        text = (LIST.parent / file).read_text() if (LIST.parent / file).exists() else ""
        if not all(part in text for part in parts if part != "runTest"):
            gone.append(name)
    assert not gone, f"renamed or gone: mend {LIST.name}"


def test_as_many_cases_stay_as_the_budget_allows() -> None:
    half = BUDGET_S / 2
    assert kept_cases([half, half]) == 2
    assert kept_cases([half, half, 0.01]) == 2
    assert kept_cases([2 * BUDGET_S, 0.01]) == 0
    costs = {"a": [half], "b": [half, 2 * half, half], "c": [3.0]}
    assert find_costly(costs) == {"b": 1, "c": 0}
