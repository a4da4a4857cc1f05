"""Single windows for `test_recorded`: lines, floors and their errors, by the reference fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from bench.simulated import stamps

from syntony.clock.envelope import hard_envelope, soft_envelope
from syntony.clock.fit import Prior, WindowFit, fit_window
from syntony.clock.floor_evidence import floor_evidence
from syntony.clock.floors import fitted_lows, lows_at
from syntony.clock.mixture import fit_mixture
from syntony.clock.samples import Clouds
from syntony.clock.window_steps import stepped_inside

SLOPE = 3e-6


def window(seed: int, noise: str, counts: tuple[int, int] = (60, 70), busy: float = 0.4) -> Clouds:
    """Four seconds of clocks 3 ppm apart; `busy` of the probes wait, those of later classes more
    often; queues there are longer than back."""
    rng = np.random.default_rng([seed, *counts])
    count = sum(counts)
    side = np.where(np.arange(count) < counts[0], 1.0, -1.0)
    t = np.rint(rng.uniform(-2e9, 2e9, count))
    purity = rng.integers(0, 7, count)
    waits = rng.random(count) < busy * (0.5 + purity / 6)
    delay_ns = 8_000 + waits * rng.exponential(3_000, count) * np.where(side > 0, 2, 1)
    delay_ns += stamps.NOISES[noise](rng, t + 3e9)
    y = np.rint(SLOPE * t + side * delay_ns)
    return Clouds(0, 0, 4e9, t, y, side, purity, counts[0])


def fitted(fit: WindowFit) -> str:
    line = fit.line
    return (
        f"turn={(line.slope - SLOPE) * 1e9:.5g} there={line.forward_ns:.6g}"
        f" back={line.reverse_ns:.6g} sigma={math.sqrt(fit.theta_var):.5g}"
        f" rate={math.sqrt(fit.slope_var) * 1e9:.5g} both={fit.covariance * 1e9:.5g}"
        f" noise={fit.noise_ns:.5g} apart={fit.cluster_gap:.5g}"
        f" piled={fit.clustered} sharp={fit.floor_confirmed}"
        f" certain={fit.certain} gap={fit.gap_ns:.5g}"
    )


def fits() -> Iterator[str]:
    priors = (None, Prior(SLOPE, 1e-9), Prior(SLOPE + 2e-8, 1e-6))
    for seed, noise in enumerate(stamps.NOISES):
        yield fitted(fit_window(window(seed, noise), priors[seed % 3]))
        yield fitted(fit_window(window(seed, noise, (25, 12), 0.7), priors[(seed + 1) % 3]))


def mixtures() -> Iterator[str]:
    for seed, noise in enumerate(("hardware", "kernel", "gamma_edge", "rare_early")):
        for counts, busy in (((60, 70), 0.5), ((40, 20), 0.8), ((5, 6), 0.1)):
            clouds = window(seed, noise, counts, busy)
            found = fit_mixture(clouds, soft_envelope(clouds, 3, hard_envelope(clouds)), 60.0)
            if found is None:
                yield "no pile"
                continue
            yield (
                f"turn={(found.line.slope - SLOPE) * 1e9:.5g} there={found.line.forward_ns:.6g}"
                f" back={found.line.reverse_ns:.6g} noise={found.noise_ns:.5g}"
                f" pure={found.pure_forward:.5g} and {found.pure_reverse:.5g}"
                f" contrast={found.contrast:.5g} apart={found.cluster_gap:.5g}"
                f" likely={found.log_likelihood:.5g} sigma={math.sqrt(found.theta_var):.5g}"
                f" rate={math.sqrt(found.slope_var) * 1e9:.5g} both={found.covariance * 1e9:.5g}"
            )


def envelopes() -> Iterator[str]:
    for seed, noise in enumerate(("kernel", "exponential", "coarse_ticks")):
        clouds = window(seed, noise)
        hard = hard_envelope(clouds)
        for k in (1, 5, 20, 100):
            found = soft_envelope(clouds, k, hard)
            yield (
                f"turn={(found.slope - SLOPE) * 1e9:.5g} theta={found.theta_ns:.5g}"
                f" rtt={found.rtt_ns:.6g}"
            )


def floors() -> Iterator[str]:
    """What the lowest points show: of every kind of stamps, few and many."""
    for seed, noise in enumerate(stamps.NOISES):
        for counts, busy in (((150, 200), 0.3), ((64, 70), 0.9), ((40, 300), 0.0)):
            clouds = window(seed, noise, counts, busy)
            fit = fit_window(clouds)
            said = floor_evidence(clouds, fit.line.slope, clustered=seed % 2 == 0)
            lows, bare = fitted_lows(clouds, fit, 30.0), lows_at(clouds, SLOPE, math.inf)
            yield (
                f"confirmed={said.confirmed} certain={said.certain} gap={said.gap_ns:.5g}"
                f" low={lows.forward_ns:.6g} and {lows.reverse_ns:.6g} spread={lows.scatter_ns:.5g}"
                f" worse={lows.worse_ns:.5g} rtt={bare.rtt_ns:.6g} bare={bare.scatter_ns:.5g}"
            )


def steps() -> Iterator[str]:
    """From which step on a window is taken for torn, by where in it the clock stepped."""
    for seed, noise in enumerate(("hardware", "kernel")):
        clouds = window(seed, noise, (100, 100), 0.1)
        for part in (-0.49, -0.3, 0.0, 0.2, 0.45):
            for sigma in (0.0, 3e-7):
                late = clouds.t > part * clouds.span_ns
                seen = [
                    step_ns
                    for step_ns in np.geomspace(500, 5e6, 41)
                    if stepped_inside(clouds._replace(y=clouds.y + late * step_ns), SLOPE, sigma)
                ]
                yield f"{part} {sigma} from={min(seen, default=math.inf):.5g} in={len(seen)}"


CASES: dict[str, Callable[[], Iterator[str]]] = {
    f"window {story.__name__}": story for story in (fits, mixtures, envelopes, floors, steps)
}
