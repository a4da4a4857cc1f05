"""Run tests in several processes, each with its own share of the files (`tests/split.py`):

    python -m tests.workers 4 [--beside COMMAND] -m 'not slow and not lab and not costly'

`--beside` runs a command at the same time, as one more worker: native tests hardly compute.

Each process is a pytest of its own. Under pytest-xdist every test costs its worker and a further
process some messages, which together took a tenth of the time of many short tests.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.test_runs import read_output

_PROGRESS = re.compile(r"[.sxXFE]+( +\[ *\d+%\])?\n")
_NONE_COLLECTED = 5
_INTERRUPTED = 2
"""Exit statuses of pytest."""


def draws_seed() -> str:
    """What `SYNTONY_TEST_SEED` says; `new` becomes a number, also for processes started later."""
    seed = os.environ.get("SYNTONY_TEST_SEED", "0")
    if seed == "new":
        seed = os.environ["SYNTONY_TEST_SEED"] = str(random.SystemRandom().randrange(1 << 32))
    return seed


class Run:
    """All workers of one run, each with the command and what says its share; and others."""

    def __init__(
        self, workers: int, command: Sequence[str], beside: Sequence[Sequence[str]] = ()
    ) -> None:
        shares = [[*command, f"--share={number}/{workers}"] for number in range(workers)]
        self._commands = [*shares, *beside]
        self._printing = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.statuses: list[int] = []

    def work_all(self) -> None:
        with ThreadPoolExecutor(len(self._commands)) as pool:
            list(pool.map(self._work, range(len(self._commands)), self._commands))

    def _work(self, number: int, command: Sequence[str]) -> None:
        """Run one worker to its end. Prints its progress at once, and all else at its end."""
        kept = []
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        ) as process:  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                if _PROGRESS.fullmatch(line):
                    with self._printing:
                        print(f"{number} {line}", end="", flush=True)
                else:
                    kept.append(line)
        text = "".join(kept)
        with self._printing:
            print(text, end="", flush=True)
            self.statuses.append(process.returncode)
            self.counts.update(read_output(text)[0])

    @property
    def status(self) -> int:
        """0: all tests passed, and there were some."""
        bad = [each for each in self.statuses if each not in {0, _NONE_COLLECTED}]
        none = all(each == _NONE_COLLECTED for each in self.statuses)
        return abs(bad[0]) if bad else _NONE_COLLECTED * none


def main() -> int:
    workers, *options = sys.argv[1:]
    beside = []
    if options[:1] == ["--beside"]:
        beside, options = [shlex.split(options[1])], options[2:]
    began_s = time.monotonic()
    print(f"SYNTONY_TEST_SEED={draws_seed()}")
    run = Run(int(workers), [sys.executable, "-m", "pytest", "-q", *options], beside)
    try:
        run.work_all()
    except KeyboardInterrupt:  # the workers got it too, and said what they had
        return _INTERRUPTED
    said = ", ".join(f"{count} {what}" for what, count in sorted(run.counts.items()))
    print(f"all workers: {said or 'no tests ran'}; {time.monotonic() - began_s:.0f} s")
    return run.status


if __name__ == "__main__":
    sys.exit(main())
