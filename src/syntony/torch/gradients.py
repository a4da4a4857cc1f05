"""Gradients that a program keeps beyond a boundary: a replacement cannot have them.

Each rank's part of a gradient exists on that rank only until ranks have reduced it. A program that
clears gradients with `zero_grad`, or assigns new ones, needs none of an earlier iteration. A
program that adds to them (an optimizer that steps in every fourth iteration of another's) does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch


class Gradients:
    """Tracks which gradients are unchanged since the boundary, and which were added to."""

    def __init__(self) -> None:
        self._held: dict[int, Any] = {}
        """Parameter (by `id`) → its gradient at the boundary, if not cleared since."""
        self._zero: dict[int, int] = {}
        """Parameter → version of its gradient when that was set to zero."""
        _after(torch.optim.Optimizer, lambda optimizer: self._clear(parameters_of(optimizer)))
        _after(torch.nn.Module, lambda module: self._clear(module.parameters()))

    def _clear(self, parameters: Iterable[Any]) -> None:
        for each in parameters:
            self._held.pop(id(each), None)
            self._zero.pop(id(each), None)
            if each.grad is not None:
                self._zero[id(each)] = each.grad._version

    def pass_boundary(self, parameters: Iterable[Any]) -> None:
        """`parameters`: of all optimizers."""
        self._held = {
            id(each): each.grad
            for each in parameters
            if each.grad is not None and self._zero.get(id(each)) != each.grad._version
        }

    def restore(self, parameters: list[Any], present: list[bool]) -> None:
        """For a replacement: zero where the lost rank had a gradient."""
        for parameter, was in zip(parameters, present, strict=True):
            parameter.grad = torch.zeros_like(parameter) if was else None
        self._clear(parameters)

    def carried(self, parameters: Iterable[Any]) -> bool:
        """Whether a step of these uses gradients of an earlier iteration."""
        return bool(self._held) and any(
            each.grad is not None and self._held.get(id(each)) is each.grad for each in parameters
        )


def parameters_of(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _after(kind: Any, note: Callable[[Any], None]) -> None:
    clear = kind.zero_grad

    def cleared(self: Any, *args: Any, **kwargs: Any) -> None:
        clear(self, *args, **kwargs)
        note(self)

    kind.zero_grad = cleared
