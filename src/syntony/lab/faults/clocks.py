"""Faults of clocks: a host's time jumps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import ClassVar

from syntony.lab.faults.base import LabFault, TargetKind
from syntony.model import MS

AHEAD_NS = 20 * MS
"""The step takes place this much after it was ordered: every process knows of it by then."""


class ClockStep(LabFault):
    """What `date -s` or a restored virtual machine does to CLOCK_REALTIME."""

    name = "clock-step"
    target = TargetKind.HOST
    meaning = "the host's clock jumps by --by (10ms, -300us), and back at the end"
    options: ClassVar[Mapping[str, str]] = {"by": ""}

    def apply(self) -> None:
        self._step(self.order.integer("by"))
        self._stepped = True

    def undo(self) -> None:
        if getattr(self, "_stepped", False):
            self._stepped = False
            self._step(-self.order.integer("by"))

    def _step(self, by_ns: int) -> None:
        from syntony.io.clocks import SyntheticClock

        host = self.order.target
        at_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) + AHEAD_NS
        SyntheticClock(host, self.site.clocks[host]).adjust(at_ns, step_ns=by_ns)
