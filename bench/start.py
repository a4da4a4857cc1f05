"""How soon commands answer, and how soon the demo shows its first measured claim.

    .venv/bin/python -m bench.start [--rounds 5] [--no-demo] [--json]

Commands: wall and processor time of the whole process, medians, in turn within each round;
`python -c pass` is what the interpreter takes. Demo: seconds from its start until the fleet is up,
and until it says when its clocks were found, the first thing that it measured; then it is ended.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SYNTONY = str(Path(sys.executable).with_name("syntony"))
AIMS_MS = {"--help": 150}
OTHERS_AIM_MS = 250
CLAIM_AIM_S = 30
COMMANDS = (
    "--help", "version", "lab --help", "probe --help", "clock --help", "agent --help",
    "incidents --help", "audit --help", "why --help", "doctor --help", "context list",
    "config check deploy/config/controller.toml",
)  # fmt: skip
STEPS = {"fleet up": "a fleet is up", "first claim": "clocks found after"}


class Start(NamedTuple):
    """One start of one command."""

    wall_ms: float
    processor_ms: float


def start(argv: Sequence[str]) -> Start:
    """Run a command to its end. Raises `CalledProcessError`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    wall_s = time.perf_counter() - began_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Start(wall_s * 1e3, processor_s * 1e3)


def commands(rounds: int) -> dict[str, Start]:
    """Medians by command."""
    argvs = {"python -c pass": [sys.executable, "-c", "pass"]}
    argvs |= {f"syntony {words}": [SYNTONY, *words.split()] for words in COMMANDS}
    found: dict[str, list[Start]] = {name: [] for name in argvs}
    for _ in range(rounds):
        for name, argv in argvs.items():
            found[name].append(start(argv))
    return {
        name: Start(*(statistics.median(column) for column in zip(*starts, strict=True)))
        for name, starts in found.items()
    }


def demo_steps(lines: Mapping[str, str] = STEPS, within_s: float = 300) -> dict[str, float]:
    """Seconds until each line of the demo, in their order; it is ended after the last."""
    began_s = time.perf_counter()
    found: dict[str, float] = {}
    with subprocess.Popen(
        [SYNTONY, "demo", "--act", "one-clock"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1,
    ) as demo:  # fmt: skip
        try:
            for text in demo.stdout or ():
                at_s = time.perf_counter() - began_s
                found |= {step: at_s for step, said in lines.items() if said in text}
                if len(found) == len(lines) or at_s > within_s:
                    break
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate(timeout=120)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-demo", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    started = commands(args.rounds)
    steps = {} if args.no_demo else demo_steps()
    if args.json:
        print(json.dumps({
            "load": load, "commands": {k: v._asdict() for k, v in started.items()}, "demo_s": steps,
        }))  # fmt: skip
        return
    print(f"load {load:.1f}; medians of {args.rounds}")
    for name, found in started.items():
        aim = AIMS_MS.get(re.sub(r"^syntony ", "", name), OTHERS_AIM_MS)
        print(
            f"{name:28} {found.wall_ms:6.0f} ms wall {found.processor_ms:6.0f} ms processor"
            f"   aim {aim} ms"
        )
    for step, at_s in steps.items():
        print(f"demo, {step:22} {at_s:6.1f} s   aim {CLAIM_AIM_S} s")


if __name__ == "__main__":
    main()
