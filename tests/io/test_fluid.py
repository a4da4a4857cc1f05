"""Native sharing and colouring against their references."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.io.fluid import NativeColouring
from syntony.io.fluid import max_min as native_max_min
from syntony.traffic.colouring import FAR, NONE, ChainColouring
from syntony.traffic.fair import max_min


@pytest.mark.parametrize("seed", range(60))
def test_rates_are_the_references(seed: int) -> None:
    rng = np.random.default_rng(seed)
    flows, hops, count = int(rng.integers(1, 80)), int(rng.integers(1, 5)), int(rng.integers(5, 40))
    links = np.full((flows, hops), -1, dtype=np.int32)
    for row in links:
        used = int(rng.integers(0, hops + 1))
        row[:used] = rng.choice(count, used, replace=False)
    capacity = rng.choice([0.0, 1.0, 2.5, 10.0], count)
    weight = rng.uniform(0.5, 4, flows) if seed % 2 else None
    demand = rng.choice([0.1, 3.0, np.inf], flows) if seed % 3 else None
    expected = max_min(links, capacity, weight, demand)
    found = native_max_min(links, capacity, weight, demand)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_colours_are_the_references_choice_by_choice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    leaves, colours, flows = 6, int(rng.integers(1, 9)), 200
    both = [kind(leaves, colours, flows) for kind in (NativeColouring, ChainColouring)]
    there = np.zeros(flows, dtype=bool)
    for _ in range(30):
        new = rng.permutation(np.flatnonzero(~there))[:20].astype(np.int32)
        up, down = rng.integers(0, leaves, (2, len(new))).astype(np.int32)
        reach = FAR if seed % 5 == 0 else int(rng.integers(20))
        assert both[0].add(new, up, down, reach) == both[1].add(new, up, down, reach)
        there[new] = True
        gone = rng.permutation(np.flatnonzero(there))[: int(rng.integers(25))].astype(np.int32)
        for each in both:
            each.remove(gone)
        there[gone] = False
        assert (both[0].colours() == both[1].colours()).all()
        if seed % 5 == 0:
            assert ((both[0].colours() != NONE) == there).all()


def test_what_is_refused() -> None:
    zero = np.zeros(1, dtype=np.int32)
    for kind in (NativeColouring, ChainColouring):
        colouring = kind(2, 2, 4)
        with pytest.raises(ValueError, match=r"."):
            colouring.remove(zero)
        with pytest.raises(ValueError, match=r"."):
            colouring.add(zero + 4, zero, zero)
        colouring.add(zero, zero, zero)
        with pytest.raises(ValueError, match=r"."):
            colouring.add(zero, zero, zero)
    with pytest.raises(ValueError, match="colour"):
        NativeColouring(0, 1, 1)
    with pytest.raises(ValueError, match="as many"):
        NativeColouring(1, 1, 1).add(zero, zero, np.zeros(2, dtype=np.int32))
    with pytest.raises(ValueError, match="flows on 1 links"):
        native_max_min(np.array([[1]], dtype=np.int32), np.ones(1))
