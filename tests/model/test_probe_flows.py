"""Which probes are of known flows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syntony.model.probes import among

ids = st.integers(0, 2**32 - 1) | st.integers(0, 20)


@given(st.lists(ids, max_size=30), st.sets(ids, max_size=30))
def test_among_says_what_isin_says(wanted: list[int], known: set[int]) -> None:
    flow_ids = np.array(wanted, dtype=np.uint32)
    sorted_ids = np.array(sorted(known), dtype=np.uint32)
    assert among(flow_ids, sorted_ids).tolist() == [each in known for each in wanted]
