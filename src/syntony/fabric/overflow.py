"""Whether what a part loses overflows from a queue there, by the seconds of its losses. Pure.

A queue loses what comes while it is full, so that the seconds with losses are seconds in which
packets wait there: most of them, or only some while it is full in bursts. A cable loses in any
second. Where packets wait in all of them nothing tells the two apart.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from syntony.fabric import history
from syntony.fabric.history import DELAY_S, MIN_DELAY_SECONDS, PERSISTENT, FlowHistory
from syntony.fabric.locate import OVER_NATS
from syntony.fabric.starved import FlowEnds
from syntony.fabric.steady import Mask
from syntony.fabric.tally import Floats, Index, Ints
from syntony.model.findings import Finding

STANDS_NS = 20_000.0
"""Packets that wait for less do not overflow: at 400 Gb/s this is 1 MB."""
LEVELS_NS = STANDS_NS * 2.0 ** np.arange(10)
"""How long who comes to a full queue may wait there: its depth, which is not known."""
CLOCK_SIGMAS = 3.0
LATE_PER_LOST = 1 / 3
"""A full queue loses some of what comes, and the rest is late: so many at the least."""
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


class Waits(NamedTuple):
    """How long packets waited at one part in each second; NaN: not known."""

    usual_ns: Floats
    """Most of them, (seconds,)."""
    late: Floats
    """Of how many ways the slowest waited for each of `LEVELS_NS`, (levels, seconds)."""
    share: float
    """Of the ways across it, those that were looked at."""
    sigma_ns: float
    """1-sigma of what they waited, by clocks."""


class Seconds(NamedTuple):
    """What happened at one part, second by second; (seconds,) each, the newest last."""

    sent: Ints
    lost: Ints
    waits: Waits


class OverflowFinding(NamedTuple):
    """Of one part that loses."""

    overflow: Overflow
    standing_ns: float
    """How long packets wait there in nearly every one of the last seconds; 0: they do not."""
    burst_ns: float = 0.0
    """How long some wait in the seconds that lose, if all losses come with the queue."""

    def queue(self, lossy: Finding, least_ns: float) -> Finding | None:
        """The queue at a part that loses, which packets wait in for so long at the least."""
        if self.overflow in {Overflow.OPEN, Overflow.ALL} and self.standing_ns >= least_ns:
            return replace(lossy, fault="queue", delay_ns=self.standing_ns, overflow="")
        if self.overflow is Overflow.ALL and self.burst_ns >= least_ns:
            return replace(
                lossy, fault="queue", delay_ns=self.burst_ns, overflow=Overflow.ALL.value
            )
        return None


def judged(seconds: Seconds) -> OverflowFinding:
    """Hold the seconds that lost against those in which packets waited: by what most of them did,
    and by how many waited for each of some times. Those before the first loss say nothing: what is
    broken now may not have been then."""
    waits = seconds.waits
    known = np.isfinite(waits.usual_ns) & (np.cumsum(seconds.lost) > 0)
    sent, lost = seconds.sent[known], seconds.lost[known]
    if np.count_nonzero(known) < MIN_DELAY_SECONDS or not lost.sum():
        return OverflowFinding(Overflow.UNKNOWN, 0.0)
    least_ns = max(STANDS_NS, CLOCK_SIGMAS * waits.sigma_ns)
    standing_ns = _standing(waits.usual_ns, least_ns)
    read = [(_by_most(sent, lost, waits.usual_ns[known] >= least_ns), least_ns)]
    for level_ns, late in zip(LEVELS_NS.tolist(), waits.late[:, known], strict=True):
        if level_ns >= least_ns:
            read.append((_by_some(sent, lost, late, waits.share), level_ns))
    nats, burst_ns = min(read)
    if nats > OVER_NATS:
        return OverflowFinding(Overflow.NONE, standing_ns)
    # The one of so many that suits a queue best may suit it by chance.
    if nats >= -OVER_NATS - np.log(len(read)):
        return OverflowFinding(Overflow.OPEN, standing_ns)
    return OverflowFinding(Overflow.ALL, standing_ns, burst_ns)


def _standing(usual_ns: Floats, least_ns: float) -> float:
    newest = usual_ns[-DELAY_S:]
    newest = newest[np.isfinite(newest)]
    if len(newest) < MIN_DELAY_SECONDS:
        return 0.0
    persistent_ns = float(np.quantile(newest, PERSISTENT, method="lower"))
    return persistent_ns if persistent_ns >= least_ns else 0.0


def _by_most(sent: Ints, lost: Ints, stands: Mask) -> float:
    """Nats for a cable against a queue in which most packets of these seconds wait."""
    if not stands.any():
        return np.inf
    return _nats_for_cable(sent, lost, np.where(stands, 1.0, IN_EMPTY) * sent.astype(np.float64))


def _by_some(sent: Ints, lost: Ints, late: Floats, share: float) -> float:
    """Nats for a cable against a queue that loses in each second by how much comes late, and what
    it loses besides: while nobody is late, as happens if few probes meet it.

    How many of its moments those are follows from the seconds in which a single one was late, as
    Good and Turing estimate what is not seen (Biometrika 40, 1953).
    """
    total = float(late.sum())
    if total < LATE_PER_LOST * share * lost.sum():
        return np.inf
    unseen = min(1.0, max(IN_EMPTY, float(late[late < 1.5].sum()) / total))
    return _nats_for_cable(sent, lost, (1 - unseen) * late / total + unseen * sent / sent.sum())


def _nats_for_cable(sent: Ints, lost: Ints, weights: Floats) -> float:
    """How much likelier it is that all losses came in these seconds if all seconds lose alike than
    if they lose by these weights."""
    losing = (lost > 0) & (sent > 0)
    alike, by_weight = (each[losing] / each.sum() for each in (sent, weights))
    return float((lost[losing] * np.log(alike / by_weight)).sum())


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


def waits(seen: FlowHistory, ends: FlowEnds, there: Index, back: Index) -> Waits:
    """How long packets waited where these ways cross, in each of the same seconds.

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
    ways = np.concatenate((there, back + flows))
    across = _some(ways, MAX_WAYS)
    src, dst = np.concatenate((ends.src, ends.dst)), np.concatenate((ends.dst, ends.src))
    crosses = np.zeros(2 * flows, dtype=np.bool_)
    crosses[ways] = True
    usual_ns, slowest_ns = seen.recent_waits(across % flows, across // flows)
    elsewhere = np.zeros_like(usual_ns)
    late_elsewhere = np.zeros((len(LEVELS_NS), *usual_ns.shape))
    for end in (src, dst):
        beside = _some(np.flatnonzero(np.isin(end, end[across]) & ~crosses), MAX_BESIDE)
        if not len(beside):
            continue
        beside = beside[np.argsort(end[beside], kind="stable")]
        nics, begins = np.unique(end[beside], return_index=True)
        some = np.isin(end[across], nics)
        nic = np.searchsorted(nics, end[across[some]])
        usual_beside, slowest_beside = seen.recent_waits(beside % flows, beside // flows)
        medians = _medians(usual_beside, begins)
        elsewhere[some] = np.fmax(elsewhere[some], medians[nic])
        for level_ns, late in zip(LEVELS_NS, late_elsewhere, strict=True):
            shares = _shares(slowest_beside >= level_ns, begins)
            late[some] = np.maximum(late[some], shares[nic])
    late_here = np.array([(slowest_ns >= level_ns).sum(axis=0) for level_ns in LEVELS_NS])
    sigma_ns = float(np.median(seen.worst_error(flows)[across % flows])) if len(across) else 0.0
    return Waits(
        _median(usual_ns - elsewhere), np.maximum(late_here - late_elsewhere.sum(axis=1), 0.0),
        len(across) / max(1, len(ways)), sigma_ns,
    )  # fmt: skip


def _shares(late: Mask, begins: Index) -> Floats:
    """Of the ways of each NIC, which begin at these places, those that are late: (n, seconds) →
    (NICs, seconds)."""
    count = np.diff(begins, append=len(late))
    return np.add.reduceat(late.astype(np.float64), begins) / count[:, None]


def _some(ways: Index, most: int) -> Index:
    return ways[:: max(1, -(-len(ways) // most))]


def _medians(values: Floats, begins: Index) -> Floats:
    """Of the rows of each group, which begin at these places, what is known in each column: (n,
    columns) → (groups, columns); NaN where nothing is."""
    group = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(values)))
    ascending = np.lexsort((values, np.broadcast_to(group[:, None], values.shape)), axis=0)
    values = np.take_along_axis(values, ascending, axis=0)
    known = np.add.reduceat(np.isfinite(values), begins, dtype=np.intp)
    low, high = begins[:, None] + np.maximum(known - 1, 0) // 2, begins[:, None] + known // 2
    return np.asarray(
        (np.take_along_axis(values, low, axis=0) + np.take_along_axis(values, high, axis=0)) / 2
    )


def _median(values: Floats) -> Floats:
    """Of each column what is known, (n, columns) → (columns,); NaN where nothing is."""
    if not len(values):
        return np.full(values.shape[1], np.nan)
    return np.asarray(_medians(values, np.zeros(1, dtype=np.intp))[0])
