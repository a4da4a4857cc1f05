"""A change of fleet time itself, the same for every clock."""

from __future__ import annotations

from typing import NamedTuple


class Lead(NamedTuple):
    """Steering of fleet time at an instant: a change of rate; a step at the start or on request."""

    at_ns: int
    step_ns: int = 0
    rate_ppb: float = 0.0

    def __bool__(self) -> bool:
        return self.step_ns != 0 or self.rate_ppb != 0.0
