"""A training program that knows nothing of Syntony, for `bench.resilience` and the tests.

Each rank writes a line for each step (instant, step, loss and what else it computes, in full), at
the end a hash of everything that it has learnt and its largest resident size (KiB), and, all along,
in one byte of a file, what it is doing, so that it can be killed there. After three quarters of its
steps it waits while there is a file `hold`, so that it does not end before all faults have been.
"""

import argparse
import hashlib
import mmap
import os
import random
import resource
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PHASES = ("between", "data", "forward", "backward", "optimizer", "after")
FEATURES = (
    "workers",
    "batchnorm",
    "accumulate",
    "amp",
    "plateau",
    "reduce",
    "subgroup",
    "checkpoint",
    "clip",
    "two",
    "plain-sampler",
    "fsdp2",
    "hsdp",
    "nccl",
)


class Toy(Dataset):  # type: ignore[misc]
    """Noise is drawn anew at each reading, from three generators."""

    def __init__(self, count: int, width: int) -> None:
        own = torch.Generator().manual_seed(3)
        self.x = torch.randn(count, width, generator=own)
        self.w = torch.randn(width, 10, generator=own)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> Any:
        x = self.x[at]
        noise = 0.05 * torch.randn_like(x) + 0.01 * random.random()
        return x + noise + 0.01 * float(np.random.rand()), (x @ self.w).argmax()  # noqa: NPY002


def local(tensor: Any) -> Any:
    """This rank's part of a sharded tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Average:
    """An object of the program's own that changes in the loop."""

    def __init__(self) -> None:
        self.value = 0.0

    def update(self, value: float) -> None:
        self.value = 0.9 * self.value + 0.1 * value


