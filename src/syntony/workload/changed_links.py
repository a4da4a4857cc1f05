"""The link across which flows wait longer from some window on, while other flows do not.

For jobs in which nothing else is found. A job whose own flows wait for each other scatters so much
that no single flow is late; over all flows of a link and all windows a lasting change still shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from syntony.workload.bundle import Floats
from syntony.workload.common_hop import MIN_PURITY
from syntony.workload.crossings import Crossings
from syntony.workload.flows import CLOCK_SIGMAS, LATE_RATIO, LIKE, Flows
from syntony.workload.grid import N, median
from syntony.workload.verdict import ALIKE

MOST_WINDOWS = 80
"""Maximum number of windows that are searched; more are combined."""
CHANCE = 1e-4
"""How often the distance of two means, in units of its standard error, may exceed the limit by
chance, in one segment of each link. A recording has some thousand segments for each link, which
overlap, but few of them are twice as high as the rest. The limit is 4.3 for ten links, 5.0 for 350.
"""
STANDS_OUT = 0.8
"""Maximum ratio of the score of a link that none of the same flows cross, and whose flows wait half
as long: by chance the highest score of all links is about 4, so one of more shows how much less the
distances of this recording mean."""
MOST_FLOWS = 0.6
"""Maximum share of the flows across a link: there must be others to compare with."""


class ChangedLink(NamedTuple):
    """Links that the same flows, or probes, cross."""

    links: tuple[str, ...]
    flows: frozenset[int]
    begin_ns: int
    last_ns: int
    score: float
    share: float
    """Share of the windows in between in which packets wait longer."""
    ratio: float
    """How many times as long they wait then, compared with others."""
    delay_ns: float
    """Delay of its packets, and at other times."""
    usual_ns: float
    streams: int
    """Number of streams of probes whose delays these are; 0: they are those of the flows."""
    elsewhere: int
    """Number of flows, or streams, across other links."""
    longer: bool
    """Whether most wait longer than before not only compared with others."""


def changed_link(
    flows: Flows,
    kinds: Iterable[Crossings],
    few: Collection[str] = (),
    without: Collection[int] = (),
) -> ChangedLink | None:
    """The link that stands out of all by how much longer what crosses it waits; None: none does.
    `few` are links that are suspected for another reason, `without` flows that wait for themselves,
    whose delays do not count. The first of `kinds` are the flows.

    It is not the link out of a NIC: the job's own flows wait there for each other.
    """
    found = [_changed(flows, each, few, probes=place > 0, without=without)
             for place, each in enumerate(kinds)]  # fmt: skip
    return max((each for each in found if each is not None), key=lambda each: each.score,
               default=None)  # fmt: skip


def least_score(links: int) -> float:
    """The distance that stands out of so many links: the more are searched, the higher the highest
    of them is by chance."""
    return -NormalDist().inv_cdf(CHANCE / links)


def _changed(
    flows: Flows, rows: Crossings, few: Collection[str], *, probes: bool, without: Collection[int]
) -> ChangedLink | None:
    """As `changed_link`, by one kind of what crosses links."""
    firsts = {hops[0] for hops in flows.hops if hops}
    across: dict[frozenset[int], list[str]] = defaultdict(list)
    for link, crossing in rows.across.items():
        known = 2 <= len(crossing) <= MOST_FLOWS * len(rows)
        if known and 2 <= len(flows.across.get(link, ())) <= MOST_FLOWS * len(flows):
            across[frozenset(crossing)].append(link)
    if not across:
        return None
    groups = list(across)
    delays = relative(rows)
    if not probes:
        delays[sorted(without)] = np.nan
    level, width = _coarse(delays)
    change = against_others(level, groups)
    score, first, end = segments(change, normal_scores(change))
    least = [least_score(len(groups if set(few).isdisjoint(across[group]) else few))
             for group in groups]  # fmt: skip
    rises = {row: rises_of(level, change[row], sorted(groups[row]), slice(first[row], end[row]))
             for row, value in enumerate(score) if value >= least[row]}  # fmt: skip
    pure = [row for row, each in rises.items() if _most(each, np.log(LIKE))
            and not firsts.issuperset(across[groups[row]])]  # fmt: skip
    if not pure:
        return None
    best = max(pure, key=lambda row: np.nanmean(rises[row]))
    # Some of its flows cross other links together; the link at fault has all that wait as long.
    # What a queue adds counts: flows that wait as long as before add nothing to half of it.
    as_long = np.log(1 + ALIKE * (np.exp(np.nanmean(rises[best])) - 1))
    wider = [row for row in pure if groups[row] > groups[best] and _most(rises[row], as_long)
             and _also(rises[row], groups[row], groups[best], as_long)]  # fmt: skip
    best = max([best, *wider], key=lambda row: len(groups[row]))
    apart = [row for row, group in enumerate(groups) if not group & groups[best]
             and score[row] > STANDS_OUT * score[best]]  # fmt: skip
    if any(_rise(change[row], first[row], end[row]) >= as_long for row in apart):
        return None
    part = slice(int(first[best]) * width, min(int(end[best]) * width, flows.grid.windows))
    members = sorted(groups[best])
    inside, outside = rows.delay[members][:, part], np.delete(rows.delay[members], part, axis=1)
    delay_ns, usual_ns = float(median(inside)), float(median(outside))
    if delay_ns - usual_ns < CLOCK_SIGMAS * float(rows.clock_err_ns[members].max()):
        return None
    links = tuple(sorted({*across[groups[best]]} - firsts))
    during = change[best, first[best] : end[best]]
    rest = np.delete(change[best], slice(first[best], end[best]))
    middle = (np.nanmean(during) + np.nanmean(rest)) / 2
    return ChangedLink(
        links, frozenset(flow for link in links for flow in flows.across[link]),
        flows.grid.instant(part.start), flows.grid.instant(part.stop), float(score[best]),
        float((during[np.isfinite(during)] > middle).mean()),
        float(np.exp(np.nanmean(rises[best]))), delay_ns, usual_ns,
        len(members) if probes else 0, len(rows) - len(members),
        _most(rises_of(level, known_mean(level[members], 0), members,
                    slice(first[best], end[best])), np.log(LIKE)),
    )  # fmt: skip


def _rise(change: Floats, first: int, end: int) -> float:
    """By how much the mean of a segment exceeds that of the rest."""
    return float(np.nanmean(change[first:end]) - np.nanmean(np.delete(change, slice(first, end))))


def risen(level: Floats, change: Floats, members: list[int], part: slice) -> Floats:
    """As `rises_of`, of those flows of which it is known."""
    rises = rises_of(level, change, members, part)
    known: Floats = rises[np.isfinite(rises)]
    return known


def rises_of(level: Floats, change: Floats, members: list[int], part: slice) -> Floats:
    """How much longer each of a link's flows waits in a part, as a logarithm; NaN if unknown."""
    others = known_mean(level[members], 0) - change
    against = level[members] - others
    rise: Floats = known_mean(against[:, part], 1) - known_mean(
        np.delete(against, part, axis=1), 1)  # fmt: skip
    return rise


