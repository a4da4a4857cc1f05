"""Faults of clocks: a host's time jumps, or runs at another rate."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from syntony.io.clocks import SyntheticClock
from syntony.lab.faults.base import LabFault, TargetKind
from syntony.model import MS

LEAD_TIME_NS = 20 * MS
"""Time from the request to the step: every process has read it from the tape by then."""


class _ClockFault(LabFault):
    """Adjusts the synthetic clock of its host."""

    target = TargetKind.HOST
    _applied = False

    def apply(self) -> None:
        self._order(1)
        self._applied = True

    def undo(self) -> None:
        if self._applied:
            self._applied = False
            self._order(-1)

    def _order(self, sign: int) -> None:
        host = self.order.target
        at_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) + LEAD_TIME_NS
        self._adjust(SyntheticClock(host, self.site.clocks[host]), at_ns, sign)

    @abstractmethod
    def _adjust(self, clock: SyntheticClock, at_ns: int, sign: int) -> None:
        """Adjust from a machine instant on; with `sign` -1 revert it."""


class ClockStep(_ClockFault):
    """A step of CLOCK_REALTIME, as by `date -s` or a restored virtual machine."""

    name = "clock-step"
    meaning = "the host's clock jumps by --by (10ms, -300us), and back at the end"
    options: ClassVar[Mapping[str, str]] = {"by": ""}

    def _adjust(self, clock: SyntheticClock, at_ns: int, sign: int) -> None:
        clock.adjust(at_ns, step_ns=sign * self.order.integer("by"))


class ClockDrift(_ClockFault):
    """A change of a clock's rate, as by temperature or wrong discipline."""

    name = "clock-drift"
    meaning = "the host's clock runs --ppm (100, -50) faster, and at its own rate again at the end"
    options: ClassVar[Mapping[str, str]] = {"ppm": ""}

    def _adjust(self, clock: SyntheticClock, at_ns: int, sign: int) -> None:
        more_ppb = sign * 1_000.0 * self.order.integer("ppm")
        clock.adjust(at_ns, rate_ppb=clock.adjusted_ppb(at_ns) + more_ppb)
