"""A NIC's own statistics and its module's EEPROM, by the ethtool ioctl.

Statistics need no privilege; the EEPROM needs CAP_NET_ADMIN on most drivers.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Container

from syntony.io._library import ffi

_SIOCETHTOOL = 0x8946  # linux/sockios.h; the commands are of linux/ethtool.h
_GET_STRINGS, _GET_STATS, _GET_SET_INFO = 0x1B, 0x1D, 0x37
_GET_MODULE_INFO, _GET_MODULE_EEPROM = 0x42, 0x43
_STRING_SET_STATS = 1
_STRING_BYTES = 32
_MAX_STATISTICS = 1 << 16
"""No driver has so many: a count beyond it is a driver's mistake."""
_MAX_EEPROM = 1 << 13


class NicStatistics:
    """One interface's ``ethtool -S``, for the names that are wanted.

    The names are asked for once: their order does not change in a driver's life.

    Raises:
        OSError: no such interface, or a driver without statistics.
    """

    def __init__(self, nic: str, wanted: Container[str]) -> None:
        self._nic = nic
        names = _names(nic)
        self._count = len(names)
        self._places = {name: place for place, name in enumerate(names) if name in wanted}

    def read(self) -> dict[str, int]:
        """Name → value. Raises OSError when the interface is gone."""
        if not self._places:
            return {}
        header = struct.pack("=II", _GET_STATS, self._count)
        answer = ask(self._nic, header + bytes(8 * self._count))
        count = struct.unpack_from("=I", answer, 4)[0]
        values = struct.unpack_from(f"={min(count, self._count)}Q", answer, 8)
        return {name: values[at] for name, at in self._places.items() if at < len(values)}


def module_eeprom(nic: str) -> bytes:
    """The module's memory as the driver lays it out (SFF-8472: 512 bytes, SFF-8636: 640). Raises
    `OSError`: no module, no privilege, or a driver that reads modules page by page only."""
    info = ask(nic, struct.pack("=III8I", _GET_MODULE_INFO, 0, 0, *([0] * 8)))
    length = min(struct.unpack_from("=II", info, 4)[1], _MAX_EEPROM)
    request = struct.pack("=IIII", _GET_MODULE_EEPROM, 0, 0, length)
    answer = ask(nic, request + bytes(length))
    return answer[16 : 16 + length]


def _names(nic: str) -> list[str]:
    info = ask(nic, struct.pack("=IIQI", _GET_SET_INFO, 0, 1 << _STRING_SET_STATS, 0))
    mask = struct.unpack_from("=Q", info, 8)[0]
    count = struct.unpack_from("=I", info, 16)[0] if mask else 0
    count = min(count, _MAX_STATISTICS)
    header = struct.pack("=III", _GET_STRINGS, _STRING_SET_STATS, count)
    raw = ask(nic, header + bytes(_STRING_BYTES * count))[12:]
    pieces = (raw[at : at + _STRING_BYTES] for at in range(0, _STRING_BYTES * count, _STRING_BYTES))
    return [piece.split(b"\0", 1)[0].decode("ascii", "replace").strip() for piece in pieces]


def ask(nic: str, request: bytes) -> bytes:
    """One ioctl; the driver answers in the request's own memory. Raises `OSError`: no such
    interface, or a driver that does not know the command."""
    memory = ffi.new("uint8_t[]", len(request))
    ffi.buffer(memory)[:] = request
    frame = struct.pack("=16sQ16x", nic.encode()[:15], int(ffi.cast("uintptr_t", memory)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        fcntl.ioctl(asker, _SIOCETHTOOL, frame)
    return bytes(ffi.buffer(memory))
