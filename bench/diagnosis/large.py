"""Run time and memory of `syntony diagnose`, `diff` and `timeline` on the bundle of a large job.

    python -m bench.diagnosis.large [--ranks 4096] [--windows 60] [--seed 1]

Hosts of eight ranks and NICs in leaves of 32 hosts, eight spines a rail; a ring over the hosts of a
rail and an all-reduce of all ranks every step. One flow in a hundred goes to a host far away; in
the second bundle one rank is slow and one flow is delayed. Each command runs as a process of its
own: wall and processor time, and the most memory that it had.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from syntony.io.bundle_files import write_bundle

if TYPE_CHECKING:
    from numpy.typing import NDArray

T0 = 1_700_000_000_000_000_000
MS = 1_000_000
GPUS, PER_LEAF, SPINES = 8, 32, 8
WIDTH = 100 * MS


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for number in (0, 1):
            rng = np.random.default_rng([options.seed, number])
            tables = made(rng, options.ranks, options.windows, broken=bool(number))
            write_bundle(place / str(number), tables, _manifest(options.windows))
        rows = sum(table.num_rows for table in tables.values())
        size = sum(file.stat().st_size for file in (place / "1").iterdir())
        print(f"{options.ranks:,} ranks, {rows:,} rows a bundle ({size / 1e6:.0f} MB);"
              f" {platform.machine()}, load {os.getloadavg()[0]:.0f}\n")  # fmt: skip
        print("| Command | Wall | Processor | Memory | Said |\n| --- | --- | --- | --- | --- |")
        good, bad = str(place / "0"), str(place / "1")
        for command in (["diagnose", good], ["diagnose", bad], ["diff", good, bad],
                        ["timeline", bad, "--out", str(place / "trace.json")]):  # fmt: skip
            _timed(command, place)
        print(f"\nThe trace has {(place / 'trace.json').stat().st_size / 1e6:.0f} MB.")
    return 0


def _timed(command: list[str], place: Path) -> None:
    out = place / "out.txt"
    begin = time.monotonic()
    with out.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "syntony", *command], stdout=file, stderr=file
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    lines = [line for line in out.read_text().splitlines()
             if line and not line.startswith((" ", "note"))]  # fmt: skip
    name = " ".join(Path(each).name if "/" in each else each for each in command)
    print(f"| `{name}` | {time.monotonic() - begin:.1f} s |"
          f" {used.ru_utime + used.ru_stime:.1f} s | {used.ru_maxrss / 1024:.0f} MiB |"
          f" {'; '.join(lines[:2]).replace(str(place), '')} |", flush=True)  # fmt: skip


def _manifest(windows: int) -> dict[str, Any]:
    return {"format": "syntony-bundle", "version": 1, "job": "large", "begin_ns": T0,
            "end_ns": T0 + windows * WIDTH}  # fmt: skip


def made(rng: np.random.Generator, ranks: int, windows: int, broken: bool) -> dict[str, pa.Table]:
    """All tables; with `broken`, rank 5 and the flow of rank 100 are slow from a third on."""
    hosts = ranks // GPUS
    host = np.array([f"host{each:04}" for each in range(hosts)])
    begin = windows // 3
    return {
        **_ranks(rng, host, ranks, windows, begin if broken else windows),
        **_flows(rng, host, ranks, windows, begin if broken else windows),
        **_devices(rng, host, windows),
    }


def _ranks(rng: np.random.Generator, host: NDArray[np.str_], ranks: int, windows: int, on: int
           ) -> dict[str, pa.Table]:  # fmt: skip
    """A step a window: 70 ms computed, then an operation of all and one of each host's eight."""
    rank, step = np.tile(np.arange(ranks), windows), np.repeat(np.arange(windows), ranks)
    ready = 70 * MS * rng.normal(1, 0.01, len(rank)) + np.where((rank == 5) & (step >= on), 9e6, 0)
    last = ready.reshape(windows, ranks).max(axis=1)
    begin = T0 + step * WIDTH
    enqueue = begin + ready.astype(np.int64)
    done = begin + np.repeat(last + 15 * MS, ranks).astype(np.int64)
    named = pa.array(host[rank // GPUS])
    inner = pa.array([f"host{each // GPUS:04}" for each in rank])
    common = {"rank": rank, "host": named, "step": step.astype(float)}
    world = pa.table({"comm": pa.array(["world"] * len(rank)), "seq": step, **common,
                      "op": pa.array(["all_reduce"] * len(rank)), "enqueue_ns": enqueue,
                      "done_ns": done, "bytes": np.full(len(rank), 1e9)})  # fmt: skip
    local = pa.table({"comm": inner, "seq": step, **common,
                      "op": pa.array(["all_gather"] * len(rank)), "enqueue_ns": done + 1000,
                      "done_ns": done + 2 * MS, "bytes": np.full(len(rank), 1e7)})  # fmt: skip
    steps = pa.table({"step": step, "rank": rank, "begin_ns": begin, "end_ns": done, "host": named,
                      "compute_ns": ready})  # fmt: skip
    return {"collectives": pa.concat_tables([world, local]), "steps": steps}


def _flows(rng: np.random.Generator, host: NDArray[np.str_], ranks: int, windows: int, on: int
           ) -> dict[str, pa.Table]:  # fmt: skip
    """One flow a rank, to the next host on its rail, with its path."""
    hosts = len(host)
    source, rail = np.arange(ranks) // GPUS, np.arange(ranks) % GPUS
    far = rng.random(ranks) < 0.01
    target = np.where(far, rng.integers(0, hosts, ranks), (source + 1) % hosts)
    target = np.where(target == source, (source + 1) % hosts, target)
    paths = []
    for flow in range(ranks):
        one, other, plane = int(source[flow]), int(target[flow]), int(rail[flow])
        up, down = (f"leaf{plane}-{each // PER_LEAF}" for each in (one, other))
        between = [up] if up == down else [up, f"spine{plane}-{rng.integers(SPINES)}", down]
        nodes = [f"{host[one]}/n{plane}", *between, f"{host[other]}/n{plane}"]
        paths.append([f"{a}->{b}" for a, b in pairwise(nodes)])
    every, at = np.tile(np.arange(ranks), windows), np.repeat(np.arange(windows), ranks)
    hops = np.array([len(path) for path in paths])[every]
    peer = (target * GPUS + rail).astype(float)
    late = np.where((every == 100) & (at >= on), 20.0, 1.0)

    def names(of: NDArray[np.int64]) -> pa.Array:
        return pa.array([f"{host[of[flow]]}/n{rail[flow]}" for flow in range(ranks)]).take(every)

    count = len(every)
    return {"flows": pa.table({
        "flow": pa.array([f"qp{each}" for each in range(ranks)]).take(every),
        "at_ns": T0 + at * WIDTH, "window_ns": np.full(count, WIDTH),
        "src": names(source), "dst": names(target), "hops": pa.array(paths).take(every),
        "rank": every.astype(float), "peer_rank": peer[every],
        "owd_p50_ns": 1500.0 * hops * late * np.exp(rng.normal(0, 0.05, count)),
        "rate_bps": 3.5e11 * np.exp(rng.normal(0, 0.05, count)),
        "retransmits": rng.poisson(0.01, count).astype(float),
        "credit_blocked_ns": 1e5 * rng.random(count), "poll_gap_ns": 2e5 * rng.random(count),
    })}  # fmt: skip


def _devices(rng: np.random.Generator, host: NDArray[np.str_], windows: int) -> dict[str, pa.Table]:
    """Every NIC once in ten windows, and every host and GPU."""
    rounds = max(3, windows // 10)
    nic = [f"{name}/n{rail}" for name in host for rail in range(GPUS)]
    gpu = [f"GPU-{name}-{number}" for name in host for number in range(GPUS)]
    at = T0 + np.repeat(np.arange(rounds), len(nic)) * 10 * WIDTH
    width = np.full(len(at), 10 * WIDTH)
    links = {"at_ns": at, "window_ns": width, "link": pa.array(nic * rounds),
             "utilisation": 0.5 + 0.05 * rng.random(len(at)), "symbol_errors": np.zeros(len(at)),
             "pause_ns": np.zeros(len(at)), "pcie_width": np.full(len(at), 16.0)}  # fmt: skip
    devices = {"at_ns": at, "window_ns": width, "host": pa.array([*np.repeat(host, GPUS)] * rounds),
               "gpu": pa.array(gpu * rounds), "sm_clock_mhz": rng.normal(1750, 5, len(at)),
               "throttle": pa.array([""] * len(at))}  # fmt: skip
    return {"links": pa.table(links), "hosts": pa.table(devices)}


if __name__ == "__main__":
    sys.exit(main())
