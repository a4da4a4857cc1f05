"""Clock error against the lab's known truth, with an idle and with a loaded fabric.

    .venv/bin/python bench/clock_lab.py [--seconds 30] [--json]

The default lab, its real agents, kernel stamps on veth, synthetic clocks (±50 ms, ±40 ppm, random
wander). Load: one iperf3 flow from every host of the first half of the fleet to one of the
second half, over the spines, each limited to a share of a link (200 Mb/s).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from tests.live import LiveLab, eventually, live

LINK_MBPS = 200
SETTLE_S = 15
LOADS = (0, 40, 80, 120)
"""Per cent of a link, per flow. Beyond 100: one UDP flow, for a queue that stands in one direction
without making the machine the bottleneck."""


def readings(lab: LiveLab, seconds: float) -> list[tuple[float, float]]:
    """(error, claimed 1-sigma) of every host, twice a second."""
    found = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        found += [
            (float(truth.error_ns), float(truth.clk_err_ns))
            for truth in lab.truth()
            if truth.error_ns is not None and truth.clk_err_ns
        ]
        time.sleep(0.5)
    return found


@contextmanager
def traffic(lab: LiveLab, per_cent: int) -> Iterator[None]:
    """iperf3 flows across the fabric for as long as the block lasts."""
    if not per_cent:
        yield
        return
    hosts = lab.status().hosts
    half = len(hosts) // 2
    senders = hosts[:half] if per_cent <= 100 else hosts[:1]
    addresses = lab.addresses(4)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [
        subprocess.Popen(lab.enter_argv(host, ["iperf3", "-s"]), **quiet) for host in hosts[half:]
    ]
    time.sleep(1)
    for src, dst in zip(senders, hosts[half:], strict=False):
        rate = f"{LINK_MBPS * per_cent // 100}M"
        ends = ["-c", addresses[f"{dst}/rail0"], "-B", addresses[f"{src}/rail0"]]
        kind = ["-u", "-l", "1400"] if per_cent > 100 else []
        command = ["iperf3", *ends, *kind, "-b", rate, "-t", "600"]
        running.append(subprocess.Popen(lab.enter_argv(src, command), **quiet))
    try:
        yield
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait()


def row(load: int, found: list[tuple[float, float]]) -> dict[str, Any]:
    """One line of the table."""
    error = np.abs([reading[0] for reading in found])
    sigma = np.array([reading[1] for reading in found])
    return {
        "load_percent": load,
        "readings": len(found),
        "p50_ns": round(float(np.median(error))),
        "p95_ns": round(float(np.quantile(error, 0.95))),
        "max_ns": round(float(error.max())),
        "sigma_p50_ns": round(float(np.median(sigma))),
        "beyond_3_sigma": int((error > 3 * sigma).sum()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=30, help="watched per load")
    parser.add_argument("--loads", type=int, nargs="*", default=LOADS, help="per cent of a link")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    with live(f"bench-{os.getpid()}", agents=True) as lab:
        eventually(lambda: all(truth.error_ns is not None for truth in lab.truth()), "clocks")
        for load in arguments.loads:
            with traffic(lab, load):
                time.sleep(SETTLE_S)
                rows.append(row(load, readings(lab, arguments.seconds)))
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    print("".join(f"{name:>16}" for name in rows[0]))
    for line in rows:
        print("".join(f"{value:>16}" for value in line.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
