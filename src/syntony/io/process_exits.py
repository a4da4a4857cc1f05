"""How processes end, told by the kernel without their help.

Two sources, of which the first that is permitted is used:

* the process events of the proc connector (linux/cn_proc.h): every end on the host, with its
  instant; needs CAP_NET_ADMIN in the initial user namespace, and the initial network and process
  namespaces
* pidfds (PIDFD_GET_INFO with PIDFD_INFO_EXIT, Linux 6.15): no privilege, in any namespace; of
  processes of which a pidfd was opened while they ran
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from syntony.errors import MissingError
from syntony.io.closing import Closing
from syntony.io.netlink import HEADER, NLMSG_DONE

_CONNECTOR = 11
"""NETLINK_CONNECTOR."""
_CN_PROC = 1
"""CN_IDX_PROC and CN_VAL_PROC; also the multicast group."""
_LISTEN, _IGNORE = 1, 2
_NONE, _EXIT = 0x00000000, 0x80000000
_MESSAGE = struct.Struct("=IIIIHH")
"""struct cn_msg."""
_EVENT_AT = HEADER.size + _MESSAGE.size
_EVENT = struct.Struct("=IIQ")
"""Kind, processor, CLOCK_MONOTONIC."""
_ENDED = struct.Struct("=IIII")
"""Thread, process, wait status, signal to the parent."""
_PID_AT = _EVENT_AT + _EVENT.size
_BUFFER_BYTES = 8 << 20
"""Room for about 20,000 ends between two calls of `read`, threads of processes that do not end with
0 among them; of others the status is not known."""
_ANSWER_S = 0.2
"""Patience for the kernel's answer; outside of the initial namespaces it gives none."""
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 26, 33
_LD_W, _JEQ, _JEQ_X, _TAX, _RET = 0x20, 0x15, 0x1D, 0x07, 0x06
_SIGNAL = 0x7F
"""Of a wait status: the signal."""
_PIDFD_GET_INFO, _PIDFD_INFO_EXIT = 0xC040FF0B, 1 << 3
"""linux/pidfd.h, with the first version of struct pidfd_info: 64 bytes, the exit code last."""
_INFO = struct.Struct("=Q52xi")


class ProcessExit(NamedTuple):
    status: int
    """As `subprocess.Popen.returncode`: its exit status, or below 0 the signal that ended it."""
    at_ns: int | None = None
    """CLOCK_MONOTONIC; None: not known."""


class ExitSource(Closing):
    """Not thread-safe."""

    lost = 0
    """How often the kernel had no room for ends, and left out one or more."""

    @abstractmethod
    def watch(self, pid: int) -> None:
        """Report the end of this process. Its number is of the caller's namespace."""

    @abstractmethod
    def read(self) -> dict[int, ProcessExit]:
        """Processes that have ended since the last call, maybe also others than those watched."""


