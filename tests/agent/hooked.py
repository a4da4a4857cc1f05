"""hooked.py MODE: a rank that is loaded with the hook; what it imports as torch may be a fake.

Says `ready` when it has done so, then waits for a line.
"""

import os
import sys

import torch.distributed as dist
from torch.optim.optimizer import Optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter


class Tensor:
    def numel(self) -> int:
        return 25

    def element_size(self) -> int:
        return 4


def work() -> None:
    optimizer, data = Optimizer(), _BaseDataLoaderIter()
    for step in range(4):
        next(data)
        dist.all_reduce(Tensor(), async_op=step % 2 == 1)
        optimizer.step()


def errors() -> None:
    try:
        dist.all_reduce(None)
    except ValueError as error:
        print("told", error, flush=True)


def forks() -> None:
    dist.all_reduce(Tensor())
    child = os.fork()
    if not child:
        dist.all_reduce(Tensor())
        os._exit(0)
    os.waitpid(child, 0)


{"work": work, "errors": errors, "forks": forks}[sys.argv[1]]()
print("ready", flush=True)
sys.stdin.readline()
