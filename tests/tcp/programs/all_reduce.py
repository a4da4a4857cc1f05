"""One rank of a PyTorch job on gloo: RANK MASTER_ADDRESS; checks every sum."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist

STEPS, NUMBERS = 10, 250_000
rank, master = int(sys.argv[1]), sys.argv[2]
os.environ |= {
    "MASTER_ADDR": master,
    "MASTER_PORT": "29511",
    "GLOO_SOCKET_IFNAME": "rail0",
}
any_dist: Any = dist
any_dist.init_process_group("gloo", rank=rank, world_size=2)
for step in range(STEPS):
    tensor = torch.full((NUMBERS,), float(rank + step))
    any_dist.all_reduce(tensor)
    assert bool((tensor == 2 * step + 1).all()), f"step {step}: {tensor[:3]}"
any_dist.destroy_process_group()
print(f"rank {rank}: {STEPS} right sums")
