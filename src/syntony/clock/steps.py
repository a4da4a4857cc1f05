"""Steps of the local clock, suspended and migrated machines: seen from clocks that cannot step."""

from __future__ import annotations

from typing import NamedTuple

from syntony.model import US

READING_NS = 20 * US
"""Two readings of clocks one after the other may differ by this on a busy machine."""
SUSPENDED_NS = 100 * US
"""CLOCK_BOOTTIME ahead of CLOCK_MONOTONIC by this much more than before: the machine slept."""


class Moment(NamedTuple):
    """One instant in several clocks."""

    local_ns: int
    mono_ns: int
    """CLOCK_MONOTONIC: slewed together with CLOCK_REALTIME, never stepped."""
    boot_ns: int
    """CLOCK_BOOTTIME: the same, but it counts on while the machine sleeps."""
    marker: int = 0
    """The hypervisor's count of disruptions (migration, restored snapshot); 0 without one."""


class Disruption(NamedTuple):
    """The local clock cannot be extrapolated across this."""

    from_ns: int
    """First local reading that may already be affected."""
    step_ns: int
    """How far the clock jumped; 0: not seen in it, but it may have."""
    reason: str


class StepWatch:
    """Compares each moment with the one before.

    Args:
        rate_ppb: how much faster or slower than CLOCK_MONOTONIC the clock may run: 0 for
            CLOCK_REALTIME.
    """

    def __init__(self, rate_ppb: float = 0.0) -> None:
        self._rate_ppb = rate_ppb
        self._last: Moment | None = None

    def look(self, now: Moment) -> Disruption | None:
        """What happened since the last call."""
        last, self._last = self._last, now
        if last is None:
            return None
        gone_ns = now.mono_ns - last.mono_ns
        step_ns = now.local_ns - last.local_ns - gone_ns
        from_ns = last.local_ns + 1 + min(0, step_ns)
        if abs(step_ns) > READING_NS + self._rate_ppb * 1e-9 * gone_ns:
            return Disruption(from_ns, step_ns, "clock stepped")
        if now.boot_ns - last.boot_ns - gone_ns > SUSPENDED_NS:
            return Disruption(from_ns, 0, "machine was suspended")
        if now.marker != last.marker:
            return Disruption(from_ns, 0, "machine was migrated or restored")
        return None
