"""Placement and simulation at 131,072 NICs: 2,048 leaves × 64 NICs × 64 spines, on one core.

Places four queue pairs of every NIC by edge colouring, places one job anew, and runs control epochs
of the simulator (telemetry, max-min rates). Runs on one core: nothing here has threads.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time

import numpy as np

from syntony.io.fluid import NativeColouring, max_min
from syntony.sim.fluid.clos import LeafSpine
from syntony.sim.fluid.field import Field
from syntony.sim.fluid.presets import parse_preset, preset_traffic
from syntony.traffic.colouring import FAR

REACHES = (FAR, 64, 8)
"""Most flows of others that may be moved for one of the job's."""
JOB = 1_024
"""NICs of the job that is placed anew."""


def placed(leaves: np.ndarray, spines: int, src: np.ndarray, dst: np.ndarray) -> NativeColouring:
    """All flows, from nothing."""
    colouring = NativeColouring(int(leaves.max()) + 1, spines, len(src))
    everybody = np.arange(len(src), dtype=np.int32)
    colouring.add(everybody, leaves[src].astype(np.int32), leaves[dst].astype(np.int32))
    return colouring


def worst_link(net: LeafSpine, src: np.ndarray, dst: np.ndarray, colour: np.ndarray) -> int:
    """Most flows on any fabric link."""
    far = net.leaf[src] != net.leaf[dst]
    ends = (net.leaf[src][far], net.leaf[dst][far])
    return max(int(np.bincount(leaf * net.spines + colour[far]).max()) for leaf in ends)


class Replacement:
    """A job's NICs talk to each other in another order: its flows go, and come again."""

    def __init__(
        self,
        colouring: NativeColouring,
        net: LeafSpine,
        src: np.ndarray,
        dst: np.ndarray,
        rng: np.random.Generator,
    ) -> None:
        self.colouring, self.net, self.rng = colouring, net, rng
        self.leaf = net.leaf.astype(np.int32)
        self.src, self.dst = src, dst.copy()

    def run(self, repeat: int, reach: int) -> None:
        colouring, spent, others, left = self.colouring, [], [], []
        for _ in range(repeat):
            nics = self.rng.permutation(self.net.nics)[:JOB]
            before = colouring.colours()
            job = np.flatnonzero(np.isin(self.src, nics) & (before >= 0)).astype(np.int32)
            was = self.dst[job]
            start = time.perf_counter()
            colouring.remove(job)
            self.dst[job] = self.rng.permutation(was)
            colouring.add(job, self.leaf[self.src[job]], self.leaf[self.dst[job]], reach)
            spent.append(time.perf_counter() - start)
            after = colouring.colours()
            others.append(len(np.setdiff1d(np.flatnonzero(before != after), job)))
            left.append(int((after[job] < 0).sum()))
            colouring.remove(job)  # as it was, for the next
            self.dst[job] = was
            colouring.add(job, self.leaf[self.src[job]], self.leaf[was])
        allowed = "any number of" if reach == FAR else f"at most {reach}"
        print(
            f"one job of {JOB} NICs, {len(job)} flows, placed anew, {allowed} others moved for "
            f"each: {_s(spent)}; flows of others moved {statistics.median(others):.0f}, flows "
            f"without a path of their own {statistics.median(left):.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=2_048)
    parser.add_argument("--hosts-per-leaf", type=int, default=64)
    parser.add_argument("--spines", type=int, default=64)
    parser.add_argument("--queue-pairs", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    net = LeafSpine(
        leaves=args.leaves, hosts_per_leaf=args.hosts_per_leaf, spines=args.spines, gbps=400
    )
    rng = np.random.default_rng(args.seed)
    traffic = preset_traffic(parse_preset("rings-random"), net, rng, args.queue_pairs)
    src, dst = traffic.src, traffic.dst
    print(f"{net.nics} NICs, {traffic.flows} flows, two rings placed at random, seed {args.seed}")

    spent = []
    for _ in range(args.repeat):
        start = time.perf_counter()
        colouring = placed(net.leaf, net.spines, src, dst)
        spent.append(time.perf_counter() - start)
    most = worst_link(net, src, dst, colouring.colours())
    print(f"placed from nothing: {_s(spent)}; most flows on a link {most}, least possible "
          f"{args.queue_pairs}")  # fmt: skip

    bench = Replacement(colouring, net, src, dst, rng)
    for reach in REACHES:
        bench.run(args.repeat, reach)
    idle = np.flatnonzero(np.isin(src, rng.permutation(net.nics)[: net.nics // 10]))
    colouring.remove(idle.astype(np.int32))
    print("a tenth of the NICs idle:")
    bench.run(args.repeat, FAR)

    field = Field(net, traffic, share=max_min)
    everybody = np.arange(traffic.flows)
    pick = rng.integers(0, net.spines, traffic.flows)
    field.start(everybody, pick % net.choices(src, dst))
    spent, mean = [], 0.0
    for _ in range(args.epochs):
        start = time.perf_counter()
        field.settle()
        field.observe(0.0)
        spent.append(time.perf_counter() - start)
        mean = float((field.rate / field.ideal_rates(everybody)).mean())
    print(f"simulator, ECMP: {1 / statistics.median(spent):.2f} epochs/s; mean rate {mean:.3f}")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak RSS {peak_mb:.0f} MB")


def _s(values: list[float]) -> str:
    return f"median {statistics.median(values):.3f} s (worst {max(values):.3f})"


if __name__ == "__main__":
    main()
