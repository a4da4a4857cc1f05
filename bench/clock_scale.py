"""Time, memory and error of the robust network solve at fleet size, cold and warm, on one core.

python bench/clock_scale.py [--clocks 1024 16384 131072] [--bad 0.05] [--rounds 5]

Times are CPU seconds (medians of `--rounds` windows for the warm solve, the first one of which pays
for fresh memory); the wall-clock median stands beside it. Freed memory is kept, as a controller
does.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from numpy.typing import NDArray

from syntony.clock.laplacian import Laplacian
from syntony.clock.mesh_edges import EdgeArrays
from syntony.clock.mesh_solve import MeshSolution, Predicted, solve_mesh
from syntony.controller.main import keep_freed
from syntony.model import S

REF_NS = 1_750_000_000 * S
SIGMA_NS = 20.0
DRIFT_SIGMA_PPB = 5.0
PEERS = 10
BAD_NS = 1_000.0
"""Mean of what biased edges are off by (exponential, either sign)."""


def random_mesh(count: int, rng: np.random.Generator) -> Laplacian:
    """Every clock probes `PEERS` others."""
    a = np.repeat(np.arange(count), PEERS)
    return Laplacian(a, (a + 1 + rng.integers(0, count - 1, len(a))) % count, count)


def measured(
    mesh: Laplacian, bad: float, rng: np.random.Generator, offset_ns: NDArray[np.float64]
) -> EdgeArrays:
    """One window's edges, with noise and some of them biased."""
    a, b = mesh.plus, mesh.minus
    noise = rng.normal(0, SIGMA_NS, len(a))
    wild = rng.random(len(a)) < bad
    noise += wild * rng.exponential(BAD_NS, len(a)) * rng.choice([-1, 1], len(a))
    return EdgeArrays(
        nodes=mesh.count,
        a=a,
        b=b,
        ref_ns=REF_NS + np.rint(offset_ns[a]).astype(np.int64),
        theta_ns=offset_ns[b] - offset_ns[a] + noise,
        drift=rng.normal(0, DRIFT_SIGMA_PPB, len(a)) * 1e-9,
        sigma_ns=np.full(len(a), SIGMA_NS),
        drift_sigma=np.full(len(a), DRIFT_SIGMA_PPB * 1e-9),
        rtt_ns=np.full(len(a), 20_000.0),
        doubt_ns=np.zeros(len(a)),
    )


def errors(solution: MeshSolution, offset_ns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each clock's error against the median of all, (nodes,)."""
    error = solution.offset_ns + offset_ns
    return np.asarray(np.abs(error - np.median(error)), dtype=np.float64)


def warm_windows(
    last: MeshSolution,
    mesh: Laplacian,
    args: argparse.Namespace,
    rng: np.random.Generator,
    offset_ns: NDArray[np.float64],
) -> tuple[MeshSolution, float, float]:
    """The last of some solves, each from the one before; medians of CPU and wall seconds."""
    seconds = []
    for _ in range(args.rounds):
        before = Predicted(last.local_ns, last.offset_ns, last.drift)
        edges = measured(mesh, args.bad, rng, offset_ns)
        wall, cpu = time.perf_counter(), time.process_time()
        last = solve_mesh(edges, before, mesh)
        seconds.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu_s, wall_s = np.median(np.array(seconds), axis=0).tolist()
    return last, cpu_s, wall_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clocks", type=int, nargs="*", default=[1_024, 16_384, 131_072])
    parser.add_argument("--bad", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    keep_freed()
    print(f"{PEERS} peers, edges {SIGMA_NS:.0f} ns, {args.bad:.0%} biased by exp(1 µs)")
    print(
        f"{'clocks':>8} {'edges':>9} {'cold':>8} {'warm':>8} {'(wall)':>8} {'rms':>8} {'p99':>8} "
        f"{'max':>8} "
        f"{'rejected':>9} {'peak RSS':>9}"
    )
    for count in args.clocks:
        rng = np.random.default_rng(args.seed)
        offset_ns = rng.uniform(-50e6, 50e6, count)
        mesh = random_mesh(count, rng)
        edges = measured(mesh, args.bad, rng, offset_ns)
        start = time.process_time()
        cold = solve_mesh(edges, mesh=mesh)
        cold_s = time.process_time() - start
        warm, cpu_s, wall_s = warm_windows(cold, mesh, args, rng, offset_ns)
        error = errors(warm, offset_ns)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{count:>8} {len(edges.a):>9} {cold_s:>7.2f}s {cpu_s:>7.2f}s {wall_s:>7.2f}s "
            f"{np.sqrt(np.mean(error**2)):>5.1f} ns {np.percentile(error, 99):>5.1f} ns "
            f"{error.max():>5.1f} ns {warm.rejected.sum():>9} {peak_mb:>6.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
