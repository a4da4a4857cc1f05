"""One collective of a program: how it runs, with its inputs kept so that it can run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from syntony.torch import gpu

if TYPE_CHECKING:
    from syntony.torch.collectives import RankGroup

IN_PLACE = frozenset({"allreduce", "allreduce_coalesced", "broadcast", "reduce"})
"""Their first argument is input and output."""
TWO_SIDED = frozenset({
    "allgather", "allgather_coalesced", "_allgather_base", "allgather_into_tensor_coalesced",
    "gather", "scatter", "reduce_scatter", "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced", "alltoall_base", "alltoall",
})  # fmt: skip
"""Output first, input second."""
NEWER = {
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
}
"""Names of groups in torch 2.13 → names that backends have in all versions."""


CPU = torch.device("cpu")


class Pool:
    """Buffers for copies of inputs: allocated in the first steps, reused in all others."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, Any, Any], list[Any]] = {}

    def copy(self, tensor: Any) -> Any:
        taken = self.take(tensor.numel(), tensor.dtype, tensor.device)
        return taken.view(tensor.shape).copy_(tensor)

    def take(self, count: int, kind: Any, device: Any = CPU) -> Any:
        """A flat buffer with undefined contents."""
        free = self._free.get((count, kind, device))
        return free.pop() if free else torch.empty(count, dtype=kind, device=device)

    def give_back(self, tensor: Any) -> None:
        buffer = tensor.view(-1)
        place = buffer.numel(), buffer.dtype, buffer.device
        self._free.setdefault(place, []).append(buffer)


class Operation:
    """One collective: how to run it, and a copy of its inputs."""

    def __init__(self, group: RankGroup, name: str, args: tuple[Any, ...], boundary: int) -> None:
        self.group = group
        self.name = name
        self.args = args
        self.boundary = boundary
        self.number = 0
        """In its group."""
        self.device = device_of(args)
        self.mark = gpu.Streams.mark(self.device)
        """The point on the program's stream at which its input is complete."""
        gpus = [] if self.mark is None else [self.device]
        self.future = torch.futures.Future(devices=gpus)
        self._kept: Any = None
        self._shapes: Any = None

    def keep(self, pool: Pool) -> None:
        """Copy the inputs before it runs."""
        if self.name in IN_PLACE:
            if not self._receives_only():
                self._kept = each_of(self.args[0], pool.copy)
        elif self.name in TWO_SIDED:
            self._kept = each_of(self.args[1], pool.copy)

    def _receives_only(self) -> bool:
        return self.name == "broadcast" and self.args[1].rootRank != self.group.rank()

    def run(self) -> None:
        self._call(self.args)

    def _call(self, args: tuple[Any, ...]) -> None:
        if self.group.over_nccl(self.device):
            self.group.nccl.call(self.name, args)
            return
        if self.name == "barrier":
            gpu.settle()  # NCCL's waits for what the program gave its GPU before
        work = getattr(self.group.inner, self.name)(*args)
        if work is not None:
            work.wait()

    def rewind(self) -> None:
        """Restore its inputs, which a failed attempt may have partly overwritten.

        This includes operations with a separate output: FSDP2's input is part of the memory that it
        gathers into.
        """
        if self._kept is not None:
            copy_into(self.args[0 if self.name in IN_PLACE else 1], self._kept)

    def done(self) -> None:
        """Release the program's tensors; shapes and kept inputs stay."""
        outputs = self.args[0] if self.name in IN_PLACE or self.name in TWO_SIDED else None
        self._shapes = each_of(outputs, lambda each: torch.empty_like(each, device="meta"))
        self.future.set_result(outputs if isinstance(outputs, list) else [])
        self.args = self.args[2:] if self.name in TWO_SIDED else self.args[1:]

    def again(self) -> None:
        """Repeat it for other ranks, on copies."""
        scratch = each_of(self._shapes, lambda each: torch.empty_like(each, device=self.device))
        if self.name in IN_PLACE:
            if self._kept is not None:
                copy_into(scratch, self._kept)
            self._call((scratch, *self.args))
        elif self.name in TWO_SIDED:
            self._call((scratch, self._kept, *self.args))
        else:
            self._call(self.args)

    def drop(self, pool: Pool) -> None:
        each_of(self._kept, pool.give_back)
        self._kept = None


def device_of(tensors: Any) -> Any:
    """Of the first tensor in nested lists; None if there is none."""
    if isinstance(tensors, list | tuple):
        return next((found for each in tensors if (found := device_of(each)) is not None), None)
    return tensors.device if torch.is_tensor(tensors) else None


def each_of(tensors: Any, function: Callable[[Any], Any]) -> Any:
    """Each tensor of a tensor or nested lists of tensors."""
    if tensors is None:
        return None
    if isinstance(tensors, list | tuple):
        return [each_of(each, function) for each in tensors]
    return function(tensors)


def copy_into(targets: Any, sources: Any) -> None:
    if isinstance(targets, list | tuple):
        for target, source in zip(targets, sources, strict=True):
            copy_into(target, source)
    else:
        targets.copy_(sources)
