"""One-way delays of a job's own segments against truth, and how a slower direction shows.

    .venv/bin/python -m bench.in_band_delay [--seconds 60] [--elements 3000] [--add 5ms] [--json]

A lab of two hosts with agents and synthetic clocks. A job sends both ways over plain TCP. In each
host a process of this bench stamps the same segments in the machine's one true clock, keeps every
16,384th byte, and pairs bytes that passed each end once: no timeline, no report, no matcher of
Syntony's. Of each second that `syntony record` has, the median is compared with the median of just
those bytes that were sampled (the multiples of the power of two of which as many arrived in that
second). Then one direction is made slower by --add, and each direction's change is told. Figures
are of a machine whose load is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from tests.live import SYNTONY, LiveLab, live, syntony

from syntony.io.segment_tap import SegmentTap
from syntony.lab.drill.fleet import wait_ready
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.jobs.runner import LabJob
from syntony.model import S, parse_duration_ns
from syntony.model.names import host_of

LAB, JOB = "b-in-band", "measured"
FINEST = 14
SETTLE_S = 12.0
TRIES = 10
"""A controller on a machine as busy as this may not answer at once."""
_PLAIN = ("env", "SYNTONY_TCP=off", *SYNTONY, "run", "--job", JOB, "--")


def capture(nic: str, word: str) -> None:
    """In a host: bytes as they pass, until the pipe closes; one line of JSON each second."""
    from syntony import clock
    from syntony.io.clocks import KernelClock

    machine = KernelClock("machine")
    tap = SegmentTap(nic)
    reverse = (int(word) & 0xFFFF) << 16 | int(word) >> 16
    tap.sample({int(word): FINEST, reverse: FINEST})
    while not select.select([sys.stdin], [], [], 0.25)[0]:
        rows, lost = tap.read()
        seen = [
            (int(at_ns), place % (1 << 32), int(out))
            for at_ns, seq, size, out in zip(
                rows["real_ns"], rows["seq"], rows["payload"], rows["outgoing"], strict=True
            )
            for place in range(-(-int(seq) >> FINEST) << FINEST, int(seq) + int(size), 1 << FINEST)
        ]
        reading = clock.now()
        print(json.dumps([lost, reading.fleet_ns - machine.now_ns(), seen]), flush=True)


class Truth:
    """What the processes in both hosts saw."""

    def __init__(self, lab: LiveLab, sport: int, dport: int) -> None:
        words = {"h0": sport << 16 | dport, "h1": dport << 16 | sport}
        self._seen = {}
        # Open for as long as the processes run.
        self._told = {host: tempfile.TemporaryFile("w+") for host in words}  # noqa: SIM115
        for host, word in words.items():
            argv = [sys.executable, "-m", "bench.in_band_delay", "capture", "rail0", str(word)]
            self._seen[host] = subprocess.Popen(
                lab.enter_argv(host, argv), stdin=subprocess.PIPE, stdout=self._told[host]
            )

    def end(self) -> tuple[dict[str, dict[int, tuple[int, int]]], float]:
        """Sending host to number to (arrival, delay) of bytes that passed each end once, in true
        time; and what fleet time is ahead of that."""
        passed: dict[tuple[str, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        ahead = []
        for host, process in self._seen.items():
            process.communicate()
            self._told[host].seek(0)
            for line in self._told[host]:
                lost, ahead_ns, seen = json.loads(line)
                if lost:
                    raise RuntimeError(f"the bench itself lost {lost} segments in {host}")
                ahead.append(ahead_ns)
                for at_ns, number, out in seen:
                    passed[host, out][number].append(at_ns)
        found = {}
        for src, dst in (("h0", "h1"), ("h1", "h0")):
            sent, came = passed[src, 1], passed[dst, 0]
            found[src] = {
                number: (came[number][0], came[number][0] - sent[number][0])
                for number in sent.keys() & came.keys()
                if len(sent[number]) == len(came[number]) == 1
            }
        return found, statistics.median(ahead)


def recorded() -> list[dict[str, Any]]:
    """Flows of the last seconds, as `syntony record` writes them."""
    with tempfile.TemporaryDirectory() as place:
        out = str(Path(place) / "bundle")
        for _ in range(TRIES):
            done = syntony("record", JOB, "--lab", LAB, "--window", "110s", "--out", out)
            if not done.returncode:
                break
            time.sleep(2)
        else:
            raise RuntimeError(done.stderr)
        rows: list[dict[str, Any]] = pq.read_table(Path(out) / "flows.parquet").to_pylist()
        return [each for each in rows if each.get("one_way_p50_ns") is not None]


def errors(
    rows: list[dict[str, Any]], truth: dict[str, dict[int, tuple[int, int]]], ahead_ns: float
) -> tuple[list[float], list[float], int]:
    """Of each second's median; the bounds; and seconds whose bytes are not known for sure."""
    found, bounds, unsure = [], [], 0
    for row in rows:
        src = host_of(row["src"])
        begin_ns = row["at_ns"] - ahead_ns
        came = {
            number: delay
            for number, (at_ns, delay) in truth[src].items()
            if 0 <= at_ns - begin_ns < S
        }
        for shift in range(FINEST, 29):
            some = sorted(delay for number, delay in came.items() if number % (1 << shift) == 0)
            if len(some) == row["one_way_count"]:
                found.append(row["one_way_p50_ns"] - some[len(some) // 2])
                bounds.append(row["one_way_bound_ns"])
                break
        else:
            unsure += 1
    return found, bounds, unsure


def medians(rows: list[dict[str, Any]], from_ns: int) -> dict[str, float]:
    """Sending NIC to the median over its seconds."""
    by: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["at_ns"] >= from_ns:
            by[row["src"]].append(row["one_way_p50_ns"])
    return {src: statistics.median(some) for src, some in by.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--elements", type=int, default=3_000, help="of each message, 4 bytes each")
    parser.add_argument("--add", default="5ms", help="to what h0 receives, afterwards")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with live(LAB, "--hosts", "2", "--rails", "1", agents=True) as lab:
        wait_ready(lab)
        hosts = lab.status().hosts
        places = lab.addresses(4)
        spec = JobSpec(
            kind="all-to-all", hosts=hosts, elements=arguments.elements,
            addresses=tuple(places[f"{host}/rail0"] for host in hosts),
        )  # fmt: skip
        with LabJob(lab, spec, wrap=_PLAIN) as job:
            job.wait_steps(5, 90)
            time.sleep(SETTLE_S)
            ends = lab.run("h0", "ss", "-Htn", "dst", places["h1/rail0"]).split()[3:5]
            truth = Truth(lab, *(int(end.rpartition(":")[2]) for end in ends))
            time.sleep(arguments.seconds)
            true, ahead_ns = truth.end()
            time.sleep(SETTLE_S / 2)
            rows = recorded()
            found, bounds, unsure = errors(rows, true, ahead_ns)
            quiet = medians(rows, 0)
            if not found:
                raise RuntimeError(f"{unsure} seconds were recorded, none could be compared")
            sizes = np.abs(found)
            shown = f"p50 {np.quantile(sizes, 0.5):.0f} ns, p95 {np.quantile(sizes, 0.95):.0f} ns"
            print(f"{len(found)} seconds: error {shown}", file=sys.stderr, flush=True)
            done = syntony(
                "lab", "fault", "delay", "h0/rail0", "--add", arguments.add, "--direction", "to",
                "--lab", LAB,
            )  # fmt: skip
            if done.returncode:
                raise RuntimeError(done.stderr)
            time.sleep(SETTLE_S + 15)
            rows = recorded()
            slow = medians(rows, max((row["at_ns"] for row in rows), default=0) - 10 * S)
            lines = syntony("job", "flows", JOB, "--lab", LAB, "--window", "14s").stdout
    result = {
        "seconds": len(found),
        "unsure": unsure,
        "error_p50_ns": float(np.quantile(sizes, 0.5)),
        "error_p95_ns": float(np.quantile(sizes, 0.95)),
        "error_max_ns": float(sizes.max()),
        "bound_p50_ns": statistics.median(bounds),
        "beyond_bound": sum(size > bound for size, bound in zip(sizes, bounds, strict=True)),
        "quiet_ns": quiet,
        "slow_ns": slow,
        "added_ns": parse_duration_ns(arguments.add),
        "load": os.getloadavg()[0],
    }
    if arguments.json:
        print(json.dumps(result))
        return 0
    for name, value in result.items():
        print(f"{name:14} {value}")
    print(lines)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["capture"]:
        capture(*sys.argv[2:])
    else:
        sys.exit(main())
