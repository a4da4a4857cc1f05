"""NCCL's communicators of one generation: made as PyTorch makes them, aborted when it ends.

NCCL cannot take a lost rank out of a communicator and another one in: its `shrink` only leaves
ranks out. So a generation's communicators are aborted, which ends their kernels, and the next one's
are new. A collective counts as done when the GPU has done it: until then it may be aborted, and is
run again with its input as it was.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Sequence

DEVICE = "cuda"
"""Type of the tensors whose collectives are NCCL's; all others are gloo's."""
BACKENDS = frozenset({"nccl", "cuda:nccl", "cpu:gloo,cuda:nccl"})
SETTINGS = {
    # PyTorch's watchdog ends the process when a communicator fails, and another thread if that
    # hangs: who fails is what the coordinator finds out.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_BLOCKING_WAIT": "0",
    # A communicator whose peer dies while it is made can be aborted only if this does not block.
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "1",
    "TORCH_NCCL_NONBLOCKING_TIMEOUT": "20",
}
"""Environment of PyTorch's NCCL groups, read when one is made."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 20e-6, 1e-3
"""Between looks at whether the GPU is done."""
_ABORTS = ("abort", "_abort", "_shutdown")
"""What a group's abort is called, newest first: PyTorch 2.6, earlier ones."""


class AbortedError(RuntimeError):
    """The generation has ended."""


def unusable() -> str:
    """Why a job that uses NCCL cannot be protected; empty if it can."""
    kind = getattr(dist, "ProcessGroupNCCL", None)
    if kind is None:
        return "PyTorch without NCCL"
    if not any(hasattr(kind, each) for each in _ABORTS):
        return "PyTorch cannot abort NCCL's communicators"
    return ""


class NcclGroup:
    """One group's communicator in one generation."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        os.environ.update(SETTINGS)
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        self.made = dist.ProcessGroupNCCL(store, rank, size, options)
        self._aborted = threading.Event()

    def call(self, name: str, args: tuple[Any, ...]) -> None:
        """Run one collective to its end on the GPU, on the current stream.

        Raises:
            AbortedError: the generation ended first.
            RuntimeError: it failed.
        """
        if self._aborted.is_set():
            raise AbortedError(name)
        work = getattr(self.made, name)(*args)
        if work is None:
            return
        pause_s = FIRST_PAUSE_S
        while not (self._aborted.is_set() or work.is_completed()):
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        # An aborted one may look completed, with anything in its tensors.
        if self._aborted.is_set():
            raise AbortedError(name)
        failure = work.exception()
        if failure is not None:
            raise RuntimeError(str(failure))
        work.wait()  # the current stream's, which comes back at once

    def mark_aborted(self) -> None:
        """From now on nothing that it does counts."""
        self._aborted.set()

    def abort(self) -> None:
        """End its kernels. May take as long as NCCL needs for that."""
        for name in _ABORTS:
            if hasattr(self.made, name):
                getattr(self.made, name)()
                return


def abort(groups: Sequence[NcclGroup]) -> None:
    """All communicators of this process, by any thread, once or several times.

    Together, as NCCL wants it: the abort of one may wait for the kernels of another.
    """
    fresh = [each for each in groups if not each._aborted.is_set()]
    for each in groups:
        each.mark_aborted()
    if not fresh:
        return
    together = hasattr(fresh[0].made, "_group_start")
    if together:
        fresh[0].made._group_start()
    try:
        for each in fresh:
            with suppress(RuntimeError):  # one that was never connected, or is broken already
                each.abort()
    finally:
        if together:
            fresh[0].made._group_end()
