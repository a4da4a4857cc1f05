"""One host that lies about its stamps, to each peer differently, against the same fleet without."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from bench.simulated.fleet import QUIET, SimulatedFleet, Way
from tests.cases import mostly_slow

from syntony.io.window_fit import fit_window
from syntony.model import ClockState

LIAR = 3
LIMIT_NS = 10.0
SEED = 17
WINDOWS = 6


@functools.cache
def errors(size_ns: int) -> list[dict[str, float]]:
    """Per window: error of every clock but the liar, against their own median."""
    fleet = SimulatedFleet(seed=SEED, nodes=10, peers=4, pairs=48, fit=fit_window)
    found = []
    for window in range(WINDOWS):
        if window == 2 and size_ns:
            fleet.lies = {LIAR: lambda peer: size_ns * (1 + peer % 3) * (-1) ** peer}
        readings = fleet.step(lambda _window, _a, _b: (Way(0.3), QUIET))
        others = [reading for reading in readings if reading.line.node != f"n{LIAR}"]
        middle = float(np.median([reading.error_ns for reading in others]))
        assert all(other.line.state is ClockState.SYNCHRONIZED for other in others), f"seed {SEED}"
        found.append({other.line.node: other.error_ns - middle for other in others})
    return found


@pytest.mark.parametrize("size_ns", mostly_slow([60, 300, 1_000, 5_000_000], [300, 5_000_000]))
def test_a_lie_moves_nobody_else(size_ns: int) -> None:
    honest = errors(0)
    lied = errors(size_ns)
    moved = [
        abs(with_lie[node] - without[node])
        for without, with_lie in zip(honest, lied, strict=True)
        for node in without
    ]
    assert max(moved) < LIMIT_NS, f"seed {SEED}: moved by {max(moved):.1f} ns"
