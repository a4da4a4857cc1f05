"""Windows of many pairs made ready together: as each by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.clock.points import PairWindow, PathRuns, Points, windows_of
from syntony.clock.samples import Clouds, PairSamples

AT_NS = 1_700_000_000 * 10**9


def window_of_samples(rng: np.random.Generator, forward: int, reverse: int) -> PairSamples:
    """Any stamps at all, of a few paths and pairs; times may repeat."""
    ahead_ns = int(rng.integers(-(10**15), 10**15))
    fwd_tx = AT_NS + rng.integers(0, 50, forward) * 10**7
    rev_rx = AT_NS + rng.integers(0, 50, reverse) * 10**7
    return PairSamples(
        fwd_tx=fwd_tx,
        fwd_rx=fwd_tx + ahead_ns + rng.integers(0, 10**6, forward),
        rev_tx=rev_rx + ahead_ns - rng.integers(0, 10**6, reverse),
        rev_rx=rev_rx,
        fwd_pair=rng.integers(0, max(1, forward // 2), forward),
        rev_pair=rng.integers(0, max(1, reverse // 2), reverse),
        fwd_path=rng.integers(0, 5, forward),
        rev_path=rng.integers(0, 5, reverse),
    )


def together(each: list[PairSamples]) -> Points:
    """Points of all pairs, in no order."""
    ones = [Points.of(samples) for samples in each]
    pair = np.repeat(np.arange(len(each)), [len(one.pair) for one in ones])
    order = np.random.default_rng(len(pair)).permutation(len(pair))
    return Points(
        pair=pair[order],
        reverse=np.concatenate([one.reverse for one in ones])[order],
        at_a=np.concatenate([one.at_a for one in ones])[order],
        apparent=np.concatenate([one.apparent for one in ones])[order],
        purity=np.concatenate([one.purity for one in ones])[order],
        path=np.concatenate([one.path for one in ones if one.path is not None])[order],
    )


def points_of(clouds: Clouds) -> list[tuple[float, float, float, float]]:
    """What a window holds, whatever its order."""
    fields = (clouds.t, clouds.y, clouds.side, clouds.purity)
    return sorted(tuple(row) for row in np.stack(fields, axis=1).tolist())


def path_of(runs: PathRuns, count: int) -> list[int]:
    sizes = np.diff(np.append(runs.starts, count))
    return [path for path, size in zip(runs.paths, sizes, strict=True) for _ in range(size)]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=6),
)
def test_many_pairs_are_cut_as_each_by_itself(seed: int, sizes: list[tuple[int, int]]) -> None:
    rng = np.random.default_rng(seed)
    each = [window_of_samples(rng, *size) for size in sizes]
    found = windows_of(together(each), len(each))
    assert [window is not None for window in found] == [samples.usable() for samples in each]
    for samples, window in zip(each, found, strict=True):
        if window is not None:
            _same(samples, window)


def _same(samples: PairSamples, window: PairWindow) -> None:
    expected, clouds, runs = Clouds.of(samples), window.clouds, window.runs
    assert runs is not None
    assert (clouds.ref_ns, clouds.span_ns) == (expected.ref_ns, expected.span_ns)
    assert clouds.forward == expected.forward
    shift = clouds.base_ns - expected.base_ns
    moved = clouds._replace(y=clouds.y + shift, base_ns=expected.base_ns)
    assert points_of(moved) == points_of(expected)
    assert (clouds.side[: clouds.forward] == 1).all()
    assert (clouds.side[clouds.forward :] == -1).all()
    paths = path_of(runs, len(clouds.t))
    assert samples.fwd_path is not None
    assert samples.rev_path is not None
    assert paths == sorted(samples.fwd_path.tolist()) + sorted(samples.rev_path.tolist())
    in_order = samples.fwd_tx[np.argsort(samples.fwd_path, kind="stable")] - expected.ref_ns
    by_path = sorted(zip(paths[: clouds.forward], clouds.t.tolist(), strict=False))
    assert by_path == sorted(zip(sorted(samples.fwd_path.tolist()), in_order.tolist(), strict=True))
    assert runs.paths[: runs.forward] == sorted(set(samples.fwd_path.tolist()))


def test_without_pairs_or_probes_there_are_no_windows() -> None:
    nothing = window_of_samples(np.random.default_rng(0), 0, 0)
    assert windows_of(Points.of(nothing), 3) == [None] * 3
    assert windows_of(Points.of(nothing), 0) == []
