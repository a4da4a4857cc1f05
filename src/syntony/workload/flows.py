"""Flows as a matrix, each compared with similar ones: delayed, slow, lossy, blocked, moved.

Rule 0, compare like with like: a flow's reference is the lower of its own low quantile and the
median of that of flows of the same job over the same number of hops; rates are compared with
sibling channels.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from syntony.model.names import host_of
from syntony.workload.bundle import BundleTable, Floats, Ints
from syntony.workload.grid import (
    MAD_SIGMA,
    Episode,
    Flags,
    Grid,
    K,
    at_start,
    median,
    significant_episodes,
    within,
)

LATE_RATIO = 2.0
"""Ratio of delay to reference from which packets wait on the way (a queue as long as the path)."""
SLOW_RATIO = 3.0
"""… from which one flow alone is slow (taxonomy)."""
MUCH_ALWAYS = 10.0
"""… from which flows are slow even if it has been so since the recording began: up to this, a job's
placement and its own bursts explain it."""
SLOW_RATE = 0.6
"""Ratio of the rate to the siblings' below which a flow is slow (taxonomy)."""
LIKE = 1.3
"""Siblings are alike within this factor (taxonomy)."""
ALWAYS_SENDS = 0.9
"""Share of the time from which a flow has always something to send; of a rate that is a mean over a
window it is 1."""
CLOCK_SIGMAS = 6.0
"""Differences of delays below this many clock errors prove nothing."""
NOISE_SIGMAS = 4.3
"""Distance from the reference, a tenth-quantile, from which scatter does not explain a delay: 1.3
to the median of a normal distribution, and 3."""
FADES = 0.75
"""Ratio of a round trip's excess to the one before below which it is an average that forgets."""
MIN_LIKE = 4
"""Minimum number of flows in a class for comparison."""
MOST_KEEP = 0.6
"""Maximum share of the flows, those with the fewest retransmissions, that define what is usual."""
FEW_LOSE = 0.3
"""Quantile of the flows that defines what is usual: of three hosts' flows two thirds use one
NIC."""
SPLIT = 2.0
"""Nats by which two successive rates of losses must be likelier than one."""
LOSSES = 2.0
"""Retransmissions over a time interval above the expected number and 5 sigma of it, from which a
flow loses packets: fewer are chance."""


