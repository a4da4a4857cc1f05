"""Faults that end: named while they last, and by no longer window's memory of them afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fabric.test_watch import PER_SECOND, Fabric

from syntony.fabric import history
from syntony.fabric.history import FlowHistory, SecondCounts

FLOWS = 3


@pytest.mark.parametrize(
    ("hurt", "share", "seconds"),
    [
        (("spine0->leaf1",), 0.05, 10),
        (("h3/rail0->leaf1",), 0.05, 8),
        (("h3/rail0",), 0.3, 3),
    ],
)
def test_a_fault_that_is_over_does_not_come_back(
    hurt: tuple[str, ...], share: float, seconds: int
) -> None:
    """Windows of 10, 30 and 60 s go on over its last second long after it."""
    fabric = Fabric()
    for _ in range(20):
        fabric.second()
    for _ in range(seconds):
        fabric.second(dict.fromkeys(hurt, share))
        fabric.named()
    assert fabric.named()
    for _ in range(8):
        fabric.second()
        fabric.named()
    for after in range(25):
        fabric.second()
        assert fabric.named() == [], f"{after + 9} s after the end"


def test_a_fault_that_goes_on_is_not_forgotten() -> None:
    fabric = Fabric()
    for _ in range(20):
        fabric.second()
    for _ in range(10):
        fabric.second({"spine0->leaf1": 0.02})
        fabric.named()
    told = 0
    for _ in range(30):
        fabric.second({"spine0->leaf1": 0.02})
        told += fabric.named() == ["spine0->leaf1"]
    assert told >= 28, f"{told} of 30 s"


def test_a_fault_that_eases_is_told_at_its_new_size() -> None:
    fabric = Fabric()
    for share in (0.5,) * 4 + (0.02,) * 15:
        fabric.second({"spine0->leaf1": share})
        fabric.named()
    (found,) = fabric.watch.findings()
    assert found.component == "spine0->leaf1"
    assert 0.01 < found.loss < 0.04


def test_an_end_takes_no_other_faults_evidence() -> None:
    """A weaker fault on other pairs is found as if nothing had been."""
    fabric = Fabric()
    for second in range(30):
        hurt = {"leaf3->h6/rail0": 0.008}
        fabric.second(hurt | ({"h1/rail0": 0.5} if second < 5 else {}))
        fabric.named()
    assert fabric.named() == ["leaf3->h6/rail0"]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 80), st.integers(1, 60), st.lists(st.booleans(), min_size=FLOWS, max_size=FLOWS),
    st.integers(0, 20),
)  # fmt: skip
def test_forgetting_is_as_if_nothing_had_been_counted(
    total: int, keep_s: int, which: list[bool], more: int
) -> None:
    flows = np.array(which)
    forgetful, ignorant = FlowHistory(), FlowHistory()
    for second in range(total + more):
        if second == total:
            forgetful.forget(flows, keep_s)
        counts = np.full((history.FIELDS, FLOWS), PER_SECOND + second, dtype=np.int64)
        known = counts.copy()
        if second < total - keep_s:
            known[:, flows] = 0
        for each, told in ((forgetful, counts), (ignorant, known)):
            each.add(SecondCounts(told, np.full((2, FLOWS), np.nan), np.zeros(FLOWS)))
    if not more:
        forgetful.forget(flows, keep_s)
    for one, other in zip(forgetful.windows(FLOWS), ignorant.windows(FLOWS), strict=True):
        assert np.array_equal(one.counts, other.counts), one.name
