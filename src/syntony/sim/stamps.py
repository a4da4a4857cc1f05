"""What stamping adds to a delay: noise models of hardware and of kernel stamps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
StampNoise = Callable[[np.random.Generator, int], Floats]
"""Generator and count to the noise of one direction's delay (both its stamps together), ns."""

HARDWARE_NS = 5.0
OUTLIERS = 0.01
OUTLIER_NS = 200.0
"""A stamp that missed its beat is off by up to this, early or late."""
KERNEL_FLOOR_NS = 150.0
KERNEL_TAIL_NS = 900.0
"""Kernel stamp to kernel stamp scatters by about 1 µs above its floor (p50 to p1 on veth)."""
KERNEL_LATE = 0.03
KERNEL_LATE_NS = 6_000.0
"""An interrupt held off, a softirq queued behind another."""


def hardware(rng: np.random.Generator, count: int) -> Floats:
    """A NIC's clock: white noise, and now and then an outlier on either side."""
    noise = rng.normal(0.0, HARDWARE_NS, count)
    wild = rng.random(count) < OUTLIERS
    return noise + wild * rng.uniform(-OUTLIER_NS, OUTLIER_NS, count)


def kernel(rng: np.random.Generator, count: int) -> Floats:
    """Software stamps: a narrow floor, an exponential microsecond, sometimes several."""
    noise = rng.normal(0.0, KERNEL_FLOOR_NS, count) + rng.exponential(KERNEL_TAIL_NS, count)
    late = rng.random(count) < KERNEL_LATE
    return noise + late * rng.exponential(KERNEL_LATE_NS, count)


def exact(rng: np.random.Generator, count: int) -> Floats:  # noqa: ARG001 - a StampNoise
    """No noise at all."""
    return np.zeros(count)
