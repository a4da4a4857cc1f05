"""Do two periodic jobs on one link gain if their communication phases take turns?

    python -m bench.interleave [--seeds 50]

Iteration time of both jobs, as a part of what sharing the link fairly costs, over random starts
(seeded): weights that a switch's queues would hold, and caps such as pacing sets. Exact fluid.
"""

from __future__ import annotations

import argparse

import numpy as np
from bench.simulated.phases import Periodic, iteration_s

CASES = ((0.5, 0.5), (0.6, 0.4), (0.7, 0.3), (0.4, 0.6))
"""Compute and communication, parts of an iteration that has the link alone."""
WAYS = {
    "fair": ((1.0, 1.0), (1.0, 1.0)),
    "weights 2:1": ((2.0, 1.0), (1.0, 1.0)),
    "weights 4:1": ((4.0, 1.0), (1.0, 1.0)),
    "priority": ((1e6, 1.0), (1.0, 1.0)),
    "caps 1/2": ((1.0, 1.0), (0.5, 0.5)),
    "caps 2/3, 1/3": ((1.0, 1.0), (2 / 3, 1 / 3)),
}
"""Weights and limits of the two jobs."""


def one(compute: float, send: float, way: str, start: float) -> list[float]:
    (w0, w1), (l0, l1) = WAYS[way]
    jobs = (
        Periodic(compute, send, w0, l0, 0.0),
        Periodic(compute, send, w1, l1, start),
    )
    return iteration_s(jobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=50)
    requested = parser.parse_args()
    print(f"{'compute:send':<14}" + "".join(f"{way:>16}" for way in WAYS) + f"{'alone':>8}")
    for compute, send in CASES:
        starts = np.random.default_rng(1).uniform(0, 1, requested.seeds)
        cells = []
        for way in WAYS:
            runs = np.array([one(compute, send, way, float(start)) for start in starts])
            first, second = np.median(runs, axis=0)
            cells.append(f"{first:.2f} / {second:.2f}")
        print(
            f"{compute:.1f} : {send:<8.1f}" + "".join(f"{cell:>16}" for cell in cells) + "    1.00"
        )


if __name__ == "__main__":
    main()
