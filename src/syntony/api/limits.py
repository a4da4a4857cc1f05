"""Limits rates with a bounded number of token buckets. Pure."""

from __future__ import annotations

from collections import OrderedDict

from syntony.model import S

MAX_KEYS = 4096
"""Maximum number of buckets; the least recently used one is dropped first."""


class RateLimiter:
    """Limits the rate of one kind of action, by key.

    Args:
        rate_per_s: sustained rate.
        burst: maximum at once.
    """

    def __init__(self, rate_per_s: float, burst: int) -> None:
        self._rate_per_ns = rate_per_s / S
        self._burst = float(burst)
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait_ns(self, key: str, now_ns: int) -> int:
        """Time until the action is allowed for `key`; 0: now."""
        left = self._left(key, now_ns)
        return 0 if left >= 1 else max(1, round((1 - left) / self._rate_per_ns))

    def count(self, key: str, now_ns: int) -> None:
        """Count one action of `key`."""
        left = self._left(key, now_ns)
        self._buckets[key] = (max(left - 1, 0.0), now_ns)
        self._buckets.move_to_end(key)
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)

    def _left(self, key: str, now_ns: int) -> float:
        left, at_ns = self._buckets.get(key, (self._burst, now_ns))
        return min(self._burst, left + (now_ns - at_ns) * self._rate_per_ns)
