"""hooked.py MODE: a rank that is loaded with the hook; what it imports as torch may be a fake.

Says `ready` when it has done so, then waits for a line.
"""

import os
import sys

import torch.distributed as dist
from torch.nn.parallel.distributed import DistributedDataParallel
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


def reduces() -> None:
    """Pass 1; pass 2 without a time; pass 4, before which DDP forgets one; others on a GPU."""
    optimizer = Optimizer()
    model, other = DistributedDataParallel("cpu"), DistributedDataParallel("cuda")
    optimizer.step()
    for reported in (1, 2, 4):
        model.passes(reported, timed=reported != 2)
        other.passes(reported, timed=True)
        optimizer.step()
        optimizer.step()
    print(model.rate, other.rate, flush=True)


{"work": work, "errors": errors, "forks": forks, "reduces": reduces}[sys.argv[1]]()
print("ready", flush=True)
sys.stdin.readline()
