"""Every TCP connection and MPTCP subflow of the namespace, sampled from the kernel by sock_diag.

Finding walks the kernel's table of all connections; those found are then asked for by name, at
about 2 µs each (docs/decisions/0066).
"""

from __future__ import annotations

import errno
import functools
import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.errors import MissingError, UsageError
from syntony.io._library import dtype_of, ffi, library, pointer_to
from syntony.io.closing import Closing
from syntony.model import MS, US
from syntony.model.paths import FlowSample, FourTuple

SAMPLE = dtype_of("syn_flow_sample")
"""One flow as the kernel sees it: see syn_flows.h. `state` is 0 for one that is gone."""
OWNER = dtype_of("syn_flow_owner")
"""An MPTCP connection: cookie, token (local), inode of the socket that a process holds."""

_ESTABLISHED, _FIN_WAIT1, _CLOSE_WAIT, _LAST_ACK, _CLOSING = 1, 4, 8, 9, 11
SENDING_STATES = sum(
    1 << state for state in (_ESTABLISHED, _FIN_WAIT1, _CLOSE_WAIT, _LAST_ACK, _CLOSING)
)
"""Connected, and perhaps with data on the way."""
_MAPPED = bytes(10) + b"\xff\xff"
"""How an IPv6 socket writes an IPv4 address."""
_JMP, _S_COND = 1, 7  # INET_DIAG_BC_…
_OP = struct.Struct("=BBH")
_HOST = struct.Struct("=BBxxi")
_BEYOND = 4
"""A jump this far past the end of a program rejects."""
_BITS_PER_BYTE = 8


class TcpFlows(Closing):
    """Reads the network namespace of the thread that makes it. Not thread-safe. Raises
    `MissingError`: the kernel has no sock_diag."""

    def __init__(self) -> None:
        self._library = library()
        self._handle: Any = self._library.syn_flows_open()
        if self._handle == ffi.NULL:
            reason = os.strerror(ffi.errno)
            raise MissingError(f"cannot ask the kernel about TCP connections: {reason}")
        self._tuples: dict[bytes, FourTuple] = {}

    def close(self) -> None:
        """Idempotent."""
        if self._handle is not None:
            self._library.syn_flows_close(self._handle)
            self._handle = None

    def find(self, local: Iterable[str] = ()) -> NDArray[np.void]:
        """All flows, or those from the given addresses; subflows have their connection's inode.

        Args:
            local: addresses of this host; none means any. The kernel itself filters.

        Returns:
            Shape (n,), dtype `SAMPLE`, ready for `sample`.
        """
        program = local_filter(local)
        rows = np.concatenate([self._find(family, SENDING_STATES, program) for family in (4, 6)])
        if rows["token"].any():
            self._fill_inodes(rows)
        return rows

    def sample(self, rows: NDArray[np.void]) -> None:
        """Query each of `rows` again (dtype `SAMPLE`, contiguous), in place, except the inode.

        One that is gone, or whose address another connection has taken over, gets state 0.
        """
        inodes = rows["inode"].copy()
        target = pointer_to(rows, "struct syn_flow_sample")
        self._check(self._library.syn_flows_sample(self._handle, target, len(rows)))
        rows["inode"] = inodes

    def owners(self) -> NDArray[np.void]:
        """MPTCP connections: shape (n,), dtype `OWNER`; empty where the kernel has no MPTCP."""
        return np.concatenate([self._owners(family) for family in (4, 6)])

    def samples(self, rows: NDArray[np.void], at_ns: int) -> list[FlowSample]:
        """As records; flows that are gone are left out."""
        living = rows[is_sending(rows)]
        if len(self._tuples) > 4 * len(living) + 1024:
            self._tuples.clear()
        fields = (living[name].tolist() for name in _FIELDS)
        return [
            FlowSample(
                at_ns=at_ns,
                flow=self._tuple_of(identity),
                token=token,
                local_id=local_id,
                inode=inode,
                bytes_acked=acked,
                bytes_received=received,
                unacked=unacked,
                retransmits=retransmits,
                backoff=backoff,
                last_ack_ns=last_ack_ms * MS,
                rtt_ns=rtt_us * US,
                delivery_bps=delivery * _BITS_PER_BYTE,
                busy_ns=busy_us * US,
                window_limited_ns=window_us * US,
                dscp=dscp,
            )
            for identity, token, local_id, inode, acked, received, unacked, retransmits,
                backoff, last_ack_ms, rtt_us, delivery, busy_us, window_us, dscp
            in zip(_identities(living), *fields, strict=True)
        ]  # fmt: skip

    def _find(self, family: int, states: int, program: bytes) -> NDArray[np.void]:
        return self._rows(
            "syn_flow_sample",
            SAMPLE,
            lambda target, room: self._library.syn_flows_find(
                self._handle, family, states, program or ffi.NULL, len(program), target, room
            ),
        )

    def _owners(self, family: int) -> NDArray[np.void]:
        def read(target: Any, room: int) -> int:
            count: int = self._library.syn_flows_owners(self._handle, family, target, room)
            return 0 if count == -errno.ENOENT else count

        return self._rows("syn_flow_owner", OWNER, read)

    def _fill_inodes(self, rows: NDArray[np.void]) -> None:
        owners = self.owners()
        inode_of = dict(zip(owners["token"].tolist(), owners["inode"].tolist(), strict=True))
        subflows = rows["token"] != 0
        rows["inode"][subflows] = [
            inode_of.get(token, 0) for token in rows["token"][subflows].tolist()
        ]

    def _rows(
        self, struct_name: str, dtype: np.dtype[np.void], read: Callable[[Any, int], int]
    ) -> NDArray[np.void]:
        room = 256
        while True:
            rows = np.empty(room, dtype)
            count = self._check(read(pointer_to(rows, f"struct {struct_name}"), room))
            if count <= room:
                return rows[:count]
            room = 2 * count

    def _check(self, result: int) -> int:
        if result < 0:
            reason = os.strerror(-result)
            raise MissingError(f"the kernel does not list TCP connections: {reason}")
        return result

    def _tuple_of(self, identity: bytes) -> FourTuple:
        known = self._tuples.get(identity)
        if known is None:
            local, remote, local_port, remote_port, family = _IDENTITY.unpack(identity)
            known = FourTuple(_text(local, family), local_port, _text(remote, family), remote_port)
            self._tuples[identity] = known
        return known


