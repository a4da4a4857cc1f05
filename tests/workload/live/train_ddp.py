"""train_ddp.py MEET STEPS SLOW_RANK RANK_S DATA_S: steps of `DistributedDataParallel`
with gloo, then until a line comes; one rank sleeps before its backward pass, or every rank's data
loader does.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

meet, steps, slow_rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rank_s, data_s = map(float, sys.argv[4:])
torch.set_num_threads(1)
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=ranks)


class Samples(torch.utils.data.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return steps

    def __getitem__(self, place: int) -> torch.Tensor:
        time.sleep(data_s)
        return torch.ones(16)


model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for batch in torch.utils.data.DataLoader(Samples(), batch_size=1):
    loss = model(batch).mean()
    time.sleep(rank_s if rank == slow_rank else 0.0)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("ready", flush=True)
sys.stdin.readline()
