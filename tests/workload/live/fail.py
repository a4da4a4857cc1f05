"""fail.py MEET: all-reduces with gloo, until rank 2 fails before its 30th; three ranks of torchrun,
or of `torch.multiprocessing.spawn`.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

RANKS = 3


def run(rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=sys.argv[1], rank=rank, world_size=RANKS)
    for number in range(10_000):
        time.sleep(0.1)
        if rank == RANKS - 1 and number == 30:
            raise ValueError("no such sample")
        dist.all_reduce(torch.ones(8))


if __name__ == "__main__":
    if "RANK" in os.environ:
        run(int(os.environ["RANK"]))
    else:
        torch.multiprocessing.spawn(run, nprocs=RANKS)
