"""NCCL's communicators of one generation: created with it, aborted when it ends.

NCCL cannot exchange a rank of a communicator: `ncclCommShrink` only removes ranks. So the
communicators of a generation are aborted, which ends their kernels, and the next generation has new
ones. A collective is complete when the GPU has completed it. If it is aborted before that, it is
repeated with its original input.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

DEVICE = "cuda"
"""Collectives on tensors of this device type use NCCL; all others use gloo."""
BACKENDS = frozenset({"nccl", "cuda:nccl", "cpu:gloo,cuda:nccl"})
SETTINGS = {
    # Otherwise PyTorch's watchdog ends the process when a communicator fails, and its monitor ends
    # it when the watchdog hangs. Here the coordinator finds out which rank was lost.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_BLOCKING_WAIT": "0",
    # A communicator whose peer dies during its creation can be aborted only if that does not block.
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "1",
    "TORCH_NCCL_NONBLOCKING_TIMEOUT": "20",
}
"""Environment variables that PyTorch reads when it creates an NCCL group."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 20e-6, 1e-3
"""Pauses between checks whether the GPU has completed a collective."""
_ABORTS = ("abort", "_abort", "_shutdown")
"""Names of a group's abort method in PyTorch, newest first."""


class AbortedError(RuntimeError):
    """The generation ended before the collective was complete."""


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
        """Run one collective on the current stream, until the GPU has completed it.

        Raises:
            AbortedError: the generation ended first.
            RuntimeError: NCCL reported an error.
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
        # An aborted collective may be reported as complete, with undefined contents.
        if self._aborted.is_set():
            raise AbortedError(name)
        failure = work.exception()
        if failure is not None:
            raise RuntimeError(str(failure))
        work.wait()  # for the current stream only; returns at once

    @property
    def is_aborted(self) -> bool:
        return self._aborted.is_set()

    def mark_aborted(self) -> None:
        """From now on none of its collectives counts as complete."""
        self._aborted.set()

    def abort(self) -> None:
        """End its kernels. Returns when NCCL has ended them."""
        for name in _ABORTS:
            if hasattr(self.made, name):
                getattr(self.made, name)()
                return


def abort(groups: Sequence[NcclGroup]) -> None:
    """Abort all communicators of this process. Any thread may call it, also repeatedly.

    In one NCCL group call: otherwise the abort of one may wait for the kernels of another.
    """
    fresh = [each for each in groups if not each.is_aborted]
    for each in groups:
        each.mark_aborted()
    if not fresh:
        return
    together = hasattr(fresh[0].made, "_group_start")
    if together:
        fresh[0].made._group_start()
    try:
        for each in fresh:
            with suppress(RuntimeError):  # never connected, or broken already
                each.abort()
    finally:
        if together:
            fresh[0].made._group_end()
