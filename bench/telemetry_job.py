"""telemetry_job.py MEET: one rank that trains so many steps as each line says, and what they took.

Needs torch and the standard library only. RANK and WORLD_SIZE as launchers set them; MEET is where
the ranks find each other, as torch takes it. Answers wall time and processor time, seconds.
"""

from __future__ import annotations

import itertools
import os
import sys
import time

import torch
import torch.distributed as dist

WIDTH, BATCH = 256, 32

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
    print(time.perf_counter() - began_s, time.process_time() - used_s, flush=True)
