"""A training program with tensor parallelism, alone or within FSDP2; it knows nothing of Syntony.

Each rank writes a line for each step (instant, step, loss), and at the end a hash of its part of
weights and optimizer state.
"""

import argparse
import hashlib
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

WIDTH, ACROSS = 16, 2
"""Features; ranks that a layer is split over, where FSDP2 splits the rest."""


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--pause-ms", type=float, default=0.0)
    parser.add_argument("--fsdp2", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    across = ACROSS if args.fsdp2 else world
    mesh = init_device_mesh("cpu", (world // across, across), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(3)
    model = nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 4))
    for block in (model[0], model[1]):
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(block, mesh["tensor"], plan)
        if args.fsdp2:
            fully_shard(block, mesh=mesh["data"])
    if args.fsdp2:
        fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.batches)
    log = (args.out / f"r{rank}.log").open("a", buffering=1)
    own = torch.Generator().manual_seed(5 + rank // across)  # the same for ranks of a layer
    data = [(torch.randn(8, WIDTH, generator=own), torch.randn(8, 4, generator=own))
            for _ in range(args.batches)]  # fmt: skip
    for step, (x, y) in enumerate(data):
        loss = (model(x) - y).square().mean()
        time.sleep(args.pause_ms / 1e3)
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        log.write(f"{time.monotonic_ns()} {step} {loss.item()!r}\n")
    state = hashlib.sha256()
    for parameter in model.parameters():
        for each in (parameter.detach(), *optimizer.state[parameter].values()):
            part = each.to_local() if hasattr(each, "to_local") else each
            state.update(part.numpy().tobytes())
    (args.out / f"sha{rank}").write_text(state.hexdigest())
    dist.barrier()


if __name__ == "__main__":
    main()
