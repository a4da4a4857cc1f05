"""The faults in force: numbers, timers, listing, clearing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from syntony.errors import SyntonyError, UsageError
from syntony.lab.faults.base import FaultContext, FaultOrder, LabFault
from syntony.lab.messages import FaultStatus


class _Active(msgspec.Struct):
    fault: LabFault
    requested_ns: int
    since_ns: int
    until_ns: int | None
    timer: asyncio.TimerHandle | None = None


class Registry:
    """Every active fault of one lab."""

    def __init__(self, site: FaultContext, note: Callable[[str], None]) -> None:
        self._site = site
        self._note = note
        self._active: dict[int, _Active] = {}
        self._last = 0

    def inject(self, order: FaultOrder, for_ns: int = 0) -> FaultStatus:
        """Apply a fault for `for_ns`, or until cleared (0). Raises `SyntonyError`: it could not be
        applied, and was undone."""
        self._last += 1
        fault = order.kind(self._site, self._last, order)
        requested_ns = time.monotonic_ns()
        try:
            fault.apply()
        except SyntonyError:
            fault.undo()
            raise
        now_ns = time.monotonic_ns()  # first: detection times are measured from here
        spans = [span for span in (for_ns, order.kind.own_duration_ns(order)) if span]
        active = _Active(fault, requested_ns, now_ns, now_ns + min(spans) if spans else None)
        if spans:
            loop = asyncio.get_running_loop()
            active.timer = loop.call_later(min(spans) / 1e9, self._expire, fault.number)
        self._active[fault.number] = active
        self._note(f"fault {fault.number}: {_describe(order)}")
        return _status(active, now_ns)

    def clear(self, number: int) -> tuple[int, ...]:
        """End one fault, or all (0); return which. Raises `UsageError`: there is no such fault."""
        if number and number not in self._active:
            known = ", ".join(map(str, self._active)) or "none"
            raise UsageError(f"no fault {number}; active: {known}; see: syntony lab fault --list")
        numbers = (number,) if number else tuple(self._active)
        for each in numbers:
            self._end(each)
        return numbers

    def statuses(self) -> tuple[FaultStatus, ...]:
        now_ns = time.monotonic_ns()
        return tuple(_status(active, now_ns) for active in self._active.values())

    def _expire(self, number: int) -> None:
        try:
            self._end(number)
        except SyntonyError as error:
            self._note(f"fault {number} could not be undone: {error}")

    def _end(self, number: int) -> None:
        active = self._active.pop(number)
        if active.timer is not None:
            active.timer.cancel()
        active.fault.undo()
        self._note(f"fault {number}: over")


def _status(active: _Active, now_ns: int) -> FaultStatus:
    order = active.fault.order
    return FaultStatus(
        id=active.fault.number,
        kind=order.kind.name,
        target=order.target,
        options=dict(order.options),
        requested_ns=active.requested_ns,
        since_ns=active.since_ns,
        age_ns=now_ns - active.since_ns,
        left_ns=None if active.until_ns is None else max(0, active.until_ns - now_ns),
    )


def _describe(order: FaultOrder) -> str:
    options = "".join(f" --{name} {text}" for name, text in order.options.items())
    return f"{order.kind.name} {order.target}{options}"
