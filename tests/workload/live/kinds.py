"""kinds.py WHAT: a rank of one kind of program, with gloo, as the documentation of torch shows it.
Prints a number that its results decide, and how many steps of it count.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 12


class Samples(torch.utils.data.Dataset[Any]):  # type: ignore[misc]
    """Samples that processes of a loader make."""

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, number: int) -> Any:
        return torch.full((16,), float(number)) / 48


def net(wide: int = 32) -> torch.nn.Module:
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(16, wide), torch.nn.ReLU(), torch.nn.Linear(wide, wide), torch.nn.ReLU(),
        torch.nn.Linear(wide, 4),
    )  # fmt: skip


def batch(step: int) -> Any:
    made = torch.Generator().manual_seed(1_000 * dist.get_rank() + step)
    return torch.randn(8, 16, generator=made)


def total(model: torch.nn.Module) -> float:
    return float(sum(each.detach().double().abs().sum() for each in model.parameters()))


def train(model: Any, optimizer: Any, steps: int = STEPS, first: int = 0) -> int:
    for step in range(first, first + steps):
        optimizer.zero_grad()
        model(batch(step)).square().mean().backward()
        optimizer.step()
    return steps


def zero() -> tuple[float, int]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    steps = train(model, optimizer)
    optimizer.consolidate_state_dict(0)
    return total(model), steps


def fsdp1() -> tuple[float, int]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"))
    steps = train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with FullyShardedDataParallel.summon_full_params(model):
        return total(model), steps


def fsdp2() -> tuple[float, int]:
    from torch.distributed.fsdp import fully_shard

    model: Any = net()
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for each in model:
        if isinstance(each, torch.nn.Linear):
            fully_shard(each, mesh=mesh)
    fully_shard(model, mesh=mesh)
    steps = train(model, torch.optim.AdamW(model.parameters()))
    return float(sum(each.full_tensor().abs().sum() for each in model.parameters())), steps


def joins() -> tuple[float, int]:
    """Uneven inputs."""
    from torch.distributed.algorithms.join import Join

    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        steps = train(model, optimizer, STEPS + 5 * dist.get_rank())
    return total(model), steps


def accumulates() -> tuple[float, int]:
    model = DistributedDataParallel(net(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        with model.no_sync():
            model(batch(step)).sum().backward()
        model(batch(step + 100)).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return total(model), STEPS


def comm_hook() -> tuple[float, int]:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    model = DistributedDataParallel(net())
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=3)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    steps = train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return total(model), steps


def replaces_optimizer() -> tuple[float, int]:
    """Another one once more layers are trained, of which the first step does not count; the one
    before is kept, or not."""
    model = DistributedDataParallel(net())
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = train(model, first)
    second = torch.optim.Adam(model.parameters())
    steps += train(model, second, first=100)
    del first
    steps += train(model, torch.optim.SGD(model.parameters(), lr=0.01), first=200)
    return total(model), steps - 2


def two_optimizers() -> tuple[float, int]:
    """As a generator and its critic, which steps three times as often."""
    one, two = DistributedDataParallel(net()), DistributedDataParallel(net())
    maker, critic = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (one, two))
    for step in range(STEPS):
        train(one, maker, 1, step)
        train(two, critic, 3, 3 * step)
    return total(one) + total(two), 3 * STEPS


def in_backward() -> tuple[float, int]:
    """An optimizer for each parameter, which steps once its gradient is there."""
    model = net()
    some = {each: torch.optim.SGD([each], lr=0.1) for each in model.parameters()}

    def step(parameter: Any) -> None:
        dist.all_reduce(parameter.grad)
        some[parameter].step()
        some[parameter].zero_grad()

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(step)
    for number in range(STEPS):
        model(batch(number)).square().mean().backward()
    return total(model), STEPS


def closures() -> tuple[float, int]:
    model = DistributedDataParallel(net())
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def loss() -> Any:
        optimizer.zero_grad()
        value = model(batch(0)).square().mean()
        value.backward()
        return value

    for _ in range(STEPS):
        optimizer.step(loss)
    return total(model), STEPS


def compiles() -> tuple[float, int]:
    """Collectives within one graph: what cannot be traced is an error."""
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))
    run = torch.compile(model, backend="aot_eager")

    def optimize() -> None:
        optimizer.step()

    def reduce(values: Any) -> Any:
        dist.all_reduce(values)
        return values * 2

    step = torch.compile(optimize, backend="eager")
    together = torch.compile(reduce, backend="aot_eager", fullgraph=True)
    found = 0.0
    for number in range(STEPS):
        optimizer.zero_grad()
        run(batch(number)).square().mean().backward()
        step()
        found += float(together(torch.full((4,), number + 1.0)).sum())
    return found + total(model), STEPS


def loads() -> tuple[float, int]:
    """By processes that are spawned."""
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(
        Samples(), batch_size=4, num_workers=2, multiprocessing_context="spawn",
        persistent_workers=True,
    )  # fmt: skip
    steps = 0
    for _ in range(2):
        for values in loader:
            optimizer.zero_grad()
            model(values).square().mean().backward()
            optimizer.step()
            steps += 1
    return total(model), steps


def forks() -> tuple[float, int]:
    """Children that compute, and one that starts another program, between steps."""
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps, codes = 0, 0
    for number in range(3):
        steps += train(model, optimizer, STEPS, number)
        child = os.fork()
        if not child:
            os._exit(sum(range(10)) - 40)
        codes += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        codes += subprocess.call([sys.executable, "-c", "exit(7)"])
    return total(model) + codes, steps


def objects() -> tuple[float, int]:
    """Collectives of objects, of several tensors, with futures, and by threads with groups of their
    own."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    found = 0.0
    for step in range(STEPS):
        given: list[Any] = [None] * ranks
        dist.all_gather_object(given, {"rank": rank, "step": step})
        found += sum(each["rank"] + each["step"] for each in given)
        words = [f"{step}"] if not rank else [None]
        dist.broadcast_object_list(words, 0)
        found += float(str(words[0]))
        part = torch.full((4,), float(rank))
        future = dist.all_reduce(part, async_op=True).get_future()
        found += float(future.then(lambda each: each.value()[0] * 2).wait().sum())
        with dist._coalescing_manager():
            for some in (torch.ones(2), torch.ones(3)):
                dist.all_reduce(some)
    groups = [dist.new_group() for _ in range(2)]
    sums = [0.0, 0.0]

    def reduce(number: int) -> None:
        for _ in range(STEPS):
            part = torch.full((4,), float(rank + number))
            dist.all_reduce(part, group=groups[number])
            sums[number] += float(part.sum())

    threads = [threading.Thread(target=reduce, args=(each,)) for each in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found + sum(sums), 0


def catches() -> tuple[float, int]:
    """Errors that it goes on after: a time limit, and an argument that torch refuses."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    found, store = 0.0, dist.distributed_c10d._get_default_store()
    for step in range(3):
        group = dist.new_group(timeout=timedelta(seconds=1))
        if not rank:
            try:
                dist.monitored_barrier(group, timeout=timedelta(seconds=1))
            except RuntimeError:
                found += 1
            store.set(f"over {step}", "")
        store.wait([f"over {step}"])
        try:
            dist.all_reduce("no tensor")
        except TypeError:
            found += 1
        part = torch.ones(2)
        dist.all_reduce(part)
        found += float(part.sum())
    return found + ranks, 0


def stages() -> tuple[float, int]:
    """A pipeline of `torch.distributed.pipelining`."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    part = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh())
    stage = PipelineStage(part, rank, ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        values = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
        schedule.step(*(() if rank else (values,)), target=values if rank == ranks - 1 else None)
        optimizer.step()
    return total(part), STEPS


def meshes() -> tuple[float, int]:
    """Sharded in one dimension of a mesh, tensor parallel in the other."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import parallel

    names = "shards", "tensors"
    mesh = dist.device_mesh.init_device_mesh(
        "cpu", (1, dist.get_world_size()), mesh_dim_names=names
    )
    model = net()
    plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    parallel.parallelize_module(model, mesh["tensors"], plan)
    fully_shard(model, mesh=mesh["shards"])
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for step in range(STEPS):
        optimizer.zero_grad()
        values = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
        model(values).square().mean().backward()
        optimizer.step()
    return float(sum(each.full_tensor().abs().sum() for each in model.parameters())), STEPS


def loads_ahead() -> tuple[float, int]:
    """Another thread takes batches from the loader, and the program trains in a third one."""
    ahead: queue.Queue[Any] = queue.Queue(4)
    found = []

    def fill() -> None:
        for each in [*torch.utils.data.DataLoader(Samples(), batch_size=4), None]:
            ahead.put(each)

    def learn() -> None:
        model, steps = DistributedDataParallel(net()), 0
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while (values := ahead.get()) is not None:
            optimizer.zero_grad()
            model(values).square().mean().backward()
            optimizer.step()
            steps += 1
        found.append((total(model), steps))

    threads = [threading.Thread(target=each) for each in (fill, learn)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found[0]


def scales() -> tuple[float, int]:
    """A gradient scaler leaves out steps whose gradients are not finite."""
    model, steps = DistributedDataParallel(net()), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(2 * STEPS):
        optimizer.zero_grad()
        loss = model(batch(step)).square().mean() * (float("inf") if step % 7 == 3 else 1.0)
        before = scaler.get_scale()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        steps += scaler.get_scale() >= before
    return total(model), steps


def sweeps() -> tuple[float, int]:
    """Trials, each with a group of its own, more than a process has places for."""
    store, found = dist.distributed_c10d._get_default_store(), 0.0
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for trial in range(70):
        some, part = dist.new_group(), torch.full((4,), float(rank + trial))
        dist.all_reduce(part, group=some)
        dist.all_reduce(part)
        found += float(part.sum())
        dist.destroy_process_group()
        of_trial = dist.PrefixStore(f"{trial}", store)
        dist.init_process_group("gloo", store=of_trial, rank=rank, world_size=ranks)
    return found, 0


KINDS: dict[str, Callable[[], tuple[float, int]]] = {
    each.__name__: each
    for each in (
        zero, fsdp1, fsdp2, joins, accumulates, comm_hook, replaces_optimizer, two_optimizers,
        in_backward, closures, compiles, loads, forks, objects, catches, stages, meshes,
        loads_ahead, scales, sweeps,
    )
}  # fmt: skip

if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    result, steps = KINDS[sys.argv[1]]()
    sys.stdout.write(f"result {dist.get_rank()} {result:.9f} {steps}\n")  # one write: shared
    dist.barrier()
    dist.destroy_process_group()