_FIELDS = (
    "token", "local_id", "inode", "bytes_acked", "bytes_received", "unacked", "retransmits",
    "backoff", "last_ack_ms", "rtt_us", "delivery_rate", "busy_us",
    "window_limited_us", "dscp",
)  # fmt: skip
_IDENTITY_AT = ffi.offsetof("struct syn_flow_sample", "local")
_IDENTITY = struct.Struct("=16s16sHHB")
"""Addresses, ports and family, which lie side by side in a row."""


def local_filter(local: Iterable[str]) -> bytes:
    """The kernel's byte code for "the local address is one of these"; empty lets everything pass.

    A chain of comparisons: each that holds jumps to the end, which accepts; the last one that does
    not jumps beyond the end, which rejects (net/ipv4/inet_diag.c).
    """
    return _filter(tuple(sorted(local)))


@functools.lru_cache(maxsize=8)
def _filter(local: tuple[str, ...]) -> bytes:
    """Made once: a host's addresses hardly ever change, and are asked for twice a second."""
    program = b""
    for address in local:
        program = _or(_host(address), program)
    return program


def _host(address: str) -> bytes:
    """An inet_diag_hostcond: family, prefix length, port (any), address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError as error:
        raise UsageError(f"{address!r} is not an IPv4 or IPv6 address") from error
    family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    return _HOST.pack(family, parsed.max_prefixlen, -1) + parsed.packed


def _or(host: bytes, rest: bytes) -> bytes:
    size = _OP.size + len(host)
    if not rest:
        return _OP.pack(_S_COND, size, size + _BEYOND) + host
    jump = _OP.pack(_JMP, _OP.size, _OP.size + len(rest))
    return _OP.pack(_S_COND, size, size + len(jump)) + host + jump + rest


def _text(raw: bytes, family: int) -> str:
    if family == 4:
        return socket.inet_ntoa(raw[:4])
    if raw.startswith(_MAPPED):
        return socket.inet_ntoa(raw[12:])
    return str(ipaddress.IPv6Address(raw))


def is_sending(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which of them are connected, shape (n,)."""
    sending: NDArray[np.bool_] = (1 << rows["state"].astype(np.int64) & SENDING_STATES) != 0
    return sending


def goes_to(rows: NDArray[np.void], remotes: Iterable[str]) -> NDArray[np.bool_]:
    """Which of them have one of these addresses at their far end, shape (n,)."""
    found = np.zeros(len(rows), bool)
    for remote in remotes:
        packed = ipaddress.ip_address(remote).packed
        names = (packed,) if len(packed) > 4 else (packed + bytes(12), _MAPPED + packed)
        for name in names:
            found |= (rows["remote"] == np.frombuffer(name, np.uint8)).all(axis=1)
    return found


def _identities(rows: NDArray[np.void]) -> list[bytes]:
    raw = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), SAMPLE.itemsize)
    packed = raw[:, _IDENTITY_AT : _IDENTITY_AT + _IDENTITY.size].tobytes()
    return [packed[at : at + _IDENTITY.size] for at in range(0, len(packed), _IDENTITY.size)]
