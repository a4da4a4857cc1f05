"""What a lab's clocks truly read now."""

from __future__ import annotations

import time
from collections.abc import Sequence

from syntony.clock.truth import TrueClock
from syntony.io.clocks import SyntheticClock


def true_clocks(clocks: Sequence[SyntheticClock]) -> list[TrueClock]:
    """The true state of all clocks at this instant of the machine's clock."""
    at_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    return [
        TrueClock(
            host=clock.node,
            at_ns=at_ns,
            offset_ns=clock.map_ns(at_ns) - at_ns,
            drift_ppb=clock.rate_ppb(at_ns),
        )
        for clock in clocks
    ]
