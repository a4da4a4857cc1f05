"""How long a training job takes in all under a schedule of faults, and by which means it survives?

    .venv/bin/python -m bench.resilience_schedule [--steps 3000] [--faults 6] [--seed 1]
                                                  [--every 20] [--pause-ms 100] [--json]

The program of `syntony lab drill rank-loss` on four ranks, undisturbed, under torchrun with a
checkpoint every `--every` steps and restarts, under torchft where the interpreter has it, and under
`syntony run --spares 1`: the same ranks are killed in the same steps, at seeded distances that are
distributed exponentially. Total time includes the start of PyTorch, also after each restart.
`--limit` is for each run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from syntony.lab.drill.rank_loss import (
    CALM,
    SYNTONY,
    TODAY,
    RankLossOptions,
    events,
    launch_argv,
    lines,
    rank_pid,
)
from syntony.lab.jobs.torch_build import find_torch
from syntony.model import S

RANKS, POLL_S = 4, 0.01
TORCHFT = "torchft"


def schedule(seed: int, steps: int, faults: int) -> list[tuple[int, int]]:
    """Step and rank of each fault, from a tenth of the steps on to nine tenths."""
    choice = random.Random(seed)
    gaps = [choice.expovariate(1.0) for _ in range(faults + 1)]
    ends = [sum(gaps[: n + 1]) / sum(gaps) for n in range(faults)]
    return [(int(steps * (0.1 + 0.8 * each)), choice.randrange(RANKS)) for each in ends]


def run(
    options: RankLossOptions, name: str, place: Path, due: list[tuple[int, int]]
) -> dict[str, Any]:
    """One run of the program; `options.limit_ns` is the longest that it may take."""
    out = place / name.split(",", maxsplit=1)[0].replace(" ", "-").lower()
    out.mkdir()
    argv = torchft(options, out) if name == TORCHFT else launch_argv(options, name, out)
    end_ns = time.monotonic_ns() + options.limit_ns
    if name == TODAY:
        argv = [f"--max-restarts={len(due)}" if "max-restarts" in each else each for each in argv]
    began_ns = time.monotonic_ns()
    with (out / "output").open("wb") as output:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        )  # fmt: skip
    killed = 0
    try:
        for step, rank in [] if name == CALM else due:
            if not reached(name, process, out, step, killed, end_ns):
                break
            os.kill(rank_pid(name, process.pid, out, rank), signal.SIGKILL)
            killed += 1
        code = process.wait(max(0.0, (end_ns - time.monotonic_ns()) / S))
    except subprocess.TimeoutExpired:
        code = None
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    done = [Counter(each.step for each in lines(out, rank)) for rank in range(RANKS)]
    at = [each.at_ns for each in lines(out, 0)]
    gaps_ns = [b - a for a, b in itertools.pairwise(at)]
    last = (out / "output").read_text(errors="replace").splitlines()[-3:]
    return {
        "total_s": round((time.monotonic_ns() - began_ns) / S, 1),
        "exit_code": "not ended in time" if code is None else code,
        "step_ms": round(statistics.median(gaps_ns) / 1e6, 1) if gaps_ns else None,
        "killed": killed,
        "steps": min(len(each) for each in done),
        "steps_again": max(each.total() - len(each) for each in done),
        "sha256": sorted((out / f"{rank}.sha256").read_text() for rank in range(RANKS))
        if code == 0
        else [],
    } | ({} if code == 0 else {"last_lines": last})


def torchft(options: RankLossOptions, out: Path) -> list[str]:
    """The command line of its launcher."""
    argv = [
        options.python,
        "-m",
        "bench.resilience_torchft",
        f"--out={out}",
        f"--ranks={options.ranks}",
    ]
    return [*argv, f"--steps={options.steps}", f"--pause-ms={options.pause_ns / 1e6}"]


def has_torchft(python: str) -> bool:
    done = subprocess.run([python, "-c", "import torchft"], check=False, capture_output=True)
    return done.returncode == 0


def reached(  # noqa: PLR0917
    name: str, process: subprocess.Popen[bytes], out: Path, step: int, killed: int, end_ns: int
) -> bool:
    """Wait until rank 0 has done a step, and what was lost before is made good."""
    while process.poll() is None and time.monotonic_ns() < end_ns:
        time.sleep(POLL_S)
        seen = [each["event"] for each in events(out)]
        ready = name != SYNTONY or seen.count("spare-ready") > killed == seen.count("assigned")
        steps = lines(out, 0)
        if ready and steps and steps[-1].step >= step:
            return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--faults", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--pause-ms", type=float, default=100.0)
    parser.add_argument("--limit", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    due = schedule(args.seed, args.steps, args.faults)
    options = RankLossOptions(
        python=find_torch(), ranks=RANKS, steps=args.steps, every=args.every,
        pause_ns=int(args.pause_ms * 1e6), limit_ns=int(args.limit * S),
    )  # fmt: skip
    report: dict[str, Any] = {"seed": args.seed, "faults": due, "load": [load()]}
    with tempfile.TemporaryDirectory(prefix="syntony-schedule-") as place:
        for name in (CALM, TODAY, TORCHFT, SYNTONY):
            if name == TORCHFT and not has_torchft(options.python):
                report[name] = {"skipped": f"{options.python} has no torchft"}
                continue
            report[name] = run(options, name, Path(place), due)
            report["load"].append(load())
    for name in (TODAY, TORCHFT, SYNTONY):
        found = report[name].pop("sha256", [])
        report[name]["same_result"] = bool(found) and found == report[CALM]["sha256"]
    del report[CALM]["sha256"]
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        for name, value in report.items():
            print(f"{name:24} {value}")


def load() -> str:
    return Path("/proc/loadavg").read_text().split()[0]


if __name__ == "__main__":
    main()
