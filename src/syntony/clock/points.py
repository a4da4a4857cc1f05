"""Stamps of many pairs at once, cut into each pair's window.

A pair's window holds some tens of probes: made ready one pair after the other, numpy's calls cost
several times what they compute. So whatever does not depend on a pair's past is done for all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.purity import purity_classes
from syntony.clock.samples import MIN_PROBES, Clouds, Instants, PairSamples


class PathRuns(NamedTuple):
    """Which path each point of a window took: its clouds are in the order of these."""

    starts: NDArray[np.intp]
    """First point of each run, ascending, shape (r,)."""
    paths: list[int]
    """Path of each run; each path has at most one run a direction."""
    forward: int
    """Number of runs in the forward direction."""


class PairWindow(NamedTuple):
    """One pair's clouds, usable ones."""

    clouds: Clouds
    runs: PathRuns | None
    """None where nothing is known of paths."""


class Points(NamedTuple):
    """One point a probe and direction, in any order; shape (n,) each."""

    pair: NDArray[np.intp]
    """From 0."""
    reverse: NDArray[np.bool_]
    at_a: Instants
    """When, on the clock of the pair's prober."""
    apparent: Instants
    """Apparent lead of the other clock."""
    purity: NDArray[np.intp]
    path: Instants | None

    @classmethod
    def of(cls, samples: PairSamples) -> Points:
        """Points of one pair, which gets number 0."""
        forward, count = len(samples.fwd_tx), len(samples.fwd_tx) + len(samples.rev_rx)
        path = None
        if samples.fwd_path is not None and samples.rev_path is not None:
            path = np.concatenate((samples.fwd_path, samples.rev_path))
        return cls(
            pair=np.zeros(count, dtype=np.intp),
            reverse=np.arange(count) >= forward,
            at_a=np.concatenate((samples.fwd_tx, samples.rev_rx)),
            apparent=np.concatenate(
                (samples.fwd_rx - samples.fwd_tx, samples.rev_tx - samples.rev_rx)
            ),
            purity=np.concatenate(
                (
                    purity_classes(samples.fwd_tx, samples.fwd_rx, samples.fwd_pair),
                    purity_classes(samples.rev_tx, samples.rev_rx, samples.rev_pair),
                )
            ),
            path=path,
        )


def windows_of(points: Points, pairs: int) -> list[PairWindow | None]:
    """Each pair's window; None where `PairSamples.usable` would say no."""
    if not len(points.pair):
        return [None] * pairs
    group = 2 * points.pair + points.reverse
    keys = (group,) if points.path is None else (points.path, group)
    order = np.lexsort(keys)
    group, at_a, apparent = group[order], points.at_a[order], points.apparent[order]
    ends = np.bincount(group, minlength=2 * pairs).cumsum()
    starts = np.concatenate(([0], ends[:-1]))
    first_ns, last_ns, usable = _extents(at_a, starts, ends)
    ref_ns = (first_ns + last_ns) // 2
    base_ns = apparent[np.minimum(starts[::2], len(apparent) - 1)]
    pair = group >> 1
    t = (at_a - ref_ns[pair]).astype(np.float64)
    y = (apparent - base_ns[pair]).astype(np.float64)
    side = np.where(group & 1, -1.0, 1.0)
    purity = points.purity[order]
    runs = None if points.path is None else _Runs.of(group, points.path[order], starts, ends)
    cuts = zip(starts[::2].tolist(), starts[1::2].tolist(), ends[1::2].tolist(), strict=True)
    found: list[PairWindow | None] = []
    for number, (start, middle, end) in enumerate(cuts):
        if not usable[number]:
            found.append(None)
            continue
        clouds = Clouds(
            ref_ns=int(ref_ns[number]),
            base_ns=int(base_ns[number]),
            span_ns=float(last_ns[number] - first_ns[number]),
            t=t[start:end],
            y=y[start:end],
            side=side[start:end],
            purity=purity[start:end],
            forward=middle - start,
        )
        found.append(PairWindow(clouds, None if runs is None else runs.cut(number)))
    return found


def _extents(
    at_a: Instants, starts: NDArray[np.intp], ends: NDArray[np.intp]
) -> tuple[Instants, Instants, list[bool]]:
    """First and last instant of each pair, and whether both of its directions hold enough."""
    filled = np.flatnonzero(ends > starts)
    first_ns, last_ns = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    first_ns[filled] = np.minimum.reduceat(at_a, starts[filled])
    last_ns[filled] = np.maximum.reduceat(at_a, starts[filled])
    usable = (ends - starts >= MIN_PROBES) & (last_ns > first_ns)
    return (
        np.minimum(first_ns[::2], first_ns[1::2]),
        np.maximum(last_ns[::2], last_ns[1::2]),
        (usable[::2] & usable[1::2]).tolist(),
    )


class _Runs(NamedTuple):
    """`PathRuns` of all pairs, one after the other."""

    starts: NDArray[np.intp]
    paths: list[int]
    bounds: list[int]
    """First run of each direction of each pair, and the end."""
    first: list[int]
    """First point of each direction of each pair."""

    @classmethod
    def of(
        cls,
        group: NDArray[np.intp],
        path: Instants,
        group_starts: NDArray[np.intp],
        group_ends: NDArray[np.intp],
    ) -> _Runs:
        begins = np.ones(len(group), dtype=np.bool_)
        begins[1:] = (group[1:] != group[:-1]) | (path[1:] != path[:-1])
        starts = np.flatnonzero(begins)
        bounds = np.searchsorted(starts, np.append(group_starts, group_ends[-1]))
        return cls(starts, path[starts].tolist(), bounds.tolist(), group_starts.tolist())

    def cut(self, pair: int) -> PathRuns:
        low, middle, high = self.bounds[2 * pair : 2 * pair + 3]
        starts = self.starts[low:high] - self.first[2 * pair]
        return PathRuns(starts, self.paths[low:high], middle - low)
