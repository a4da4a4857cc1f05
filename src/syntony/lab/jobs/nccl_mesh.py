"""The built-in job's mesh over an NCCL transport, called as by NCCL, without a GPU.

Either the net plug-in that NCCL would load, or NCCL's own IB transport: a table of functions in its
library that no symbol leads to from outside. Both are called by net ABI 11 or 12, whose calls are
the same (nccl-net's `net_v11.h`).
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_size_t, c_ssize_t, c_uint64
from ctypes import c_void_p as pointer
from functools import partial
from pathlib import Path
from typing import Any, Self

from syntony.errors import MissingError
from syntony.lab.jobs.mesh import CONNECT_TIMEOUT_S, RankMesh

PLUGIN = "syntony"
"""The net plug-in, as NCCL_NET_PLUGIN has it."""
MIN_NCCL = 22800
_TO_POINTER = POINTER(pointer)
_CALLS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "init": (1, (_TO_POINTER, c_uint64, pointer, pointer, pointer)),
    "devices": (2, (POINTER(c_int),)),
    "listen": (4, (pointer, c_int, pointer, _TO_POINTER)),
    "connect": (5, (pointer, c_int, pointer, _TO_POINTER, _TO_POINTER)),
    "accept": (6, (pointer, _TO_POINTER, _TO_POINTER)),
    "register": (7, (pointer, pointer, c_size_t, c_int, _TO_POINTER)),
    "deregister": (9, (pointer, pointer)),
    "send": (10, (pointer, pointer, c_size_t, c_int, pointer, pointer, _TO_POINTER)),
    "receive": (11, (pointer, c_int, _TO_POINTER, POINTER(c_size_t), POINTER(c_int), _TO_POINTER,
                     _TO_POINTER, _TO_POINTER)),
    "test": (13, (pointer, POINTER(c_int), POINTER(c_int))),
    "close_send": (14, (pointer,)),
    "close_receive": (15, (pointer,)),
    "merge": (19, (POINTER(c_int), pointer)),
}  # fmt: skip
"""Function to its place in the table, and its arguments."""
_SLOTS = 22
_HANDLE, _ID = 128, 128
_TAG = 7
_HOST_MEMORY = 1
_REST_S, _LONGEST_REST_S, _LONGER = 50e-6, 20e-3, 1.25
"""Pause between polls: a quarter longer each time while nothing completes, so that a long wait is
noticed at most a fifth later, and half as long when something has. In an emulated machine a busy
loop would take the processor from the processes that do the work."""
IN_FLIGHT = 8
"""Messages to or from one peer at a time, as NCCL has (`NCCL_STEPS`)."""
_WARN = 2
_MORE = 6
_LOG = CFUNCTYPE(None, c_int, ctypes.c_ulong, c_char_p, c_int, c_char_p, *[c_ssize_t] * _MORE)
_PROFILE = CFUNCTYPE(c_int, pointer, c_int, pointer, c_uint64, pointer)


class TransportError(ConnectionError):
    """A call of the transport failed: NCCL would end the job."""


def _log(level: int, _of: int, _file: bytes, _line: int, form: bytes, *values: int) -> None:
    """The log callback, which in C is variadic: it takes six more pointer-sized arguments, and
    `snprintf` uses those that the format names."""
    text = ctypes.create_string_buffer(512)
    libc = ctypes.CDLL(None)
    libc.snprintf(text, c_size_t(len(text)), form, *map(c_ssize_t, values))
    if level <= _WARN or b"rail" in text.value:
        print(text.value.decode(errors="replace"), flush=True)


class Transport:
    """A loaded transport, on one device merged from all the RDMA ports that it lists.

    Args:
        name: of a plug-in, as ``NCCL_NET_PLUGIN`` has it, or ``LIBRARY@OFFSET``: of the table in
            NCCL's own library.

    Raises:
        MissingError: it cannot be loaded, or finds no device.
    """

    def __init__(self, name: str) -> None:
        try:
            self._table = _table(name)
        except (OSError, ValueError, AttributeError) as error:
            raise MissingError(f"{name}: {error}") from error
        self._callbacks = (_LOG(_log), _PROFILE(lambda *_: 0))
        self.context = pointer()
        config = (c_int * 16)(-1)
        log, profile = (ctypes.cast(each, pointer) for each in self._callbacks)
        if self._function("init")(byref(self.context), 7, config, log, profile):
            raise MissingError(f"{name}: it does not start")
        count = c_int()
        self.call("devices", byref(count))
        if not count.value:
            raise MissingError(f"{name}: no RDMA device")
        self.device = self._merged(count.value)

    def call(self, name: str, *arguments: Any) -> None:
        """Raises `TransportError`: it failed."""
        if result := self._function(name)(*arguments):
            raise TransportError(f"{name} of the transport failed with result {result}")

    def _function(self, name: str) -> Any:
        slot, types = _CALLS[name]
        return CFUNCTYPE(c_int, *types)(self._table[slot])

    def _merged(self, count: int) -> int:
        """The first two devices as one, as NCCL merges a GPU's NICs."""
        if count == 1:
            return 0
        device, members = c_int(), (c_int * 9)(2, 0, 1)
        self.call("merge", byref(device), members)
        return device.value


