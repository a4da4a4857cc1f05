"""NCCL's process group as PyTorch has it, without a GPU: over gloo, with NCCL's manners.

What `syntony.torch.communicators` has to cope with is here: a collective is started and comes back
at once; `wait` orders streams and says nothing; a peer that dies is not noticed, the collective
just never ends; only `abort` ends it, and then it looks completed, with anything in its tensors. An
aborted communicator is good for nothing more. One that is let go of while a collective is running,
without having been aborted, ends the process with a line.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

PATIENCE = timedelta(hours=1)
GARBAGE = 1.0e30
PEER_LOST = ("closed by peer", "reset by peer", "Broken pipe", "Timed out", "timeout", "connect")
"""In what gloo says when a peer is gone."""
_left_alone: list[Any] = []
"""gloo's groups whose operations never end: letting go of one would wait for that."""


def tensors_in(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [found for each in value for found in tensors_in(each)]
    return [value] if torch.is_tensor(value) else []


def swapped(value: Any, copies: dict[int, Any]) -> Any:
    if isinstance(value, list | tuple):
        return [swapped(each, copies) for each in value]
    return copies.get(id(value), value)


class FakeWork:
    """One collective that was started."""

    def __init__(self, name: str, args: tuple[Any, ...]) -> None:
        self.name, self.args = name, args
        self.ended = threading.Event()
        self.failure: Exception | None = None

    def is_completed(self) -> bool:
        return self.ended.is_set()

    def exception(self) -> Exception | None:
        return self.failure

    def wait(self, *_: Any) -> bool:
        """A stream waits; the host does not."""
        return True


class FakeNccl:
    """In the place of `torch.distributed.ProcessGroupNCCL`."""

    class Options:
        _timeout = PATIENCE

    grouping = threading.local()

    def __init__(self, store: Any, rank: int, size: int, options: Options) -> None:
        del options
        if os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING") != "0":
            raise RuntimeError("the watchdog would end this process at the first lost peer")
        self._place = store, rank, size
        self._started: queue.SimpleQueue[FakeWork] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: FakeWork | None = None
        self._aborted = False
        threading.Thread(target=self._run, name="fake-nccl", daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(dist.ProcessGroupGloo, name):
            raise AttributeError(name)
        return lambda *args: self._start(name, args)

    def _start(self, name: str, args: tuple[Any, ...]) -> FakeWork:
        work = FakeWork(name, args)
        with self._lock:
            if self._aborted:
                raise RuntimeError("NCCL communicator was aborted")
            self._started.put(work)
        return work

    def _run(self) -> None:
        """The GPU's stream: one after the other."""
        made = None
        while True:
            work = self._started.get()
            with self._lock:
                if self._aborted:
                    self._garble(work)
                    continue
                self._running = work
            try:
                made = made or self._connect()  # as NCCL: with the first collective
                copies = {id(each): each.clone() for each in tensors_in(work.args)}
                if not self._done(made, work, copies):
                    return
            except RuntimeError as error:
                if not any(each in str(error) for each in PEER_LOST):
                    _fail(f"{work.name}: {error}")
                continue  # a kernel that waits for a peer waits for ever
            with self._lock:
                if not self._aborted:
                    for each in tensors_in(work.args):
                        each.copy_(copies[id(each)])
                    work.ended.set()
                    self._running = None

    def _done(self, made: Any, work: FakeWork, copies: dict[int, Any]) -> bool:
        """Run it on copies; False: it was aborted."""
        args, share = _summed([swapped(each, copies) for each in work.args])
        name = work.name
        scattered = args[0] if name == "_reduce_scatter_base" else None
        if scattered is not None:  # gloo's does its work when it is waited for
            name, args = "allreduce", [[args[1].clone()], _options(dist.AllreduceOptions)]
        done = getattr(made, name)(*args)
        while not (done.is_completed() or self._aborted):
            time.sleep(0.0002)
        if self._aborted:
            _left_alone.append((made, done, copies))
            return False
        done.wait()
        if scattered is not None:
            scattered.copy_(args[0][0].chunk(self._place[2])[self._place[1]].view_as(scattered))
        if share:
            for each in tensors_in([scattered] if scattered is not None else args[:1]):
                each.div_(self._place[2])
        return True

    def _connect(self) -> Any:
        store, rank, size = self._place
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=20)
        device = dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")
        options._devices = [device]
        made = dist.ProcessGroupGloo(store, rank, size, options)
        made.set_timeout(PATIENCE)
        return made

    def _garble(self, work: FakeWork) -> None:
        """An aborted kernel leaves anything in its output."""
        for each in tensors_in(work.args[:1]):
            if each.is_floating_point():
                each.fill_(GARBAGE)
        work.failure = RuntimeError("NCCL communicator was aborted")
        work.ended.set()

    def abort(self) -> None:
        if not getattr(self.grouping, "open", False):
            print(
                "communicators are aborted one by one: NCCL may hang", file=sys.stderr, flush=True
            )
            os._exit(70)
        with self._lock:
            self._aborted = True
            if self._running is not None:
                self._garble(self._running)
                self._running = None

    def _group_start(self) -> None:
        self.grouping.open = True

    def _group_end(self) -> None:
        self.grouping.open = False

    def __del__(self) -> None:
        if not self._aborted and self._running is not None:
            _fail("a communicator is gone while a collective runs")


def _summed(args: list[Any]) -> tuple[list[Any], bool]:
    """gloo has no average: arguments for a sum, and whether that is to be divided."""
    options = args[-1] if args else None
    if getattr(options, "reduceOp", None) != dist.ReduceOp.AVG:
        return args, False
    return [*args[:-1], _options(type(options))], True


def _options(kind: Any) -> Any:
    made = kind()
    made.reduceOp = dist.ReduceOp.SUM
    return made


def _fail(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
    os._exit(70)


def install() -> None:
    """Programs that ask for NCCL get this, with tensors on the CPU."""
    dist.ProcessGroupNCCL = FakeNccl
    from syntony.torch import communicators

    communicators.DEVICE = "cpu"
