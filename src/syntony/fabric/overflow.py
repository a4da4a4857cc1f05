"""Whether the losses of a component come from a queue that overflows, by the seconds of its losses.
Pure.

A queue loses packets that arrive while it is full. Seconds with losses are thus seconds in which
packets wait: most of them, or only some if it is full in bursts. A cable loses in any second. If
packets wait in all seconds, the two cannot be distinguished.
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
"""A shorter queueing delay is no overflow: at 400 Gb/s this is 1 MB."""
LEVELS_NS = STANDS_NS * 2.0 ** np.arange(10)
"""Possible delays of a packet that arrives at a full queue: the queue's depth, which is unknown."""
CLOCK_SIGMAS = 3.0
LATE_PER_LOST = 1 / 3
"""Minimum late packets per lost one: a full queue loses some packets and delays the others."""
IN_EMPTY = 0.1
"""A second in which most packets find the queue empty may contain a moment in which it is full: it
loses this much relative to others."""
MAX_OVERFLOW = 0.05
"""Maximum loss by overflow in `DELAY_S`: senders slow down when queues overflow by more."""
MAX_WAYS = 512
"""Maximum number of paths across one component that are examined."""
MAX_OUTSIDE = 4_096
"""Maximum number of paths from and to the same NICs that do not cross it."""


class Overflow(enum.StrEnum):
    """How losses are related to queueing in the same place."""

    UNKNOWN = ""
    """Too few delays are known."""
    NONE = "none"
    """As much is lost in seconds in which no packets wait there."""
    OPEN = "open"
    """Packets wait there; either may be the cause."""
    ALL = "all"
    """Losses come with the queue."""


class QueueingDelays(NamedTuple):
    """How long packets waited at one component in each second; NaN: unknown."""

    usual_ns: Floats
    """The median, (seconds,)."""
    late: Floats
    """Number of paths whose slowest probe waited for each of `LEVELS_NS`, (levels, seconds)."""
    share: float
    """Share of the paths across it that were examined."""
    sigma_ns: float
    """1-sigma of the queueing delay, by clock errors."""


class ComponentSeconds(NamedTuple):
    """Events at one component, second by second; (seconds,) each, the newest last."""

    sent: Ints
    lost: Ints
    waits: QueueingDelays


class OverflowFinding(NamedTuple):
    """Result for one component that loses."""

    overflow: Overflow
    standing_ns: float
    """Queueing delay in nearly every one of the last seconds; 0: none."""
    burst_ns: float = 0.0
    """The longest delay for which losses occur only in seconds with packets that late; 0: none."""

    def queue(self, lossy: Finding, least_ns: float) -> Finding | None:
        """The queue at a component that loses, if packets wait there for at least this long."""
        if self.overflow in {Overflow.OPEN, Overflow.ALL} and self.standing_ns >= least_ns:
            return replace(lossy, fault="queue", delay_ns=self.standing_ns, overflow="")
        if self.overflow is Overflow.ALL and self.burst_ns >= least_ns:
            return replace(
                lossy, fault="queue", delay_ns=self.burst_ns, overflow=Overflow.ALL.value
            )
        return None


def classify(seconds: ComponentSeconds) -> OverflowFinding:
    """Compare the seconds with losses with those in which packets waited: by the median, and by the
    number that waited for each of several delays. Seconds before the first loss are left out: the
    fault may not have existed then. In the first seconds after it, all that is known is whether
    packets waited at all."""
    waits = seconds.waits
    since = np.cumsum(seconds.lost) > 0
    known = np.isfinite(waits.usual_ns) & since
    sent, lost = seconds.sent[known], seconds.lost[known]
    early = np.count_nonzero(since) < MIN_DELAY_SECONDS
    if not lost.sum() or (np.count_nonzero(known) < MIN_DELAY_SECONDS and not early):
        return OverflowFinding(Overflow.UNKNOWN, 0.0)
    least_ns = max(STANDS_NS, CLOCK_SIGMAS * waits.sigma_ns)
    standing_ns = _standing(waits.usual_ns, least_ns)
    read = [(_by_most(sent, lost, waits.usual_ns[known] >= least_ns), least_ns)]
    for level_ns, late in zip(LEVELS_NS.tolist(), waits.late[:, known], strict=True):
        if level_ns >= least_ns:
            read.append((_by_some(sent, lost, late, waits.share), level_ns))
    none = min(nats for nats, _ in read) > OVER_NATS
    if early:
        return OverflowFinding(Overflow.UNKNOWN if none else Overflow.OPEN, 0.0)
    if none:
        return OverflowFinding(Overflow.NONE, standing_ns)
    # The best of this many alternatives may suit a queue by chance.
    chance = np.log(len(read))
    fitting_ns = [level_ns for nats, level_ns in read if nats < -OVER_NATS - chance]
    newest = np.flatnonzero(since)[-DELAY_S:]
    heavy = seconds.lost[newest].sum() > MAX_OVERFLOW * seconds.sent[newest].sum()
    if not fitting_ns or heavy:
        return OverflowFinding(Overflow.OPEN, standing_ns)
    # Packets that wait for long are late by every shorter delay too: which of these fits best is
    # chance.
    return OverflowFinding(Overflow.ALL, standing_ns, max(fitting_ns))


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
    """Nats for a cable against a queue whose loss in each second follows from the share of late
    probes, plus losses in seconds without any late probe, which happen if few probes meet it.

    The size of that second part follows from the number of seconds with a single late probe, as
    Good and Turing estimate unseen events (Biometrika 40, 1953).
    """
    total = float(late.sum())
    if total < LATE_PER_LOST * share * lost.sum():
        return np.inf
    unseen = min(1.0, max(IN_EMPTY, float(late[late < 1.5].sum()) / total))
    return _nats_for_cable(sent, lost, (1 - unseen) * late / total + unseen * sent / sent.sum())


