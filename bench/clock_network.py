"""Error of the network solve against peers K and fleet size N: the network effect, with and without
biased edges; a spanning tree over the same edges beside it.

    python bench/clock_network.py
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from syntony.clock.mesh_edges import EdgeArrays, common_instant
from syntony.clock.mesh_solve import solve_mesh
from syntony.model import S

REF_NS = 1_750_000_000 * S
SIGMA_NS = 20.0
BAD_NS = 1_000.0


def drawn(count: int, peers: int, bad: float, seed: int) -> tuple[EdgeArrays, NDArray[np.float64]]:
    """Edges of a random mesh over a ring, and the true offsets."""
    rng = np.random.default_rng(seed)
    offset_ns = rng.uniform(-50e6, 50e6, count)
    a = np.repeat(np.arange(count), peers)
    b = (a + 1 + rng.integers(0, count - 1, len(a))) % count
    b[::peers] = (a[::peers] + 1) % count  # the ring keeps every mesh in one part
    noise = rng.normal(0, SIGMA_NS, len(a))
    wild = rng.random(len(a)) < bad
    noise += wild * rng.exponential(BAD_NS, len(a)) * rng.choice([-1, 1], len(a))
    edges = EdgeArrays(
        nodes=count,
        a=a,
        b=b,
        ref_ns=REF_NS + np.rint(offset_ns[a]).astype(np.int64),
        theta_ns=offset_ns[b] - offset_ns[a] + noise,
        drift=np.zeros(len(a)),
        sigma_ns=np.full(len(a), SIGMA_NS),
        drift_sigma=np.full(len(a), 5e-9),
        rtt_ns=np.full(len(a), 20_000.0),
    )
    return edges, offset_ns


def quantiles(offset_ns: NDArray[np.float64], found_ns: NDArray[np.float64]) -> tuple[float, float]:
    """Root mean square and 99th percentile of the error against the median clock."""
    error = found_ns + offset_ns
    error = np.abs(error - np.median(error))
    return float(np.sqrt(np.mean(error**2))), float(np.percentile(error, 99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"edges {SIGMA_NS:.0f} ns 1-sigma; error rms / p99, ns; target p99 ≤ 20 ns with 5 % bad")
    print(f"{'N':>7} {'K':>3} {'clean':>15} {'5 % biased':>15} {'tree, clean':>15}  network effect")
    for count in (64, 1_024, 16_384):
        for peers in (2, 3, 5, 10, 20):
            rows = []
            for bad in (0.0, 0.05):
                edges, offset_ns = drawn(count, peers, bad, args.seed)
                rows.append(quantiles(offset_ns, solve_mesh(edges).offset_ns))
            edges, offset_ns = drawn(count, peers, 0.0, args.seed)
            epoch_ns, local_ns = common_instant(edges)
            rows.append(quantiles(offset_ns, (epoch_ns - local_ns).astype(np.float64)))
            cells = " ".join(f"{rms:>7.1f}/{p99:>7.1f}" for rms, p99 in rows)
            print(f"{count:>7} {peers:>3} {cells}  {'#' * round(rows[0][0])}", flush=True)


if __name__ == "__main__":
    main()
