"""Whether what a part loses overflows from a queue there, by the seconds of its losses. Pure.

A queue loses what comes while it is full, so that the seconds with losses are seconds in which
packets wait there. A cable loses in any second. Where packets wait in all of them nothing tells
the two apart.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from syntony.fabric import history
from syntony.fabric.history import DELAY_S, MIN_DELAY_SECONDS, PERSISTENT, FlowHistory
from syntony.fabric.locate import OVER_NATS
from syntony.fabric.starved import FlowEnds
from syntony.fabric.tally import Floats, Index, Ints

STANDS_NS = 20_000.0
"""Packets that wait for less do not overflow: at 400 Gb/s this is 1 MB."""
CLOCK_SIGMAS = 3.0
IN_EMPTY = 0.1
"""A second in which most packets find the queue empty may hold a moment in which it is full: it
loses so much of what others lose."""
MAX_WAYS = 512
"""Looked at of those that cross one part."""
MAX_BESIDE = 4_096
"""Looked at of those from and to the same NICs that do not."""


class Overflow(enum.StrEnum):
    """What losses have to do with packets that wait in the same place."""

    UNKNOWN = ""
    """Too few delays are known."""
    NONE = "none"
    """As much is lost in seconds in which nothing waits there."""
    OPEN = "open"
    """Packets wait there; it may be either."""
    ALL = "all"
    """Losses come with the queue."""


class Seconds(NamedTuple):
    """What happened at one part, second by second; (seconds,) each, the newest last."""

    sent: Ints
    lost: Ints
    wait_ns: Floats
    """How long packets waited there; NaN: not known."""
    sigma_ns: float
    """1-sigma of that, by clocks."""


class Verdict(NamedTuple):
    """Of one part that loses."""

    overflow: Overflow
    standing_ns: float
    """How long packets wait there in nearly every one of the last seconds; 0: they do not."""


def judged(seconds: Seconds) -> Verdict:
    """Hold the seconds that lost against those in which packets waited. Those before the first
    loss say nothing: what is broken now may not have been then."""
    known = np.isfinite(seconds.wait_ns) & (np.cumsum(seconds.lost) > 0)
    sent, lost = seconds.sent[known], seconds.lost[known]
    if np.count_nonzero(known) < MIN_DELAY_SECONDS or not lost.sum():
        return Verdict(Overflow.UNKNOWN, 0.0)
    least_ns = max(STANDS_NS, CLOCK_SIGMAS * seconds.sigma_ns)
    stands = seconds.wait_ns[known] >= least_ns
    newest = seconds.wait_ns[-DELAY_S:]
    newest = newest[np.isfinite(newest)]
    standing_ns = 0.0
    if len(newest) >= MIN_DELAY_SECONDS:
        usual_ns = float(np.quantile(newest, PERSISTENT, method="lower"))
        standing_ns = usual_ns if usual_ns >= least_ns else 0.0
    if not stands.any():
        return Verdict(Overflow.NONE, 0.0)
    nats = _nats_for_cable(
        float(sent[stands].sum()), float(sent[~stands].sum()),
        float(lost[stands].sum()), float(lost[~stands].sum()),
    )  # fmt: skip
    if nats > OVER_NATS:
        return Verdict(Overflow.NONE, standing_ns)
    if nats < -OVER_NATS:
        return Verdict(Overflow.ALL, standing_ns)
    return Verdict(Overflow.OPEN, standing_ns)


def _nats_for_cable(
    sent_waiting: float, sent_empty: float, lost_waiting: float, lost_empty: float
) -> float:
    """How much likelier it is that so many of all losses came in seconds without a queue if all
    seconds lose alike than if those lose `IN_EMPTY` of what the others do."""
    if not sent_empty or not sent_waiting:
        return 0.0
    alike = sent_empty / (sent_empty + sent_waiting)
    less = IN_EMPTY * sent_empty / (IN_EMPTY * sent_empty + sent_waiting)
    return float(
        lost_empty * np.log(alike / less) + lost_waiting * np.log((1 - alike) / (1 - less))
    )


def counts_of(seen: FlowHistory, there: Index, back: Index) -> tuple[Ints, Ints]:
    """Probes of flows that cross a part, and losses that may be the part's, in each of the seconds
    whose delays are kept.

    Args:
        seen: of all flows.
        there: flows whose requests cross it.
        back: flows whose replies do.
    """
    counts = seen.recent_counts(np.union1d(there, back))
    sent = counts[:, history.SENT].sum(axis=1)
    lost = counts[:, history.UNRESOLVED].sum(axis=1)
    for ways, field in ((there, history.LOST), (back, history.LOST_BACK)):
        lost = lost + seen.recent_counts(ways)[:, field].sum(axis=1)
    return sent, lost


def waits(seen: FlowHistory, ends: FlowEnds, there: Index, back: Index) -> tuple[Floats, float]:
    """How long packets waited where these ways cross, in each of the same seconds, and 1-sigma of
    that by clocks.

    That is their delay above its floor, less what ways from the same NIC, or to the same NIC, that
    do not cross it waited elsewhere.

    Args:
        seen: of all flows.
        ends: the NICs of each.
        there: flows whose requests cross it.
        back: flows whose replies do.
    """
    flows = len(ends.src)
    # Ways by number: requests first, replies behind them.
    across = _some(np.concatenate((there, back + flows)), MAX_WAYS)
    src, dst = np.concatenate((ends.src, ends.dst)), np.concatenate((ends.dst, ends.src))
    crosses = np.zeros(2 * flows, dtype=np.bool_)
    crosses[there], crosses[back + flows] = True, True
    wait_ns = seen.recent_waits(across % flows, across // flows)
    elsewhere = np.zeros_like(wait_ns)
    for end in (src, dst):
        beside = _some(np.flatnonzero(np.isin(end, end[across]) & ~crosses), MAX_BESIDE)
        beside_ns = seen.recent_waits(beside % flows, beside // flows)
        for nic in np.unique(end[beside]).tolist():
            usual = _median(beside_ns[end[beside] == nic])
            of_nic = end[across] == nic
            elsewhere[of_nic] = np.fmax(elsewhere[of_nic], usual)
    sigma_ns = float(np.median(seen.worst_error(flows)[across % flows])) if len(across) else 0.0
    return _median(wait_ns - elsewhere), sigma_ns


def _some(ways: Index, most: int) -> Index:
    return ways[:: max(1, -(-len(ways) // most))]


def _median(values: Floats) -> Floats:
    """Of each column what is known, (n, columns); NaN where nothing is."""
    known = np.isfinite(values).any(axis=0)
    found = np.full(values.shape[1], np.nan)
    found[known] = np.nanmedian(values[:, known], axis=0)
    return found