class ExitEvents(ExitSource):
    """The proc connector.

    A process ends as its first thread does. If that has ended alone before (`pthread_exit`, status
    0), a signal that ends the process, or an `exit` of another thread, ends those that are left
    with the status of the process. C libraries end a thread alone with 0; a signal does so only
    where a seccomp filter says so. Ends that the kernel had no room to report are read from
    pidfds.

    Args:
        makes: opens what is asked where events were lost.

    Raises:
        MissingError: not permitted, or not in the initial namespaces.
    """

    def __init__(self, makes: Callable[[], ExitSource] | None = None) -> None:
        self._others: ExitSource | None = None
        self._watched = set[int]()
        """Processes whose end was not reported yet."""
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _CONNECTOR)
        except OSError as error:
            raise MissingError(f"process events: {error.strerror}") from error
        try:
            self._listen()
        except OSError as error:
            self._socket.close()
            silent = isinstance(error, TimeoutError | ConnectionRefusedError)
            why = "not in the initial namespaces" if silent else error.strerror
            raise MissingError(f"process events: {why}") from error
        with suppress(MissingError):
            self._others = makes() if makes else None

    def _listen(self) -> None:
        program = b"".join(struct.pack("=HBBI", *each) for each in _ends_of_processes())
        memory = ctypes.create_string_buffer(program, len(program))
        bound = struct.pack("@HP", len(program) // 8, ctypes.addressof(memory))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bound)
        with suppress(PermissionError):
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.bind((0, _CN_PROC))
        self._send(_LISTEN)
        # With much going on, ends of others may come before the answer.
        end_ns = time.monotonic_ns() + round(_ANSWER_S * 1e9)
        while True:  # what has come is read, however late this process gets to it
            self._socket.settimeout(max(0.0, (end_ns - time.monotonic_ns()) / 1e9))
            try:
                kind, refused, _, _, _ = _parsed(self._socket.recv(1 << 12))
            except BlockingIOError as error:
                raise TimeoutError from error
            if kind == _NONE:
                if refused:
                    raise OSError(refused, os.strerror(refused))
                self._socket.setblocking(False)
                return

    def _send(self, order: int) -> None:
        body = _MESSAGE.pack(_CN_PROC, _CN_PROC, 0, 0, 4, 0) + struct.pack("=I", order)
        self._socket.send(HEADER.pack(HEADER.size + len(body), NLMSG_DONE, 0, 0, 0) + body)

    def watch(self, pid: int) -> None:
        """All are watched; of these ends that were lost are asked for."""
        self._watched.add(pid)
        if self._others is not None:
            self._others.watch(pid)

    def read(self) -> dict[int, ProcessExit]:
        # First: of what has ended by now there is an event, with its instant, if it was not lost.
        more = self._others.read() if self._others else {}
        ended: list[tuple[int, int, ProcessExit]] = []
        while True:
            try:
                kind, thread, pid, at_ns, status = _parsed(self._socket.recv(1 << 12))
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.lost += 1
                continue
            if kind == _EXIT:
                ended.append((thread, pid, ProcessExit(_returncode(status), at_ns)))
        found = {pid: more[pid] for pid in more.keys() & self._watched} | _of_processes(ended)
        self._watched -= found.keys()
        return found

    def close(self) -> None:
        """Idempotent. Before Linux 6.6 the kernel counts a listener until it is told."""
        with suppress(OSError):
            self._send(_IGNORE)
        self._socket.close()
        if self._others is not None:
            self._others.close()


class ExitFiles(ExitSource):
    """A pidfd of each process, as long as that leaves half of this process's descriptors to others.

    Raises:
        MissingError: the kernel cannot tell.
    """

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        with suppress(OSError), subprocess.Popen([sys.executable, "-ISc", ""]) as child:
            self.watch(child.pid)
        # Linux 6.13 knows the call, ignores what is asked for, and refuses it of a process that is
        # gone: only an end shows what the kernel can.
        if not self.read():
            raise MissingError("exit status of pidfds: needs Linux 6.15")

    def watch(self, pid: int) -> None:
        if pid not in self._files and len(self._files) < self._most:
            with suppress(OSError):
                self._files[pid] = os.pidfd_open(pid)

    def read(self) -> dict[int, ProcessExit]:
        poll = select.poll()
        for file in self._files.values():
            poll.register(file, select.POLLIN)
        ready = {file for file, _ in poll.poll(0)}
        found: dict[int, ProcessExit] = {}
        for pid, file in [each for each in self._files.items() if each[1] in ready]:
            mask, status = _info(file)
            if mask & _PIDFD_INFO_EXIT:
                found[pid] = ProcessExit(_returncode(status))
            elif _is_there(file):
                continue  # nobody has waited for it yet
            os.close(self._files.pop(pid))
        return found

    def close(self) -> None:
        """Idempotent."""
        while self._files:
            os.close(self._files.popitem()[1])


def _of_processes(ended: Iterable[tuple[int, int, ProcessExit]]) -> dict[int, ProcessExit]:
    """Ends of processes, from those of threads: thread, process, and how it ended."""
    firsts: dict[int, ProcessExit] = {}
    others: dict[int, ProcessExit] = {}
    for thread, pid, end in ended:
        if thread == pid:  # the number may have been used again: the first is meant
            firsts.setdefault(pid, end)
        elif pid in firsts and not firsts[pid].status:
            firsts[pid] = end  # the first thread had ended alone
        else:
            others[pid] = end
    return others | firsts


def exit_source() -> ExitSource | None:
    """The best source that this process may use; None: how processes end is not visible."""
    with suppress(MissingError):
        return ExitEvents(ExitFiles)
    with suppress(MissingError):
        return ExitFiles()
    return None


def _info(file: int) -> tuple[int, int]:
    """What the kernel says of a pidfd's process, as a mask, and its wait status."""
    try:
        found = fcntl.ioctl(file, _PIDFD_GET_INFO, _INFO.pack(_PIDFD_INFO_EXIT, 0))
    except OSError:
        return 0, 0
    mask, status = _INFO.unpack(found)
    return mask, status


def _is_there(file: int) -> bool:
    """Whether a process has not been waited for."""
    try:
        signal.pidfd_send_signal(file, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _ends_of_processes() -> list[tuple[int, int, int, int]]:
    """A classic BPF program that passes answers, ends of first threads, and others but with 0."""
    none, ended = (int.from_bytes(struct.pack("=I", each), "big") for each in (_NONE, _EXIT))
    return [
        (_LD_W, 0, 0, _EVENT_AT),
        (_JEQ, 7, 0, none),
        (_JEQ, 0, 7, ended),
        (_LD_W, 0, 0, _PID_AT),
        (_TAX, 0, 0, 0),
        (_LD_W, 0, 0, _PID_AT + 4),
        (_JEQ_X, 2, 0, 0),
        (_LD_W, 0, 0, _PID_AT + 8),
        (_JEQ, 1, 0, 0),
        (_RET, 0, 0, 0xFFFFFFFF),
        (_RET, 0, 0, 0),
    ]


def _parsed(data: bytes) -> tuple[int, int, int, int, int]:
    """Kind, thread, process, instant and wait status of an event; kind and error of an answer."""
    if len(data) < _PID_AT + _ENDED.size:
        return -1, 0, 0, 0, 0
    kind, _, at_ns = _EVENT.unpack_from(data, _EVENT_AT)
    thread, pid, status, _ = _ENDED.unpack_from(data, _PID_AT)
    return kind, thread, pid, at_ns, status


def _returncode(status: int) -> int:
    """From a wait status; a core dump does not count."""
    return -(status & _SIGNAL) if status & _SIGNAL else (status >> 8) & 0xFF
