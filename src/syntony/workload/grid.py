"""Rows as matrices of objects by windows, and episodes: intervals of exceptional windows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.workload.bundle import BundleTable, Floats, Ints

K, N = 3, 5
"""An episode begins and ends where K of N windows with data are exceptional (taxonomy: "k of n
windows"; 3 of 5 ignores single outliers of a host short of CPU and is detected within five
windows)."""
HALF = 0.5
"""Minimum share of exceptional windows within one episode."""
LONG = 0.3
"""Share of exceptional windows from which a row does not count as usual."""
MAD_SIGMA = 1.4826
"""Ratio of the standard deviation of a normal distribution to its median absolute deviation."""
CHANCE = 1e-3
"""Expected number of episodes by chance in a bundle."""
MIN_CELLS, CELLS_PER_ROW = 100_000, 50
"""Maximum cells of a matrix: distant rows must not exhaust the memory."""

Flags = NDArray[np.bool_]


class Episode(NamedTuple):
    """An interval of windows that show something."""

    first: int
    last: int
    """First and last window that show it."""
    share: float
    """Share of the windows with data in the interval that show it."""

    @property
    def part(self) -> slice:
        """Its windows."""
        return slice(self.first, self.last + 1)


class Grid:
    """Rows of a table as a matrix of objects by windows; several rows in one cell are combined.

    Args:
        table: the rows.
        objects: object of each row, from 0, (rows,); below 0: the row is left out.
        count: number of objects.
        at_ns: instant of each row, (rows,).
        width_ns: width of a window; wider ones are used if the matrix would be too large.
    """

    def __init__(
        self, table: BundleTable, objects: Ints, count: int, at_ns: Ints, width_ns: int
    ) -> None:
        self.table, self.objects, self.count = table, objects, count
        self.width_ns = max(1, width_ns)
        self.begin_ns = int(at_ns.min()) if len(at_ns) else 0
        self.column: Ints = (at_ns - self.begin_ns) // self.width_ns
        self.windows = int(self.column.max()) + 1 if len(at_ns) else 0
        limit = MIN_CELLS + CELLS_PER_ROW * len(at_ns)
        if self.windows * count > limit:  # distant rows, or tiny windows: use coarser ones
            self.width_ns *= math.ceil(self.windows * count / limit)
            self.column = (at_ns - self.begin_ns) // self.width_ns
            self.windows = int(self.column.max()) + 1
        self._cell = np.where(objects >= 0, objects, 0) * max(1, self.windows) + self.column

    def matrix(self, values: Floats, combine: Literal["mean", "sum", "max"] = "mean") -> Floats:
        """Combine values, one per row of the table, by object and window.

        Returns:
            Shape (count, windows); NaN where no finite value was recorded.
        """
        size = self.count * max(1, self.windows)
        good = np.isfinite(values) & (self.objects >= 0)
        cells, kept = self._cell[good], values[good]
        seen = np.bincount(cells, minlength=size)
        if combine == "max":
            total = np.full(size, -np.inf)
            np.maximum.at(total, cells, kept)
        else:
            total = np.bincount(cells, weights=kept, minlength=size)
        with np.errstate(invalid="ignore", divide="ignore"):
            result = total / seen if combine == "mean" else np.where(seen > 0, total, np.nan)
        shaped: Floats = result.reshape(self.count, max(1, self.windows))
        return shaped

    def instant(self, window: int) -> int:
        """Start of a window, ns."""
        return self.begin_ns + window * self.width_ns


def within(grid: Grid, spans: Iterable[tuple[int, int]] | None) -> Flags:
    """Windows that overlap one of these stretches of time, begin and end in ns, (windows,); all of
    them for None."""
    found = np.full(max(1, grid.windows), spans is None)
    for begin_ns, end_ns in spans or ():
        first = max(0, (begin_ns - grid.begin_ns) // grid.width_ns)
        found[first : max(0, -(-(end_ns - grid.begin_ns) // grid.width_ns))] = True
    return found


def width_of(at_ns: Ints) -> int:
    """The usual distance of windows if a table does not contain it."""
    apart = np.diff(np.unique(at_ns))
    return int(np.median(apart)) if len(apart) else 1


def episode(bad: Flags, valid: Flags) -> Episode | None:
    """The interval of windows, of those with data, that are `bad`; None if there is none.

    With fewer than N windows with data, K bad ones are still needed.
    """
    place = np.flatnonzero(valid)
    shown = bad[place]
    if shown.sum() < K:
        return None
    counts = np.convolve(shown, np.ones(N, dtype=int))
    ends = np.flatnonzero((counts >= K)[: len(shown)] & shown)
    ahead = counts[N - 1 :]
    begins = np.flatnonzero((ahead >= K) & shown)
    if not len(begins) or not len(ends) or ends[-1] <= begins[0]:
        return None
    first, last = int(begins[0]), int(ends[-1])
    share = float(shown[first : last + 1].mean())
    return Episode(int(place[first]), int(place[last]), share)


def episodes(bad: Flags, valid: Flags) -> dict[int, Episode]:
    """Episodes by row, with at least half of the windows bad."""
    found = {}
    for row in np.flatnonzero((bad & valid).sum(axis=1) >= K):
        stretch = episode(bad[row], valid[row])
        if stretch is not None and stretch.share >= HALF:
            found[int(row)] = stretch
    return found


def _until_end(bad: Flags, valid: Flags) -> Episode | None:
    """The windows up to the last with data, from the begin that maximises the bad ones above half;
    None with fewer than K. An outlier long before a lasting fault does not hide it."""
    place = np.flatnonzero(valid)
    level = np.cumsum(np.where(bad[place], 1, -1)[::-1])[::-1]
    first = int(np.argmax(level))
    shown = bad[place[first:]]
    if shown.sum() < K:
        return None
    last = first + int(np.flatnonzero(shown)[-1])
    return Episode(int(place[first]), int(place[last]), float(bad[place[first : last + 1]].mean()))


def _densest(bad: Flags, valid: Flags) -> Episode | None:
    """The windows with data that maximise the bad ones above half, at any time; None with fewer
    than K. Another episode, before or after, does not hide it."""
    place = np.flatnonzero(valid)
    level = np.concatenate(([0], np.cumsum(np.where(bad[place], 1, -1))))
    lowest = np.minimum.accumulate(level)[:-1]
    last = int(np.argmax(level[1:] - lowest)) if len(place) else 0
    first = int(np.argmin(level[: last + 1]))
    shown = bad[place[first : last + 1]]
    if shown.sum() < K:
        return None
    return Episode(int(place[first]), int(place[last]), float(shown.mean()))


def significant_episodes(
    bad: Flags,
    valid: Flags,
    size: Floats | None = None,
    *,
    outliers: Flags | None = None,
    tried: float = 0.0,
    lasting: bool = False,
) -> dict[int, Episode]:
    """`episodes`, without those that outliers, at their usual frequency, produce by chance.

    With very many rows and windows some have three outliers in five. Such an episode's relative
    entropy against the usual share of outliers (not counting rows that are bad for long) must
    exceed the expected value for this number (Chernoff's bound for a binomial). If the magnitude of
    the deviations is known, `size`, outliers as large as the episode's are used: many small ones
    elsewhere do not make a large one likelier. An episode at the begin of a recording that is over
    within N windows is the start of a job, when all ranks send at once. `tried` is the number of
    windows in all matrices that are searched, if this is one of several. `outliers` are what counts
    for chance if `bad` is of means over neighbouring windows, in which one outlier shows twice.
    With `lasting`, if fewer than half of the windows from the first to the last are bad, those
    until the end are evaluated instead, then the part with the most.
    """
    whole = episodes(bad, valid)
    many = np.flatnonzero((bad & valid).sum(axis=1) >= K).tolist() if lasting else []
    counts = np.maximum(valid.sum(axis=1), 1)
    single = bad if outliers is None else outliers
    shares = (single & valid).sum(axis=1) / counts
    usual, rare = shares[shares < LONG], shares < LONG
    cells = max(float(counts.sum()), 1.0)
    chance = max(float(usual.mean()) if len(usual) else 0.0, 1 / cells)
    needed = math.log(max(cells, tried) / CHANCE)
    sizes: Floats | None = None
    found = {}
    for row in sorted({*whole, *many}):
        for chosen, stretch in _stretches(whole.get(row), bad[row], valid[row]):
            if at_start(stretch, valid[row]):
                continue
            surprise = _surprise(single[row], valid[row], stretch, chance)
            surprise -= chosen * math.log(counts[row])
            if surprise <= needed and size is not None:
                if sizes is None:
                    sizes = np.sort(size[rare][(bad & valid)[rare]])
                own = _Row(bad[row], valid[row], size[row], bool(rare[row]))
                surprise = _surprise_of_size(own, stretch, sizes, cells)
            if surprise > needed:
                found[row] = stretch
                break
    return found


def _stretches(whole: Episode | None, bad: Flags, valid: Flags) -> Iterator[tuple[int, Episode]]:
    """What is evaluated of one row, in turn: the whole episode, or the one until the end and the
    densest; with how many of its ends were chosen among all windows."""
    if whole is not None:
        yield 0, whole
        return
    for chosen, search in enumerate((_until_end, _densest), 1):
        if (stretch := search(bad, valid)) is not None:
            yield chosen, stretch


class _Row(NamedTuple):
    bad: Flags
    valid: Flags
    size: Floats
    counted: bool
    """Among the outliers of all."""


def _surprise_of_size(row: _Row, stretch: Episode, sizes: Floats, cells: float) -> float:
    """As `_surprise`, for windows as large as one of the episode's, against equally large ones
    elsewhere, at the level that maximises it, minus the gain from trying all levels by chance.

    `sizes` are those of all outliers, ascending.
    """
    part = slice(stretch.first, stretch.last + 1)
    levels = np.unique(row.size[part][(row.bad & row.valid)[part]])
    most = 0.0
    for level in levels:
        large = row.bad & (row.size >= level)
        own = int((large & row.valid)[part].sum()) if row.counted else 0
        others = len(sizes) - int(np.searchsorted(sizes, level)) - own
        most = max(most, _surprise(large, row.valid, stretch, max(others, 1) / cells))
    return most - math.log(len(levels))


def at_start(stretch: Episode, valid: Flags) -> bool:
    """Whether an episode lies within the first N windows with data."""
    first = np.flatnonzero(valid)[: N + 1]
    return len(first) > N and stretch.first <= first[0] and stretch.last < first[N]


def _surprise(bad: Flags, valid: Flags, stretch: Episode, chance: float) -> float:
    """Number of windows times relative entropy of the bad share against chance, in nats, from the
    first bad window of an episode to its last."""
    own = stretch.first + np.flatnonzero((bad & valid)[stretch.first : stretch.last + 1])
    if not len(own):
        return 0.0
    part = slice(int(own[0]), int(own[-1]) + 1)
    size = int(valid[part].sum())
    share = min(float(bad[part][valid[part]].mean()), 1 - 1e-9)
    if share <= chance:
        return 0.0
    entropy = share * math.log(share / chance) + (1 - share) * math.log((1 - share) / (1 - chance))
    return size * entropy


def median_of(values: Floats) -> float:
    """The median of all recorded values; NaN if there are none."""
    return float(median(values))


def median(values: Floats, axis: int | None = None) -> Floats:
    """The median of recorded values; NaN if there are none."""
    known = np.isfinite(values)
    if axis is None:
        kept = values[known]
        return np.median(kept) if kept.size else np.float64("nan")  # type: ignore[return-value]
    if not values.shape[axis]:
        return np.full(np.delete(values.shape, axis), np.nan)
    ordered = np.sort(np.where(known, values, np.nan), axis=axis)  # NaN comes last
    counts = known.sum(axis=axis, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(counts - 1, 0) // 2, axis)
    high = np.take_along_axis(ordered, np.minimum(counts // 2, np.maximum(counts - 1, 0)), axis)
    result: Floats = np.where(counts > 0, (low + high) / 2, np.nan).squeeze(axis)
    return result
