"""Timestamp noise models: what stamping adds to a delay, for NICs and for kernels.

`NOISES` holds every family by name. `hardware` and `kernel` resemble the window estimator's own
model (a Gaussian cluster at the floor); `FOREIGN` are the families that do not, so that a test or a
bench cannot agree with the estimator merely because both assume the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
StampNoise = Callable[[np.random.Generator, Floats], Floats]
"""Generator and instants of arrival (n,), ns, to the noise of a delay (both stamps), ns (n,)."""

HARDWARE_NS = 5.0
OUTLIERS = 0.01
OUTLIER_NS = 200.0
"""A hardware outlier is off by up to this, early or late."""
KERNEL_FLOOR_NS = 150.0
KERNEL_TAIL_NS = 900.0
"""Kernel stamp to kernel stamp scatters by about 1 µs above its floor (p50 to p1 on veth)."""
KERNEL_LATE = 0.03
KERNEL_LATE_NS = 6_000.0
"""An interrupt held off, a softirq queued behind another."""
COALESCE_NS = 10_000.0
"""rx-usecs 10: common default order of interrupt moderation (ethtool -c)."""
SOFTIRQ_NS = 400.0
"""Mean time from interrupt to stamp, gamma distributed."""
DEEP_WAKE_NS = 2_500.0
"""Extra wake-up latency of a deeper C-state (cpuidle: C1 about 2 µs, C1E about 4 µs)."""
DEEP_SHARE = 0.6
COARSE_TICK_NS = 64.0
EARLY_SHARE = 0.005
EARLY_NS = 4_000.0


def hardware(rng: np.random.Generator, at_ns: Floats) -> Floats:
    """A NIC's clock: white noise, and now and then an outlier on either side."""
    noise = rng.normal(0.0, HARDWARE_NS, len(at_ns))
    wild = rng.random(len(at_ns)) < OUTLIERS
    return noise + wild * rng.uniform(-OUTLIER_NS, OUTLIER_NS, len(at_ns))


def kernel(rng: np.random.Generator, at_ns: Floats) -> Floats:
    """Software stamps: a narrow floor, an exponential microsecond, sometimes several."""
    count = len(at_ns)
    noise = rng.normal(0.0, KERNEL_FLOOR_NS, count) + rng.exponential(KERNEL_TAIL_NS, count)
    late = rng.random(count) < KERNEL_LATE
    return noise + late * rng.exponential(KERNEL_LATE_NS, count)


def exact(rng: np.random.Generator, at_ns: Floats) -> Floats:  # noqa: ARG001 - a StampNoise
    """No noise at all."""
    return np.zeros(len(at_ns))


def gamma_edge(rng: np.random.Generator, at_ns: Floats) -> Floats:
    """A sum of a few exponential stages: density rises linearly from the floor, no cluster."""
    return rng.gamma(2.0, SOFTIRQ_NS / 2, len(at_ns))


def coalesced(rng: np.random.Generator, at_ns: Floats) -> Floats:
    """Interrupt coalescing on a free-running 10 µs timer: probes are stamped in batches.

    Back-to-back probes 10 µs apart keep their spacing although both waited: pure by their spacing.
    The timer runs on a crystal of its own, so that replies do not stay in phase with it.
    """
    phase = rng.uniform(0, COALESCE_NS)
    off = rng.choice([-1, 1]) * rng.uniform(20e-6, 100e-6)
    held: Floats = np.mod(-(at_ns * (1 + off) + phase), COALESCE_NS)
    return held + rng.gamma(2.0, SOFTIRQ_NS / 8, len(at_ns))


def exponential(rng: np.random.Generator, at_ns: Floats) -> Floats:
    """A hard edge with an exponential tail of 300 ns."""
    return rng.exponential(300.0, len(at_ns))


def half_normal(rng: np.random.Generator, at_ns: Floats) -> Floats:
    """A hard edge with half a Gaussian of 150 ns."""
    return np.abs(rng.normal(0.0, 150.0, len(at_ns)))


def log_normal(rng: np.random.Generator, at_ns: Floats) -> Floats:
    """Log-normal around 300 ns: a soft lower edge and a heavy upper tail."""
    return rng.lognormal(np.log(300.0), 0.8, len(at_ns))


def two_wakeups(rng: np.random.Generator, at_ns: Floats) -> Floats:
    """Bimodal: cores in a shallow and in a deep C-state, two clusters 2.5 µs apart."""
    deep = rng.random(len(at_ns)) < DEEP_SHARE
    return deep * DEEP_WAKE_NS + rng.gamma(2.0, SOFTIRQ_NS / 4, len(at_ns))


def coarse_ticks(rng: np.random.Generator, at_ns: Floats) -> Floats:
    """Stamps of a counter that ticks every 64 ns, exponential noise below that."""
    delay = rng.exponential(100.0, len(at_ns)) + rng.uniform(0, COARSE_TICK_NS, len(at_ns))
    return np.floor(delay / COARSE_TICK_NS) * COARSE_TICK_NS


def rare_early(rng: np.random.Generator, at_ns: Floats) -> Floats:
    """A heavy upper tail, and one stamp in 200 early by up to 4 µs."""
    count = len(at_ns)
    noise = 200.0 * rng.pareto(1.5, count)
    early = rng.random(count) < EARLY_SHARE
    return noise - early * rng.uniform(0, EARLY_NS, count)


FOREIGN: Mapping[str, StampNoise] = {
    noise.__name__: noise
    for noise in (
        gamma_edge,
        coalesced,
        exponential,
        half_normal,
        log_normal,
        two_wakeups,
        coarse_ticks,
        rare_early,
    )
}
NOISES: Mapping[str, StampNoise] = {"hardware": hardware, "kernel": kernel, **FOREIGN}
