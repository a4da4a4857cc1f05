"""Clock error and bound in regimes and under stamp noise that the estimator does not model.

    python -m bench.clock_foreign [--quick] [--json] [--seeds 5] [--only WORD …] [--noise NAME …]

Each row is one regime (`bench.simulated.regimes`) under one noise (`bench.simulated.stamps`), over
several seeded fleets of six clocks with windows of 128 + 128 probes, on the product's code path:
window fit in C, tracker, network solve, bound. The rows of `hardware` and `kernel` stamps in the
regimes *quiet* and *load* are the estimator's own model: the figures to compare with. A violation
is a reading further from the truth than its bound; `hidden` marks regimes whose data cannot show
what is wrong.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from bench.simulated.fleet import PairReading
from bench.simulated.regimes import REGIMES, run
from bench.simulated.stamps import NOISES

from syntony.io.window_fit import fit_window

QUICK_NOISES = ("hardware", "kernel", "gamma_edge", "coalesced")

LEAST_ERROR_NS = 1.0
"""Stamps are whole nanoseconds."""


class Row(NamedTuple):
    """One regime under one noise."""

    regime: str
    noise: str
    visible: bool
    readings: int
    p50_ns: float
    p95_ns: float
    max_ns: float
    violations: int
    broken_seeds: list[int]
    worst_ratio: float
    """Largest error over its bound: above 1 it is a violation."""
    bound_p50_ns: float
    slack: float
    """Median of bound over error."""
    pair_slack: float
    """The same of the pairs' edges, before the solve."""


def measure(task: tuple[str, str, int]) -> Row:
    """All seeds of one row."""
    name, noise, seeds = task
    errors: list[float] = []
    bounds: list[float] = []
    pairs: list[PairReading] = []
    broken, violations = [], 0
    for seed in range(seeds):
        outcome = run(REGIMES[name], NOISES[noise], seed, fit_window)
        errors += [abs(each.error_ns) for each in outcome.readings]
        bounds += [each.bound_ns for each in outcome.readings]
        pairs += outcome.pairs
        violations += len(outcome.violations)
        if outcome.violations:
            broken.append(seed)
    if not errors:
        none = float("nan")
        return Row(name, noise, REGIMES[name].visible, 0, *(none,) * 3, 0, [], *(none,) * 4)
    error, bound = np.array(errors), np.array(bounds)
    return Row(
        regime=name,
        noise=noise,
        visible=REGIMES[name].visible,
        readings=len(error),
        p50_ns=float(np.median(error)),
        p95_ns=float(np.percentile(error, 95)),
        max_ns=float(error.max()),
        violations=violations,
        broken_seeds=broken,
        worst_ratio=float((error / bound).max()),
        bound_p50_ns=float(np.median(bound)),
        slack=float(np.median(bound / np.maximum(error, LEAST_ERROR_NS))),
        pair_slack=float(
            np.median([each.bound_ns / max(abs(each.error_ns), LEAST_ERROR_NS) for each in pairs])
        ),
    )


def main() -> int:
    """Print the table, or JSON; status 1 when a bound broke where the data shows the fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two seeds, four kinds of noise")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs="*", metavar="WORD", help="regimes that contain a word")
    parser.add_argument("--noise", nargs="*", choices=sorted(NOISES))
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    noises: Sequence[str] = args.noise or (QUICK_NOISES if args.quick else tuple(NOISES))
    names = [name for name in REGIMES if not args.only or any(word in name for word in args.only)]
    seeds = 2 if args.quick else args.seeds
    tasks = [(name, noise, seeds) for name in names for noise in noises]
    rows = []
    if not args.json:
        print(f"seeds 0 to {seeds - 1}; |error| and bound in ns; load {os.getloadavg()[0]:.1f}")
        print(
            f"{'regime':27}{'noise':13}{'n':>6}{'p50':>9}{'p95':>9}{'max':>9}"
            f"{'bound p50':>11}{'bound÷err':>11}{'of pairs':>10}{'broken':>8}{'worst':>8}  seeds"
        )
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        for row in pool.map(measure, tasks):
            rows.append(row)
            if not args.json:
                show(row)
    if args.json:
        print(json.dumps([row._asdict() for row in rows], indent=1))
    return int(any(row.violations for row in rows if row.visible))


def show(row: Row) -> None:
    """One line of the table."""
    print(
        f"{row.regime:27}{row.noise:13}{row.readings:>6}{row.p50_ns:>9,.0f}{row.p95_ns:>9,.0f}"
        f"{row.max_ns:>9,.0f}{row.bound_p50_ns:>11,.0f}{row.slack:>11,.0f}{row.pair_slack:>10,.0f}"
        f"{row.violations:>8}"
        f"{row.worst_ratio:>8.2f}  {'' if row.visible else 'hidden '}{row.broken_seeds or ''}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
