"""Which probes are of known flows, and what their flags are called."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syntony.model.paths import FourTuple, ip_version
from syntony.model.probes import LOST, MISSING, STALLED, ProbeFlag, among

ids = st.integers(0, 2**32 - 1) | st.integers(0, 20)


@given(st.lists(ids, max_size=30), st.sets(ids, max_size=30))
def test_among_says_what_isin_says(wanted: list[int], known: set[int]) -> None:
    flow_ids = np.array(wanted, dtype=np.uint32)
    sorted_ids = np.array(sorted(known), dtype=np.uint32)
    assert among(flow_ids, sorted_ids).tolist() == [each in known for each in wanted]


def test_flags_are_the_engines() -> None:
    header = (Path(__file__).parents[2] / "native/probe/syn_probe.h").read_text()
    engine = {name: int(bit) for name, bit in re.findall(r"SYN_([A-Z0-9_]+) = (\d+),", header)}
    ours = {name: flag.value for name, flag in ProbeFlag.__members__.items()}
    assert ours == {name: engine[name] for name in ours}
    assert {flag.name for flag in LOST} == {name for name in ours if name.startswith("LOST")}
    assert {flag.name for flag in STALLED} == {name for name in ours if name.startswith("STALL")}
    assert {flag.name for flag in MISSING} == {"NO_T1", "NO_T2", "NO_T3", "NO_T4"}


def test_the_other_end_sees_a_flow_reversed() -> None:
    flow = FourTuple("10.0.0.1", 5, "fd00::2", 7)
    assert flow.reverse == FourTuple("fd00::2", 7, "10.0.0.1", 5)
    assert FourTuple.of(flow) == flow
    assert (ip_version(flow.local), ip_version(flow.remote)) == (4, 6)
