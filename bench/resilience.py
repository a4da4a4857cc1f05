"""Ranks of a PyTorch job die at random moments: is the result the same, and how long does it stall?

    .venv/bin/python -m bench.resilience [--kills 50] [--stops 5] [--seed 1] [--features LIST]
                                         [--rounds 3] [--calm MINUTES [--hogs 8]] [--json]

A job of four ranks (gloo, `DistributedDataParallel`, AdamW, a scheduler, dropout, data with noise)
runs undisturbed; then under `syntony run --spares`, with a random rank killed or stopped at a
random phase, again and again, as soon as spares are ready. Every line that every rank wrote, and
the hash of what it has learnt, is compared with the first run.

A stall has four parts: what the step had taken by then, until the coordinator knew, until all were
connected anew, and until the step was done, which the replacement does from its start. The first
and the last are nearly a step of an undisturbed job (`step_ms`, its pause included).

Overhead: short runs without faults, alternately alone and protected, of two ranks and steps of some
200 ms; only steps after the spare is ready count. With fewer cores than ranks a step is mostly
waiting, so processor time (of whole runs) is compared as well. Beside it, `torchrun`'s own restart
with checkpoints, killed in the same way: `lab.drill.rank_loss`.
"""

from __future__ import annotations

import argparse
import functools
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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.resilience_job import FEATURES, PHASES
from tests.live import SYNTONY

from syntony.lab.jobs.torch_build import find_torch

JOB = Path(__file__).with_name("resilience_job.py")
RANKS, PAIR = 4, 2
PARTS = "of the step", "until known", "until formed", "until the step is done"
READY_S, END_S, LONG_S, POLL_S = 600.0, 1200.0, 3600.0, 0.0005
ENDLESS = 1_000_000
_find_torch = functools.cache(find_torch)


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
    parts_s: dict[str, float] = field(default_factory=dict)
    """Of the pause in which it fell."""


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
        return sum(float(each.read_text()) for each in self.out.glob("cpu*"))

    def gaps_s(self, rank: int, since_ns: int = 0) -> list[float]:
        at = [int(words[0]) for words in self.lines(rank) if int(words[0]) >= since_ns]
        return [(b - a) / 1e9 for a, b in itertools.pairwise(at)]

    def hold(self) -> None:
        """The job does not end before `release`."""
        (self.out / "hold").touch()

    def release(self) -> None:
        (self.out / "hold").unlink()

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

    def wait(self, limit_s: float = END_S) -> int:
        try:
            return self.process.wait(limit_s)
        finally:
            if self.running():
                self.process.terminate()
                self.process.wait(20)

    def must_end_well(self, limit_s: float = END_S) -> None:
        if self.wait(limit_s):
            output = self.out.with_suffix(".out").read_text()[-2000:]
            raise SystemExit(f"the undisturbed run failed:\n{output}")

    def measure(self) -> None:
        """How long others stood still around each fault."""
        for each in self.kills:
            at = sorted(int(words[0]) for words in self.lines((each.rank + 1) % RANKS))
            after = [(b - a) / 1e9 for a, b in itertools.pairwise(at) if b > each.at_ns]
            each.stall_s = max(after[:3], default=0.0)
            known = _next(self.seen("lost"), each.at_ns)
            formed = _next(self.seen("formed"), known)
            ends = [each.at_ns, known, formed, next((n for n in at if n > formed), 0)]
            began = max((n for n in at if n <= each.at_ns), default=0)
            if all(ends) and began:
                parts = [(b - a) / 1e9 for a, b in itertools.pairwise([began, *ends])]
                each.parts_s = dict(zip(PARTS, parts, strict=True))


def _next(events: list[dict[str, Any]], after_ns: int) -> int:
    """The first event's instant; 0: there is none."""
    return next((int(each["at_ns"]) for each in events if each["at_ns"] > after_ns), 0)


def start(
    place: Path, name: str, words: list[str], *, spares: int = 0, ranks: int = RANKS,
    options: Sequence[str] = (), job: Path = JOB,
) -> Run:  # fmt: skip
    """Start the job under torchrun, with spares or other options of `syntony run`, or without."""
    python = _find_torch()
    out, events = place / name, place / f"{name}.events"
    out.mkdir(exist_ok=True)
    torchrun = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    torchrun += ["--master-port", str(random.randrange(20_000, 30_000))]
    run = [*SYNTONY, "run", "--job", f"{name}-{os.getpid()}", "--spares", str(spares)]
    run += ["--events", str(events), *options, "--"]
    argv = [*(run if spares or options else []), *torchrun, str(job), "--out", str(out), *words]
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


