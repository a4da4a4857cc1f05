"""Counters of a NIC are the sums of the rows that were reported it."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.mesh.totals import BOUNDS_NS, DirectionCounts, NicTotals

NICS = ["h0/rail0", "h0/rail1", "h0/rail0"]
_PROBE = st.tuples(
    st.integers(0, 2), st.integers(-1_000, 300_000_000), st.booleans(), st.booleans(), st.booleans()
)


def direction(probes: list[tuple[int, int, bool, bool, bool]]) -> DirectionCounts:
    delay = np.array([probe[1] for probe in probes], dtype=np.int64)
    measured, lost, stalled = (
        np.array([probe[place] for probe in probes], dtype=np.bool_) for place in (2, 3, 4)
    )
    return DirectionCounts(
        owd_ns=delay, measured=measured, sent=~stalled, lost=lost, unresolved=lost & stalled,
        stalled=stalled,
    )  # fmt: skip


@pytest.mark.parametrize("at_once", [1, 25, 10_000])
@given(seconds=st.lists(st.lists(_PROBE, max_size=20), max_size=4))
def test_totals_are_sums(
    at_once: int, seconds: list[list[tuple[int, int, bool, bool, bool]]]
) -> None:
    totals = NicTotals(at_once)
    for second in seconds:
        flow = np.array([probe[0] for probe in second], dtype=np.intp)
        said = direction(second)
        totals.add(NICS, flow, said, said)
    every = [probe for second in seconds for probe in second]
    found = {(nic, way): reported for nic, way, reported in totals.each()}
    assert len(found) == (4 if seconds else 0)
    for (nic, _), reported in found.items():
        mine = [probe for probe in every if NICS[probe[0]] == nic]
        delays = [probe[1] for probe in mine if probe[2]]
        assert reported.sent == sum(not probe[4] for probe in mine)
        assert reported.lost == sum(probe[3] for probe in mine)
        assert reported.unresolved == sum(probe[3] and probe[4] for probe in mine)
        assert reported.stalled == sum(probe[4] for probe in mine)
        assert reported.delay_sum_ns == sum(delays)
        assert sum(reported.delays) == len(delays)
        for place, bound in enumerate(BOUNDS_NS):
            assert sum(reported.delays[: place + 1]) == sum(delay <= bound for delay in delays)


def test_another_plan_has_other_nics() -> None:
    totals = NicTotals()
    said = direction([(0, 5, True, False, False)])
    for nic in ("h0/rail0", "h0/rail1", "h0/rail1"):
        totals.add([nic], np.zeros(1, dtype=np.intp), said, said)
    assert [(nic, reported.sent) for nic, way, reported in totals.each() if way == "out"] == [
        ("h0/rail0", 1),
        ("h0/rail1", 2),
    ]


def test_what_is_summed_up_is_let_go_of() -> None:
    """A fleet that nobody asks for its totals keeps no probes, but for some thousands."""
    totals, said = NicTotals(at_once=4), direction([(0, 5, True, False, False)] * 2)
    kept = []
    for _ in range(7):
        flow = np.zeros(2, dtype=np.intp)
        totals.add(NICS, flow, said, said)
        kept.append(weakref.ref(flow))
    del flow
    assert [each() is not None for each in kept] == [*[False] * 6, True]
