"""The shared-memory pages of a host's clock: ours and ClockBound's. Layouts: syn_clock_page.h."""

from __future__ import annotations

import errno
import functools
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from syntony.clock.served import TimelinePiece
from syntony.clock.steps import ClockRate, Moment
from syntony.errors import MissingError, SyntonyError
from syntony.io._library import ffi, library
from syntony.io.clocks import SyntheticClock
from syntony.model import ClockState, Timeline
from syntony.model.clocks import BOUND_SIGMAS, RAMP_PPB_PER_S, SWING_PPB, WALK_PPB

STATES = (
    ClockState.UNKNOWN,
    ClockState.SYNCHRONIZED,
    ClockState.HOLDOVER,
    ClockState.DISRUPTED,
)
"""enum syn_clock_status; ClockBound calls the third FREE_RUNNING."""
PAGE = "clock"
"""File name of our page."""
_NEVER_NS = (1 << 63) - 1
"""What `struct syn_clock_pace` has where a piece has its beginning."""
BOUND_FILES = {"shm": 1, "shm0": 2}
"""ClockBound's file names and the protocol version that each of its clients expects there."""


class Reading(NamedTuple):
    """Fleet time at one instant; it lies between the first two if they are reported."""

    earliest_ns: int | None
    latest_ns: int | None
    fleet_ns: int
    status: ClockState
    steps: int
    """Readings with different numbers here are not of one continuous timeline."""

    @property
    def bound_ns(self) -> int | None:
        """Half the width; None where there is no bound."""
        if self.earliest_ns is None or self.latest_ns is None:
            return None
        return (self.latest_ns - self.earliest_ns + 1) // 2


class PredecessorState(NamedTuple):
    """The state that the previous agent left in the page."""

    piece: TimelinePiece
    seen: Moment
    """The last moment it looked at."""
    pace: ClockRate
    """The rate at which it expected the clock to run from then on."""
    epoch: int


class ClockPageWriter:
    """Our page, written by the one agent of the host. Raises `MissingError`: the file cannot be
    made."""

    def __init__(self, path: Path, *, synthetic: bool) -> None:
        self._library = library()
        error = ffi.new("int *")
        _make_directory(path.parent)
        self._page = self._library.syn_clock_page_open(os.fsencode(path), int(synthetic), error)
        if self._page == ffi.NULL:
            raise _cannot(path, error[0])
        self._page.bound_sigmas = BOUND_SIGMAS
        self._page.walk_ppb = WALK_PPB
        self._page.ramp_ppb_per_s = RAMP_PPB_PER_S
        self._page.swing_ppb = SWING_PPB

    def predecessor_state(self) -> PredecessorState | None:
        """Its newest piece; None where there is none, or none of this version."""
        page, pieces = self._page, self._library.SYN_CLOCK_PIECES
        if page.written == 0 or page.void_after_ns == 0:
            return None
        pace = ffi.cast("struct syn_clock_pace *", page.pieces + page.written % pieces)
        if pace.never != _NEVER_NS:
            return None
        seen = Moment(
            local_ns=page.local_ns,
            mono_ns=page.mono_ns,
            boot_ns=0,
            raw_ns=pace.raw_ns,
            width_ns=pace.width_ns,
        )
        newest = _piece_of(page.pieces[(page.written - 1) % pieces])
        known = ClockRate(pace.rate_ppb, pace.rate_tolerance_ppb)
        return PredecessorState(newest, seen, known, pace.epoch)

    def write(
        self,
        piece: TimelinePiece | None,
        now: Moment,
        pace: ClockRate,
        *,
        epoch: int,
        void_after_ns: int,
    ) -> None:
        """Write a new piece, if any, the present moment, and a sign of life.

        Args:
            epoch: of the clock; for a successor.
            void_after_ns: CLOCK_MONOTONIC.
        """
        moment = {
            "local_ns": now.local_ns,
            "mono_ns": now.mono_ns,
            "raw_ns": now.raw_ns,
            "width_ns": now.width_ns,
        }
        reported = {
            "rate_ppb": pace.rate_ppb,
            "rate_tolerance_ppb": pace.tolerance_ppb,
            "epoch": epoch,
        }
        self._library.syn_clock_page_write(
            self._page,
            ffi.NULL if piece is None else _c_piece(piece),
            ffi.new("struct syn_clock_moment *", moment),
            ffi.new("struct syn_clock_pace *", reported),
            void_after_ns,
        )

    def close(self) -> None:
        """Unmap it; the file stays for readers and for a successor."""
        self._library.syn_clock_page_close(self._page)


