"""Whether tests fail only because the machine is busy: runs of the test commands beside CPU hogs.

python -m bench.test_runs [--runs 10] [--hogs 4] [--only test] [--json]

Hours: five minutes a run of `test`, an hour of `test-live`, several times that beside hogs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from bench.hogs import hogs

COMMANDS = ("test", "test-live")
_LAST = re.compile(r"^=* ?(\d+ \w+(?:, \d+ \w+)*) in [\d.]+s\b", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")
_FAILURES = re.compile(r"^=+ (?:FAILURES|ERRORS) =+\n(.*?)^=+ ", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class TestRun(NamedTuple):
    """One run of one command."""

    command: str
    status: int
    """What `make` exited with."""
    counts: dict[str, int]
    """Of pytest's last lines: passed, failed, error, skipped; all pytests of the command."""
    failed: tuple[str, ...]
    """Tests by name."""
    wall_s: float
    processor_s: float
    """User and system time of the command, without the hogs."""


def read_output(text: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Counts and names of failed tests, of the output of one or several runs of pytest."""
    counts: Counter[str] = Counter()
    for line in _LAST.findall(text):
        for count, what in _COUNT.findall(line):
            counts["error" if what == "errors" else what] += int(count)
    return dict(counts), tuple(_NAMED.findall(text))


def run_once(command: str) -> TestRun:
    """Run `make COMMAND` here to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.monotonic()
    done = subprocess.run(
        ["make", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    wall_s = time.monotonic() - began_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    counts, failed = read_output(done.stdout)
    if done.returncode:  # without a failed test: native tests, or `make` itself
        why = _FAILURES.findall(done.stdout) or done.stdout.splitlines()[-20:]
        print(*why, sep="\n", file=sys.stderr)
    return TestRun(command, done.returncode, counts, failed, round(wall_s, 1), round(spent_s, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=1, help="of each command [1]")
    parser.add_argument("--hogs", type=int, default=4, help="busy loops beside them [4]")
    parser.add_argument("--only", choices=COMMANDS, help="one of the commands")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.chdir(Path(__file__).parents[1])
    found: list[TestRun] = []
    with hogs(options.hogs):
        for number in range(options.runs):
            for command in (options.only,) if options.only else COMMANDS:
                found.append(run_once(command))
                last = found[-1]
                said = ", ".join(f"{count} {what}" for what, count in last.counts.items())
                print(
                    f"{command} {number + 1}: exit {last.status}; {said or 'no tests ran'}; "
                    f"{last.wall_s:.0f} s, {last.processor_s:.0f} s of processor time",
                    *last.failed, sep="\n  ", file=sys.stderr, flush=True,
                )  # fmt: skip
    if options.json:
        print(json.dumps([each._asdict() for each in found], indent=2))
    else:
        print("| Command | Runs | Failed runs | Failed tests | Wall s | Processor s |")
        print("| --- | --- | --- | --- | --- | --- |")
        for command in dict.fromkeys(each.command for each in found):
            runs = [each for each in found if each.command == command]
            walls = sorted(each.wall_s for each in runs)
            spent = sorted(each.processor_s for each in runs)
            print(
                f"| `make {command}` | {len(runs)} | {sum(each.status != 0 for each in runs)} "
                f"| {', '.join(sorted({name for each in runs for name in each.failed})) or '–'} "
                f"| {walls[0]:.0f} to {walls[-1]:.0f} | {spent[0]:.0f} to {spent[-1]:.0f} |"
            )
    sys.exit(any(each.status != 0 for each in found))


if __name__ == "__main__":
    main()
