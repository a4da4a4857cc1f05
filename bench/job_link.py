"""What it costs a job's process to tell of a flow and to hear of a path, and the agent to read.

    python -m bench.job_link [--json]

`tell` and `take` (nothing there) are of a C program, best of many rounds; `notice` is from the
agent's call until a process that polls on another core has it; `read` is what the agent does for
one process with so many flows, best of many.
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
from pathlib import Path
from typing import IO, cast

from syntony.agent.job_link import MAX_FLOWS, JobLink
from syntony.traffic.instructions import Cause, Notice, Reason

NATIVE = Path(__file__).parent.parent / "native" / "job"
ROUNDS = 2_000
C_PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "syn_job_page.h"
static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
int main(int count, char **words)
{
    struct syn_job job = {.fd = -1};
    struct syn_job_flow flow = {.mechanism = SYN_JOB_RDMA, .nic = "mlx5_0"};
    struct syn_job_progress progress = {.outstanding = 4};
    struct syn_job_notice notice;
    double tell = 1e18, take = 1e18;
    if (count < 2 || syn_job_connect(&job, NULL) != 0)
        return 1;
    for (int i = 0; i < atoi(words[1]); i++)
        if (syn_job_open_flow(&job, &flow) < 0)
            return 1;
    for (int round = 0; round < 200; round++) {
        int64_t began = now_ns();
        for (int i = 0; i < 10000; i++) {
            progress.bytes_done++;
            syn_job_tell(&job, 0, &progress);
        }
        int64_t told = now_ns();
        for (int i = 0; i < 10000; i++)
            syn_job_take(&job, &notice);
        double each = (told - began) / 1e4, other = (now_ns() - told) / 1e4;
        tell = each < tell ? each : tell;
        take = other < take ? other : take;
    }
    printf("%f %f\n", tell, take);
    fflush(stdout);
    for (;;)
        if (syn_job_take(&job, &notice)) {
            printf("%lld\n", (long long)(now_ns() - notice.at_ns));
            fflush(stdout);
        }
}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        link = JobLink(Path(place) / "agent")
        link.start()
        try:
            for flows in (1, MAX_FLOWS, 512):
                found |= _measure(link, _built(Path(place)), flows)
        finally:
            link.close()
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:28} {value:12.1f}")
    return 0


def _built(place: Path) -> str:
    (place / "program.c").write_text(C_PROGRAM, encoding="utf-8")
    program = str(place / "program")
    sources = [str(place / "program.c"), str(NATIVE / "syn_job.c")]
    subprocess.run(
        ["cc", "-O2", "-D_GNU_SOURCE", f"-I{NATIVE}", *sources, "-o", program], check=True
    )
    return program


def _measure(link: JobLink, program: str, flows: int) -> dict[str, float]:
    environ = os.environ | {"SYNTONY_AGENT": str(link._path), "SYNTONY_JOB": "bench"}
    with subprocess.Popen(
        [program, str(flows)], stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        try:
            answers = cast("IO[str]", process.stdout)
            tell_ns, take_ns = map(float, answers.readline().split())
            read_us = min(timeit.repeat(link.report, number=1, repeat=300)) * 1e6
            found = {f"read_{flows}_flows_us": read_us}
            if flows == 1:
                found |= {"tell_ns": tell_ns, "take_ns": take_ns}
                found |= _notices(link, answers)
            return found
        finally:
            process.kill()


def _notices(link: JobLink, answers: IO[str]) -> dict[str, float]:
    took = []
    for _ in range(ROUNDS):
        at_ns = time.monotonic_ns()
        reason = Reason(Cause.PATH, "bench", at_ns, at_ns)
        link.do(Notice(path=("10.0.0.1", "10.0.0.2"), usable=False, reason=reason))
        took.append(int(answers.readline()))
    took.sort()
    return {"notice_p50_ns": took[ROUNDS // 2], "notice_p99_ns": took[ROUNDS * 99 // 100]}


if __name__ == "__main__":
    sys.exit(main())
