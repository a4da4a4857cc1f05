"""Limit the number of actions per second. Pure."""

from __future__ import annotations

from syntony.model import S


class Budget:
    """A token bucket that holds the actions of one second, and is full at the start.

    Args:
        per_s: actions per second.
    """

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._left_ns = per_s * S
        self._at_ns = 0

    def take(self, now_ns: int) -> bool:
        """Whether one more action is allowed now (monotonic ns); if so, it is counted."""
        elapsed_ns = max(0, now_ns - self._at_ns)
        self._at_ns = max(self._at_ns, now_ns)
        self._left_ns = min(self._per_s * S, self._left_ns + elapsed_ns * self._per_s)
        if self._left_ns < S:
            return False
        self._left_ns -= S
        return True

    @property
    def wait_ns(self) -> int:
        """Time from the last `take` until the next action is allowed."""
        return max(0, -(-(S - self._left_ns) // self._per_s))