def overhead(place: Path, rounds: int) -> dict[str, Any]:
    """Steps and processor time with Syntony against those without, in turns."""
    found: dict[str, list[tuple[float, float]]] = {"alone": [], "protected": []}
    spent: list[dict[str, Any]] = []
    counted: list[int] = []
    for number in range(rounds):
        for name, values in found.items():
            words = ["--epochs", "1", "--batches", "150", "--hidden", "768", "--batch", "512"]
            spares = int(name == "protected")
            run = start(place, f"{name}{number}", words, spares=spares, ranks=PAIR)
            run.must_end_well()
            ready = max((each["at_ns"] for each in run.seen("spare-ready")), default=0)
            steps = run.gaps_s(0, ready)[10:]
            counted.append(len(steps))
            values.append((statistics.median(steps), run.processor_s()))
            spent += run.seen("spent")
    ratios = [
        [round(ours[at] / bare[at] - 1, 3) for bare, ours in zip(*found.values(), strict=True)]
        for at in (0, 1)
    ]
    return {
        "step_ms": {
            name: [round(step * 1e3, 1) for step, _ in values] for name, values in found.items()
        },
        "least_steps_counted": min(counted),
        "step_overhead": ratios[0],
        "processor_overhead": ratios[1],
        "record_ms": round(
            statistics.median(e["record_ns"] / e["boundaries"] / 1e6 for e in spent), 3
        ),
        "record_bytes": max(each["record_bytes"] for each in spent),
    }


def faults(place: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The job with faults beside the job without."""
    words = ["--epochs", "1", "--batches", str(args.steps), "--features", args.features]
    base = start(place, "alone", words)
    base.must_end_well(LONG_S)
    pause = ["--pause-ms", str(args.pause_ms)]
    faulty = start(place, "faults", [*words, *pause], spares=args.spares)
    disturb(faulty, random.Random(args.seed), args.kills, args.stops)
    code = faulty.wait(LONG_S)
    faulty.measure()
    killed = [each.stall_s for each in faulty.kills if each.number == signal.SIGKILL]
    stopped = [each.stall_s for each in faulty.kills if each.number == signal.SIGSTOP]
    phases = [each.phase for each in faulty.kills]
    took_s = [each["took_ns"] / 1e9 for each in faulty.seen("formed") if each.get("lost")]
    return {
        "seed": args.seed,
        "steps": len(base.steps(0)),
        "exit_code": code,
        "killed": len(killed),
        "stopped": len(stopped),
        "phases": {each: phases.count(each) for each in PHASES if each in phases},
        "replaced": len(faulty.seen("assigned")),
        "gave_up": [each["reason"] for each in faulty.seen("gave-up")],
        "differences": differences(base, faulty) if code == 0 else ["it did not end well"],
        "verified_by_digest": sum(each["equal"] for each in faulty.seen("digest")),
        "step_ms": round(statistics.median(faulty.gaps_s(0)) * 1e3, 1),
        "stall_killed_s": quantiles(killed),
        "stall_stopped_s": quantiles(stopped),
        "formed_after_s": quantiles(took_s),
        "parts_killed_s": {
            part: quantiles(
                [e.parts_s[part] for e in faulty.kills if e.parts_s and e.number == signal.SIGKILL]
            )
            for part in PARTS
        },
    }


def calm(place: Path, epochs: int, hogs: int, limit_s: float = LONG_S) -> dict[str, Any]:
    """A job without faults and processes that burn all cores: every lost rank is a mistake.

    It is ended after `limit_s` if it still runs; its exit code is None then.
    """
    words = ["--epochs", str(epochs), "--batches", "60", "--features", "reduce"]
    burning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL)
        for _ in range(hogs)
    ]
    began_s = time.monotonic()
    try:
        run = start(place, "calm", [*words, "--pause-ms", "100"], spares=1)
        try:
            code = run.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
    finally:
        for each in burning:
            each.kill()
            each.wait()
    return {
        "calm_exit_code": code,
        "calm_s": round(time.monotonic() - began_s),
        "calm_steps": len(run.lines(0)),
        "hogs": hogs,
        "false_takeovers": [each["reason"] for each in run.seen("lost")],
        "hangs_reported": [each["reason"] for each in run.seen("hang")],
    }


def quantiles(values: list[float]) -> dict[str, float | None]:
    parts = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    found = {name: quantile(values, part) for name, part in parts.items()}
    return {name: None if each is None else round(each, 3) for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--features", default="batchnorm,reduce", help=", ".join(FEATURES))
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--pause-ms", type=float, default=100.0)
    parser.add_argument("--spares", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calm", type=float, default=0, metavar="MINUTES", help="with --hogs")
    parser.add_argument("--hogs", type=int, default=8)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    place = args.keep or Path(tempfile.mkdtemp(prefix="syntony-resilience-"))
    place.mkdir(exist_ok=True)
    load = [Path("/proc/loadavg").read_text().split()[0]]
    try:
        report = faults(place, args) if args.kills + args.stops else {"differences": []}
        load.append(Path("/proc/loadavg").read_text().split()[0])
        if args.rounds:
            report |= overhead(place, args.rounds)
        if args.calm:
            report |= calm(place, ENDLESS, args.hogs, args.calm * 60)
    finally:
        if args.keep is None:
            shutil.rmtree(place)
    report["load"] = [*load, Path("/proc/loadavg").read_text().split()[0]]
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        for name, value in report.items():
            print(f"{name:28} {value}")
    wrong = report["differences"] or report.get("false_takeovers") or report.get("calm_exit_code")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