def _nats_for_cable(sent: Ints, lost: Ints, weights: Floats) -> float:
    """Log-likelihood that all losses came in these seconds if all seconds lose alike, minus that
    with these weights."""
    losing = (lost > 0) & (sent > 0)
    alike, by_weight = (each[losing] / each.sum() for each in (sent, weights))
    return float((lost[losing] * np.log(alike / by_weight)).sum())


def counts_of(seen: FlowHistory, there: Index, back: Index) -> tuple[Ints, Ints]:
    """Probes of flows that cross a component, and losses that may be its, in each of the seconds
    whose delays are kept.

    Args:
        seen: history of all flows.
        there: flows whose requests cross it.
        back: flows whose replies do.
    """
    counts = seen.recent_counts(np.union1d(there, back))
    sent = counts[:, history.SENT].sum(axis=1)
    lost = counts[:, history.UNRESOLVED].sum(axis=1)
    for ways, field in ((there, history.LOST), (back, history.LOST_BACK)):
        lost = lost + seen.recent_counts(ways)[:, field].sum(axis=1)
    return sent, lost


def waits(seen: FlowHistory, ends: FlowEnds, there: Index, back: Index) -> QueueingDelays:
    """How long packets waited where these paths cross, in each of the same seconds.

    This is their delay above the floor, minus the delay of paths from the same NIC, or to the same
    NIC, that do not cross the component.

    Args:
        seen: history of all flows.
        ends: the NICs of each.
        there: flows whose requests cross it.
        back: flows whose replies do.
    """
    flows = len(ends.src)
    # Directions by number: requests first, then replies.
    ways = np.concatenate((there, back + flows))
    across = _some(ways, MAX_WAYS)
    src, dst = np.concatenate((ends.src, ends.dst)), np.concatenate((ends.dst, ends.src))
    crosses = np.zeros(2 * flows, dtype=np.bool_)
    crosses[ways] = True
    usual_ns, slowest_ns = seen.recent_waits(across % flows, across // flows)
    elsewhere = np.zeros_like(usual_ns)
    late_elsewhere = np.zeros((len(LEVELS_NS), *usual_ns.shape))
    for end in (src, dst):
        outside = _some(np.flatnonzero(np.isin(end, end[across]) & ~crosses), MAX_OUTSIDE)
        if not len(outside):
            continue
        outside = outside[np.argsort(end[outside], kind="stable")]
        nics, begins = np.unique(end[outside], return_index=True)
        some = np.isin(end[across], nics)
        nic = np.searchsorted(nics, end[across[some]])
        usual_outside, slowest_outside = seen.recent_waits(outside % flows, outside // flows)
        medians = _medians(usual_outside, begins)
        elsewhere[some] = np.fmax(elsewhere[some], medians[nic])
        for level_ns, late in zip(LEVELS_NS, late_elsewhere, strict=True):
            shares = _shares(slowest_outside >= level_ns, begins)
            late[some] = np.maximum(late[some], shares[nic])
    late_here = np.array([(slowest_ns >= level_ns).sum(axis=0) for level_ns in LEVELS_NS])
    sigma_ns = float(np.median(seen.worst_error(flows)[across % flows])) if len(across) else 0.0
    return QueueingDelays(
        _median(usual_ns - elsewhere), np.maximum(late_here - late_elsewhere.sum(axis=1), 0.0),
        len(across) / max(1, len(ways)), sigma_ns,
    )  # fmt: skip


def _shares(late: Mask, begins: Index) -> Floats:
    """Share of late paths of each NIC, whose paths begin at these places: (n, seconds) → (NICs,
    seconds)."""
    count = np.diff(begins, append=len(late))
    return np.add.reduceat(late.astype(np.float64), begins) / count[:, None]


def _some(ways: Index, most: int) -> Index:
    return ways[:: max(1, -(-len(ways) // most))]


def _medians(values: Floats, begins: Index) -> Floats:
    """Medians of known values per column over the rows of each group, which begin at these places:
    (n, columns) → (groups, columns); NaN where none is known."""
    group = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(values)))
    ascending = np.lexsort((values, np.broadcast_to(group[:, None], values.shape)), axis=0)
    values = np.take_along_axis(values, ascending, axis=0)
    known = np.add.reduceat(np.isfinite(values), begins, dtype=np.intp)
    low, high = begins[:, None] + np.maximum(known - 1, 0) // 2, begins[:, None] + known // 2
    return np.asarray(
        (np.take_along_axis(values, low, axis=0) + np.take_along_axis(values, high, axis=0)) / 2
    )


def _median(values: Floats) -> Floats:
    """Median of known values of each column, (n, columns) → (columns,); NaN where none is known."""
    if not len(values):
        return np.full(values.shape[1], np.nan)
    return np.asarray(_medians(values, np.zeros(1, dtype=np.intp))[0])
