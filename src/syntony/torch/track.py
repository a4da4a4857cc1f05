"""Tracks objects that a program makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def track(kind: Any, add: Callable[[Any], None]) -> None:
    """Call `add` with each new object of a class.

    This happens at its allocation: not every subclass calls `kind.__init__` (`ReduceLROnPlateau`
    does not), and copies are made without it.
    """

    def allocated(cls: Any, *args: Any, **kwargs: Any) -> Any:
        make = super(kind, cls).__new__
        made = make(cls) if make is object.__new__ else make(cls, *args, **kwargs)
        add(made)
        return made

    kind.__new__ = allocated


def patch_init(kind: Any, add: Callable[[Any], None]) -> None:
    """Call `add` with each object of a class that the program makes, not with copies."""
    init = kind.__init__

    def initialised(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        add(self)

    initialised.__wrapped__ = init  # type: ignore[attr-defined]
    kind.__init__ = initialised