class ClockPageReader:
    """Reads fleet time in any process; safe to share between threads.

    Args:
        clock: the lab's synthetic clock where the page is about one.

    Raises:
        MissingError: no page there, or something else.
    """

    def __init__(self, path: Path, clock: SyntheticClock | None = None) -> None:
        self._library = library()
        self._path = path
        self._clock = clock
        reader = ffi.new("struct syn_clock_reader *")
        code = self._library.syn_clock_reader_open(reader, os.fsencode(path))
        if code != 0:
            raise MissingError(
                f"{path}: {os.strerror(code)}; fleet time needs a running agent on this host"
                " (systemctl start syntony-agent), or SYNTONY_CLOCK_DIR"
            )
        self._reader = ffi.gc(reader, self._library.syn_clock_reader_close)
        if clock is not None:
            clocks = clock.clocks
            for name in ("local", "context", "steady", "raw"):
                setattr(reader, name, getattr(clocks, name))
        self._out = ffi.typeof("struct syn_clock_reading *")
        self.read: Callable[[], Reading | int] = _fast_now(self._reader) or self._read
        """Fleet time now, or an errno: a faster `now`."""

    def now(self) -> Reading:
        """Fleet time. Raises `MissingError`: the page cannot be used."""
        found = self.read()
        if isinstance(found, int):
            raise self._error(found)
        return found

    def _read(self) -> Reading | int:
        out = ffi.new(self._out)
        failed = self._library.syn_clock_reader_now(self._reader, out)
        return int(failed) if failed else _reading(out)

    def to_fleet(self, local_ns: int) -> Reading:
        """Fleet time of a local instant, past ones included. Raises `MissingError`: the page cannot
        be used, or does not reach back that far."""
        out = ffi.new(self._out)
        failed = self._library.syn_clock_reader_to_fleet(self._reader, local_ns, out)
        if failed:
            raise self._error(failed)
        return _reading(out)

    def _error(self, code: int) -> MissingError:
        if code == errno.ENODATA:
            return MissingError(
                f"{self._path} remembers nothing of that instant: it goes back an hour, to when"
                " the agent first knew fleet time"
            )
        return MissingError(f"{self._path}: {os.strerror(code)}")


@functools.cache
def _now_extension() -> Any:
    """native/python/clock_now.c; None where it was not built, for want of Python's headers."""
    try:
        return importlib.import_module("syntony.io._native._now")
    except ModuleNotFoundError:
        return None


def _fast_now(reader: Any) -> Any:
    """`ClockPageReader._read` in C, if it is there; valid as long as `reader` lives."""
    extension = _now_extension()
    if extension is None:
        return None
    function = ffi.addressof(library(), "syn_clock_reader_now")
    addresses = (int(ffi.cast("uintptr_t", each)) for each in (function, reader))
    return extension.NowReader(*addresses, Reading, STATES, reader).now


class ClockBound(NamedTuple):
    """The contents of a segment in ClockBound's layout, about CLOCK_REALTIME."""

    as_of_ns: int
    """CLOCK_MONOTONIC_COARSE, as is `void_after_ns`."""
    void_after_ns: int
    bound_ns: int
    max_drift_ppb: int
    state: ClockState
    disruptions: int


class ClockBoundWriter:
    """One segment that ClockBound's clients read. Raises `MissingError`: the file cannot be
    made."""

    def __init__(self, path: Path, version: int) -> None:
        self._library = library()
        error = ffi.new("int *")
        _make_directory(path.parent)
        self._segment = self._library.syn_bound_open(os.fsencode(path), version, error)
        if self._segment == ffi.NULL:
            raise _cannot(path, error[0])
        self._version = version

    def write(self, bound: ClockBound) -> None:
        """Replace what it says."""
        status = STATES.index(bound.state)
        if self._version == 1 and bound.state is ClockState.DISRUPTED:
            status = 0  # version 1 cannot express it
        fields = {**bound._asdict(), "status": status}
        del fields["state"]
        self._library.syn_bound_write(self._segment, ffi.new("struct syn_bound *", fields))

    def close(self) -> None:
        """Unmap it; the file stays."""
        self._library.syn_bound_close(self._segment)


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot(path, error.errno or 0) from error


def _cannot(path: Path, code: int) -> SyntonyError:
    return MissingError(f"{path} cannot be written: {os.strerror(code)}")


def _c_piece(piece: TimelinePiece) -> Any:
    line = piece.line
    return ffi.new(
        "struct syn_clock_piece *",
        {
            "from_ns": piece.from_ns,
            "ref_ns": line.ref_ns,
            "offset_ns": line.offset_ns,
            "drift_ppb": line.drift_ppb,
            "residual_ns": piece.residual_ns,
            "slew_ppb": piece.slew_ppb,
            "sigma_ns": line.sigma_ns,
            "drift_sigma_ppb": line.drift_sigma_ppb,
            "asymmetry_ns": line.asymmetry_ns,
            "status": STATES.index(piece.state),
            "steps": piece.steps,
        },
    )


def _piece_of(raw: Any) -> TimelinePiece:
    state = STATES[raw.status]
    line = Timeline(
        node="",
        ref_ns=raw.ref_ns,
        offset_ns=raw.offset_ns,
        drift_ppb=raw.drift_ppb,
        sigma_ns=raw.sigma_ns,
        drift_sigma_ppb=raw.drift_sigma_ppb,
        asymmetry_ns=raw.asymmetry_ns,
        state=state,
    )
    return TimelinePiece(raw.from_ns, line, raw.residual_ns, raw.slew_ppb, state, raw.steps)


def _reading(out: Any) -> Reading:
    state = STATES[out.status]
    if state in {ClockState.UNKNOWN, ClockState.DISRUPTED}:
        return Reading(None, None, out.fleet_ns, state, out.steps)
    return Reading(out.earliest_ns, out.latest_ns, out.fleet_ns, state, out.steps)
