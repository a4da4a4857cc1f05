"""Probes by pair of NICs and class of traffic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from syntony.model.names import host_of
from syntony.workload.bundle import BundleTable
from syntony.workload.grid import Grid, median, width_of, within
from syntony.workload.schema import CLASS_COLUMNS

MIN_WINDOWS = 4
"""Minimum number of windows with probes, to compare the fastest."""

TrafficClass = tuple[float | None, ...]
"""Values of `CLASS_COLUMNS`; None where not recorded."""


def class_of(table: BundleTable, row: int) -> TrafficClass:
    """The class of a row's packets."""
    values = (float(table.numbers(name)[row]) for name in CLASS_COLUMNS)
    return tuple(None if np.isnan(value) else value for value in values)


def differ(one: TrafficClass, other: TrafficClass) -> tuple[str, ...]:
    """Columns that both have and in which they differ, as text."""
    return tuple(
        f"{name} {a:g} against {b:g}"
        for name, a, b in zip(CLASS_COLUMNS, one, other, strict=True)
        if a is not None and b is not None and a != b
    )


class ProbeStreams:
    """Streams of probes: `src[i]`, `dst[i]`, `kind[i]` and `hops[i]` identify stream i."""

    def __init__(self, table: BundleTable) -> None:
        self.table = table
        src, dst = table.codes("src"), table.codes("dst")
        paths = table.codes("hops")
        classes = np.stack(
            [*(table.numbers(name) for name in CLASS_COLUMNS), paths.codes.astype(float)], axis=1
        )
        _, group = np.unique(np.nan_to_num(classes, nan=-1), axis=0, return_inverse=True)
        group = group.reshape(-1)
        many = len(dst.values) * (int(group.max(initial=0)) + 1)
        keys = src.codes * many + dst.codes * (int(group.max(initial=0)) + 1) + group
        _, first, rows = np.unique(keys, return_index=True, return_inverse=True)
        self.src = [str(src.at(row)) for row in first]
        self.dst = [str(dst.at(row)) for row in first]
        self.kind = [class_of(table, row) for row in first]
        self.hops: list[tuple[str, ...]] = [paths.at(row) or () for row in first]
        at_ns = table.ints("at_ns")
        self.grid = Grid(table, rows.reshape(-1), len(first), at_ns, width_of(at_ns))
        self.delay = self.grid.matrix(table.numbers("owd_p50_ns"))
        """(streams, windows) in ns."""
        self.tail = self.grid.matrix(table.numbers("owd_p99_ns"))
        """99th percentile of each window, likewise."""
        self.lost = np.nan_to_num(self.grid.matrix(table.numbers("lost"), "sum"))
        """Probes lost in each window, likewise."""
        self.sent = np.nan_to_num(self.grid.matrix(table.numbers("sent"), "sum"))
        """Probes sent in each window, likewise."""
        self.clock_err_ns = np.nan_to_num(
            median(self.grid.matrix(table.numbers("clk_err_ns")), axis=1)) * np.sqrt(2)  # fmt: skip
        self.streams: dict[tuple[str, str], list[int]] = defaultdict(list)
        """By (src, dst)."""
        for index, key in enumerate(zip(self.src, self.dst, strict=True)):
            self.streams[key].append(index)
        self.across: dict[str, set[int]] = defaultdict(set)
        """Streams across each link, where paths are known."""
        for index, hops in enumerate(self.hops):
            for link in hops:
                self.across[link].add(index)

    def distrust(self, nics: Iterable[str], spans: Sequence[tuple[int, int]] | None = None) -> None:
        """Discard delays of these NICs in these spans of time; None: all."""
        rows = np.array(self.touching(nics), dtype=np.int64)
        part = np.ix_(rows, np.flatnonzero(within(self.grid, spans)))
        self.delay[part] = self.tail[part] = np.nan

    def touching(self, places: Iterable[str]) -> list[int]:
        """Streams from or to any of these NICs or hosts."""
        wanted = set(places)
        return [
            index for index, (src, dst) in enumerate(zip(self.src, self.dst, strict=True))
            if wanted & {src, dst, host_of(src), host_of(dst)}
        ]  # fmt: skip

    def level(self, streams: list[int], begin_ns: int, last_ns: int) -> float | None:
        """Median delay of streams in a time interval, in ns; None if there was none."""
        part = self._part(begin_ns, last_ns)
        value = float(median(self.delay[streams][:, part])) if streams else np.nan
        return None if np.isnan(value) else value

    def longest(self, streams: list[int], begin_ns: int, last_ns: int) -> float:
        """Delay of the slowest probes in one of ten windows of a time interval, in ns; 0 if
        unknown."""
        found = self.tail[streams][:, self._part(begin_ns, last_ns)]
        known = found[np.isfinite(found)]
        return float(np.quantile(known, 0.9)) if len(known) else 0.0

    def fastest(self, streams: list[int], begin_ns: int, last_ns: int) -> float:
        """Delay that one of four windows of a time interval does not exceed, in ns; NaN if there
        are fewer than `MIN_WINDOWS`."""
        found = self.delay[streams][:, self._part(begin_ns, last_ns)]
        known = found[np.isfinite(found)]
        return float(np.quantile(known, 0.25)) if len(known) >= MIN_WINDOWS else float("nan")

    def _part(self, begin_ns: int, last_ns: int) -> slice:
        first = max(0, (begin_ns - self.grid.begin_ns) // self.grid.width_ns)
        last = max(first + 1, -(-(last_ns - self.grid.begin_ns) // self.grid.width_ns))
        return slice(int(first), int(last))

    def losses(self, begin_ns: int, last_ns: int) -> dict[tuple[str, str], float]:
        """Probes lost in a time interval, by (src, dst)."""
        lost = self.lost[:, self._part(begin_ns, last_ns)].sum(axis=1)
        return {pair: float(lost[streams].sum()) for pair, streams in self.streams.items()}

    def windows(self, streams: Iterable[int], begin_ns: int, last_ns: int) -> int:
        """Windows of a time interval in which any of these streams sent probes, or some of them
        arrived where it is not recorded how many that were."""
        rows, part = sorted(streams), self._part(begin_ns, last_ns)
        probed = (self.sent[rows, part] > 0) | np.isfinite(self.delay[rows, part])
        return int(np.any(probed, axis=0).sum())

    def counts(self, streams: Iterable[int], begin_ns: int, last_ns: int) -> tuple[float, float]:
        """Probes of streams that were lost in a time interval, and that were sent."""
        rows, part = sorted(streams), self._part(begin_ns, last_ns)
        return float(self.lost[rows, part].sum()), float(self.sent[rows, part].sum())

    def risen(self, streams: list[int], begin_ns: int, last_ns: int) -> float | None:
        """Delay of each stream in a time interval minus the tenth-quantile of all times; the median
        of streams, None if nothing is known."""
        during = median(self.delay[streams][:, self._part(begin_ns, last_ns)], axis=1)
        known = np.isfinite(during)
        if not known.any():
            return None
        floor = np.nanquantile(self.delay[streams][known], 0.1, axis=1)
        return float(np.median(during[known] / np.maximum(floor, 1.0)))
