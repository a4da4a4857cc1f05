"""The NCCL net plug-in beside NCCL's own IB transport, over the same fake verbs, by one driver.

    .venv/bin/python -m bench.nccl_net [--rounds 3] [--faults 8] [--seed 1] [--json]

`native/tests/nccl/bench_net.c` has both ends of either transport in one process, without a GPU:
NCCL's table is an internal symbol of the wheel's library (`tests/nccl/wheels.py`). The provider's
network is as fast as memory, so that what a transport does per message shows. Throughput and cost
are of the quickest tenth of the windows, the median over rounds in turns; stalls are the longest
time without a message after a fault, in a thread that other programs do not hold up (SCHED_FIFO,
which needs root), with what the machine itself does as `none`. Under `mixed`
faults every 8-byte word of every message is checked, also in a build without the fence: in each
round it has to receive a wrong word within 20 faults. Every other fault is a late one: data or
acknowledgements of several messages are held back until a completion error, or a notice, has
made the rail be left, the messages have completed over the other rail, and their buffers hold
others.

Each run is reported on stderr as it begins and ends. Interrupted (SIGINT, SIGTERM), the results of
the runs that ended are printed all the same.

As it is called above it ends within five minutes on a quiet machine with two cores, if NCCL's wheel
is here. Eight faults of a kind give a median and the longest stall, and no percentile; three
rounds say whether a cost changed by a tenth, not by less. The figures in the documents that are
called p99 are of `--rounds 5 --faults 100`: half an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.nccl.wheels import ROOT, nccl_library, symbols

NCCL = "nvidia-nccl-cu13==2.32.3"
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
OPEN_FAULTS = 20
"""Within which a word is wrong without the fence."""


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
    """Runs `bench_net` for a transport: `ours`, `without fence`, `nccl`. At most `total` times."""

    def __init__(self, directory: Path, total: int) -> None:
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
        self._began = time.monotonic()
        self._begun, self._total = 0, total

    def run(
        self, transport: str, size: int, messages: int, seed: int, *case: str, **more: str
    ) -> Any:
        """What one run printed; None if it ended badly."""
        self._begun += 1
        what = f"{transport}, {size} bytes, {' '.join(case)}, seed {seed}"
        self._say(f"{what} …")
        numbers = (str(size), str(WINDOW), str(messages), str(seed))
        argv = [str(self._program), self._libraries[transport], "12", str(self._provider)]
        try:
            done = subprocess.run(
                [*argv, *numbers, *case],
                check=False,
                capture_output=True,
                text=True,
                env=self._environment | more,
                timeout=600,
            )
        except subprocess.TimeoutExpired:
            self._say(f"{what}: not within 600 s")
            return None
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        self._say(f"{what}: {lines[-1] if lines else 'nothing'}, exit status {done.returncode}")
        return json.loads(lines[-1]) if done.returncode == 0 and lines else None

    def _say(self, what: str) -> None:
        passed = time.monotonic() - self._began
        print(f"[{self._begun} of up to {self._total}, {passed:.0f} s] {what}", file=sys.stderr)


def speed(driver: Driver, rounds: int, seed: int, rows: list[dict[str, Any]]) -> None:
    """Throughput and cost of both, in turns; a row for each size as it ends."""
    for size in SIZES:
        pairs = []
        for i in range(rounds):
            pair = {
                transport: driver.run(transport, size, 4_000, seed + i, "cost")
                for transport in ("ours", "nccl")
            }
            if all(pair.values()):
                pairs.append(pair)
        row: dict[str, Any] = {"size": size, "rounds": len(pairs)}
        rows.append(row)
        if not pairs:
            continue
        for transport in ("ours", "nccl"):
            for key in ("mb_per_s", "own_ns", "posts", "polls"):
                row[f"{transport} {key}"] = statistics.median(p[transport][key] for p in pairs)
        row["throughput ratio"] = statistics.median(
            p["ours"]["mb_per_s"] / p["nccl"]["mb_per_s"] for p in pairs
        )


def nccl_holes(faults: int) -> int:
    return max(3, faults // 4)


def stalls(driver: Driver, faults: int, seed: int, found: dict[str, Any]) -> None:
    """Of ours, each kind; of NCCL, one black hole a run, for it does not return to the rail."""
    size = 65_536
    for kind in STALLS:
        found[kind] = driver.run("ours", size, MOST, seed, kind, str(faults))
    resumed: list[float] = []
    for i in range(nccl_holes(faults)):
        run = driver.run("nccl", size, MOST, seed + i, "hole", "1")
        if run and run.get("p50_ms", 0) > 100:
            resumed.append(run["p50_ms"])
        found["nccl hole"] = {
            "runs": i + 1,
            "resumed": len(resumed),
            "p50_ms": statistics.median(resumed) if resumed else None,
        }


def mixed(driver: Driver, rounds: int, seed: int, found: dict[str, Any]) -> None:
    """100 faults of all kinds a round, at least 10,000 messages; then without the fence."""
    found["ours"], found["without fence"] = [], []
    for i in range(rounds):
        run = driver.run("ours", 32_768, MOST, seed + i, "mixed", "100", **SHORT)
        found["ours"].append(run)
        run = driver.run("without fence", 32_768, MOST, seed + i, "open", str(OPEN_FAULTS), **SHORT)
        found["without fence"].append(run)


def is_clean(run: Any) -> bool:
    return bool(run and run["messages"] >= 10_000 and not run["corrupt"] and not run["fatal"])


def is_wrong(run: Any) -> bool:
    return bool(run and run["corrupt"])


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--faults", type=int, default=8, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds, faults, seed = options.rounds, options.faults, options.seed
    print(f"seed {seed}, load {os.getloadavg()[0]:.0f}", file=sys.stderr)
    runs = (2 * len(SIZES) + 2) * rounds + len(STALLS) + nccl_holes(faults)
    result: dict[str, Any] = {"interrupted": False, "speed": [], "stalls": {}, "mixed": {}}
    signal.signal(signal.SIGTERM, interrupt)
    try:
        with tempfile.TemporaryDirectory() as directory:
            print("building, and unpacking NCCL's library …", file=sys.stderr)
            driver = Driver(Path(directory), runs)
            speed(driver, rounds, seed, result["speed"])
            mixed(driver, rounds, seed, result["mixed"])
            stalls(driver, faults, seed, result["stalls"])
    except KeyboardInterrupt:
        result["interrupted"] = True
    if options.json:
        print(json.dumps(result))
    else:
        for part, reported in result.items():
            if part == "interrupted":
                continue
            print(part)
            for row in reported if isinstance(reported, list) else reported.items():
                print("  ", row)
    if result["interrupted"]:
        print("interrupted: what is above is not the whole", file=sys.stderr)
        return 130
    clean = all(is_clean(run) for run in result["mixed"]["ours"])
    return 0 if clean and all(is_wrong(run) for run in result["mixed"]["without fence"]) else 1


if __name__ == "__main__":
    sys.exit(main())
