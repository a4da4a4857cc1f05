"""What the PyTorch hook of `syntony run` costs a training job: steps per second with and without.

    .venv/bin/python -m bench.telemetry_overhead [--rounds 40] [--steps 50] [--width 256] [--json]

Four jobs of two ranks each (gloo over loopback, `DistributedDataParallel`, a data loader, one
all-reduce of its own in each step): two without the hook, one under it, and one that measures what
the hook's own functions take, where they are called. They take turns: in each round each does so
many steps, in an order that changes from round to round. What the hook writes is read once a
second, as an agent does. Figures are medians of the rounds; ratios are medians of the ratios within
a round, plain to hooked. How much the two jobs without the hook differ says what the other
differences are worth.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from syntony.agent.operations import JobTelemetry
from syntony.agent.queue_pairs import FleetOffset
from syntony.io.job_hook import PATH_VARIABLE, hooked_path
from syntony.io.run_directory import SOCKET_NAME, SOCKET_VARIABLE
from syntony.lab.jobs.torch_build import find_torch
from syntony.model.jobs import JOB_VARIABLE
from syntony.wire.tables import COLLECTIVE, STEP

JOB = Path(__file__).with_name("telemetry_job.py")
RANKS = 2
WARM_STEPS = 40
PLAIN, HOOKED = ("plain", "again"), ("hooked", "timed")


class Took(NamedTuple):
    """Seconds of one step, the mean of a round and of the ranks."""

    wall_s: float
    cpu_s: float
    hook_s: float
    """Of the processor time, in the hook's functions; 0 where it is not measured."""


class Ranks:
    """One job, which waits for its turns."""

    def __init__(self, place: Path, name: str, width: int, stack: ExitStack) -> None:
        hooked = name in HOOKED
        environ = dict(os.environ, WORLD_SIZE=str(RANKS), OMP_NUM_THREADS="1")
        if hooked:
            environ |= {
                SOCKET_VARIABLE: str(place / SOCKET_NAME), JOB_VARIABLE: name,
                PATH_VARIABLE: hooked_path(environ),
            }  # fmt: skip
        argv = [find_torch(), str(JOB), f"file://{place / name}", str(width)]
        argv += ["timed"] if name == "timed" else []
        self._ranks = []
        for rank in range(RANKS):
            process = subprocess.Popen(
                argv, env=environ | {"RANK": str(rank)}, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self._ranks.append(stack.enter_context(process))
            stack.callback(process.kill)

    def turn(self, steps: int) -> Took:
        """Do so many steps."""
        for each in self._ranks:
            if each.stdin is None:
                raise RuntimeError("a rank was started without a pipe")
            each.stdin.write(f"{steps}\n")
            each.stdin.flush()
        took = []
        for each in self._ranks:
            line = each.stdout.readline() if each.stdout is not None else ""
            if not line:
                raise RuntimeError("a rank ended")
            took.append([float(word) / steps for word in line.split()])
        return Took(*map(statistics.fmean, zip(*took, strict=True)))


@contextmanager
def reading(place: Path, rows: dict[str, int]) -> Iterator[None]:
    """An agent's part of it, once a second."""
    telemetry, over = JobTelemetry("bench", place), threading.Event()

    def read() -> None:
        while not over.wait(1.0):
            for table, columns in telemetry.rows(lambda: FleetOffset(time.monotonic_ns(), 0, 0)):
                rows[table.name] = rows.get(table.name, 0) + len(columns["ts_ns"])
                if "dropped" in columns:
                    rows["dropped"] = rows.get("dropped", 0) + int(sum(columns["dropped"]))

    telemetry.socket.start()
    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        telemetry.socket.close()


def measure(rounds: int, steps: int, width: int) -> dict[str, float]:
    """All jobs, in turns."""
    rows: dict[str, int] = {}
    found: dict[str, list[Took]] = {name: [] for name in (*PLAIN, *HOOKED)}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        place = Path(name)
        stack.enter_context(reading(place, rows))
        jobs = {way: Ranks(place, way, width, stack) for way in found}
        for job in jobs.values():
            job.turn(WARM_STEPS)
        order = [*found]
        for _ in range(rounds):
            random.shuffle(order)
            for way in order:
                found[way].append(jobs[way].turn(steps))
        time.sleep(2)
    done = len(HOOKED) * RANKS * (WARM_STEPS + rounds * steps)
    return summary(found) | {
        "steps_recorded": rows.get(STEP.name, 0) / done,
        "collectives_recorded": rows.get(COLLECTIVE.name, 0) / done,
        "dropped": rows.get("dropped", 0),
        "load": os.getloadavg()[0],
    }


def summary(found: dict[str, list[Took]]) -> dict[str, float]:
    """Medians, and medians and quartiles of the ratios within rounds."""
    plain = found["plain"]
    result = {"plain_step_ms": 1e3 * statistics.median(each.wall_s for each in plain)}
    for way in ("again", "hooked"):
        pairs = list(zip(plain, found[way], strict=True))
        rate = statistics.quantiles([one.wall_s / other.wall_s for one, other in pairs])
        result |= {f"{way}_rate{name}": each
                   for name, each in zip(("_low", "", "_high"), rate, strict=True)}  # fmt: skip
        cpu = (other.cpu_s / one.cpu_s for one, other in pairs)
        more = (other.cpu_s - one.cpu_s for one, other in pairs)
        result[f"{way}_cpu"] = statistics.median(cpu)
        result[f"{way}_cpu_us_more"] = 1e6 * statistics.median(more)
    own = [(each.hook_s, each.hook_s / one.wall_s)
           for one, each in zip(plain, found["timed"], strict=True)]  # fmt: skip
    micros, share = (statistics.median(each) for each in zip(*own, strict=True))
    return result | {"hook_us_per_step": 1e6 * micros, "hook_per_step": share}


def main() -> int:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=50, help="of each job in a round")
    parser.add_argument("--width", type=int, default=256, help="of the layers")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.rounds, given.steps, given.width)
    if given.json:
        print(json.dumps(found, indent=1))
        return 0
    for name, value in found.items():
        print(f"{name:22} {value:10.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
