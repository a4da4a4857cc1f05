"""One instant in several clocks of this machine, and the hypervisor's count of disruptions."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from syntony.clock.steps import Moment
from syntony.io._library import ffi, library
from syntony.io.clocks import ClockSource

VMCLOCK = Path("/dev/vmclock0")
"""The hypervisor's page (linux/vmclock-abi.h), where there is one (Linux ≥ 6.13)."""
_VMCLOCK_MAGIC = 0x4B4C4356  # "VCLK"
_VMCLOCK_HEAD = struct.Struct("<IIHBBIQ")
"""magic, size, version, counter, time type, sequence, disruption marker."""


_TRIES = 3


def read_moment(clock: ClockSource) -> Moment:
    """The tightest of a few tries."""
    out = ffi.new("struct syn_clock_moment *")
    library().syn_clock_look(clock.clocks, out)
    _, slept_ns = min(_slept() for _ in range(_TRIES))
    return Moment(
        local_ns=out.local_ns,
        mono_ns=out.mono_ns,
        boot_ns=out.mono_ns + slept_ns,
        marker=disruption_marker(),
        raw_ns=out.raw_ns,
        width_ns=out.width_ns,
    )


def _slept() -> tuple[int, int]:
    """(width of the reading, CLOCK_BOOTTIME minus CLOCK_MONOTONIC)."""
    before_ns = time.monotonic_ns()
    boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    after_ns = time.monotonic_ns()
    return after_ns - before_ns, boot_ns - (before_ns + after_ns) // 2


def disruption_marker(path: Path = VMCLOCK) -> int:
    """0 where the machine has no VMClock, or it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        head = os.pread(fd, _VMCLOCK_HEAD.size, 0)
    except OSError:
        return 0
    finally:
        os.close(fd)
    if len(head) < _VMCLOCK_HEAD.size:
        return 0
    magic, *_, marker = _VMCLOCK_HEAD.unpack(head)
    return int(marker) if magic == _VMCLOCK_MAGIC else 0


def coarse_monotonic_ns() -> int:
    """CLOCK_MONOTONIC_COARSE, which ClockBound's segments are in."""
    return time.clock_gettime_ns(6)  # not named in Python's time module


def realtime_ns() -> int:
    """The machine's CLOCK_REALTIME, whatever clock the agent uses."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME)
