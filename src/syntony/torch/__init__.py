"""Replaces a lost rank of a PyTorch job by a warm spare, at the same step.

Half of this package runs in `syntony run --spares` (the coordinator), half in the job's own
processes. It needs only the standard library and the job's torch, Python 3.11 or later.

Most programs need no change. A program whose training loop is not found, or whose state is in
objects that are not found, uses `steps` and `state`. Both do nothing without
`syntony run --spares`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

__all__ = ["Stateful", "state", "steps"]


T = TypeVar("T")


class Stateful(Protocol):
    """The interface of PyTorch's schedulers, and of many objects of programs."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


class _Active:
    job: Any = None
    """Set by `runner` in a worker."""


def steps(iterable: Iterable[T]) -> Iterator[T]:
    """Iterate over batches; after each step of an optimizer, a rank can be replaced.

    A replacement continues at the same place of `iterable`. Variables are not restored: pass
    objects whose state must survive to `state`.
    """
    if _Active.job is None:
        yield from iterable
    else:
        yield from _Active.job.position.explicit(iterable)


def state(*objects: Stateful) -> None:
    """Keep these objects' `state_dict` (small: up to some MiB) with each step of this rank.

    Models in `DistributedDataParallel`, optimizers, schedulers and gradient scalers are found
    without this call. Call it before the training loop, on every rank with the same objects in the
    same order.
    """
    if _Active.job is not None:
        for each in objects:
            _Active.job.replica.add_stateful(each)