def _most(rises: Floats, least: float) -> bool:
    """Whether most flows wait longer by so much: all packets wait in the queue of a link."""
    known = rises[np.isfinite(rises)]
    return len(known) >= 2 and float((known >= least).mean()) >= MIN_PURITY


def _also(rises: Floats, wider: frozenset[int], narrower: frozenset[int], least: float) -> bool:
    """Whether most of the flows that cross only the wider of two links wait longer by so much,
    where known: else the queue is at a link that they do not cross."""
    own = np.array([flow not in narrower for flow in sorted(wider)], dtype=bool)
    known = rises[own & np.isfinite(rises)]
    return not len(known) or float((known >= least).mean()) >= MIN_PURITY


def relative(rows: Crossings) -> Floats:
    """Logarithm of each delay's ratio to the path's, above the row's mean, (rows, windows)."""
    path = np.abs(rows.reference)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        level = np.log(np.maximum(rows.delay, path) / path)
    known = np.isfinite(level)
    mean = np.where(known, level, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    relative: Floats = np.where(known, level - mean[:, None], np.nan)
    return relative


def _coarse(level: Floats) -> tuple[Floats, int]:
    """Means over as many windows as leave `MOST_WINDOWS`, and how many these are."""
    width = -(-level.shape[1] // MOST_WINDOWS)
    padded = np.full((len(level), -(-level.shape[1] // width) * width), np.nan)
    padded[:, : level.shape[1]] = level
    parts = padded.reshape(len(level), -1, width)
    return known_mean(parts, axis=2), width


def known_mean(values: Floats, axis: int) -> Floats:
    """Mean of the known values; NaN if there are none."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(known, values, 0).sum(axis=axis) / known.sum(axis=axis)
    return mean


def against_others(level: Floats, groups: Iterable[Collection[int]]) -> Floats:
    """Mean of the flows of each group minus that of all others, (groups, windows)."""
    known = np.isfinite(level)
    filled = np.where(known, level, 0.0)
    total, count = filled.sum(axis=0), known.sum(axis=0)
    differences = []
    for group in groups:
        rows = sorted(group)
        own, seen = filled[rows].sum(axis=0), known[rows].sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            differences.append(own / seen - (total - own) / (count - seen))
    return np.array(differences)


def segments(change: Floats, score_of: Floats | None = None) -> tuple[Floats, Floats, Floats]:
    """For each row the segment whose mean exceeds that of the rest most clearly: distance in
    standard errors, first window, and the one after the last. It begins after `N` known windows,
    has as many, and is `LATE_RATIO` higher. `score_of`: values to use for the distance only."""
    known = np.isfinite(change)
    effect = np.where(known, change, 0.0)
    value = effect if score_of is None else np.where(known, score_of, 0.0)
    counts, sums, squares, effects = (
        np.concatenate((np.zeros((len(change), 1)), np.cumsum(each, axis=1)), axis=1)
        for each in (known, value, value**2, effect)
    )
    rows = np.arange(len(change))
    score, first, end = (
        np.zeros(len(change)),
        np.zeros(len(change), int),
        np.zeros(len(change), int),
    )
    for begin in range(N, change.shape[1] - N + 1):
        inside, total = counts[:, begin + N :] - counts[:, [begin]], counts[:, -1:]
        part = sums[:, begin + N :] - sums[:, [begin]]
        more = effects[:, begin + N :] - effects[:, [begin]]
        rest = total - inside
        with np.errstate(invalid="ignore", divide="ignore"):
            high, low = part / inside, (sums[:, -1:] - part) / rest
            scatter = squares[:, -1:] - inside * high**2 - rest * low**2
            error = np.sqrt(np.maximum(scatter, 0) / (total - 2) * (1 / inside + 1 / rest))
            distance = (high - low) / np.maximum(error, 1e-3)
            longer = more / inside - (effects[:, -1:] - more) / rest >= np.log(LATE_RATIO)
            good = (inside >= N) & (counts[:, [begin]] >= N) & longer
        distance = np.where(good, distance, 0.0)
        best = np.argmax(distance, axis=1)
        better = distance[rows, best] > score
        score = np.where(better, distance[rows, best], score)
        first, end = np.where(better, begin, first), np.where(better, best + begin + N, end)
    return score, first, end


def normal_scores(values: Floats) -> Floats:
    """Each known value replaced by the quantile of the normal distribution that its rank in the row
    has: a few very long delays then do not decide, neither for a change nor, as scatter, against
    one."""
    found = np.full(values.shape, np.nan)
    for row, each in enumerate(values):
        places = np.flatnonzero(np.isfinite(each))
        found[row, places[np.argsort(each[places], kind="stable")]] = _quantiles(len(places))
    return found


@lru_cache(maxsize=MOST_WINDOWS)
def _quantiles(count: int) -> Floats:
    """Quantiles of the normal distribution at so many equal steps."""
    normal = NormalDist()
    return np.array([normal.inv_cdf((each + 0.5) / count) for each in range(count)])
