"""A NIC's own clock (PTP hardware clock): readings, and cross-stamps against the system clock.

ioctls of linux/ptp_clock.h; numbers are the same on every architecture Linux runs GPUs on.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from syntony.errors import MissingError
from syntony.io.closing import Closing

_PTP_SYS_OFFSET = 0x43403D05  # _IOW('=', 5, struct ptp_sys_offset), 832 bytes
_PTP_SYS_OFFSET_PRECISE = 0xC0403D08  # _IOWR('=', 8, struct ptp_sys_offset_precise), 64 bytes
_PTP_SYS_OFFSET_EXTENDED = 0xC4C03D09  # _IOWR('=', 9, struct ptp_sys_offset_extended), 1216 bytes
_BASIC_BYTES = 832
_PRECISE_BYTES = 64
_EXTENDED_BYTES = 1216
_HEADER_BYTES = 16
_MOMENT = struct.Struct("=qII")
"""struct ptp_clock_time: seconds, nanoseconds, reserved."""
_SAMPLES = 9
"""Readings per cross-stamp, of which the tightest counts; the kernel allows 25."""


class CrossStamp(NamedTuple):
    """One instant in two clocks; the truth lies within ± `uncertainty_ns` of `phc_ns`."""

    phc_ns: int
    sys_ns: int
    uncertainty_ns: int


class Phc(Closing):
    """``/dev/ptpN``, opened read-only: it can be read, never set. Raises `MissingError`: no such
    device, or no permission."""

    def __init__(self, index: int) -> None:
        self.path = f"/dev/ptp{index}"
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise MissingError(
                f"{self.path} cannot be opened ({error.strerror}); hardware stamps need read access"
            ) from error
        self._clock_id = (~self._fd << 3) | 3
        self._cross = self._choose()

    def close(self) -> None:
        """Give the device back."""
        os.close(self._fd)

    def now_ns(self) -> int:
        return time.clock_gettime_ns(self._clock_id)

    def cross_stamp(self) -> CrossStamp:
        """This clock and CLOCK_REALTIME at one instant, by the best means the driver has."""
        return self._cross(self._fd)

    def _choose(self) -> Callable[[int], CrossStamp]:
        for method in (_precise, _extended):
            try:
                method(self._fd)
            except OSError:
                continue
            return method
        return _basic


def read_precise(data: bytes) -> CrossStamp:
    """struct ptp_sys_offset_precise: both clocks latched by hardware (PCIe PTM)."""
    return CrossStamp(_moment_ns(data, 0), _moment_ns(data, 1), 1)


def read_extended(data: bytes) -> CrossStamp:
    """struct ptp_sys_offset_extended: system, device, system time per sample, around each read."""
    count = struct.unpack_from("=I", data)[0]
    triples = (data[_HEADER_BYTES + 48 * i : _HEADER_BYTES + 48 * (i + 1)] for i in range(count))
    return min(
        (_between(*(_moment_ns(triple, k) for k in range(3))) for triple in triples), key=_by
    )


def read_basic(data: bytes) -> CrossStamp:
    """struct ptp_sys_offset: system and device alternate, one system reading more."""
    count = struct.unpack_from("=I", data)[0]
    moments = [_moment_ns(data[_HEADER_BYTES:], k) for k in range(2 * count + 1)]
    return min((_between(*moments[2 * i : 2 * i + 3]) for i in range(count)), key=_by)


def _by(stamp: CrossStamp) -> int:
    return stamp.uncertainty_ns


def _moment_ns(data: bytes, index: int) -> int:
    seconds, nanoseconds, _ = _MOMENT.unpack_from(data, index * _MOMENT.size)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


def _between(before_ns: int, device_ns: int, after_ns: int) -> CrossStamp:
    return CrossStamp(device_ns, (before_ns + after_ns) // 2, (after_ns - before_ns + 1) // 2)


def _ask(fd: int, request: int, size: int, samples: int) -> bytes:
    buffer = bytearray(size)
    struct.pack_into("=I", buffer, 0, samples)
    fcntl.ioctl(fd, request, buffer)
    return bytes(buffer)


def _precise(fd: int) -> CrossStamp:
    return read_precise(_ask(fd, _PTP_SYS_OFFSET_PRECISE, _PRECISE_BYTES, 0))


def _extended(fd: int) -> CrossStamp:
    return read_extended(_ask(fd, _PTP_SYS_OFFSET_EXTENDED, _EXTENDED_BYTES, _SAMPLES))


def _basic(fd: int) -> CrossStamp:
    return read_basic(_ask(fd, _PTP_SYS_OFFSET, _BASIC_BYTES, _SAMPLES))
