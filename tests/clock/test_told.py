"""What the clock's estimators say of set cases, as it was last agreed on: `fixtures/told.txt`.

Other tests ask whether an answer is within its bound; a wrong sign beside a wide bound, or a
constant a third of what it was, passes them. Here every number of an answer counts. After a change
that is meant, look at the difference of `python -m tests.clock.test_told >
tests/clock/fixtures/told.txt`, and at what moved without being meant to.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.clock import told_files, told_fits, told_meshes, told_pairs, told_time

AGREED = Path(__file__).with_name("fixtures") / "told.txt"
CASES: Mapping[str, Callable[[], Iterator[str]]] = (
    told_files.CASES | told_fits.CASES | told_pairs.CASES | told_meshes.CASES | told_time.CASES
)


def agreed() -> dict[str, list[str]]:
    parts = AGREED.read_text(encoding="utf-8").split("\n\n")
    return {name: lines for name, *lines in (part.strip().splitlines() for part in parts)}


ROUNDED = 5e-3
SETTLED = 5e-3
"""An offset that is found by iteration, of its sigma: they end at another step where processors
and libraries round otherwise."""


def alike(reported: str, was: str) -> bool:
    """The same words and, but for how processors add and where iterations settle, the same
    numbers."""
    these, those = (each.replace("=", "= ").split() for each in (reported, was))
    after = dict(itertools.pairwise(those))
    within = {"off=": max(ROUNDED, SETTLED * (_number(after.get("sigma=", "")) or 0.0))}
    return len(these) == len(those) and all(
        _alike(this, that, within.get(before, ROUNDED))
        for before, this, that in zip(["", *those], these, those, strict=False)
    )


def _alike(this: str, that: str, within: float) -> bool:
    one, other = _number(this), _number(that)
    if one is None or other is None:
        return this == that
    return math.isclose(one, other, rel_tol=1e-3, abs_tol=within)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@pytest.mark.parametrize("name", CASES)
def test_told_as_agreed(name: str) -> None:
    for was, reported in zip(agreed()[name], CASES[name](), strict=True):
        assert alike(reported, was), f"\n{reported}\nwas\n{was}"


if __name__ == "__main__":
    print("\n\n".join("\n".join([name, *CASES[name]()]) for name in CASES))
