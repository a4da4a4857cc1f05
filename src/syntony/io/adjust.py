"""Steers clocks: CLOCK_REALTIME and NIC clocks by clock_adjtime(2), a lab's by its tape; sends
samples to chronyd. Nothing here runs unless the agent's `[discipline]` says so."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from typing import Protocol

from syntony.errors import MissingError
from syntony.io.clocks import SyntheticClock
from syntony.io.moments import realtime_ns
from syntony.model import S

ADJ_FREQUENCY = 0x0002
ADJ_SETOFFSET = 0x0100
ADJ_NANO = 0x2000
_PPB_UNIT = 65536 / 1000
"""timex.freq counts in 2^-16 ppm."""
_SAMPLE = struct.Struct("@qqdiiii")
"""struct sock_sample of chrony's refclock_sock.c: timeval, offset s, pulse, leap, pad, magic."""
_SAMPLE_MAGIC = 0x534F434B


class Adjustable(Protocol):
    """A clock that can be steered."""

    def rate_ppb(self) -> float:
        """The frequency correction in force."""
        ...

    def adjust(self, rate_ppb: float, step_ns: int) -> None:
        """Sets the correction; jumps by `step_ns` if that is not 0."""
        ...


class Timex(ctypes.Structure):
    """struct timex (linux/timex.h), 64-bit."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_longlong),
        ("freq", ctypes.c_longlong),
        ("maxerror", ctypes.c_longlong),
        ("esterror", ctypes.c_longlong),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_longlong),
        ("precision", ctypes.c_longlong),
        ("tolerance", ctypes.c_longlong),
        ("tv_sec", ctypes.c_longlong),
        ("tv_nsec", ctypes.c_longlong),
        ("tick", ctypes.c_longlong),
        ("rest", ctypes.c_byte * 112),
    )


class SystemClock:
    """CLOCK_REALTIME, or a NIC's clock by its device. Raises `MissingError`: this process may not
    set it (CAP_SYS_TIME; write access to the device)."""

    def __init__(self, phc_path: str | None = None) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._name = phc_path or "CLOCK_REALTIME"
        self._clock_id = time.CLOCK_REALTIME
        self._fd = -1
        if phc_path is not None:
            try:
                self._fd = os.open(phc_path, os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                raise MissingError(f"{phc_path} cannot be set: {error.strerror}") from error
            self._clock_id = (~self._fd << 3) | 3
        self.adjust(self.rate_ppb(), 0)

    def rate_ppb(self) -> float:
        """The frequency correction in force."""
        return float(self._call(Timex()).freq) / _PPB_UNIT

    def adjust(self, rate_ppb: float, step_ns: int) -> None:
        """Sets the correction; jumps by `step_ns` if that is not 0."""
        self._call(Timex(modes=ADJ_FREQUENCY, freq=round(rate_ppb * _PPB_UNIT)))
        if step_ns:
            seconds, rest_ns = divmod(step_ns, S)
            self._call(Timex(modes=ADJ_SETOFFSET | ADJ_NANO, tv_sec=seconds, tv_nsec=rest_ns))

    def close(self) -> None:
        """The clock keeps the last correction."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _call(self, timex: Timex) -> Timex:
        if self._libc.clock_adjtime(self._clock_id, ctypes.byref(timex)) < 0:
            reason = os.strerror(ctypes.get_errno())
            raise MissingError(
                f"{self._name} cannot be set: {reason}; discipline needs CAP_SYS_TIME"
                " (or leave [discipline] out of agent.toml)"
            )
        return timex


class TapedClock:
    """A lab's synthetic clock, which takes adjustments as a real one takes clock_adjtime."""

    def __init__(self, clock: SyntheticClock) -> None:
        self._clock = clock

    def rate_ppb(self) -> float:
        """The frequency correction in force."""
        return self._clock.adjusted_ppb(realtime_ns())

    def adjust(self, rate_ppb: float, step_ns: int) -> None:
        """Sets the correction; jumps by `step_ns` if that is not 0."""
        self._clock.adjust(realtime_ns(), step_ns=step_ns, rate_ppb=rate_ppb)


class ChronySocket:
    """The socket of `refclock SOCK PATH` in chrony.conf; chronyd makes it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def send(self, local_ns: int, behind_ns: float) -> bool:
        """At `local_ns` (whole µs count) the clock was `behind_ns` behind fleet time.

        Returns:
            Whether chronyd took it: it may not run, or be busy; the next sample comes soon.
        """
        try:
            self._socket.sendto(sock_sample(local_ns, behind_ns), self._path)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """No more samples."""
        self._socket.close()


def sock_sample(local_ns: int, behind_ns: float) -> bytes:
    seconds, rest_ns = divmod(local_ns, S)
    return _SAMPLE.pack(seconds, rest_ns // 1000, behind_ns / 1e9, 0, 0, 0, _SAMPLE_MAGIC)