def _table(name: str) -> Any:
    path, _, offset = name.partition("@")
    if not offset:
        library = ctypes.CDLL(f"libnccl-net-{path}.so")
        return (pointer * _SLOTS).in_dll(library, "ncclNetPlugin_v11")
    library = ctypes.CDLL(path)
    version = c_int()
    if library.ncclGetVersion(byref(version)) or version.value < MIN_NCCL:
        raise OSError(f"NCCL has version {version.value}; the oldest that works is {MIN_NCCL}")
    # It has read its environment by then.
    if library.ncclGetUniqueId(ctypes.create_string_buffer(_ID)):
        raise OSError("NCCL does not start; NCCL_DEBUG=INFO says why")
    found = str(Path(path).resolve())
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    base = min(int(line.split("-")[0], 16) for line in maps if line.endswith(found))
    return (pointer * _SLOTS).from_address(base + int(offset, 0))


class _Peer:
    """A connection to or from one peer, and its registered memory."""

    def __init__(self, transport: Transport, comm: pointer, size: int) -> None:
        self.comm, self.size = comm, size
        self.data = ctypes.create_string_buffer(size)
        self.memory = pointer()
        transport.call("register", comm, self.data, size, _HOST_MEMORY, byref(self.memory))


class Transfer:
    """All that one exchange sends to, or receives from, one peer.

    Args:
        post: begins with the message at this place and of this size; returns its request, which is
            null if it is to be called again.
        is_complete: of a request.
        size: of all messages together.
        message: size of the longest.
    """

    def __init__(
        self,
        post: Callable[[int, int], pointer],
        is_complete: Callable[[pointer], bool],
        size: int,
        message: int,
    ) -> None:
        self._post, self._is_complete = post, is_complete
        self._left = deque((at, min(message, size - at)) for at in range(0, size, message))
        self._requests: deque[pointer] = deque()

    def advance(self) -> bool:
        """Post what may be posted and test the oldest message; returns whether one completed."""
        while self._left and len(self._requests) < IN_FLIGHT:
            request = self._post(*self._left[0])
            if not request.value:
                break
            self._left.popleft()
            self._requests.append(request)
        before = len(self._requests)
        while self._requests and self._is_complete(self._requests[0]):
            self._requests.popleft()
        return len(self._requests) < before

    @property
    def is_done(self) -> bool:
        return not self._left and not self._requests


