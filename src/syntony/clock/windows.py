"""Probe records to edges: a sliding window per pair of NICs, estimated whenever asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.fit import WindowFitter, fit_window
from syntony.clock.pair import PairEstimator
from syntony.clock.points import Points, windows_of
from syntony.clock.purity import purity_classes
from syntony.model import Edge, S
from syntony.model.probes import among

Records = NDArray[np.void]

WINDOW_NS = 4 * S
"""Long enough for a drift good to some ppb, short enough that the drift is constant."""


class PairKey(NamedTuple):
    """Which pair a flow belongs to: its two NICs, and the clocks their stamps are in."""

    src: str
    dst: str
    src_clock: str
    dst_clock: str


class PairWindows:
    """All pairs of one agent. Not thread-safe.

    Each pair of NICs is estimated by itself, because different pairs have different floors.
    """

    def __init__(self, fit: WindowFitter = fit_window) -> None:
        self._fit = fit
        self._estimators: dict[PairKey, PairEstimator] = {}
        self._parts: list[Records] = []
        self._from_ns = 0
        self.plan({})

    def plan(self, pairs: Mapping[int, PairKey]) -> None:
        """Tell the pair of every flow id; pairs that stay keep their window and memory."""
        keys = sorted(set(pairs.values()))
        known = self._estimators
        self._estimators = {
            key: known.get(key) or PairEstimator(key.src_clock, key.dst_clock, self._fit)
            for key in keys
        }
        places = {key: place for place, key in enumerate(keys)}
        self._ids = np.array(sorted(pairs), dtype=np.uint32)
        self._pair_of = np.array([places[pairs[flow]] for flow in sorted(pairs)], dtype=np.intp)
        parts, self._parts = self._parts, []
        for part in parts:
            self.add(part)

    def add(self, records: Records) -> None:
        """Take new records; lost probes and unknown flows are of no use here."""
        useful = among(records["flow_id"], self._ids)
        for stamp in ("t1_ns", "t2_ns", "t4_ns"):
            useful &= records[stamp] != 0
        useful &= records["sent_ns"] > self._from_ns
        if useful.any():
            self._parts.append(records[useful])

    def forget(self, clock: str, sent_ns: int = 0) -> None:
        """A clock stepped or changed its rate: drop what was measured with it.

        Args:
            clock: node of that clock.
            sent_ns: on the host's clock; probes sent before it may still be under way.
        """
        self._from_ns = sent_ns or self._from_ns
        changed = np.array([clock in key[2:] for key in self._estimators], dtype=np.bool_)
        for estimator, lost in zip(self._estimators.values(), changed, strict=True):
            if lost:
                estimator.forget()
        if len(changed):
            self._parts = [part[~changed[self._pairs(part)]] for part in self._parts]

    def reach_before(self, clock: str, instant_ns: int) -> bool:
        """Whether a probe here reached a peer's clock before that instant of the same clock."""
        mine = np.array([clock == key.dst_clock for key in self._estimators], dtype=np.bool_)
        return any(
            bool((part["t2_ns"][mine[self._pairs(part)]] < instant_ns).any())
            for part in self._parts
        )

    def edges(self, now_local_ns: int) -> tuple[Edge, ...]:
        """An edge for every pair whose window supports one.

        Args:
            now_local_ns: on the host's clock; records older than the window are let go.
        """
        if not self._parts:
            return ()
        records = np.concatenate(self._parts)
        records = records[np.abs(now_local_ns - records["sent_ns"]) <= WINDOW_NS]
        self._parts = [records]
        pair = self._pairs(records)
        windows = windows_of(_points(records, pair), len(self._estimators))
        edges = map(PairEstimator.see, self._estimators.values(), windows)
        return tuple(edge for edge in edges if edge is not None)

    def _pairs(self, records: Records) -> NDArray[np.intp]:
        return self._pair_of[np.searchsorted(self._ids, records["flow_id"])]


def _points(records: Records, pair: NDArray[np.intp]) -> Points:
    """Requests, and replies as far as they came."""
    answered = records["t3_ns"] != 0
    back = records[answered]
    tx, rx = records["t1_ns"], records["t2_ns"]
    back_tx, back_rx = back["t3_ns"], back["t4_ns"]
    return Points(
        pair=np.concatenate((pair, pair[answered])),
        reverse=np.arange(len(records) + len(back)) >= len(records),
        at_a=np.concatenate((tx, back_rx)),
        apparent=np.concatenate((rx - tx, back_tx - back_rx)),
        purity=np.concatenate(
            (
                purity_classes(tx, rx, _pair_numbers(records)),
                purity_classes(back_tx, back_rx, _pair_numbers(back)),
            )
        ),
        path=np.concatenate((records["flow_id"], back["flow_id"])).astype(np.int64),
    )


def _pair_numbers(records: Records) -> NDArray[np.int64] | None:
    """Probes 2n and 2n + 1 of a flow leave back to back; None where records hold no numbers."""
    if "seq" not in (records.dtype.names or ()):
        return None
    flow = records["flow_id"].astype(np.int64) << 31
    return np.asarray(flow | (records["seq"] >> 1), dtype=np.int64)
