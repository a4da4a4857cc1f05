"""Cost of one window's fit, in C as agents run it and in numpy as the reference.

python bench/clock_fit.py [--windows 20]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from syntony.clock import fit as reference
from syntony.clock.fit import WindowFit
from syntony.clock.samples import Clouds
from syntony.io.window_fit import fit_window

SIZES = (32, 128, 500, 2_000)
"""Probes per direction; 128 is a pair of the default lab."""


def window(size: int, seed: int) -> Clouds:
    """Half of the probes at the floor with 20 ns of noise, half waiting 3 µs on average."""
    rng = np.random.default_rng(seed)
    side = np.repeat([1.0, -1.0], size)
    t = np.rint(rng.uniform(-2e9, 2e9, 2 * size))
    delay = 8_000 + rng.normal(0, 20, 2 * size)
    delay += (rng.random(2 * size) < 0.5) * rng.exponential(3_000, 2 * size)
    return Clouds(
        ref_ns=0,
        base_ns=0,
        span_ns=4e9,
        t=t,
        y=np.rint(2e-5 * t + side * delay),
        side=side,
        purity=rng.integers(0, 7, 2 * size),
        forward=size,
    )


def median_ms(fit: Callable[[Clouds], WindowFit], windows: list[Clouds]) -> float:
    """CPU time of one fit."""
    spent = []
    for clouds in windows:
        start_ns = time.process_time_ns()
        fit(clouds)
        spent.append((time.process_time_ns() - start_ns) / 1e6)
    return float(np.median(spent))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--windows", type=int, default=20)
    count = parser.parse_args().windows
    print(f"{'probes a direction':>20}{'C, ms':>10}{'numpy, ms':>12}{'ratio':>8}")
    for size in SIZES:
        windows = [window(size, seed) for seed in range(count)]
        native, plain = median_ms(fit_window, windows), median_ms(reference.fit_window, windows)
        print(f"{size:>20}{native:>10.2f}{plain:>12.2f}{plain / native:>8.1f}")


if __name__ == "__main__":
    main()
