"""A second of flows told row by row, for a `FaultLocator`, which takes columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from syntony.fabric import history
from syntony.fabric.book import Way
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.history import SecondCounts


class FlowCounts(NamedTuple):
    """One flow's second."""

    way: Way
    """Of its requests."""
    sent: int
    lost: int
    sent_back: int
    lost_back: int
    unresolved: int
    delay_ns: float
    """Median; NaN if none was measured."""
    delay_back_ns: float
    clk_err_ns: float
    slowest_ns: float = float("nan")
    slowest_back_ns: float = float("nan")


def add(
    watch: FaultLocator,
    rows: list[FlowCounts],
    heard: Mapping[tuple[str, str], int],
    end_ns: int | None = None,
) -> None:
    """The next second, flow by flow, and per NIC pair the requests heard."""
    watch.begin(len(rows))
    numbers = [watch.number(row.way) for row in rows]
    counts = np.zeros((history.FIELDS, watch.flows), dtype=np.int64)
    delay_ns, slowest_ns = np.full((2, 2, watch.flows), np.nan)
    clk_err_ns = np.zeros(watch.flows)
    by_pair = np.zeros(watch.pairs, dtype=np.int64)
    for (place, pair), row in zip(numbers, rows, strict=True):
        counts[:5, place] = row[1:6]
        delay_ns[:, place] = row[6:8]
        slowest_ns[:, place] = row[9:11]
        clk_err_ns[place] = row.clk_err_ns
        by_pair[pair] = heard.get((row.way.src, row.way.dst), 0)
    watch.take(SecondCounts(counts, delay_ns, slowest_ns, clk_err_ns), by_pair, end_ns)
