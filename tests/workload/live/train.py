"""train.py ELEMENTS SLOW_MS: data-parallel steps with gloo until a line comes; a rank named by
SLOW_RANK sleeps in each step. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as launchers set them.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import torch
import torch.distributed as dist

elements, slow_s = int(sys.argv[1]), float(sys.argv[2]) / 1e3
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
wish = threading.Event()


def listen() -> None:
    sys.stdin.readline()
    wish.set()


threading.Thread(target=listen, daemon=True).start()
model = torch.nn.Linear(1, elements, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.utils.data.DataLoader(torch.ones(100_000, 1), batch_size=1)
for step, batch in enumerate(data):
    model(batch).mean().backward()
    time.sleep(0.02 + (slow_s if rank == int(os.environ.get("SLOW_RANK", "-1")) else 0))
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    vote = torch.tensor([float(wish.is_set() and rank == 0)])
    dist.all_reduce(vote)
    print("step", step, flush=True)
    if vote > 0:
        break
os._exit(0)
