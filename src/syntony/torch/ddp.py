"""State of `DistributedDataParallel` other than parameters, and its restoration in a
replacement."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

MOVED = 97
"""Exit code of a replacement that cannot take its place as planned."""
Layout = tuple[tuple[int, ...], ...]
"""For each bucket, its parameters (by number) in order."""


def layout(model: Any) -> Layout | None:
    """DDP's buckets, once it has rebuilt them, which it does after the first backward pass.

    A gradient's place in its bucket decides the order of additions. If ranks differ, elements of
    different parameters are added up; if a bucket changes, the order of additions does.
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
    return {
        "layout": layout(model),
        # Whether its next forward pass begins with a broadcast of buffers.
        "sync": model.require_forward_param_sync,
        "training": [each.training for each in model.modules()],
    }


def restore(model: Any, kept: dict[str, Any]) -> None:
    """Restore a replacement's model."""
    if kept["layout"] is not None and layout(model) is None:
        warm(model, kept["layout"])
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
    """Note which models compress gradients with remainders of the previous step."""
    register = DistributedDataParallel.register_comm_hook

    def registered(self: Any, state: Any, hook: Any) -> None:
        stateless = state is None or isinstance(state, torch.distributed.ProcessGroup)
        self._syntony_hook = not stateless
        register(self, state, hook)

    DistributedDataParallel.register_comm_hook = registered


def rebuild_buckets(model: Any) -> None:
    """Do what DDP does before its second forward pass, as early as possible: a collective.

    At a boundary its buckets are then final.
    """
    if model.reducer._rebuild_buckets():
        model._has_rebuilt_buckets = True


def warm(model: Any, wanted: Layout) -> None:
    """Bring a replacement's DDP to the same buckets as on other ranks, without them.

    DDP rebuilds its buckets once, in the order in which the first backward pass reaches the
    parameters. Here that is a pass over zeros in the required order. Collectives must do nothing
    meanwhile. Afterwards there are no gradients, and nothing else of the model has changed.
    """
    parameters = list(model.module.parameters())
    sync, model.require_backward_grad_sync = model.require_backward_grad_sync, True
    model.reducer.prepare_for_forward()
    model.reducer.prepare_for_backward([])
    with torch.enable_grad():
        for number in (each for bucket in wanted for each in bucket):
            (parameters[number] * 0).sum().backward()
    rebuild_buckets(model)
    model.require_backward_grad_sync = sync
    for each in parameters:
        each.grad = None
    made = layout(model)
    if made != wanted:
        print(f"syntony: DDP buckets {made}, {wanted} on other ranks", file=sys.stderr, flush=True)
        os._exit(MOVED)
