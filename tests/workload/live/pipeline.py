"""pipeline.py WHAT AT STEPS: stages of a pipeline with gloo, one forward, one backward (1F1B), of
which something happens to stage 2 in step AT. Says `ready` after its last step.

slow: it computes four times as long from then on
stuck: it does not come to its next receive
unsent: it leaves out a send to stage 3
short: it sends stage 3 half as much
dtensor: no pipeline, but functional collectives, of which it leaves one out
absent: it never comes to the rendezvous
elsewhere: it has another MASTER_PORT
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

what, at, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rank, stages = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ODD, MICRO, COMPUTE_S = 2, 4, 0.02
torch.set_num_threads(1)
if rank == ODD and what == "absent":
    print("ready", flush=True)
    sys.stdin.readline()
if rank == ODD and what == "elsewhere":
    os.environ["MASTER_PORT"] = "1"
dist.init_process_group("gloo")
size = 1024
sent: list[Any] = []
"""Of this step, not waited for."""


def here(step: int) -> bool:
    return rank == ODD and step >= at


def compute(step: int) -> None:
    time.sleep(COMPUTE_S * (4 if what == "slow" and here(step) else 1))


def forward(step: int, micro: int) -> None:
    if what == "stuck" and here(step):
        time.sleep(3600)
    if rank:
        dist.recv(torch.empty(size), rank - 1)
    compute(step)
    if rank < stages - 1:
        if what == "unsent" and here(step) and micro == 1:
            return
        short = what == "short" and here(step) and micro == 1
        sent.append(dist.isend(torch.ones(size // 2 if short else size), rank + 1))


def backward(step: int) -> None:
    if rank < stages - 1:
        for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, torch.empty(size), rank + 1)]):
            work.wait()
    compute(step)
    if rank:
        sent.append(dist.isend(torch.ones(size), rank - 1))


def pipeline(step: int) -> None:
    warm = min(stages - rank - 1, MICRO)
    for micro in range(warm):
        forward(step, micro)
    for micro in range(warm, MICRO):
        forward(step, micro)
        backward(step)
    for _ in range(warm):
        backward(step)
    while sent:
        sent.pop().wait()


def functional(step: int) -> None:
    from torch.distributed import _functional_collectives as fc

    time.sleep(COMPUTE_S)
    fc.wait_tensor(fc.all_gather_tensor(torch.ones(size), 0, dist.group.WORLD))
    if not here(step):
        (fc.all_reduce(torch.ones(size), "sum", dist.group.WORLD) + 1).sum()


parameter = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for step in range(steps):
    (functional if what == "dtensor" else pipeline)(step)
    optimizer.step()
print("ready", flush=True)
sys.stdin.readline()
os._exit(0)
