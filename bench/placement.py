"""Policies against the max-min optimum: presets, old telemetry, dead cables. Seeded, no clock.

Rates are of flows that never end, when the policy has settled, as a part of what each would get if
only NICs were in its way: mean and (worst) minimum over the seeds. ``unsplit`` bounds the minimum
where a flow cannot be split; ``pair`` is what flows between one pair of NICs get together.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench.placement_chart import render

from syntony.io.fluid import NativeColouring, max_min
from syntony.sim.fluid.clos import LeafSpine
from syntony.sim.fluid.field import Field
from syntony.sim.fluid.net import break_cables
from syntony.sim.fluid.optimum import Optimum, optimum
from syntony.sim.fluid.policies import POLICIES
from syntony.sim.fluid.policies.base import Tools
from syntony.sim.fluid.presets import SIZES, parse_preset, preset_traffic
from syntony.sim.fluid.run import RunSettings, Settled, make_policy, settle

SHAPES = ("rings", "rings-random", "alltoall", "alltoall-random")
MOVING = [name for name, policy in POLICIES.items() if policy.moves]


class Case(NamedTuple):
    """One line of a table."""

    preset: str
    policy: str
    known: bool = True
    age: int = 0
    noise: float = 0.0
    dead: int = 0
    queue_pairs: int = 1


class Result(NamedTuple):
    """Of one seed."""

    settled: Settled
    best: Optimum
    pair_min: float
    pair_best: float


def one(case: Case, seed: int) -> Result:
    """Settle the first wave."""
    preset = parse_preset(case.preset)
    leaves, hosts, spines = SIZES[preset.nics]
    net = LeafSpine(leaves=leaves, hosts_per_leaf=hosts, spines=spines)
    rng = np.random.default_rng(seed)
    list(break_cables(net, case.dead, np.random.default_rng([seed, 3])))
    traffic = preset_traffic(preset, net, rng, case.queue_pairs)
    settings = RunSettings(age=case.age, noise=case.noise, seed=seed)
    tools = Tools(share=max_min, colouring=NativeColouring, known=case.known)
    field, policy = make_policy(case.policy, net, traffic, settings, tools)
    settled = settle(field, policy, settings)
    best = optimum(field, traffic.first_wave)
    return Result(settled, best, _pair_min(field, settled, case.queue_pairs), best.rate_min)


def _pair_min(field: Field, settled: Settled, queue_pairs: int) -> float:
    del field  # queue pairs of one pair lie side by side
    return float(settled.share.reshape(-1, queue_pairs).mean(axis=1).min())


def line(case: Case, seeds: Iterable[int]) -> None:
    """Run and print."""
    results = [one(case, seed) for seed in seeds]
    shares = [result.settled.share for result in results]
    mean = statistics.mean(float(share.mean()) for share in shares)
    low = min(float(share.min()) for share in shares)
    best_mean = statistics.mean(result.best.rate_mean for result in results)
    best_min = min(result.best.rate_min for result in results)
    unsplit = min(result.best.pinned_min for result in results)
    part = min(float(result.settled.share.min()) / result.best.pinned_min for result in results)
    pair = min(result.pair_min / result.pair_best for result in results)
    epochs = statistics.median(result.settled.epochs for result in results)
    moves = statistics.mean(r.settled.moves / len(r.settled.share) for r in results)
    label = case.policy + ("" if case.known else ", unknown")
    print(
        f"{case.preset:22} {case.queue_pairs:>3} {label:18} {mean:.3f} {low:.3f} | "
        f"{best_mean:.3f} {best_min:.3f} {unsplit:.3f} | {mean / best_mean:6.1%} {part:6.1%} "
        f"{pair:6.1%} | {epochs:>4.0f} {moves:5.2f}",
        flush=True,
    )


def heading(title: str) -> None:
    print(f"\n{title}")
    print(
        f"{'preset':22} {'QPs':>3} {'policy':18} {'mean':>5} {'min':>5} | {'best':>5} {'min':>5} "
        f"{'unspl':>5} | {'mean':>6} {'min':>6} {'pair':>6} | {'ep.':>4} {'moves':>5}"
    )


def draw(file: Path, size: int) -> None:
    """Rings on NICs placed at random, nobody's flows known beforehand, telemetry an epoch old."""
    epochs = 40
    lines = {}
    for policy in ("ecmp", "dlb", "redraw", "load-aware", "syntony"):
        case = Case(f"rings-{size}-random", policy, known=policy != "syntony", age=1)
        result = one(case, seed=1)
        lines[policy] = (result.settled.history / result.best.rate_mean).tolist()[: epochs + 1]
    title = "Placed by what is measured: the optimum in one step"
    subtitle = (
        f"Two rings on {size} NICs placed at random, a full 1:1 fabric; flows not known "
        "beforehand, telemetry one epoch old"
    )
    file.write_bytes(render(title, subtitle, lines, file.suffix[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="256 NICs, three seeds.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", default="all", help="known, unknown, old, noisy or dead.")
    parser.add_argument("--picture", type=Path, help="Draw one (SVG or PNG) and nothing else.")
    args = parser.parse_args()
    if args.picture:
        draw(args.picture, 256 if args.quick else 2048)
        return
    seeds = range(1, (3 if args.quick else args.seeds) + 1)
    sizes = (256,) if args.quick else (256, 2048)
    presets = [
        shape.replace("-random", "") + f"-{size}" + ("-random" if "random" in shape else "")
        for size in sizes
        for shape in SHAPES
    ]
    dead, size = (8, 256) if args.quick else (64, 2048)
    tables: dict[str, tuple[str, list[Case]]] = {
        "known": (
            "flows known when they start, fresh telemetry",
            [Case(preset, policy) for preset in presets for policy in POLICIES],
        ),
        "unknown": (
            "flows not known: D-mod-K, then telemetry alone",
            [Case(preset, "syntony", known=False) for preset in presets],
        ),
        "old": (
            "telemetry 3 epochs old",
            [
                Case(preset, policy, known=policy != "syntony", age=3)
                for preset in presets
                for policy in MOVING
            ],
        ),
        "noisy": (
            "telemetry 3 epochs old, with errors of 10 %",
            [Case(preset, "syntony", known=False, age=3, noise=0.1) for preset in presets],
        ),
        "dead": (
            f"{dead} of {SIZES[size][0] * SIZES[size][2]} cables dead",
            [
                Case(f"rings-{size}-random", policy, dead=dead, queue_pairs=queue_pairs)
                for queue_pairs in (1, 4, 16)
                for policy in ("ecmp", "dlb", "d-mod-k", "load-aware", "central", "syntony")
            ],
        ),
    }
    for name, (title, cases) in tables.items():
        if args.table in {"all", name}:
            heading(title)
            for case in cases:
                line(case, seeds)


if __name__ == "__main__":
    main()