class NcclMesh:
    """Connections of one rank to all others, and lock-step exchanges over them, as `Mesh`.

    Args:
        mesh: over which ranks find each other, as over NCCL's bootstrap network.
        size: bytes of the longest exchange with one peer.
        message: bytes of the longest message; 0: each exchange is one.

    Raises:
        TransportError: a connection failed.
        TimeoutError: a peer was not there within `CONNECT_TIMEOUT_S`.
    """

    def __init__(
        self, mesh: RankMesh, transport: Transport, ranks: int, size: int, message: int = 0
    ) -> None:
        self.rank, self._message = mesh.rank, message or size
        self._mesh, self._transport = mesh, transport
        peers = [each for each in range(ranks) if each != mesh.rank]
        handles = {peer: ctypes.create_string_buffer(_HANDLE) for peer in peers}
        theirs = {peer: ctypes.create_string_buffer(_HANDLE) for peer in peers}
        listeners = {peer: pointer() for peer in peers}
        for peer in peers:
            transport.call(
                "listen", transport.context, transport.device, handles[peer],
                byref(listeners[peer]),
            )  # fmt: skip
        mesh.exchange(
            {peer: memoryview(handle).cast("B") for peer, handle in handles.items()},
            {peer: memoryview(handle).cast("B") for peer, handle in theirs.items()},
        )
        sends, receives = ({peer: pointer() for peer in peers} for _ in range(2))
        unused = pointer()

        def connected() -> bool:
            for peer in peers:
                if not sends[peer].value:
                    transport.call(
                        "connect", transport.context, transport.device, theirs[peer],
                        byref(sends[peer]), byref(unused),
                    )  # fmt: skip
                if not receives[peer].value:
                    transport.call("accept", listeners[peer], byref(receives[peer]), byref(unused))
            return all(each.value for each in (*sends.values(), *receives.values()))

        end_s = time.monotonic() + CONNECT_TIMEOUT_S
        while not connected():
            if time.monotonic() > end_s:
                raise TimeoutError("a peer did not connect")
            time.sleep(_REST_S)
        self._out = {peer: _Peer(transport, comm, size) for peer, comm in sends.items()}
        self._into = {peer: _Peer(transport, comm, size) for peer, comm in receives.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(TransportError):
            for name, ways in (("close_send", self._out), ("close_receive", self._into)):
                for way in ways.values():
                    self._transport.call("deregister", way.comm, way.memory)
                    self._transport.call(name, way.comm)
        self._mesh.__exit__()

    def exchange(self, out: Mapping[int, memoryview], into: Mapping[int, memoryview]) -> None:
        """Sends all of `out` and fills all of `into`, both by peer rank, at the same time. Raises
        `TransportError`: a call failed."""
        for peer, view in out.items():
            ctypes.memmove(self._out[peer].data, bytes(view), view.nbytes)
        active = [self._transfer(self._send, self._out[peer], view) for peer, view in out.items()]
        active += [
            self._transfer(self._receive, self._into[peer], view) for peer, view in into.items()
        ]
        rest_s = _REST_S
        while active := [each for each in active if not each.is_done]:
            if any([each.advance() for each in active]):  # noqa: C419 - every one advances
                rest_s = max(_REST_S, rest_s / 2)
            else:
                time.sleep(rest_s)
                rest_s = min(_LONGER * rest_s, _LONGEST_REST_S)
        for peer, view in into.items():
            view.cast("B")[:] = memoryview(self._into[peer].data).cast("B")[: view.nbytes]

    def _transfer(
        self, post: Callable[[_Peer, int, int], pointer], way: _Peer, view: memoryview
    ) -> Transfer:
        return Transfer(partial(post, way), self._is_complete, view.nbytes, self._message)

    def _receive(self, way: _Peer, at: int, size: int) -> pointer:
        data, request = pointer(ctypes.addressof(way.data) + at), pointer()
        self._transport.call(
            "receive", way.comm, 1, byref(data), byref(c_size_t(size)), byref(c_int(_TAG)),
            byref(way.memory), byref(pointer()), byref(request),
        )  # fmt: skip
        return request

    def _send(self, way: _Peer, at: int, size: int) -> pointer:
        data, request = pointer(ctypes.addressof(way.data) + at), pointer()
        self._transport.call("send", way.comm, data, size, _TAG, way.memory, None, byref(request))
        return request

    def _is_complete(self, request: pointer) -> bool:
        done, sizes = c_int(), (c_int * 8)()
        self._transport.call("test", request, byref(done), sizes)
        return bool(done.value)
