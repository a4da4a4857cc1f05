"""Sets options of another process's TCP socket, which requires a descriptor of that socket.

The socket is borrowed by pidfd_getfd(2) (Linux 5.6), which asks for what a debugger needs:
CAP_SYS_PTRACE, or the same user and a dumpable process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from syntony.model import US

_libc = ctypes.CDLL(None, use_errno=True)
_PIDFD_GETFD = 438
"""Of every architecture (asm-generic/unistd.h)."""
TCP_RTO_MIN_US, TCP_DELACK_MAX_US = 45, 46
"""linux/tcp.h, Linux 6.15."""


class SocketHolder(NamedTuple):
    """The process and descriptor that hold a socket."""

    pid: int
    fd: int


@contextmanager
def borrow_socket(held: SocketHolder, inode: int) -> Iterator[socket.socket]:
    """Borrow the socket, shared with its process. Raises `OSError`: not there any more (EBADF,
    ESRCH; ESTALE: another one by now), or not ours to touch (EPERM)."""
    process = os.pidfd_open(held.pid)
    try:
        number = _libc.syscall(_PIDFD_GETFD, process, held.fd, 0)
        if number < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(process)
    with socket.socket(fileno=number) as sock:
        if os.fstat(number).st_ino != inode:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        yield sock


def lower_timeouts(held: SocketHolder, inode: int, rto_ns: int) -> bool:
    """Lower a connection's shortest retransmission timeout, and how long it holds acknowledgements
    back to half of that; never raise them. Whether anything was changed. Raises `OSError`: as
    `borrow_socket`; ENOPROTOOPT: a kernel older than 6.15."""
    with borrow_socket(held, inode) as sock:
        lowered = [
            _lower(sock, option, value_ns // US)
            for option, value_ns in ((TCP_RTO_MIN_US, rto_ns), (TCP_DELACK_MAX_US, rto_ns // 2))
        ]
    return any(lowered)


def _lower(sock: socket.socket, option: int, value_us: int) -> bool:
    if sock.getsockopt(socket.IPPROTO_TCP, option) <= value_us:
        return False
    sock.setsockopt(socket.IPPROTO_TCP, option, value_us)
    return True
