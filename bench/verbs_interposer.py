"""What counting queue pairs costs: ns for each verb with and without, and the agent's read.

    python -m bench.verbs_interposer [--rounds 400] [--json]

A C program calls verbs of a provider that does nothing, on a device that is watched and on one that
is not, in turns; medians and the 10th percentile of rounds of 5,000 calls. `read` is the processor
time that the agent takes once a second for one process with so many busy queue pairs, median of 20.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from syntony.agent.queue_pairs import FleetOffset, QueuePairSocket

NATIVE = Path(__file__).parent.parent / "native" / "verbs"
DOOR = NATIVE.parent / "door"
VERBS = ("post_send", "post_recv", "poll_cq, one completion", "poll_cq, none")
READ_PAIRS = (1, 64, 256)
C_PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "watch.h"
enum { CALLS = 5000, MANY = 256 };
static int count = 1;
static int sends(struct ibv_qp *q, struct ibv_send_wr *w, struct ibv_send_wr **b)
{ (void)q, (void)w, (void)b; return 0; }
static int receives(struct ibv_qp *q, struct ibv_recv_wr *w, struct ibv_recv_wr **b)
{ (void)q, (void)w, (void)b; return 0; }
static int polls(struct ibv_cq *q, int room, struct ibv_wc *wc)
{
    (void)q, (void)room;
    wc->qp_num = 17, wc->status = IBV_WC_SUCCESS, wc->opcode = IBV_WC_RECV, wc->byte_len = 64;
    return count;
}
static int query_gid(struct ibv_context *c, uint8_t p, int i, union ibv_gid *g)
{ (void)c, (void)p, (void)i; memset(g, 1, sizeof *g); return 0; }
static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}
static struct ibv_context contexts[2];
static struct ibv_cq cqs[2];
static struct ibv_qp qps[2][MANY];
static double one(int which, int verb)
{
    struct ibv_sge sge = {0, 64, 0};
    struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                               .send_flags = IBV_SEND_SIGNALED}, *bad;
    struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_recv;
    struct ibv_wc wc;
    count = verb == 2;
    int64_t began = now_ns();
    for (int i = 0; i < CALLS; i++)
        switch (verb) {
        case 0: ibv_post_send(&qps[which][0], &send, &bad); break;
        case 1: ibv_post_recv(&qps[which][0], &recv, &bad_recv); break;
        default: ibv_poll_cq(&cqs[which], 1, &wc);
        }
    return (double)(now_ns() - began) / CALLS;
}
int main(int argc, char **words)
{
    static const struct watch_verbs verbs = {.query_gid = query_gid};
    int rounds = atoi(words[1]), pairs = argc > 2 ? atoi(words[2]) : 1;
    for (int i = 0; i < 2; i++) {
        contexts[i].ops = (struct ibv_context_ops){.post_send = sends, .post_recv = receives,
                                                   .poll_cq = polls};
        cqs[i].context = &contexts[i];
    }
    watch_opened(&contexts[1], "bench0", &verbs);
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < pairs; n++) {
            qps[i][n] = (struct ibv_qp){.context = &contexts[i], .qp_num = 17 + n,
                                        .qp_type = IBV_QPT_RC, .recv_cq = &cqs[i]};
            struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
            if (i)
                watch_modified(&qps[i][n], &attr, IBV_QP_STATE);
        }
    for (int round = 0; round < rounds; round++)
        for (int verb = 0; verb < 4; verb++)
            for (int i = 0; i < 2; i++)
                printf("%d %d %.2f\n", verb, i, one((i + round) % 2, verb));
    fflush(stdout);
    for (int busy = 0; argc > 2 && busy < 200; busy++) {
        struct ibv_sge sge = {0, 64, 0};
        struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
        struct timespec pause = {.tv_nsec = 50000000};
        for (int n = 0; n < pairs; n++)
            for (int i = 0; i < 30; i++)
                ibv_post_send(&qps[1][n], &send, &bad);
        nanosleep(&pause, NULL);
    }
}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        program = build(Path(place))
        found = costs(program, Path(place), arguments.rounds)
        reads = {pairs: read_ms(program, Path(place), pairs) for pairs in READ_PAIRS}
    if arguments.json:
        print(json.dumps({"ns": found, "read_ms": reads}, indent=1))
        return 0
    print(f"{'verb':26}{'without':>10}{'with':>10}{'more':>10}{'more, p10':>12}   ns")
    for verb, (without, with_, more, low) in found.items():
        print(f"{verb:26}{without:10.1f}{with_:10.1f}{more:10.1f}{low:12.1f}")
    for pairs, ms in reads.items():
        print(f"agent reads a process with {pairs} queue pairs: {ms:.2f} ms of processor time")
    return 0


def build(place: Path) -> Path:
    source, program = place / "bench.c", place / "bench"
    source.write_text(C_PROGRAM)
    files = [str(source), *map(str, sorted(NATIVE.glob("*.c"))), str(DOOR / "door.c")]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", f"-I{NATIVE}", f"-I{DOOR}"]
    subprocess.run(["cc", *flags, *files, "-o", str(program), "-ldl", "-lpthread"], check=True)
    return program


def environment(place: Path) -> dict[str, str]:
    return os.environ | {"SYNTONY_AGENT": str(place / "agent"), "SYNTONY_JOB": "bench"}


def costs(program: Path, place: Path, rounds: int) -> dict[str, tuple[float, float, float, float]]:
    """By verb: without, with, and the difference, median and 10th percentile over rounds, in ns."""
    # In odd rounds the watched device goes first.
    out = subprocess.run(
        [str(program), str(rounds)], env=environment(place), capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    reported = [line.split() for line in out.splitlines()]
    found = {}
    for number, verb in enumerate(VERBS):
        mine = [float(words[2]) for words in reported if int(words[0]) == number]
        rows = [
            mine[at : at + 2][:: 1 if at // 2 % 2 == 0 else -1] for at in range(0, len(mine), 2)
        ]
        without, with_ = ([row[which] for row in rows] for which in (0, 1))
        more = [b - a for a, b in zip(without, with_, strict=True)]
        found[verb] = (
            statistics.median(without),
            statistics.median(with_),
            statistics.median(more),
            statistics.quantiles(more, n=10)[0],
        )
    return found


def read_ms(program: Path, place: Path, pairs: int) -> float:
    agent = QueuePairSocket(place / "agent-qp")
    agent.start()
    took: list[float] = []
    words = [str(program), "0", str(pairs)]
    with subprocess.Popen(words, env=environment(place)) as process:
        time.sleep(0.5)
        while len(took) < 20 and process.poll() is None:
            time.sleep(0.3)
            began_ns = time.process_time_ns()
            report = agent.report(lambda: FleetOffset(time.monotonic_ns(), 0, 0))
            if report is not None and len(report.queue_pairs) == pairs:
                took.append((time.process_time_ns() - began_ns) / 1e6)
        process.kill()
    agent.close()
    return statistics.median(took)


if __name__ == "__main__":
    sys.exit(main())
