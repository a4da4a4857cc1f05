"""Clocks of this host behind one interface: the kernel's, a lab's synthetic one."""

from __future__ import annotations

import fcntl
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from syntony.errors import MissingError, UsageError
from syntony.io._library import ffi, library, pointer_to

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from syntony.model import SyntheticClockSpec


class ClockSource(Protocol):
    """One clock: `node` says whose it is."""

    node: str

    @property
    def clocks(self) -> Any:
        """A ``struct syn_clock_reader *`` without a page: this clock, and the host's clocks without
        steps (CLOCK_MONOTONIC) or slews (CLOCK_MONOTONIC_RAW)."""
        ...

    def now_ns(self) -> int: ...

    def wait_for_step(self, timeout_s: float) -> bool:
        """Sleep until the clock is set, at most so long. Whether it was. One thread only."""
        ...

    def map_array(self, real_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Its readings at instants of CLOCK_REALTIME, as the kernel stamps packets."""
        ...


class KernelClock:
    """The host's CLOCK_REALTIME: what kernel software stamps are in."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._watch_fd = -1

    @property
    def clocks(self) -> Any:
        """CLOCK_REALTIME, CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW."""
        return ffi.new("struct syn_clock_reader *")

    def wait_for_step(self, timeout_s: float) -> bool:
        """Wait until the clock is set: the kernel then cancels a timerfd."""
        if self._watch_fd < 0:
            self._watch_fd = library().syn_set_watch_open()
        if self._watch_fd < 0:
            raise MissingError(f"steps of the clock: timerfd: {os.strerror(-self._watch_fd)}")
        return bool(library().syn_set_watch_wait(self._watch_fd, round(timeout_s * 1000)))

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return time.clock_gettime_ns(time.CLOCK_REALTIME)

    def map_array(self, real_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the instants unchanged: this is that clock."""
        return real_ns


class SyntheticClock:
    """A clock whose error against the machine's CLOCK_REALTIME follows from its spec alone.

    Two processes with equal specs compute the same bits, whatever they ask and in whatever order.
    The mapping is piecewise linear with knots every 100 ms, extended without a horizon (about 4 ms
    of computing per day past `base_ns`, once: keep it recent).

    Raises:
        UsageError: steps that do not ascend, a rate beyond 1 %, a swing faster than 100 ms.
        MissingError: the spec's tape is not there.
    """

    def __init__(self, node: str, spec: SyntheticClockSpec) -> None:
        self.node = node
        self.spec = spec
        self._library = library()
        steps = [{"at_ns": at, "phase_ns": phase} for at, phase in spec.steps]
        c_spec = ffi.new("struct syn_clock_spec *", _fields(spec))
        c_steps = ffi.new("struct syn_clock_step[]", steps)
        handle = self._library.syn_clock_open(c_spec, c_steps, len(steps))
        if handle == ffi.NULL:
            raise UsageError(
                f"synthetic clock of {node}: steps must ascend in time, rates stay below 1 % and"
                " swing_period_ns be at least 100 ms"
            )
        self._handle = ffi.gc(handle, self._library.syn_clock_close)
        if spec.tape:
            code = self._library.syn_clock_follow(self._handle, os.fsencode(spec.tape))
            if code != 0:
                raise MissingError(f"{spec.tape} cannot be followed: {os.strerror(code)}")
        self._lines = ffi.new("uint64_t *")
        self._library.syn_clock_wait(self._handle, self._lines, 0)

    @property
    def clocks(self) -> Any:
        """Itself, without its steps, and without any adjustment; valid as long as this lives."""
        reader = ffi.new("struct syn_clock_reader *")
        reader.context = self._handle
        reader.local, reader.steady, reader.raw = (
            ffi.cast("int64_t (*)(void *)", ffi.addressof(self._library, name))
            for name in ("syn_clock_now", "syn_clock_steady_now", "syn_clock_raw_now")
        )
        return reader

    def wait_for_step(self, timeout_s: float) -> bool:
        """Wait for the next step that is written on the clock's tape."""
        timeout_ms = round(timeout_s * 1000)
        return bool(self._library.syn_clock_wait(self._handle, self._lines, timeout_ms))

    @property
    def handle(self) -> Any:
        """The ``struct syn_clock *`` behind it; valid as long as this object lives."""
        return self._handle

    def now_ns(self) -> int:
        return int(self._library.syn_clock_now(self._handle))

    def map_ns(self, real_ns: int) -> int:
        """Machine time (CLOCK_REALTIME) to this clock's reading."""
        return int(self._library.syn_clock_map(self._handle, real_ns))

    def adjust(self, at_ns: int, *, step_ns: int = 0, rate_ppb: float | None = None) -> None:
        """Steps the clock at machine instant `at_ns` and sets how much faster it runs than its spec
        says (None: as before); what clock_adjtime is to a real clock. Raises `UsageError`: the spec
        names no tape, it is full, or the rate is beyond 1 %."""
        if not self.spec.tape:
            raise UsageError(f"synthetic clock of {self.node} has no tape to be adjusted on")
        rate = math.nan if rate_ppb is None else rate_ppb
        with Path(self.spec.tape).open("rb") as tape:
            fcntl.flock(tape, fcntl.LOCK_EX)
            code = self._library.syn_clock_adjust(self._handle, at_ns, step_ns, rate)
        if code != 0:
            raise UsageError(f"cannot write an adjustment to {self.spec.tape}: {os.strerror(code)}")

    def adjusted_ppb(self, real_ns: int) -> float:
        """The rate that adjustments have set."""
        return float(self._library.syn_clock_line_at(self._handle, real_ns).rate_ppb)

    def map_array(self, real_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Many machine instants at once; any shape, the same shape comes back."""
        source = np.ascontiguousarray(real_ns, dtype=np.int64)
        result = np.empty_like(source)
        self._library.syn_clock_map_many(
            self._handle,
            pointer_to(source, "int64_t"),
            pointer_to(result, "int64_t"),
            source.size,
        )
        return result

    def unmap_ns(self, local_ns: int) -> int:
        """The latest machine instant at which this clock read `local_ns`.

        Where a step skipped that reading, the instant of the step.
        """
        return int(self._library.syn_clock_unmap(self._handle, local_ns))

    def rate_ppb(self, real_ns: int) -> float:
        """Frequency error against the machine's clock at a machine instant."""
        return float(self._library.syn_clock_rate_ppb(self._handle, real_ns))


def make_tape(path: Path) -> None:
    """An empty tape for `SyntheticClockSpec.tape`; sparse, 1.5 MB once full."""
    with path.open("xb") as tape:
        tape.truncate(ffi.sizeof("struct syn_clock_tape"))


def _fields(spec: SyntheticClockSpec) -> dict[str, int | float]:
    return {
        "base_ns": spec.base_ns,
        "offset_ns": spec.offset_ns,
        "drift_ppb": spec.drift_ppb,
        "wander_ppb": spec.wander_ppb,
        "seed": spec.seed % (1 << 64),
        "swing_ppb": spec.swing_ppb,
        "swing_period_ns": spec.swing_period_ns,
    }
