"""What `DistributedDataParallel` keeps beside parameters; how a replacement comes to have it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from syntony.torch.random_state import random_state, set_random_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOVED = 97
"""Exit code of a replacement that cannot take its place as planned."""
Layout = tuple[tuple[int, ...], ...]
"""Of each bucket, the parameters (by number) in their order."""


def layout(model: Any) -> Layout | None:
    """DDP's buckets, once it has rebuilt them, which it does after the first backward pass.

    Where a gradient is in its bucket decides with what it is added up: elements of different
    parameters if ranks differ, in another order if a bucket is another than before.
    """
    if not getattr(model, "_has_rebuilt_buckets", False):
        return None
    if not hasattr(model, "_syntony_layout"):
        number = {each.data_ptr(): n for n, each in enumerate(model.module.parameters())}
        buckets = model.reducer._get_zeros_like_grad_buckets()
        model._syntony_layout = tuple(
            tuple(number[each.data_ptr()] for each in bucket.parameters()) for bucket in buckets
        )
    made: Layout = model._syntony_layout
    return made


def state(model: Any) -> dict[str, Any]:
    """Of a model at a boundary."""
    return {
        "layout": layout(model),
        # Whether its next forward pass begins with a broadcast of buffers.
        "sync": model.require_forward_param_sync,
        "training": [each.training for each in model.modules()],
    }


def restore(model: Any, kept: dict[str, Any]) -> None:
    """All but the layout: see `warm`."""
    model.require_forward_param_sync = kept["sync"]
    for module, training in zip(model.modules(), kept["training"], strict=True):
        module.training = training


def unprotected(model: Any) -> str:
    """Why a model cannot be taken over; empty if it can."""
    if model.static_graph:
        return "DistributedDataParallel with static_graph"
    if getattr(model, "_syntony_hook", False):
        return "a communication hook with state of its own"
    return ""


def patch_hooks() -> None:
    """Note which models compress gradients with what was left over from the step before."""
    register = DistributedDataParallel.register_comm_hook

    def registered(self: Any, state: Any, hook: Any) -> None:
        stateless = state is None or isinstance(state, torch.distributed.ProcessGroup)
        self._syntony_hook = not stateless
        register(self, state, hook)

    DistributedDataParallel.register_comm_hook = registered


def warm(
    model: Any, forward: Callable[..., Any], args: Any, kwargs: Any, wanted: Layout | None
) -> None:
    """A replacement's first pass, alone: DDP then has buckets as on other ranks.

    One whole pass: a forward pass without a backward one would leave the reducer waiting for
    gradients, and a program that accumulates them would reduce at the wrong time. Collectives must
    do nothing meanwhile. Leaves the model, its gradients and random numbers as they were.

    Args:
        model: wrapped, with the parameters of the boundary.
        forward: DDP's own.
        args: of the program's first forward pass.
        kwargs: likewise.
        wanted: None if other ranks rebuild their buckets in the step that is repeated.
    """
    parameters, buffers = list(model.module.parameters()), list(model.module.buffers())
    random, values = random_state(), [each.detach().clone() for each in buffers]
    gradients = [each.grad for each in parameters]
    flags = model.require_backward_grad_sync, model.require_forward_param_sync
    model.require_backward_grad_sync = True
    _drop_gradients(parameters)
    total: Any = sum(each.float().sum() for each in _tensors(forward(model, *args, **kwargs)))
    total.backward()
    _drop_gradients(parameters)
    if wanted is not None and model.reducer._rebuild_buckets():
        model._has_rebuilt_buckets = True
    model.require_backward_grad_sync, model.require_forward_param_sync = flags
    made = layout(model)
    if made != wanted:
        print(f"syntony: DDP buckets {made}, {wanted} on other ranks", file=sys.stderr, flush=True)
        os._exit(MOVED)
    with torch.no_grad():
        for buffer, value in zip(buffers, values, strict=True):
            buffer.copy_(value)
    for each, gradient in zip(parameters, gradients, strict=True):
        each.grad = gradient
    set_random_state(random)


def _drop_gradients(parameters: list[Any]) -> None:
    for each in parameters:
        each.grad = None


def _tensors(output: Any) -> Iterator[Any]:
    """Floating-point tensors that have a gradient, in whatever a model returned."""
    if torch.is_tensor(output):
        if output.requires_grad and output.is_floating_point():
            yield output
    elif isinstance(output, dict):
        for each in output.values():
            yield from _tensors(each)
    elif isinstance(output, list | tuple):
        for each in output:
            yield from _tensors(each)
    elif hasattr(output, "__dict__"):
        yield from _tensors(vars(output))
