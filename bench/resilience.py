"""Ranks of a PyTorch job die at random moments: is the result the same, and how long does it stall?

    .venv/bin/python -m bench.resilience [--kills 50] [--stops 5] [--seed 1] [--features LIST]
                                         [--hidden 512] [--pause-ms 0] [--json]

A job of four ranks (gloo, `DistributedDataParallel`, AdamW, a scheduler, dropout, data with noise)
runs three times: alone, under `syntony run --spares` without faults, and with a random rank killed
or stopped at a random phase, again and again, as soon as spares are ready. Every line that every
rank wrote, and the hash of what it has learnt, is compared with the first run. Overhead is the
ratio of the median steps of the first two runs; with more ranks than cores it is mostly waiting.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.resilience_job import FEATURES, PHASES
from tests.live import SYNTONY

from syntony.lab.jobs.torch_build import find_torch

JOB = Path(__file__).with_name("resilience_job.py")
RANKS = 4
READY_S, END_S, POLL_S = 180.0, 240.0, 0.0005


@dataclass
class Kill:
    """One fault, and what came of it."""

    rank: int
    phase: str
    number: int
    step: int
    at_ns: int
    stall_s: float = 0.0
    """The longest pause between two steps of rank `(rank + 1) % RANKS` around it."""


@dataclass
class Run:
    """One run of the job."""

    out: Path
    process: subprocess.Popen[bytes]
    events_file: Path
    kills: list[Kill] = field(default_factory=list)

    def events(self) -> list[dict[str, Any]]:
        try:
            lines = self.events_file.read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        return [json.loads(each) for each in lines if each.endswith("\n")]

    def seen(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events() if each["event"] == event]

    def pid(self, rank: int) -> int | None:
        """Of the process that holds a rank now."""
        pids: dict[str, int] = {}
        holder = None
        for each in self.events():
            if each["event"] == "worker":
                pids[each["worker"]] = each["pid"]
            if each["event"] in {"worker", "assigned"} and each["rank"] == rank:
                holder = each["worker"]
        return None if holder is None else pids.get(holder)

    def lines(self, rank: int) -> list[list[str]]:
        try:
            return [each.split() for each in (self.out / f"r{rank}.log").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def steps(self, rank: int) -> dict[int, tuple[str, ...]]:
        """What a rank wrote of each step.

        Raises:
            ValueError: it wrote two different things of one step.
        """
        found: dict[int, tuple[str, ...]] = {}
        for words in self.lines(rank):
            known = found.setdefault(int(words[1]), tuple(words[2:]))
            if known != tuple(words[2:]):
                raise ValueError(f"rank {rank} did step {words[1]} in two ways")
        return found

    def digest(self, rank: int) -> str:
        return (self.out / f"sha{rank}").read_text()

    def processor_s(self) -> float:
        """Of all ranks, in their training loops."""
        return sum(float((self.out / f"cpu{rank}").read_text()) for rank in range(RANKS))

    def gaps_s(self, rank: int) -> list[float]:
        at = [int(words[0]) for words in self.lines(rank)]
        return [(b - a) / 1e9 for a, b in itertools.pairwise(at)]

    def running(self) -> bool:
        return self.process.poll() is None

    def phase(self, rank: int) -> str:
        try:
            return PHASES[(self.out / f"phase{rank}").read_bytes()[0]]
        except (FileNotFoundError, IndexError):
            return "none"

    def kill(self, rank: int, phase: str, number: int, timeout_s: float = 5.0) -> Kill | None:
        """Once the rank is in the phase; wherever it is after `timeout_s`."""
        pid = self.pid(rank)
        end_s = time.monotonic() + timeout_s
        while self.phase(rank) != phase and time.monotonic() < end_s and self.running():
            time.sleep(POLL_S)
        found = self.phase(rank)
        lines = self.lines(rank)
        if pid is None or not self.running() or not lines:
            return None
        kill = Kill(rank, found, number, int(lines[-1][1]), time.monotonic_ns())
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return None
        self.kills.append(kill)
        return kill

    def wait(self) -> int:
        try:
            return self.process.wait(END_S)
        finally:
            if self.running():
                self.process.terminate()
                self.process.wait(20)

    def must_end_well(self) -> None:
        if self.wait():
            output = self.out.with_suffix(".out").read_text()[-2000:]
            raise SystemExit(f"the undisturbed run failed:\n{output}")

    def measure(self) -> None:
        """How long others stood still around each fault."""
        for each in self.kills:
            at = sorted(int(words[0]) for words in self.lines((each.rank + 1) % RANKS))
            after = [(b - a) / 1e9 for a, b in itertools.pairwise(at) if b > each.at_ns]
            each.stall_s = max(after[:3], default=0.0)


def start(place: Path, name: str, words: list[str], *, spares: int = 0, ranks: int = RANKS) -> Run:
    """Start the job under torchrun, with spares or without Syntony."""
    python = find_torch()
    out, events = place / name, place / f"{name}.events"
    out.mkdir()
    torchrun = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    torchrun += ["--master-port", str(random.randrange(20_000, 30_000))]
    run = [*SYNTONY, "run", "--spares", str(spares), "--events", str(events), "--"]
    argv = [*(run if spares else []), *torchrun, str(JOB), "--out", str(out), *words]
    with (place / f"{name}.out").open("wb") as output:
        process = subprocess.Popen(
            argv, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    return Run(out, process, events)


def wait_ready(run: Run, used: int, spares: int = 1) -> bool:
    """Until so many spares are ready and the job trains in a formed generation."""
    end_s = time.monotonic() + READY_S
    while run.running() and time.monotonic() < end_s:
        ready = len(run.seen("spare-ready")) - len(run.seen("assigned"))
        formed = run.seen("formed")
        if ready >= spares and formed and run.lines(0) and len(run.seen("lost")) == used:
            lost = run.seen("lost")
            if not lost or formed[-1]["at_ns"] > lost[-1]["at_ns"]:
                return True
        time.sleep(0.02)
    return False


def differences(base: Run, other: Run, ranks: int = RANKS) -> list[str]:
    """Everything in which a run did other than the undisturbed one."""
    found = []
    for rank in range(ranks):
        expected, got = base.steps(rank), other.steps(rank)
        wrong = [step for step in expected if got.get(step) != expected[step]]
        if wrong or len(got) != len(expected):
            found.append(f"rank {rank}: {len(wrong)} steps differ, the first {wrong[:1]}")
        if base.digest(rank) != other.digest(rank):
            found.append(f"rank {rank}: other weights or optimizer state")
    return found


def disturb(run: Run, choice: random.Random, kills: int, stops: int) -> None:
    numbers = [signal.SIGKILL] * kills + [signal.SIGSTOP] * stops
    choice.shuffle(numbers)
    for used, number in enumerate(numbers):
        if not wait_ready(run, used):
            return
        time.sleep(choice.random() * 0.3)
        run.kill(choice.randrange(RANKS), choice.choice(PHASES[1:]), number)
        end_s = time.monotonic() + READY_S
        while run.running() and time.monotonic() < end_s and len(run.seen("lost")) == used:
            time.sleep(0.02)


def quantile(values: list[float], part: float) -> float | None:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--features", default="batchnorm,reduce", help=", ".join(FEATURES))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--pause-ms", type=float, default=20.0)
    parser.add_argument("--spares", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    place = args.keep or Path(tempfile.mkdtemp(prefix="syntony-resilience-"))
    place.mkdir(exist_ok=True)
    words = ["--epochs", str(args.epochs), "--batches", str(args.batches), "--features",
             args.features, "--hidden", str(args.hidden), "--pause-ms", str(args.pause_ms),
             "--batch", str(args.batch)]  # fmt: skip
    try:
        report = measure(place, words, args)
    finally:
        if args.keep is None:
            shutil.rmtree(place)
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        for name, value in report.items():
            print(f"{name:28} {value}")
    sys.exit(bool(report["differences"]))


def measure(place: Path, words: list[str], args: argparse.Namespace) -> dict[str, Any]:
    base = start(place, "alone", words)
    base.must_end_well()
    calm = start(place, "calm", words, spares=args.spares)
    calm.must_end_well()
    faulty = start(place, "faults", words, spares=args.spares)
    disturb(faulty, random.Random(args.seed), args.kills, args.stops)
    code = faulty.wait()
    faulty.measure()
    killed = [each.stall_s for each in faulty.kills if each.number == signal.SIGKILL]
    stopped = [each.stall_s for each in faulty.kills if each.number == signal.SIGSTOP]
    steps = {run.out.name: statistics.median(run.gaps_s(0)) for run in (base, calm)}
    phases = [each.phase for each in faulty.kills]
    spent = calm.seen("spent")
    return {
        "seed": args.seed,
        "steps": len(base.steps(0)),
        "exit_code": code,
        "killed": len(killed),
        "stopped": len(stopped),
        "phases": {each: phases.count(each) for each in PHASES if each in phases},
        "replaced": len(faulty.seen("assigned")),
        "differences": differences(base, calm) + (
            differences(base, faulty) if code == 0 else ["it did not end well"]
        ),
        "verified_by_digest": sum(each["equal"] for each in faulty.seen("digest")),
        "stall_killed_s": {"p50": quantile(killed, 0.5), "p99": quantile(killed, 0.99)},
        "stall_stopped_s": {"p50": quantile(stopped, 0.5), "max": quantile(stopped, 1.0)},
        "step_alone_ms": round(steps["alone"] * 1e3, 2),
        "step_protected_ms": round(steps["calm"] * 1e3, 2),
        "overhead": round(steps["calm"] / steps["alone"] - 1, 4),
        "processor_overhead": round(calm.processor_s() / base.processor_s() - 1, 4),
        "record_ms": [round(e["record_ns"] / e["boundaries"] / 1e6, 3) for e in spent],
        "record_bytes": [each["record_bytes"] for each in spent],
        "load": Path("/proc/loadavg").read_text().split()[0],
    }  # fmt: skip


if __name__ == "__main__":
    main()
