"""A training program in stages of a pipeline, one a rank; it knows nothing of Syntony.

Each rank writes a line for each step (instant, step, loss, which only the last has), and at the end
a hash of its stage's weights and optimizer state.
"""

import argparse
import hashlib
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, MICROBATCHES = 16, 4


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--pause-ms", type=float, default=0.0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3 + rank)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1), nn.Tanh())
    stage = PipelineStage(model, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    log = (args.out / f"r{rank}.log").open("a", buffering=1)
    own = torch.Generator().manual_seed(5)
    data = [torch.randn(2, 8, WIDTH, generator=own) for _ in range(args.batches)]
    for step, (x, y) in enumerate(data):
        losses: list[torch.Tensor] = []
        time.sleep(args.pause_ms / 1e3)
        if rank == 0:
            schedule.step(x)
        elif rank == world - 1:
            schedule.step(target=y, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        log.write(f"{time.monotonic_ns()} {step} {sum(each.item() for each in losses)!r}\n")
    state = hashlib.sha256()
    for parameter in model.parameters():
        for each in (parameter.detach(), *optimizer.state[parameter].values()):
            state.update(each.numpy().tobytes())
    (args.out / f"sha{rank}").write_text(state.hexdigest())
    dist.barrier()


if __name__ == "__main__":
    main()
