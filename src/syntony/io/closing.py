"""Base class of objects that a ``with`` block closes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A `with` block gives it, and closes it however the block ends."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
