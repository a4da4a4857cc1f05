"""Clock error against truth while a job runs: the lab's eight hosts under a ring all-reduce.

    .venv/bin/python -m bench.clock_job [--seconds 60] [--hosts 8] [--megabytes 4] [--json]

The default lab with its real agents and synthetic clocks. One rank per host sums an array over
plain TCP around the ring, one hop after the other, on rail 0, without a pause: every link of the
rail is busy whenever the job communicates. Twice a second every clock is asked for its error
against the truth and for its bound. Documented figures are of --seconds 600.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.live import LiveLab, live

from syntony.lab.jobs.programs import JobSpec
from syntony.lab.jobs.records import StepRecord
from syntony.lab.jobs.runner import LabJob

READ_S = 0.5
TELL_S = 60.0
SETTLE_S = 15.0
PATIENCE_S = 120.0


def all_reduce(lab: LiveLab, size: int) -> LabJob:
    """One rank on each host, on rail 0; `size` in bytes. Every sum is checked."""
    hosts = lab.status().hosts
    places = lab.addresses(4)
    addresses = tuple(places[f"{host}/rail0"] for host in hosts)
    spec = JobSpec(kind="all-reduce", hosts=hosts, addresses=addresses, elements=size // 4)
    return LabJob(lab, spec)


def await_true(true: Callable[[], bool], what: str) -> None:
    """Longer than tests wait: benches also run beside other work."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"never: {what}")
        time.sleep(READ_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60, help="watched")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--megabytes", type=float, default=4.0, help="of the array")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    lapses: dict[str, int] = defaultdict(int)
    name = f"bench-{os.getpid()}"
    with live(name, "--hosts", str(arguments.hosts), agents=True) as lab:
        await_true(lambda: all(t.error_ns is not None for t in lab.truth()), "clocks")
        time.sleep(SETTLE_S)
        with all_reduce(lab, int(arguments.megabytes * 1e6)) as job:
            job.wait_steps(1, PATIENCE_S)
            before, began_s = job.steps_done(), time.monotonic()
            told_s = began_s
            while time.monotonic() < began_s + arguments.seconds:
                for truth in lab.truth():
                    if truth.error_ns is None or truth.bound_ns is None:
                        lapses[truth.host] += 1
                    else:
                        found[truth.host].append((abs(truth.error_ns), truth.bound_ns))
                time.sleep(READ_S)
                told_s = tell_so_far(found, told_s)
                if len(job.alive()) < arguments.hosts:
                    print(f"clock_job: a rank ended early: {job.last_output()}", file=sys.stderr)
                    return 1
            done = (job.steps_done() - before) / (time.monotonic() - began_s)
            wrong = sum(record.wrong for record in job.records() if isinstance(record, StepRecord))
    rows = [row(host, readings, lapses[host]) for host, readings in sorted(found.items())]
    everything = [reading for readings in found.values() for reading in readings]
    rows.append(row("all", everything, sum(lapses.values())))
    show(rows, done, wrong, as_json=arguments.json)
    return 0


def tell_so_far(found: dict[str, list[tuple[float, float]]], told_s: float) -> float:
    """Once a minute, so that a run that is cut short has still said something."""
    everything = [reading for readings in found.values() for reading in readings]
    if time.monotonic() < told_s + TELL_S or not everything:
        return told_s
    print(f"so far: {row('all', everything, 0)}", file=sys.stderr, flush=True)
    return time.monotonic()


def row(host: str, readings: list[tuple[float, float]], lapses: int) -> dict[str, Any]:
    """One line of the table."""
    errors, bounds = np.array(readings).T
    return {
        "host": host,
        "readings": len(readings),
        "without": lapses,
        "p50_ns": round(float(np.median(errors))),
        "p95_ns": round(float(np.quantile(errors, 0.95))),
        "max_ns": round(float(errors.max())),
        "bound_p50_ns": round(float(np.median(bounds))),
        "violations": int((errors > bounds).sum()),
    }


def show(rows: list[dict[str, Any]], steps_per_s: float, wrong: int, *, as_json: bool) -> None:
    """The table, or the same as JSON."""
    if as_json:
        reported = {"all_reduces_per_s": round(steps_per_s, 2), "wrong": wrong, "rows": rows}
        print(json.dumps(reported, indent=1))
        return
    load = os.getloadavg()[1]
    print(f"{steps_per_s:.2f} all-reduces/s, {wrong} wrong elements; load average {load:.1f}")
    print("".join(f"{name:>14}" for name in rows[0]))
    for line in rows:
        print("".join(f"{value:>14}" for value in line.values()))


if __name__ == "__main__":
    sys.exit(main())
