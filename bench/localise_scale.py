"""One window of a fleet of 131,072 NICs: how long the search takes, and in what memory.

Three tiers, 64 pods; 64 flows a NIC, probed both ways at 50 packets a second for 30 s; ten faulty
links of 0.2 to 5 % on top of 1e-6 everywhere. Counting the probes path by path is the simulation's
and, in a fleet, ingest's work; what is timed is the search over what was counted.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np
from bench.simulated.fabric import Clos3, Flows, prices, probe
from bench.tallies import LossTally, merge, tally_losses
from numpy.typing import NDArray

from syntony.fabric.loss import LossSearch

FLOWS = 64
PPS, SECONDS = 50, 30
FAULTS = 10
NOISE = 1e-6


def count(
    fabric: Clos3, risk: NDArray[np.float64], rng: np.random.Generator
) -> tuple[LossTally, int]:
    """The window's tally, flow by flow of every NIC, and the number of paths."""
    nic = np.arange(fabric.nics)
    nothing = np.zeros(0, dtype=np.int64)
    whole = tally_losses(np.zeros((0, 1), np.int32), nothing, nothing, fabric.candidates)
    paths = 0
    for _ in range(FLOWS):
        ring = rng.permutation(nic)
        entropy = rng.integers(0, fabric.hashes, (2, len(nic)))
        flows = Flows(ring, np.roll(ring, 1), entropy[0], entropy[1])
        counts = probe(fabric, flows, risk, rng, probes_per_flow=PPS * SECONDS / FLOWS)
        part = tally_losses(counts.crossings, counts.sent, counts.lost, fabric.candidates)
        whole = merge([whole, part])
        paths += len(counts.sent)
    return whole, paths


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--pods", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    fabric = Clos3(pods=arguments.pods, leaves=64, nics_per_leaf=32, aggs=32, cores=32)
    rng = np.random.default_rng(arguments.seed)
    risk = np.full(fabric.links, NOISE)
    bad = rng.choice(fabric.links, FAULTS, replace=False)
    risk[bad] += np.exp(rng.uniform(np.log(2e-3), np.log(5e-2), FAULTS))
    tally, paths = count(fabric, risk, rng)
    penalty = prices(fabric)
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    began, cpu = time.perf_counter(), time.process_time()
    found = LossSearch(tally, penalty).findings
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    after_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    named = {each.candidate for each in found}
    print(f"{fabric.nics} NICs, {fabric.candidates} candidates, {paths} paths,")
    print(f"{tally.total_sent:.0f} probes, {len(tally.lost)} lossy paths (seed {arguments.seed})")
    print(f"named {len(named & set(bad.tolist()))} of {FAULTS}, falsely {len(named - set(bad))}")
    held = sum(part.nbytes for part in tally if isinstance(part, np.ndarray)) / 2**20
    print(f"search {wall:.2f} s wall, {cpu:.2f} s CPU; tally {held:.0f} MiB")
    print(f"peak memory before the search {before_mb} MiB, after {after_mb} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
