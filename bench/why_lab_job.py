"""why_lab_job.py CONTROL: steps of data-parallel training with gloo until a line comes.

CONTROL is a JSON file, read before each step: ``slow_rank`` sleeps ``slow_s`` longer before its
collectives, every rank's data loader sleeps ``data_s`` for each batch, and ``skip_rank`` leaves one
collective out. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as launchers set them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEP_S = 0.05
BUSY_S = 0.006
"""Of a step, CPU time: what a program on the same core makes longer."""
ELEMENTS = 20_000
control = Path(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
wish = threading.Event()


def listen() -> None:
    sys.stdin.readline()
    wish.set()


class Samples(torch.utils.data.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, place: int) -> torch.Tensor:
        time.sleep(json.loads(control.read_text())["data_s"])
        return torch.ones(1)


threading.Thread(target=listen, daemon=True).start()
model = torch.nn.Linear(1, ELEMENTS, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step, batch in enumerate(torch.utils.data.DataLoader(Samples(), batch_size=1)):
    now = json.loads(control.read_text())
    model(batch).mean().backward()
    time.sleep(STEP_S + (now["slow_s"] if rank == now["slow_rank"] else 0))
    done_s = time.thread_time() + BUSY_S
    while time.thread_time() < done_s:
        pass
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    vote = torch.tensor([float(wish.is_set() and rank == 0)])
    if rank != now["skip_rank"]:
        dist.all_reduce(vote)
    print("step", step, flush=True)
    if vote > 0:
        break
os._exit(0)
