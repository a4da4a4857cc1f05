"""How long something that failed is not used after it has recovered. Pure."""

from __future__ import annotations

from typing import Protocol


class Timeouts(Protocol):
    """Durations; failover's `Policy` is one."""

    @property
    def hold_down_ns(self) -> int: ...
    @property
    def hold_down_max_ns(self) -> int: ...
    @property
    def decay_ns(self) -> int: ...


class HoldDown:
    """Doubles with every failure up to a cap, halves with every quiet `decay_ns`."""

    __slots__ = ("_failed_ns", "_level", "_until_ns")

    def __init__(self) -> None:
        self._level = 0
        self._failed_ns = 0
        self._until_ns = 0

    @property
    def until_ns(self) -> int:
        """When it may be used again; 0 if it never failed."""
        return self._until_ns

    @property
    def repeated(self) -> bool:
        """Whether it failed more than once recently."""
        return self._level > 1

    def failed(self, now_ns: int, policy: Timeouts) -> None:
        quiet = max(0, now_ns - self._failed_ns) // policy.decay_ns if self._level else 0
        # 62 halvings: the exponent stays small whatever the cap.
        self._level = min(62, max(0, self._level - quiet) + 1)
        self._failed_ns = now_ns
        self._hold(now_ns, policy)

    def returned(self, now_ns: int, policy: Timeouts) -> None:
        """It has recovered: hold it down from now on."""
        self._hold(now_ns, policy)

    def _hold(self, now_ns: int, policy: Timeouts) -> None:
        length_ns = policy.hold_down_ns << (self._level - 1) if self._level else 0
        self._until_ns = now_ns + min(length_ns, policy.hold_down_max_ns)
