"""hooked.py MODE: a rank that is loaded with the hook; what it imports as torch may be a fake.

Says `ready` when it has done so, then waits for a line.
"""

import contextlib
import gc
import itertools
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import syntony_job_hook  # type: ignore[import-not-found]
import syntony_job_page  # type: ignore[import-not-found]
import torch.distributed as dist
from torch.nn.parallel.distributed import DistributedDataParallel
from torch.optim.optimizer import Optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter


class Tensor:
    def numel(self) -> int:
        return 25

    def element_size(self) -> int:
        return 4


def work() -> None:
    optimizer, data = Optimizer(), _BaseDataLoaderIter()
    for step in range(4):
        next(data)
        dist.all_reduce(Tensor(), async_op=step % 2 == 1)
        optimizer.step()


def elsewhere(call: Callable[[], object]) -> None:
    """In another thread, until it has done so."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def loads_ahead() -> None:
    """A thread waits for data while this one steps; then another one does both."""
    optimizer, data = Optimizer(), _BaseDataLoaderIter()

    def train() -> None:
        for _ in range(3):
            next(data)
            optimizer.step()

    dist.all_reduce(Tensor())
    for _ in range(3):
        elsewhere(lambda: next(data))
        optimizer.step()
    elsewhere(train)


def names() -> None:
    """Operations by new and old names, of which one calls the other."""
    dist.all_gather_single(Tensor(), Tensor())
    dist.all_gather_into_tensor(Tensor(), Tensor(), async_op=True)
    dist.reduce_scatter_tensor(Tensor(), input=Tensor())


def peers() -> None:
    """With ranks 1 and 3; one receive from any rank that waits for it, one that is begun ahead."""
    dist.init_process_group("gloo")
    dist.send(Tensor(), 3)
    dist.recv(Tensor(), src=1)
    dist.recv(Tensor())
    dist.isend(Tensor(), group_dst=3)
    operations = dist.P2POp(dist.isend, Tensor(), 3), dist.P2POp(dist.irecv, Tensor(), 3)
    for work in dist.batch_isend_irecv(list(operations)):
        work.wait()
    dist.irecv(Tensor()).wait()
    dist.irecv(Tensor(), 3).wait()


def many_peers() -> None:
    """With 99 others, and then with all."""
    for other in range(100):
        if other != 2:
            dist.isend(Tensor(), other)
    dist.all_reduce(Tensor())


def groups() -> None:
    """Of ranks 0 to 2, again, and of others; then all are destroyed, and formed again."""
    kept = [dist.new_group([0, 1, 2])]
    dist.all_reduce(Tensor(), group=kept[0])
    dist.new_group(ranks=[2, 1, 0])
    dist.new_group([0, 3])
    ranks: Any = iter([0, 2])  # torch takes it, and reads it once
    print(dist.new_group(ranks) is not None, flush=True)
    dist.irecv(Tensor(), group=kept[0])
    dist.monitored_barrier()
    dist.isend(Tensor(), 3)
    known = [weakref.ref(each) for each in (kept.pop(), dist.distributed_c10d._get_default_group())]
    dist.destroy_process_group(known[0]())
    print(known[0]() is None, flush=True)
    dist.destroy_process_group()
    print(known[1]() is None, flush=True)
    dist.all_reduce(Tensor())
    dist.new_group()


def many_groups() -> None:
    """One after the other, of some ranks and of all."""
    for _ in range(100):
        group = dist.new_group()
        dist.all_reduce(Tensor(), group=group)
        dist.destroy_process_group(group)
    for _ in range(40):
        dist.isend(Tensor(), 3)
        dist.all_reduce(Tensor())
        dist.destroy_process_group()
    dist.isend(Tensor(), 3)
    dist.all_reduce(Tensor())


def many_models() -> None:
    """One after the other, of a group that stays; then one that the program keeps although its
    group is destroyed, with a pass that DDP was not asked for, and another one."""
    syntony_job_hook.ASK_NS = 1
    optimizer, models = Optimizer(), []
    for _ in range(70):
        model = DistributedDataParallel("cpu")
        model.passes(1, timed=True, took_ns=100_000)
        optimizer.step()
    for number in (2, 1):
        models.append(DistributedDataParallel("cpu"))
        models[-1].passes(1, timed=True, took_ns=100_000)
        optimizer.step()
        models[-1].passes(number, timed=True, took_ns=100_000)
        dist.destroy_process_group()
    dist.all_reduce(Tensor())


def forks_ranks() -> None:
    """Before any operation, as launchers do that have imported torch. Another thread is just making
    what it records to."""
    (hook,) = (each for each in gc.get_objects() if isinstance(each, syntony_job_hook.Hook))
    hook._lock.acquire()
    child = os.fork()
    if not child:
        dist.all_reduce(Tensor())
        print("ready", flush=True)
        sys.stdin.readline()
        os._exit(0)
    os.waitpid(child, 0)
    os._exit(0)


def lets_go() -> None:
    """Of a transfer, for which it never waits."""
    dist.Work.is_completed = lambda _: False
    kept = weakref.ref(dist.isend(Tensor(), 3))
    print(kept() is None, flush=True)


def arrives() -> None:
    """It begins to form a group, and nobody else comes."""
    print("ready", flush=True)
    dist.init_process_group("hangs", "tcp://h0:29500?rank=2&world_size=4")


def dies() -> None:
    """Within its second operation, once a line has come."""
    dist.all_reduce(Tensor())
    print("ready", flush=True)
    sys.stdin.readline()
    dist.all_reduce(Tensor(), op="dies")


def fails() -> None:
    with contextlib.suppress(ValueError):
        dist.all_reduce(None)


def errors() -> None:
    """The program catches each, and does nothing more after the last one, in either thread."""
    other = threading.Thread(target=fails)
    other.start()
    other.join()
    calls: list[Callable[[], object]] = [
        lambda: dist.init_process_group("fails", "tcp://down:29500?rank=2&world_size=4"),
        lambda: dist.init_process_group("fails", "tcp://h0:29500?rank=2&world_size=4"),
        lambda: dist.all_reduce(None),
        lambda: dist.recv(Tensor(), 3, tag=-1),
        lambda: dist.new_group([2, 99]),
        lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, Tensor(), 3), None]),
        lambda: dist.all_reduce(None),
    ]
    for call in calls:
        try:
            call()
        except (AttributeError, ValueError) as error:
            print(error, flush=True)


def optimizers() -> None:
    """One; another one in its place; then two by turns, of which one steps twice."""
    one, two, three = Optimizer(), Optimizer(), Optimizer()
    dist.all_reduce(Tensor())
    fails()
    for each in (one, one, one, two, two, two, three, two, three, two, three, three, two, three):
        each.step()


def loops() -> None:
    """It reports nothing any more."""
    syntony_job_page.SILENT_S = 0.0
    dist.all_reduce(Tensor())
    Optimizer().step()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        pass


def loops_elsewhere() -> None:
    elsewhere(loops)


def loops_after() -> None:
    """In the first thread, once that which trained has ended."""

    def train() -> None:
        dist.all_reduce(Tensor())
        Optimizer().step()

    syntony_job_page.SILENT_S = 0.0
    elsewhere(train)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        pass


def interrupted() -> None:
    """By a signal, whose handler calls the same, while the group is made known."""
    module = dist.distributed_c10d
    found = module.get_process_group_ranks

    def ranks(group: object) -> list[int]:
        module.get_process_group_ranks = found
        signal.raise_signal(signal.SIGUSR1)
        return list(found(group))

    module.get_process_group_ranks = ranks
    signal.signal(signal.SIGUSR1, lambda *_: dist.all_reduce(Tensor()))
    for _ in range(2):
        dist.all_reduce(Tensor())


def interrupted_as_it_goes_on() -> None:
    """Operations failed in two threads that have ended. While their ends are recorded a signal's
    handler calls another one."""
    both = threading.Barrier(2)

    def fails_as_well() -> None:
        fails()
        both.wait()

    threads = [threading.Thread(target=fails_as_well) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (page,) = (each for each in gc.get_objects() if isinstance(each, syntony_job_page.Page))
    end = page.end

    def interrupted_end(*opened: Any) -> None:
        page.end = end
        signal.raise_signal(signal.SIGUSR1)
        end(*opened)

    page.end = interrupted_end
    signal.signal(signal.SIGUSR1, lambda *_: dist.all_reduce(Tensor()))
    dist.all_reduce(Tensor())


def runs_out_of_time() -> None:
    """A signal's handler raises while the hook runs."""

    class Odd(Tensor):
        def numel(self) -> int:
            signal.raise_signal(signal.SIGALRM)
            return 1

    def stop(*_: object) -> None:
        raise TimeoutError("time is up")

    def once(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise TimeoutError("time is up")

    class Stop:
        def __call__(self, number: int, frame: object) -> None:
            stop()

    calls: list[Callable[[], object]] = [
        lambda: dist.all_reduce(Odd()),
        lambda: dist.isend(Odd(), 3),
    ]
    handlers: tuple[Callable[..., None], ...] = stop, once, Stop()
    for handler, call in itertools.product(handlers, calls):
        signal.signal(signal.SIGALRM, handler)
        try:
            call()
        except TimeoutError as error:
            print(error, flush=True)
    dist.all_reduce(object())


def starts_others() -> None:
    """A process that forms the same group among its like, as writers of checkpoints do; then it
    runs another program in its own place."""
    dist.all_reduce(Tensor())
    program = sys.executable, sys.argv[0]
    print(subprocess.call([*program, "work"], stdin=subprocess.DEVNULL, stdout=2), flush=True)
    os.execv(sys.executable, [*program, "names"])  # noqa: S606 - in its place


def forks() -> None:
    dist.all_reduce(Tensor())
    begun = dist.isend(Tensor(), 3)
    child = os.fork()
    if not child:
        try:
            dist.all_reduce(Tensor())
            begun.wait()
            dist.isend(Tensor(), 3).wait()
        except AttributeError:
            os._exit(1)
        os._exit(0)
    begun.wait()
    print(os.waitpid(child, 0)[1], flush=True)


def reduces() -> None:
    """Pass 1; pass 2 without a time; pass 4, before which DDP forgets one; others on a GPU."""
    optimizer = Optimizer()
    model, other = DistributedDataParallel("cpu"), DistributedDataParallel("cuda")
    optimizer.step()
    for reported in (1, 2, 4):
        model.passes(reported, timed=reported != 2)
        other.passes(reported, timed=True)
        optimizer.step()
        optimizer.step()
    print(model.rate, other.rate, flush=True)


def many_steps(step_s: float) -> None:
    """A hundred steps with two models, of which DDP times one pass in so many, and what was set."""
    optimizer, models = Optimizer(), [DistributedDataParallel("cpu") for _ in range(2)]
    for step in range(1, 101):
        time.sleep(step_s)
        for model in models:
            if step <= 10 or step % model.rate == 0:
                model.passes(step, timed=True, took_ns=100_000)
        optimizer.step()
    print(*(model.rate for model in models), flush=True)


def short() -> None:
    """Steps that are short against the time between two questions, on any machine."""
    syntony_job_hook.ASK_NS, syntony_job_hook.MOST_PERIOD = 10**12, 8
    many_steps(0.001)


def long() -> None:
    syntony_job_hook.ASK_NS = 1
    many_steps(0.001)


os.environ["RANK"] = os.environ["RANK"] or os.environ["SPAWNED"]  # once the program has begun
MODES: dict[str, Callable[[], object]] = {
    each.__name__: each
    for each in (
        work, loads_ahead, names, peers, many_peers, groups, many_groups, many_models, lets_go,
        arrives, dies, errors, optimizers, loops, loops_elsewhere, loops_after, interrupted,
        interrupted_as_it_goes_on, runs_out_of_time, starts_others, forks, forks_ranks, reduces,
        short, long,
    )
}  # fmt: skip
MODES[sys.argv[1]]()
print("ready", flush=True)
sys.stdin.readline()
