"""Cost of NCCL's profiler plug-in: ns of each callback, and operations lost at each rate.

    python -m bench.nccl_profiler [--rounds 300] [--json]

A C program calls the plug-in's table as NCCL does, with descriptors that it fills each time (this
is included): rounds of 1,000, medians and 10th percentiles. Then it makes operations at a fixed
rate, of two proxy operations and four steps each, while the agent reads once a second. Operations
read and lost add up to those begun, or it fails. `read, us`: the agent's processor time for one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.nccl import profiler

from syntony.agent.nccl_socket import NcclSocket
from syntony.io.nccl_plugin import profiler_plugin

KINDS = (
    "collective, start and stop", "proxy operation, start and stop", "step that sends",
    "step that receives", "state as before", "event that is not followed",
)  # fmt: skip
RATES = (500, 2_000, 4_000, 20_000)
SECONDS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        program = profiler.build(Path(place) / "bench", "bench_profiler")
        found = costs(program, Path(place), arguments.rounds)
        rates = [rate(program, Path(place), each) for each in RATES]
    if arguments.json:
        print(json.dumps({"callback_ns": found, "rates": rates}, indent=1))
        return 0
    print(f"{'callback':34}{'median':>10}{'p10':>10}   ns")
    for kind, (median, low) in found.items():
        print(f"{kind:34}{median:10.0f}{low:10.0f}")
    print(f"{'operations/s':>14}{'begun':>10}{'read':>10}{'lost':>10}{'read, us':>12}")
    for row in rates:
        print(
            f"{row['per_s']:14.0f}{row['begun']:10.0f}{row['read']:10.0f}"
            f"{row['lost']:10.0f}{row['read_us']:12.1f}"
        )
    return 0


def _environment(place: Path) -> dict[str, str]:
    return os.environ | {"SYNTONY_AGENT": str(place / "agent"), "SYNTONY_JOB": "bench"}


def costs(program: Path, place: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """Median and 10th percentile by kind, ns for each callback."""
    words = [str(program), str(profiler_plugin()), "7", "costs", str(rounds)]
    done = subprocess.run(
        words, env=_environment(place), capture_output=True, text=True, check=True
    )
    rows = [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
    return {
        kind: (statistics.median(column), statistics.quantiles(column, n=10)[0])
        for kind, *column in zip(KINDS, *rows, strict=True)
    }


def rate(program: Path, place: Path, each_second: int) -> dict[str, float]:
    """Operations begun, read and lost at this rate, read once a second."""
    agent = NcclSocket(place / "agent-nccl")
    agent.start()
    words = [str(program), str(profiler_plugin()), "7", "rate", str(each_second), str(SECONDS)]
    found, busy_ns = 0, 0
    with subprocess.Popen(
        words, env=_environment(place), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None  # noqa: S101 - a pipe
        process.stdin.close()
        while process.poll() is None or agent.processes:
            time.sleep(1)
            began_ns = time.thread_time_ns()
            found += sum(len(each.operations) for each in agent.read())
            busy_ns += time.thread_time_ns() - began_ns
        found += sum(len(each.operations) for each in agent.read())
        assert process.stdout is not None  # noqa: S101 - a pipe
        begun, took = process.stdout.readline().split()
    lost = agent.losses()["lost"]
    agent.close()
    if found + lost != int(begun):
        raise SystemExit(f"{begun} operations begun, but {found} read and {lost} lost")
    return {
        "per_s": int(begun) / float(took), "begun": int(begun), "read": found, "lost": lost,
        "read_us": busy_ns / 1e3 / max(found, 1),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
