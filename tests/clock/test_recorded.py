"""The clock's estimators give the results in `fixtures/recorded.txt` for fixed cases.

Other tests check that a result is within its bound, so a wrong sign with a wide bound passes them.
Here every number is compared. After an intended change run `python -m tests.clock.test_recorded >
tests/clock/fixtures/recorded.txt` and look for differences that were not intended.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.cases import recorded
from tests.clock import (
    recorded_files,
    recorded_fits,
    recorded_meshes,
    recorded_pairs,
    recorded_time,
)

AGREED = Path(__file__).with_name("fixtures") / "recorded.txt"
CASES: Mapping[str, Callable[[], Iterator[str]]] = (
    recorded_files.CASES
    | recorded_fits.CASES
    | recorded_pairs.CASES
    | recorded_meshes.CASES
    | recorded_time.CASES
)


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
def test_results_are_as_recorded(name: str) -> None:
    for was, reported in zip(recorded(AGREED)[name], CASES[name](), strict=True):
        assert alike(reported, was), f"\n{reported}\nwas\n{was}"


if __name__ == "__main__":
    print("\n\n".join("\n".join([name, *CASES[name]()]) for name in CASES))
