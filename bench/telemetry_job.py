"""telemetry_job.py MEET WIDTH [timed]: one rank that trains so many steps as each line says.

Needs torch and the standard library only. RANK and WORLD_SIZE as launchers set them; MEET is where
the ranks find each other, as torch takes it; WIDTH is that of the layers. Answers what the steps
took: wall time and processor time, seconds, and with `timed` how much of the latter the hook's own
functions took, which it then measures around each of them.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

WIDTH, BATCH = int(sys.argv[2]), 32
TIMED = sys.argv[3:] == ["timed"]
spent_ns: list[int] = []
"""In the hook's functions."""


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, its thread's time added up."""

    def around(*args: Any, **kwargs: Any) -> Any:
        began_ns = time.thread_time_ns()
        result = function(*args, **kwargs)
        spent_ns.append(time.thread_time_ns() - began_ns - CLOCK_NS)
        return result

    return around


CLOCK_NS = 0
if TIMED:
    import syntony_job_hook  # type: ignore[import-not-found]

    reads = [time.thread_time_ns() for _ in range(1001)]
    CLOCK_NS = (reads[-1] - reads[0]) // 1000
    kind = syntony_job_hook.Hook
    for name in ("_begin", "_returned"):
        setattr(kind, name, timed(getattr(kind, name)))
    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    for key, each in list(hooks.items()):
        hooks[key] = timed(each)

torch.set_num_threads(1)
torch.manual_seed(7)
dist.init_process_group(
    "gloo", init_method=sys.argv[1], rank=int(os.environ["RANK"]),
    world_size=int(os.environ["WORLD_SIZE"]),
)  # fmt: skip
layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
samples = torch.utils.data.TensorDataset(torch.randn(64 * BATCH, WIDTH))
loader = torch.utils.data.DataLoader(samples, batch_size=BATCH)
batches = itertools.chain.from_iterable(itertools.repeat(loader))
for line in sys.stdin:
    began_s, used_s = time.perf_counter(), time.process_time()
    for _ in range(int(line)):
        (batch,) = next(batches)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss.detach())
    spent_s = time.perf_counter() - began_s, time.process_time() - used_s
    print(*spent_s, sum(spent_ns) / 1e9, flush=True)
    spent_ns.clear()
