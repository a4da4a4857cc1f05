"""Replaces a lost rank of a PyTorch job by a warm spare, at the same step.

Half of this package runs in `syntony run --spares` (the coordinator), half in the job's own
processes: it needs the standard library and the job's torch only, Python 3.11 or later.

A program can be left as it is. One whose training loop is not found, or that keeps state in objects
that are not, says so with `steps` and `state`; both do nothing without `syntony run --spares`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Stateful", "state", "steps"]


T = TypeVar("T")


class Stateful(Protocol):
    """What PyTorch's schedulers, and many objects of programs, have."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


class _Active:
    job: Any = None
    """Set by `runner` in a worker."""


def steps(iterable: Iterable[T]) -> Iterator[T]:
    """Iterate over batches; where an optimizer has stepped, a rank can be replaced.

    A replacement continues at the same place of `iterable`. Variables are not restored: keep what
    must survive in objects given to `state`.
    """
    if _Active.job is None:
        yield from iterable
    else:
        yield from _Active.job.position.explicit(iterable)


def state(*objects: Stateful) -> None:
    """Keep these objects' `state_dict` (small: up to some MiB) with each step of this rank.

    Models in `DistributedDataParallel`, optimizers, schedulers and gradient scalers are known
    anyway. Call it before the training loop, on every rank with the same objects in one order.
    """
    if _Active.job is not None:
        for each in objects:
            _Active.job.replica.add_stateful(each)
