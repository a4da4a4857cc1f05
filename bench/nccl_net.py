"""The NCCL net plug-in beside NCCL's own IB transport, over the same fake verbs, by one driver.

    .venv/bin/python -m bench.nccl_net [--rounds 5] [--faults 40] [--seed 1] [--json]

`native/tests/nccl/bench_net.c` has both ends of either transport in one process, without a GPU:
NCCL's table is an internal symbol of the wheel's library (`tests/nccl/wheels.py`). The provider's
network is as fast as memory, so that what a transport does per message shows. Throughput and cost
are of the quickest tenth of the windows, the median over rounds in turns; stalls are the longest
time without a message after a fault, in a thread that other programs do not hold up (SCHED_FIFO,
which needs root), with what the machine itself does as `none`. Under `mixed`
faults every 8-byte word of every message is checked, also in a build without the fence, which has
to fail.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.nccl.wheels import ROOT, nccl_library, symbols

NCCL = "nvidia-nccl-cu13==2.32.3"
CMAKE = str(Path(sys.executable).with_name("cmake"))
BUILD = ROOT / "build" / "nccl-bench"
SIZES = (4_096, 65_536, 262_144, 1_048_576)
WINDOW = 8
TIMEOUT, RETRIES = "14", "3"
"""4 x 67 ms until a queue pair gives up."""
SHORT = {"SYNTONY_NCCL_TIMEOUT": "9", "SYNTONY_NCCL_RETRIES": "2"}
"""3 x 2 ms: late packets outlive their queue pairs."""
MOST = 5_000_000
"""Messages: the faults end a run."""
STALLS = ("none", "notice", "port", "return", "hole")


def built() -> Path:
    """The directory of the native build, with optimisation and without sanitizers."""
    options = ("-DCMAKE_BUILD_TYPE=Release", "-DSYNTONY_TESTS=ON")
    for words in (
        ("-S", str(ROOT), "-B", str(BUILD), *options),
        ("--build", str(BUILD), "--parallel", "2", "--target", "nccl_tests", "bench_net"),
    ):
        subprocess.run(
            [str(Path(sys.executable).with_name("cmake")), *words],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return BUILD / "native"


class Driver:
    """Runs `bench_net` for a transport: `ours`, `without fence`, `nccl`."""

    def __init__(self, directory: Path) -> None:
        native = built()
        nccl = str(nccl_library(NCCL, directory))
        self._program = native / "tests/nccl/bench_net"
        self._provider = native / "tests/nccl/libfake_verbs.so"
        self._libraries = {
            "ours": str(native / "libnccl-net-syntony.so"),
            "without fence": str(native / "tests/nccl/libnccl_net_without_fence.so"),
            "nccl": f"{nccl}@{symbols(nccl)['ncclNetIb']:#x}",
        }
        self._environment = os.environ | {
            "SYNTONY_NCCL_IBVERBS": str(self._provider),
            "SYNTONY_NCCL_SOCKET_IFNAME": "=lo",
            "SYNTONY_NCCL_TIMEOUT": TIMEOUT,
            "SYNTONY_NCCL_RETRIES": RETRIES,
            "NCCL_IBVERBS_LIB": str(self._provider),
            "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_IB_GID_INDEX": "0",
            "NCCL_IB_TIMEOUT": TIMEOUT,
            "NCCL_IB_RETRY_CNT": RETRIES,
            "NCCL_IB_RESILIENCY_PORT_FAILOVER": "1",
        }

    def run(
        self, transport: str, size: int, messages: int, seed: int, *case: str, **more: str
    ) -> Any:
        """What one run printed; None if it ended badly."""
        numbers = (str(size), str(WINDOW), str(messages), str(seed))
        argv = [str(self._program), self._libraries[transport], "12", str(self._provider)]
        done = subprocess.run(
            [*argv, *numbers, *case],
            check=False,
            capture_output=True,
            text=True,
            env=self._environment | more,
            timeout=600,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if done.returncode == 0 and lines else None


def speed(driver: Driver, rounds: int, seed: int) -> list[dict[str, Any]]:
    """Throughput and cost of both, in turns."""
    rows = []
    for size in SIZES:
        reported: dict[str, list[Any]] = {"ours": [], "nccl": []}
        for i in range(rounds):
            for transport, found in reported.items():
                found.append(driver.run(transport, size, 4_000, seed + i, "cost"))
        row: dict[str, Any] = {"size": size}
        for transport, found in reported.items():
            for key in ("mb_per_s", "own_ns", "posts", "polls"):
                row[f"{transport} {key}"] = statistics.median(one[key] for one in found)
        row["throughput ratio"] = statistics.median(
            one["mb_per_s"] / other["mb_per_s"]
            for one, other in zip(reported["ours"], reported["nccl"], strict=True)
        )
        rows.append(row)
    return rows


def stalls(driver: Driver, faults: int, seed: int) -> dict[str, Any]:
    """Of ours, each kind; of NCCL, one black hole a run, for it does not return to the rail."""
    size = 65_536
    found = {kind: driver.run("ours", size, MOST, seed, kind, str(faults)) for kind in STALLS}
    runs = [
        driver.run("nccl", size, MOST, seed + i, "hole", "1") for i in range(max(5, faults // 4))
    ]
    resumed = [run["p50_ms"] for run in runs if run and run.get("p50_ms", 0) > 100]
    found["nccl hole"] = {
        "runs": len(runs),
        "resumed": len(resumed),
        "p50_ms": statistics.median(resumed) if resumed else None,
    }
    return found


def mixed(driver: Driver, rounds: int, seed: int) -> dict[str, Any]:
    """100 faults of all kinds a round, and at least 10,000 messages."""
    runs = [
        driver.run("ours", 32_768, MOST, seed + i, "mixed", "100", **SHORT) for i in range(rounds)
    ]
    open_runs = [
        driver.run("without fence", 32_768, MOST, seed + i, "mixed", "100", **SHORT)
        for i in range(rounds)
    ]
    return {
        "ours": runs,
        "without fence corrupts": sum(run is None or run["corrupt"] > 0 for run in open_runs),
        "without fence": open_runs,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--faults", type=int, default=40, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}, load {os.getloadavg()[0]:.0f}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        driver = Driver(Path(directory))
        result: dict[str, Any] = {
            "speed": speed(driver, options.rounds, options.seed),
            "stalls": stalls(driver, options.faults, options.seed),
            "mixed": mixed(driver, options.rounds, options.seed),
        }
    if options.json:
        print(json.dumps(result))
    else:
        for part, reported in result.items():
            print(part)
            for row in reported if isinstance(reported, list) else reported.items():
                print("  ", row)
    reported = result["mixed"]
    clean = all(
        run and run["messages"] >= 10_000 and not run["corrupt"] and not run["fatal"]
        for run in reported["ours"]
    )
    return 0 if clean and reported["without fence corrupts"] else 1


if __name__ == "__main__":
    sys.exit(main())