class Flows:
    """Every flow of a bundle. `names[i]` is flow i in all matrices, (flows, windows)."""

    def __init__(self, table: BundleTable) -> None:
        self.table = table
        names, jobs = table.codes("flow"), table.codes("job")
        many = len(jobs.values) + 1
        keys, self.of_row = np.unique(names.codes * many + jobs.codes + 1, return_inverse=True)
        self.names = [str(names.values[key // many]) for key in keys]
        self.jobs = [str(jobs.values[key % many - 1]) if key % many else "" for key in keys]
        width = int(np.median(table.ints("window_ns")))
        self.grid = Grid(table, self.of_row, len(keys), table.ints("at_ns"), width)
        order = np.argsort(table.ints("at_ns"), kind="stable")
        first = np.zeros(len(keys), dtype=np.int64)
        last = np.zeros(len(keys), dtype=np.int64)
        first[self.of_row[order[::-1]]] = order[::-1]
        last[self.of_row[order]] = order
        self.first_row, self.last_row = first, last
        self.src = [str(table.codes("src").at(row)) for row in first]
        self.dst = [str(table.codes("dst").at(row)) for row in first]
        self.hops: list[tuple[str, ...]] = [table.codes("hops").at(row) or () for row in first]
        self.rail = [str(table.codes("rail").at(row) or "") for row in first]
        self.rank = table.numbers("rank")[first]
        self.peer = table.numbers("peer_rank")[first]
        self.untrusted: Flags = np.zeros((len(keys), max(1, self.grid.windows)), dtype=bool)
        """Whether an uncertain clock makes a delay unreliable, (flows, windows)."""

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def across(self) -> dict[str, set[int]]:
        """Flows across each link."""
        found: dict[str, set[int]] = defaultdict(set)
        for flow, hops in enumerate(self.hops):
            for link in hops:
                found[link].add(flow)
        return found

    def column(self, name: str, combine: str = "mean") -> Floats:
        """A column as a matrix."""
        return self.grid.matrix(self.table.numbers(name), combine)  # type: ignore[arg-type]

    def distrust(self, nics: Iterable[str], spans: Sequence[tuple[int, int]] | None = None) -> None:
        """Discard the delays of flows from and to these NICs, whose clock is wrong.

        `spans`: begin and end of the times in question, ns; None: all.
        """
        bad = set(nics)
        touching = [{src, dst} & bad != set() for src, dst in zip(self.src, self.dst, strict=True)]
        self.untrusted |= np.outer(np.array(touching, dtype=bool), within(self.grid, spans))
        for name in (
            "delay",
            "reference",
            "relative_excess",
            "between_nics",
            "waiting",
            "fading",
            "late",
            "excess",
            "noise",
        ):
            self.__dict__.pop(name, None)

    @cached_property
    def raw_delay(self) -> Floats:
        """In-band median one-way delay in ns."""
        return self.column("owd_p50_ns")

    @cached_property
    def delay(self) -> Floats:
        """As `raw_delay`, where clocks are reliable."""
        return np.where(self.untrusted, np.nan, self.raw_delay)

    @cached_property
    def clock_err_ns(self) -> Floats:
        """1-sigma of the difference of both ends' clocks, (flows,)."""
        found = median(self.column("clk_err_ns"), axis=1)
        error: Floats = np.nan_to_num(found) * np.sqrt(2)
        return error

    @cached_property
    def rate(self) -> Floats:
        """bit/s while sending."""
        return self.column("rate_bps")

    @cached_property
    def sending(self) -> Floats:
        """Share of each window for which a flow sent, by its bytes and its rate, (flows,
        windows)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            needed_ns = self.column("bytes", "sum") * 8e9 / self.rate
        share: Floats = needed_ns / self.grid.width_ns
        return share

    @cached_property
    def like(self) -> Ints:
        """Number of the class of flows to compare with: same job, same number of hops, (flows,)."""
        kinds: dict[tuple[str, int], int] = {}
        return np.array(
            [
                kinds.setdefault((job, len(hops)), len(kinds))
                for job, hops in zip(self.jobs, self.hops, strict=True)
            ],
            dtype=np.int64,
        )

    @cached_property
    def reference(self) -> Floats:
        """Delay without queueing, (flows,)."""
        with np.errstate(all="ignore"):
            own = low_delay(self.delay)
        result = own.copy()
        for kind in range(int(self.like.max(initial=-1)) + 1):
            members = self.like == kind
            if np.isfinite(own[members]).sum() >= MIN_LIKE:
                result[members] = np.minimum(own[members], median(own[members]) * LIKE)
        return result

    @cached_property
    def excess(self) -> Floats:
        """Delay above the reference in ns."""
        excess: Floats = self.delay - self.reference[:, None]
        return excess

    @cached_property
    def noise(self) -> Floats:
        """Usual scatter of similar flows' delays from window to window, 1-sigma in ns, (flows,)."""
        own = median(np.abs(self.delay - median(self.delay, axis=1)[:, None]), axis=1) * MAD_SIGMA
        result = own.copy()
        size = np.abs(self.reference)
        with np.errstate(invalid="ignore", divide="ignore"):
            others = float(median(own / size)) * size
        for kind in np.unique(self.like):
            members = self.like == kind
            usual = median(own[members])
            # Of a few, one that waits half of the time is most of the scatter.
            few = members.sum() < MIN_LIKE <= len(self)
            result[members] = np.fmin(usual, others[members]) if few else usual
        return result

    @cached_property
    def relative_excess(self) -> Floats:
        """Ratio of `excess` to what scatter and clocks explain, (flows, windows)."""
        over = np.maximum(
            (LATE_RATIO - 1) * np.abs(self.reference), CLOCK_SIGMAS * self.clock_err_ns
        )
        over = np.fmax(over, NOISE_SIGMAS * self.noise)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            relative: Floats = self.excess / over[:, None]
        return relative

    @cached_property
    def waiting(self) -> Flags:
        """Where packets wait: delays beyond what scatter and clocks explain, (flows, windows)."""
        with np.errstate(invalid="ignore"):
            waiting: Flags = self.relative_excess > 1
        return waiting

    @cached_property
    def fading(self) -> Flags:
        """Where a round trip shows no wait of its own: less than `FADES` of the one before, (flows,
        windows). The kernel's is an average that forgets an eighth with each answer, so a single
        slow one is seen in several windows if there are few (decision 0539)."""
        known = np.isfinite(self.delay)
        place = np.where(known, np.arange(known.shape[1]), 0)
        newest = np.maximum.accumulate(place, axis=1)
        before = np.concatenate((newest[:, :1], newest[:, :-1]), axis=1)
        with np.errstate(invalid="ignore"):
            falls = self.excess < FADES * np.take_along_axis(self.excess, before, axis=1)
        measured = np.isfinite(self.one_way) | ~np.isfinite(self.column("rtt_p50_ns"))
        fading: Flags = falls & ~measured
        return fading

    @cached_property
    def late(self) -> dict[int, Episode]:
        """Flows whose packets wait, and when."""
        told = np.isfinite(self.delay) & ~(self.waiting & self.fading)
        return significant_episodes(self.waiting, told, self.relative_excess)

    @cached_property
    def blocked(self) -> Floats:
        """Share of each window for which a flow waited for its peer's credit, or its window."""
        return self.column("credit_blocked_ns", "sum") / self.grid.width_ns

    @cached_property
    def retransmits(self) -> Floats:
        """Retransmitted packets per window."""
        return self.column("retransmits", "sum")

    @cached_property
    def usual_losses(self) -> Floats:
        """Normal retransmissions of a flow in each window: the lower third's of that window, or the
        mean of most flows over all windows, (windows,)."""
        means = np.sort(np.nan_to_num(self.retransmits).mean(axis=1))
        usual = float(means[: max(1, int(MOST_KEEP * len(means)))].mean())
        return np.fmax(np.nan_to_num(_quantile(self.retransmits.T, FEW_LOSE)), usual)

    @cached_property
    def lossy(self) -> dict[int, Episode]:
        """Flows that lose packets, and when."""
        sent, known = np.nan_to_num(self.retransmits), np.isfinite(self.retransmits)
        if not known.any():
            return {}
        now = self.usual_losses
        found = {}
        for row in np.flatnonzero(sent.sum(axis=1) > LOSSES):
            first = _rise(sent[row])
            after = sent[row, first:][::-1]
            last = len(sent[row]) - 1 - _rise(after, SPLIT + math.log(len(after)))
            rest = slice(last + 1, None)
            goes_on = more_than_chance(float(sent[row, rest].sum()), float(now[rest].sum()))
            if at_start(Episode(0, last, 1.0), known[row]) and not goes_on:
                continue
            part = slice(first, last + 1)
            expected = float(now[part].sum())
            if more_than_chance(float(sent[row, part].sum()), expected):
                over = float((sent[row, part] > now[part]).mean())
                found[int(row)] = Episode(first, last, max(over, 0.9))
        return found

    @cached_property
    def siblings(self) -> Ints:
        """Number of the group of channels between the same hosts, (flows,)."""
        kinds: dict[tuple[str, str, str], int] = {}
        return np.array(
            [
                kinds.setdefault(key, len(kinds))
                for key in zip(
                    self.jobs, map(host_of, self.src), map(host_of, self.dst), strict=True
                )
            ],
            dtype=np.int64,
        )

    def during(self, begin_ns: int, last_ns: int) -> slice:
        """Windows that begin in a time interval."""
        first, last = (-(-(each - self.grid.begin_ns) // self.grid.width_ns)
                       for each in (begin_ns, last_ns))  # fmt: skip
        return slice(min(max(first, 0), self.grid.windows), min(max(last, 0), self.grid.windows))

    def typical(self, matrix: Floats, flow: int) -> Floats:
        """Median over the flow's siblings, or its class if there are too few, (windows,)."""
        peers = self.siblings == self.siblings[flow]
        if peers.sum() < MIN_LIKE:
            peers = self.like == self.like[flow]
        peers[flow] = False
        return median(matrix[peers], axis=0) if peers.any() else np.full(matrix.shape[1], np.nan)

    @cached_property
    def one_way(self) -> Floats:
        """One-way delay of segments of TCP flows from NIC to NIC in ns, where measured."""
        return self.column("one_way_p50_ns")

    @cached_property
    def between_nics(self) -> Floats:
        """Delay in ns that is comparable with probes': without the delay in hosts that round trips
        include."""
        of_round_trip = np.isfinite(self.column("rtt_p50_ns"))
        measured = np.where(of_round_trip, self.one_way, self.delay)
        return np.where(self.untrusted, np.nan, measured)

    def waits_in_hosts(self, flow: int, part: slice) -> bool:
        """Whether the packets of a flow that waits in these windows were measured from NIC to NIC
        then, and waited there for less than half as long as the flow."""
        usual = np.fmin(low_delay(self.between_nics[[flow]]), self.reference[flow])
        apart, excess = self.between_nics[flow, part] - usual, self.excess[flow, part]
        both = np.isfinite(apart) & np.isfinite(excess)
        if both.sum() < max(K, 0.5 * np.isfinite(excess).sum()):
            return False
        return bool(np.median(apart[both]) < 0.5 * np.median(excess[both]))

    def measured(self, flow: int, stretch: Episode | None) -> bool:
        """Whether a flow's delays over an episode, or at all, are mostly one-way delays of its
        segments; else most of it is a part of round trips, or waiting in hosts, of either end."""
        part = slice(None) if stretch is None else slice(stretch.first, stretch.last + 1)
        known = np.isfinite(self.delay[flow, part])
        with np.errstate(invalid="ignore"):
            measured = known & (self.one_way[flow, part] >= 0.5 * self.delay[flow, part])
        return bool(measured.any() and measured.sum() >= 0.5 * known.sum())

    @cached_property
    def way_back(self) -> dict[int, int]:
        """Of TCP flows, the other direction of the same connection where that is recorded."""
        place = {
            each: number for number, each in enumerate(zip(self.names, self.jobs, strict=True))
        }
        found = {}
        for (name, job), number in place.items():
            ends, space, detour = name.partition(" ")
            src, _, dst = ends.partition(">")
            back = place.get((f"{dst}>{src}{space}{detour}", job))
            if back is not None:
                found[number] = back
        return found

    def delay_name(self, flow: int, stretch: Episode | None) -> str:
        """Name of the kind of a flow's delays over an episode, or overall, as text."""
        if self.measured(flow, stretch):
            return "one-way delay of its segments"
        if self.table.codes("proto").at(self.last_row[flow]) == "tcp":
            return "its part of the round trip"
        return "in-band delay"

    def touching(self, nic_or_host: str) -> Flags:
        """Flows from or to a NIC (`HOST/NIC`) or a host, (flows,)."""
        return self.leaving(nic_or_host) | self.entering(nic_or_host)

    def leaving(self, place: str) -> Flags:
        """Flows from a NIC or a host."""
        return np.array([place in {src, host_of(src)} for src in self.src], dtype=bool)

    def entering(self, place: str) -> Flags:
        """Flows to a NIC or a host."""
        return np.array([place in {dst, host_of(dst)} for dst in self.dst], dtype=bool)

    def mean_over(self, matrix: Floats, flow: int, stretch: Episode) -> float:
        """Median of one flow over an episode."""
        return float(median(matrix[flow, stretch.first : stretch.last + 1]))


def more_than_chance(count: float, expected: float) -> bool:
    """Whether this many losses are more than chance."""
    return count > expected + 5 * math.sqrt(expected) + LOSSES


def _rise(counts: Floats, least: float = SPLIT) -> int:
    """Where counts rise: the likeliest split into two Poisson rates; 0 for one rate, if that is
    less likely by less than `least` nats."""
    size = len(counts)
    before = np.concatenate(([0.0], np.cumsum(counts)))[:-1]
    after, at = counts.sum() - before, np.arange(size)
    with np.errstate(divide="ignore", invalid="ignore"):
        likely = np.nan_to_num(before * np.log(before / at)) + after * np.log(after / (size - at))
    likely[after * at < before * (size - at)] = -np.inf
    likely[after <= 0] = -np.inf
    best = int(np.argmax(likely))
    return best if likely[best] > likely[0] + least else 0


def low_delay(delay: Floats) -> Floats:
    """Delay that one of ten windows of each row does not exceed: about that without queueing."""
    return _quantile(delay, 0.1)


def _quantile(values: Floats, share: float) -> Floats:
    """Per row, of recorded values; NaN if there are none."""
    ordered = np.sort(values, axis=1)
    counts = np.isfinite(values).sum(axis=1)
    place = np.minimum((counts * share).astype(int), np.maximum(counts - 1, 0))
    picked: Floats = ordered[np.arange(len(values)), place]
    return np.where(counts > 0, picked, np.nan)
