"""What one reading of fleet time costs a program: `clock.now()` beside other ways to it.

    python bench/clock_now.py [--json]

The page is written as an agent writes it, by the agent's own writer. `extension` is what
`syntony.clock.now` calls where Python's headers were there at the build, `cffi` what it calls where
they were not. Best of many rounds, so that other work on the machine
counts as little as can be.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from syntony import clock
from syntony.agent.clock_server import ClockServer
from syntony.agent.config import ClockConfig
from syntony.io import run_directory
from syntony.io.clock_page import ClockPageReader
from syntony.io.clocks import KernelClock
from syntony.model import ClockState, Timeline

ROUNDS, CALLS = 300, 500
NATIVE = Path(__file__).parent.parent / "native" / "clock"
C_PROGRAM = r"""
#include <stdio.h>
#include <time.h>
#include "syn_clock_page.h"
static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
int main(int count, char **words)
{
    struct syn_clock_reader reader;
    struct syn_clock_reading out;
    double best = 1e18;
    if (count < 2 || syn_clock_reader_open(&reader, words[1]) != 0)
        return 1;
    for (int round = 0; round < 40; round++) {
        double began = now_ns();
        for (int i = 0; i < 5000; i++)
            if (syn_clock_reader_now(&reader, &out) != 0)
                return 2;
        double each = (now_ns() - began) / 5000;
        best = each < best ? each : best;
    }
    printf("%f\n", best);
    return 0;
}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        rows = measure(Path(place))
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    for name, cost_ns in rows.items():
        print(f"{name:<42}{cost_ns:>10,.0f} ns")
    print(f"load average of the machine: {os.getloadavg()[0]:.1f}")
    return 0


def measure(place: Path) -> dict[str, float]:
    """Nanoseconds per call."""
    server = serve(place)
    os.environ[run_directory.DIR_VARIABLE] = str(place)
    reader = ClockPageReader(place / "clock")
    rows = {
        "syntony.clock.now()": cost_ns(clock.now, server),
        "PageReader.read, extension": cost_ns(reader.read, server),
        "PageReader.read, cffi": cost_ns(reader._read, server),
        "time.clock_gettime_ns": cost_ns(partial(time.clock_gettime_ns, 0), server),
        "syn_clock_reader_now, from C": from_c(place),
    }
    server.close()
    return rows


def serve(place: Path) -> ClockServer:
    """An agent's page of the machine's clock, whose fleet time is that clock's."""
    kernel = KernelClock("h0")
    server = ClockServer(ClockConfig(dir=str(place)), kernel)
    server.tick()
    line = Timeline(
        node="h0",
        ref_ns=kernel.now_ns(),
        offset_ns=0.0,
        drift_ppb=0.0,
        sigma_ns=20.0,
        drift_sigma_ppb=5.0,
        state=ClockState.SYNCHRONIZED,
        epoch=server.epoch,
    )
    server.take([line])
    time.sleep(0.1)
    return server


def cost_ns(call: Callable[[], Any], server: ClockServer) -> float:
    """Of one call, the best round of all."""
    best = float("inf")
    for _ in range(ROUNDS):
        server.tick()
        best = min(best, timeit.timeit(call, number=CALLS) / CALLS)
    return best * 1e9


def from_c(place: Path) -> float:
    """The same function, without Python."""
    source = place / "now.c"
    source.write_text(C_PROGRAM, encoding="utf-8")
    program = place / "now"
    build = [
        "cc",
        "-O2",
        f"-I{NATIVE}",
        source,
        NATIVE / "syn_clock_reader.c",
        "-lm",
        "-o",
        program,
    ]
    subprocess.run([str(word) for word in build], check=True)
    done = subprocess.run([program, place / "clock"], capture_output=True, text=True, check=True)
    return float(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
