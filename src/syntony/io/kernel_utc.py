"""The kernel's error bound of UTC, as set by the daemon that disciplines its clock."""

from __future__ import annotations

import ctypes
import os
import time
from typing import NamedTuple

from syntony.io.adjust import Timex
from syntony.io.clocks import ClockSource
from syntony.model import US, UtcReading

STA_UNSYNC = 0x0040
"""Nobody disciplines the clock, or not any more (adjtimex(2))."""
READS = 5
"""Of both clocks; the closest pair counts."""


class KernelDiscipline(NamedTuple):
    """The kernel's record of its clock's discipline."""

    synchronized: bool
    max_error_ns: int
    """Bound of CLOCK_REALTIME's error; the kernel lets it grow by 500 ppm between updates."""


def kernel_discipline() -> KernelDiscipline:
    """Needs no privilege: nothing is changed. Raises `OSError`: the kernel forbids even reading (a
    strict seccomp filter)."""
    timex = Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return KernelDiscipline(not timex.status & STA_UNSYNC, int(timex.maxerror) * US)


def read_kernel_utc(clock: ClockSource) -> UtcReading | None:
    """UTC by CLOCK_REALTIME at an instant of `clock`; None while no daemon disciplines it."""
    try:
        discipline = kernel_discipline()
    except OSError:
        return None
    if not discipline.synchronized:
        return None
    width_ns, local_ns, utc_minus_ns = min(_compared(clock) for _ in range(READS))
    return UtcReading(
        node=clock.node,
        local_ns=local_ns,
        utc_minus_ns=utc_minus_ns,
        bound_ns=float(discipline.max_error_ns + width_ns),
    )


def _compared(clock: ClockSource) -> tuple[int, int, int]:
    """(doubt, local instant, UTC minus local): one read of UTC between two of the clock."""
    before_ns = clock.now_ns()
    utc_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    after_ns = clock.now_ns()
    local_ns = (before_ns + after_ns) // 2
    return after_ns - before_ns, local_ns, utc_ns - local_ns
