"""Error of the network solve against peers K and fleet size N: the network effect, with and without
biased edges; a spanning tree over the same edges beside it.

    python bench/clock_network.py [--plot docs/images/clock-network.svg]
"""

from __future__ import annotations

import argparse
from pathlib import Path

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
        doubt_ns=np.zeros(len(a)),
    )
    return edges, offset_ns


def quantiles(offset_ns: NDArray[np.float64], found_ns: NDArray[np.float64]) -> tuple[float, float]:
    """Root mean square and 99th percentile of the error against the median clock."""
    error = found_ns + offset_ns
    error = np.abs(error - np.median(error))
    return float(np.sqrt(np.mean(error**2))), float(np.percentile(error, 99))


SIZES = (64, 1_024, 16_384)
PEERS = (2, 3, 5, 10, 20)
TICKS_NS = (5, 10, 20, 50)
Cell = tuple[float, float]


def draw(cells: dict[tuple[int, int], tuple[Cell, ...]], where: Path) -> None:
    """Error against K, a line per N: the whole mesh, five per cent of it biased, a tree of it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    titles = ("rms, clean mesh (dotted: a spanning tree)", "p99, 5 % of edges biased by µs")
    for axes, title in zip(figure.subplots(1, 2), titles, strict=True):
        biased = title.startswith("p99")
        for count, colour in zip(SIZES, ("#7fb069", "#2a7f9e", "#1b2a41"), strict=True):
            rows = [cells[count, peers] for peers in PEERS]
            line = [row[1][1] if biased else row[0][0] for row in rows]
            axes.plot(PEERS, line, "o-", color=colour, label=f"{count:,} clocks")
            if not biased:
                axes.plot(PEERS, [row[2][0] for row in rows], ":", color=colour)
        axes.axhline(20, color="#c44536", linewidth=0.8)
        axes.annotate("one edge, 1 sigma" if not biased else "target", (12, 20), va="bottom",
                      color="#c44536", fontsize=8)  # fmt: skip
        axes.set(xscale="log", yscale="log", title=title, xlabel="peers per clock, K", ylabel="ns")
        axes.set_xticks(PEERS, [str(each) for each in PEERS])
        axes.set_yticks(TICKS_NS, [str(each) for each in TICKS_NS])
        axes.minorticks_off()
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(where)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it too: SVG or PNG")
    args = parser.parse_args()
    drawing: dict[tuple[int, int], tuple[Cell, ...]] = {}
    print(f"edges {SIGMA_NS:.0f} ns 1-sigma; error rms / p99, ns; target p99 ≤ 20 ns with 5 % bad")
    print(f"{'N':>7} {'K':>3} {'clean':>15} {'5 % biased':>15} {'tree, clean':>15}  network effect")
    for count in SIZES:
        for peers in PEERS:
            rows = []
            for bad in (0.0, 0.05):
                edges, offset_ns = drawn(count, peers, bad, args.seed)
                rows.append(quantiles(offset_ns, solve_mesh(edges).offset_ns))
            edges, offset_ns = drawn(count, peers, 0.0, args.seed)
            epoch_ns, local_ns = common_instant(edges)
            rows.append(quantiles(offset_ns, (epoch_ns - local_ns).astype(np.float64)))
            drawing[count, peers] = tuple(rows)
            cells = " ".join(f"{rms:>7.1f}/{p99:>7.1f}" for rms, p99 in rows)
            print(f"{count:>7} {peers:>3} {cells}  {'#' * round(rows[0][0])}", flush=True)
    if args.plot is not None:
        draw(drawing, args.plot)


if __name__ == "__main__":
    main()
