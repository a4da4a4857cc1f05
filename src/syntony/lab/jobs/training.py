"""A small training program that knows nothing of Syntony: PyTorch's DDP on gloo, with checkpoints.

Run by a launcher that sets RANK and WORLD_SIZE. Every rank appends a line for each step to
`DIR/RANK.steps` (CLOCK_MONOTONIC in ns, step, loss in full), and at the end writes
`DIR/RANK.sha256` of weights and optimizer state. It saves checkpoints and resumes from the last
one.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH, CLASSES, BATCH = 64, 10, 16


def digits(count: int) -> TensorDataset:
    """Clusters that can be separated, the same on every rank."""
    own = torch.Generator().manual_seed(5)
    labels = torch.randint(CLASSES, (count,), generator=own)
    centres = torch.randn(CLASSES, WIDTH, generator=own)
    return TensorDataset(centres[labels] + 3.0 * torch.randn(count, WIDTH, generator=own), labels)


def sha256(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    found = hashlib.sha256()
    for each in model.parameters():
        found.update(each.detach().numpy().tobytes())
        for value in optimizer.state[each].values():
            found.update(torch.as_tensor(value).numpy().tobytes())
    return found.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--every", type=int, default=20, help="Steps between checkpoints.")
    parser.add_argument("--pause-ms", type=float, default=0.0, help="As if it computed longer.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    layers = [nn.Linear(WIDTH, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, CLASSES)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)
    data = digits(args.steps * BATCH * world)
    sampler: Any = DistributedSampler(data, shuffle=True, seed=9)
    loader = DataLoader(data, BATCH, sampler=sampler)
    saved = args.out / "checkpoint"
    done = 0
    if saved.exists():
        kept = torch.load(saved)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        done = kept["step"]
    with (args.out / f"{rank}.steps").open("a", buffering=1) as log:
        for step, (x, y) in enumerate(loader):
            if step < done:
                continue
            loss = F.cross_entropy(model(x), y)
            time.sleep(args.pause_ms / 1e3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.write(f"{time.monotonic_ns()} {step} {loss.item()!r}\n")
            if rank == 0 and (step + 1) % args.every == 0:
                kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(kept | {"step": step + 1}, args.out / "checkpoint.new")
                (args.out / "checkpoint.new").replace(saved)
    (args.out / f"{rank}.sha256").write_text(sha256(model, optimizer))
    dist.barrier()


if __name__ == "__main__":
    main()