def sharded(model: nn.Module, replicas: int, world: int, device: str) -> nn.Module:
    """FSDP2, or with replicas HSDP: each linear layer by itself, and the rest."""
    split = {"replicate": replicas, "shard": world // replicas}
    if replicas == 1:
        del split["replicate"]
    mesh = init_device_mesh(device, tuple(split.values()), mesh_dim_names=tuple(split))
    for each in model:
        if isinstance(each, nn.Linear):
            fully_shard(each, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def net(width: int, hidden: int, norm: bool) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(width, hidden)]
    for _ in range(2):
        layers += [nn.BatchNorm1d(hidden) if norm else nn.LayerNorm(hidden), nn.GELU()]
        layers += [nn.Dropout(0.1), nn.Linear(hidden, hidden)]
    return nn.Sequential(*layers, nn.GELU(), nn.Linear(hidden, 10))


def wait_while_held(file: Path, steps: int, total: int) -> None:
    """After three quarters of all steps."""
    while 4 * steps > 3 * total and file.exists():
        time.sleep(0.02)


def main() -> None:  # noqa: C901, PLR0912, PLR0915 - one long script, as they are
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--pause-ms", type=float, default=0.0)
    parser.add_argument("--features", default="")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    features = set(filter(None, args.features.split(",")))
    torch.set_num_threads(1)
    device = "cpu"
    if "nccl" in features and torch.cuda.is_available():
        device = "cuda"
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    elif "nccl" in features:
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from bench import fake_nccl

        fake_nccl.install()
    dist.init_process_group("nccl" if "nccl" in features else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    half = [dist.new_group(each) for each in ([0, 1], list(range(2, world))) if each]
    log = (args.out / f"r{rank}.log").open("a", buffering=1)
    mark_file = args.out / f"phase{rank}"
    mark_file.touch()
    os.truncate(mark_file, 1)
    with mark_file.open("r+b") as opened:
        phase = mmap.mmap(opened.fileno(), 1)
    is_sharded = bool(features & {"fsdp2", "hsdp"})
    torch.manual_seed(7 if is_sharded else 7 + rank)
    model: Any = net(args.width, args.hidden, "batchnorm" in features).to(device)
    if is_sharded:
        sharded(model, 2 if "hsdp" in features else 1, world, device)
    else:
        model = DistributedDataParallel(model)
    config = [{"rate": 1e-3} if rank == 0 else None]
    dist.broadcast_object_list(config)
    rate = config[0]["rate"] if config[0] else 0.0
    torch.manual_seed(1000 + rank)
    random.seed(rank)
    np.random.seed(rank)  # noqa: NPY002
    parameters = list(model.parameters())
    split = [parameters[::2], parameters[1::2]] if "two" in features else [parameters]
    optimizers = [torch.optim.AdamW(each, lr=rate) for each in split]
    data = Toy(args.batches * args.batch * world, args.width)
    if "plain-sampler" in features:
        loader = DataLoader(data, args.batch, shuffle=True, drop_last=True)
    else:
        sampler = DistributedSampler(data, shuffle=True, seed=5)
        workers = 2 if "workers" in features else 0
        loader = DataLoader(data, args.batch, sampler=sampler, drop_last=True, num_workers=workers)
    total = args.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizers[0], T_max=total)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizers[-1], patience=3)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0, enabled="amp" in features)
    every = 3 if "accumulate" in features else 1
    average, steps = Average(), 0
    begun_s = time.process_time()
    for epoch in range(args.epochs):
        if "plain-sampler" not in features:
            sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            wait_while_held(args.out / "hold", steps, total)
            x, y = (each.to(device) for each in batch)
            phase[0] = 2
            last = (i + 1) % every == 0 or i + 1 == len(loader)
            autocast = torch.autocast(device, torch.bfloat16, enabled="amp" in features)
            if is_sharded:
                model.set_requires_gradient_sync(last)
            with nullcontext() if last or is_sharded else model.no_sync(), autocast:
                loss = F.cross_entropy(model(x), y)
                if args.pause_ms:
                    time.sleep(args.pause_ms / 1e3)
                phase[0] = 3
                scaler.scale(loss / every).backward()
            if last:
                if "clip" in features:
                    nn.utils.clip_grad_norm_(parameters, 1.0)
                phase[0] = 4
                for optimizer in optimizers:
                    scaler.step(optimizer)
                scaler.update()
                for optimizer in optimizers:
                    optimizer.zero_grad()
                phase[0] = 5
                schedule.step()
            shown = loss.detach().clone()
            if "reduce" in features:
                dist.all_reduce(shown)
                gathered = [torch.zeros((), device=device) for _ in range(world)]
                dist.all_gather(gathered, loss.detach())
                shown += torch.stack(gathered).max()
            if "subgroup" in features:
                dist.all_reduce(shown, group=half[rank > 1])
            if "plateau" in features:
                plateau.step(shown)
            average.update(shown.item())
            steps += 1
            rate = optimizers[0].param_groups[0]["lr"]
            values = f"{shown.item()!r} {loss.item()!r} {average.value!r} {rate!r}"
            log.write(f"{time.monotonic_ns()} {steps} {epoch} {i} {values}\n")
            if "checkpoint" in features and rank == 0 and steps % 10 == 0:
                torch.save(model.state_dict(), args.out / "ck.tmp")
                (args.out / "ck.tmp").replace(args.out / "ck.pt")
            phase[0] = 1
        phase[0] = 0
    (args.out / f"cpu{rank}").write_text(str(time.process_time() - begun_s))
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (args.out / f"rss{rank}").write_text(str(peak_kib))
    state = hashlib.sha256(repr((torch.get_rng_state().sum(), random.random())).encode())
    for each in [*model.parameters(), *model.buffers()]:
        state.update(local(each).detach().cpu().numpy().tobytes())
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                for value in optimizer.state[parameter].values():
                    state.update(local(torch.as_tensor(value)).cpu().numpy().tobytes())
    (args.out / f"sha{rank}").write_text(state.hexdigest())
    dist.barrier()


if __name__ == "__main__":
    main()
