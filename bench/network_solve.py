"""Time and error of the network solve, by fleet size; edges of a drawn mesh with known truth."""

from __future__ import annotations

import argparse
import time

import numpy as np

from syntony.clock.network import NetworkSolver
from syntony.mesh.plan import mesh
from syntony.model import Edge, NicRef, S

REF_NS = 1_750_000_000 * S
SIGMA_NS = 20.0


def edges(count: int, seed: int) -> tuple[list[Edge], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Edges with `SIGMA_NS` of noise, and the true offsets (clock minus true time)."""
    rng = np.random.default_rng(seed)
    offsets = rng.uniform(-50e6, 50e6, count)
    refs = [NicRef(f"h{clock}", "rail0") for clock in range(count)]
    place = {ref: clock for clock, ref in enumerate(refs)}
    found = []
    for ref, others in mesh(refs, peers=10, seed=seed).items():
        for other in others:
            a, b = place[ref], place[other]
            found.append(
                Edge(
                    a=ref.host,
                    b=other.host,
                    ref_ns=REF_NS + round(offsets[a]),
                    theta_ns=offsets[b] - offsets[a] + rng.normal(0, SIGMA_NS),
                    drift_ppb=rng.normal(0, 5.0),
                    sigma_ns=SIGMA_NS,
                    drift_sigma_ppb=5.0,
                    rtt_floor_ns=20_000.0,
                    probes=128,
                )
            )
    return found, offsets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clocks", type=int, nargs="*", default=[16, 400, 2_000, 20_000])
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"edge noise {SIGMA_NS:.0f} ns (1-sigma), 10 peers, seed {args.seed}")
    print(f"{'clocks':>8} {'edges':>9} {'solve':>9} {'error rms':>10} {'error max':>10}")
    for count in args.clocks:
        measured, offsets = edges(count, args.seed)
        solver = NetworkSolver()
        solver.update(measured, 0)
        start = time.perf_counter()
        lines = {line.node: line for line in solver.solve(0)}
        seconds = time.perf_counter() - start
        truth = {f"h{clock}": offset for clock, offset in enumerate(offsets)}
        error = np.array([line.offset_ns + truth[node] for node, line in lines.items()])
        error -= np.median(error)
        rms, worst = np.sqrt(np.mean(error**2)), np.abs(error).max()
        print(f"{count:>8} {len(measured):>9} {seconds:>8.3f}s {rms:>7.1f} ns {worst:>7.1f} ns")


if __name__ == "__main__":
    main()
