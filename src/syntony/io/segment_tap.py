"""Sampled TCP segments as they pass a NIC, both ways: headers and kernel stamps, by a packet ring.

The kernel copies the headers of what the filter lets through into memory shared with it
(PACKET_RX_RING, TPACKET_V2): a packet itself is never held back. Of what leaves, the stamp is from
after the queueing disciplines, before the driver; of what comes, from before the host's own work.
With offloads that is the instant of a large segment: before it was cut, and after it was put
together.
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import mmap
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.errors import MissingError
from syntony.io.segment_filter import SNAPLEN, segment_filter
from syntony.model import S

FRAMES = 4_096
"""Samples that wait to be read, of one NIC; more are lost, and counted."""
_FRAME, _BLOCK = 256, 1 << 16
_SOL_PACKET, _PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION, _TPACKET_V2 = 263, 5, 6, 10, 1
_SO_ATTACH_FILTER, _ETH_P_ALL, _OUTGOING, _STATUS_USER = 26, 0x0003, 4, 1
_TCP, _IPV4_HEADER, _IPV6_HEADER, _TCP_HEADER = 6, 20, 40, 20
_HEADER = np.dtype(
    {
        "names": ["status", "length", "snap", "net", "sec", "nsec", "kind"],
        "formats": ["u4", "u4", "u4", "u2", "u4", "u4", "u1"],
        # struct tpacket2_hdr, and sll_pkttype of the struct sockaddr_ll behind it
        "offsets": [0, 4, 8, 14, 16, 20, 32 + 10],
        "itemsize": _FRAME,
    }
)
SEGMENT = np.dtype(
    [
        ("src", "u1", 16),
        ("dst", "u1", 16),
        ("sport", "u2"),
        ("dport", "u2"),
        ("outgoing", "u1"),
        ("real_ns", "i8"),
        ("seq", "u4"),
        ("payload", "u4"),
    ]
)
"""One segment: addresses (IPv4 as ::ffff:a.b.c.d), ports, 1 if it left; CLOCK_REALTIME, number of
the first byte, bytes."""
KEY = struct.Struct("=16s16sHHB")
"""Key of a flow and direction: the first fields of a `SEGMENT`."""


class SegmentTap:
    """Samples the TCP segments of one NIC. Not thread-safe. Raises `MissingError`: no CAP_NET_RAW,
    or no such NIC."""

    def __init__(self, nic: str) -> None:
        self.lost = 0
        """Samples that there was no room for, ever."""
        self._filter = b""
        self._head = 0
        self._socket = packet_socket()
        self._ring: mmap.mmap | None = None
        try:
            self._open(nic)
        except OSError as error:
            self.close()
            raise MissingError(f"segments of {nic} cannot be sampled: {error.strerror}") from error

    def _open(self, nic: str) -> None:
        self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        size = FRAMES * _FRAME
        request = struct.pack("=IIII", _BLOCK, size // _BLOCK, _FRAME, FRAMES)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
        self._ring = mmap.mmap(self._socket.fileno(), size)
        self._bytes = np.frombuffer(self._ring, np.uint8).reshape(FRAMES, _FRAME)
        self._frames = self._bytes.reshape(-1).view(_HEADER)
        self.sample({})
        self._socket.bind((nic, _ETH_P_ALL))

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()
        if self._ring is not None:
            del self._bytes, self._frames
            ring, self._ring = self._ring, None
            with suppress(BufferError):  # a slice is still in use: it goes with the last of them
                ring.close()

    def sample(self, shifts: Mapping[int, int]) -> None:
        """Select the flows to sample from now on, and which of their bytes.

        Args:
            shifts: as for `segment_filter`.

        Raises:
            OSError: the kernel refuses the filter.
        """
        program = segment_filter(shifts)
        if program == self._filter:
            return
        memory = ctypes.create_string_buffer(program, len(program))
        # struct sock_fprog: the program is copied by the kernel.
        bound = struct.pack("@HP", len(program) // 8, ctypes.addressof(memory))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bound)
        self._filter = program

    def read(self) -> tuple[NDArray[np.void], int]:
        """Segments that have passed since the last call, in their order, shape (n,), dtype
        `SEGMENT`; and how many were lost meanwhile. Raises `MissingError`: the NIC has gone."""
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error and error != errno.ENETDOWN:  # ENETDOWN: it is down, and may come up again
            raise MissingError(f"segments cannot be sampled: {os.strerror(error)}")
        _, lost = struct.unpack(
            "=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        )  # reading resets them
        self.lost += lost
        ready = self._frames["status"] & _STATUS_USER != 0
        order = np.roll(ready, -self._head)
        count = FRAMES if order.all() else int(np.argmin(order))
        places = (self._head + np.arange(count)) % FRAMES
        raw = self._bytes[places]
        self._frames["status"][places] = 0
        self._head = (self._head + count) % FRAMES
        return segments_of(raw), lost


def packet_socket() -> socket.socket:
    """A packet socket that receives nothing before it is bound. Raises `MissingError`: no
    CAP_NET_RAW."""
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    except PermissionError as error:
        raise MissingError(
            "segments of jobs cannot be sampled without CAP_NET_RAW; grant it to the agent"
        ) from error
    except OSError as error:
        raise MissingError(f"segments of jobs cannot be sampled: {error.strerror}") from error


def segments_of(raw: NDArray[np.uint8]) -> NDArray[np.void]:
    """Parse frames of the ring, shape (n, 256), into `SEGMENT` records; a frame without a whole TCP
    header is left out."""
    head = np.ascontiguousarray(raw).reshape(-1).view(_HEADER)
    net = head["net"].astype(np.int64)
    known = (net + _IPV4_HEADER + _TCP_HEADER <= _FRAME) & (
        head["snap"] >= _IPV4_HEADER + _TCP_HEADER
    )
    head, raw, net = head[known], raw[known], net[known]
    # Bytes beyond the frame are never part of a header: they are read as whatever is last.
    reach = np.minimum(net[:, None] + np.arange(SNAPLEN), _FRAME - 1)
    packet = np.take_along_axis(raw, reach, axis=1)
    version = packet[:, 0] >> 4
    found = np.zeros(len(packet), SEGMENT)
    four, six = version == 4, version == 6
    start = np.where(four, (packet[:, 0] & 0xF).astype(np.int64) * 4, _IPV6_HEADER)
    total = _u16(packet, np.where(four, 2, 4)).astype(np.int64) + np.where(four, 0, _IPV6_HEADER)
    # Of more than 64 KiB (BIG TCP) the header does not say the length.
    big = _u16(packet, np.where(four, 2, 4)) == 0
    total = np.where(big, head["length"].astype(np.int64), total)
    protocol = np.where(four, packet[:, 9], packet[:, 6])
    start = np.minimum(start, SNAPLEN - _TCP_HEADER)
    offset = (_u8(packet, start + 12) >> 4).astype(np.int64) * 4
    payload = total - start - offset
    good = (four & (start >= _IPV4_HEADER) | six) & (protocol == _TCP) & (offset >= _TCP_HEADER)
    good &= (payload > 0) & (payload < 1 << 24)
    found["real_ns"] = head["sec"].astype(np.int64) * S + head["nsec"]
    found["src"][four, 10:12] = found["dst"][four, 10:12] = 0xFF
    found["src"][four, 12:], found["dst"][four, 12:] = packet[four, 12:16], packet[four, 16:20]
    found["src"][six], found["dst"][six] = packet[six, 8:24], packet[six, 24:40]
    found["sport"], found["dport"] = _u16(packet, start), _u16(packet, start + 2)
    found["seq"] = _u16(packet, start + 4).astype(np.uint32) << 16 | _u16(packet, start + 6)
    found["payload"] = np.clip(payload, 0, 1 << 24)
    found["outgoing"] = head["kind"] == _OUTGOING
    segments: NDArray[np.void] = found[good]
    return segments


def packed(address: str) -> bytes:
    """An address as `SEGMENT` stores it, 16 bytes."""
    raw = ipaddress.ip_address(address).packed
    return raw if len(raw) == 16 else bytes(10) + b"\xff\xff" + raw


def _u8(packet: NDArray[np.uint8], at: NDArray[Any]) -> NDArray[np.uint8]:
    return np.take_along_axis(packet, at[:, None], axis=1)[:, 0]


def _u16(packet: NDArray[np.uint8], at: NDArray[Any]) -> NDArray[np.uint16]:
    pair = np.stack([_u8(packet, at), _u8(packet, at + 1)], axis=1)
    return pair.view(">u2")[:, 0].astype(np.uint16)
