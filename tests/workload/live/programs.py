"""programs.py WHAT FAULT: a rank of a program as others write them, with gloo, and perhaps a fault
of rank 2. Prints a number that its results decide.

actors: rank 0 learns from what the others send, in any order, and answers each; at times long
server: rank 0 has requests for all others at times, and none for long
evaluates: data parallel with accumulated gradients; rank 0 evaluates at times while others wait
shards: fully sharded (FSDP2)
saves: data parallel, with distributed checkpoints that take long at rank 0
loads: data parallel, with processes of a data loader
forms: groups of some ranks, and groups that are destroyed and formed again
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.nn.parallel import DistributedDataParallel

ODD, AT = 2, 10
LONG_S = float(os.environ.get("LONG_S", "12"))
"""Much longer than a step, and than it takes until a hang is named."""


class Program:
    """Of one rank."""

    def __init__(self, what: str, fault: str) -> None:
        self.what, self.fault = what, fault
        self.rank, self.ranks = (int(os.environ[each]) for each in ("RANK", "WORLD_SIZE"))
        self.sum = 0.0
        torch.manual_seed(self.rank)
        torch.set_num_threads(1)

    def maybe_fail(self, step: int) -> None:
        if self.rank != ODD or step != AT or not self.fault:
            return
        if self.fault == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.fault == "raises":
            raise RuntimeError("a bug")
        if self.fault == "stuck":
            time.sleep(3600)
        if self.fault == "loops":
            self.compute(3600)

    def net(self) -> Any:
        torch.manual_seed(7)
        return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))

    def loss(self, model: Any) -> Any:
        return model(torch.randn(16, 64)).square().mean()

    def actors(self) -> None:
        actors = self.ranks - 1
        if self.rank:
            for step in range(25):
                time.sleep(0.04 * self.rank)
                self.maybe_fail(step)
                dist.send(torch.full((8,), float(self.rank)), 0)
                weights = torch.empty(8)
                dist.recv(weights, 0)
            self.sum = float(self.rank)
            return
        weight = torch.nn.Parameter(torch.zeros(8))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for step in range(25 * actors):
            sample = torch.empty(8)
            work = dist.irecv(sample)
            work.wait()
            source = work._source_rank()
            weight.grad = sample
            optimizer.step()
            self.sum += float(sample.sum())
            if step in {20, 50}:
                self.compute(LONG_S)
            dist.send(weight.detach(), source)

    def server(self) -> None:
        for step in range(60):
            command: list[Any] = [None]
            if not self.rank:
                time.sleep(LONG_S if step in {20, 40} else 0.05)
                command = [{"step": step}]
            dist.broadcast_object_list(command, 0)
            for layer in range(4):
                self.maybe_fail(step if layer == 2 else -1)
                part = torch.full((64,), float(self.rank + command[0]["step"]))
                dist.all_reduce(part)
                self.sum += float(part.sum())

    def evaluates(self) -> None:
        model = DistributedDataParallel(self.net())
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(60):
            self.maybe_fail(step)
            for _ in range(3):
                with model.no_sync():
                    self.loss(model).backward()
            loss = self.loss(model)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.05)
            dist.all_reduce(loss.detach())
            if step in {20, 40}:
                if not self.rank:
                    self.compute(LONG_S)
                if step == 20:
                    dist.monitored_barrier(timeout=timedelta(minutes=10))
                else:
                    dist.barrier()
        self.sum = float(sum(each.sum() for each in model.parameters()))

    def shards(self) -> None:
        from torch.distributed.fsdp import fully_shard

        dist.device_mesh.init_device_mesh("cpu", (self.ranks,))
        model = self.net()
        for each in model:
            if isinstance(each, torch.nn.Linear):
                fully_shard(each, mesh=dist.device_mesh.init_device_mesh("cpu", (self.ranks,)))
        fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (self.ranks,)))
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(60):
            self.maybe_fail(step)
            self.loss(model).backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.05)
        self.sum = float(sum(each.full_tensor().sum() for each in model.parameters()))

    def saves(self) -> None:
        model = DistributedDataParallel(self.net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        place = Path(os.environ.get("PLACE", tempfile.gettempdir())) / "checkpoint"
        for step in range(50):
            self.maybe_fail(step)
            self.loss(model).backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.05)
            if step in {15, 30}:
                if not self.rank:
                    time.sleep(LONG_S)  # an upload
                checkpoint.save({"model": model.module.state_dict()},
                                checkpoint_id=str(place / str(step)))  # fmt: skip
        self.sum = float(sum(each.sum() for each in model.parameters()))

    def loads(self) -> None:
        model = DistributedDataParallel(self.net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        samples = torch.utils.data.TensorDataset(torch.randn(1024, 64))
        loader = torch.utils.data.DataLoader(samples, batch_size=16, num_workers=2)
        for step, (batch,) in enumerate(loader):
            self.maybe_fail(step)
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.05)
        self.sum = float(sum(each.sum() for each in model.parameters()))

    def forms(self) -> None:
        for again in range(4):
            if again:
                dist.destroy_process_group()
                # Its store may outlive it at the old port.
                os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
                dist.init_process_group("gloo")
            for step in range(5):
                self.maybe_fail(step + 5 * again)
                half = [each for each in range(self.ranks) if each % 2 == step % 2]
                group = dist.new_group(half)
                part = torch.full((4,), float(self.rank))
                if self.rank in half:
                    for _ in range(5):
                        dist.all_reduce(part, group=group)
                        part /= len(half)
                dist.all_reduce(part)
                self.sum += float(part.sum())
                if self.rank in half:
                    dist.destroy_process_group(group)
                time.sleep(0.05)

    @staticmethod
    def compute(seconds: float) -> None:
        """For so long; the program's random numbers stay the same however often it goes round."""
        some, end_s = torch.ones(64, 64), time.monotonic() + seconds
        while time.monotonic() < end_s:
            some.matmul(some)


def run(rank: int | None = None, *words: str) -> None:
    """Args: `rank`: of a spawned process; words as on the command line."""
    if rank is not None:
        os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    program = Program(*words)
    getattr(program, program.what)()
    sys.stdout.write(f"result {program.rank} {program.sum:.6f}\n")  # one write: ranks share it
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    words = sys.argv[1:3]
    if "RANK" in os.environ:
        run(None, *words)
    else:
        count = int(os.environ["WORLD_SIZE"])
        start = sys.argv[3] if sys.argv[3:] else "spawn"
        torch.multiprocessing.start_processes(run, tuple(words), count, start_method=start)
