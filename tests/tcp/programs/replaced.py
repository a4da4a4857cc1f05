"""What a program set on its socket holds after it connected within the host: ADDRESS.

Prints one JSON document. The watched socket goes into an epoll set before it connects.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import struct
import sys
from typing import Any

Address = tuple[Any, ...]
IS_MPTCP = 43
SET = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000),
    (socket.SOL_SOCKET, socket.SO_RCVBUF, 60_000),
    (socket.SOL_SOCKET, socket.SO_PRIORITY, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 33),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 7),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
]
if ":" not in sys.argv[1]:
    SET.append((socket.IPPROTO_IP, socket.IP_TOS, 16))
FAMILY = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
LINGER = struct.pack("ii", 1, 2)
TIMEOUT = struct.pack("ll", 9, 0)


def look(sock: socket.socket) -> dict[str, Any]:
    return {
        "mptcp": sock.getsockopt(socket.IPPROTO_TCP, IS_MPTCP),
        "options": [sock.getsockopt(level, option) for level, option, _ in SET],
        "linger": sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == LINGER,
        "timeout": sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16) == TIMEOUT,
        "congestion": sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        .rstrip(b"\0")
        .decode(),
        "blocking": os.get_blocking(sock.fileno()),
        "inheritable": bool(fcntl.fcntl(sock, fcntl.F_GETFD) & fcntl.FD_CLOEXEC) is False,
        "protocol": sock.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL),
    }


def prepared() -> socket.socket:
    sock = socket.socket(FAMILY)
    for level, option, value in SET:
        sock.setsockopt(level, option, value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    os.set_inheritable(sock.fileno(), True)
    os.set_blocking(sock.fileno(), False)
    return sock


def connected(sock: socket.socket, address: Address) -> dict[str, Any]:
    error = sock.connect_ex(address)
    assert error in {0, 115}, os.strerror(error)
    return look(sock)


def watched(address: Address) -> bool:
    """An epoll set that held the socket before it connected hears that it did."""
    with socket.socket(FAMILY) as sock, select.epoll() as ready:
        sock.setblocking(False)
        ready.register(sock, select.EPOLLOUT | select.EPOLLET)
        ready.poll(0)  # an unconnected socket says so at once
        sock.connect_ex(address)
        events = ready.poll(10)
        return [fd for fd, _ in events] == [sock.fileno()] and sock.getsockopt(
            socket.SOL_SOCKET, socket.SO_ERROR
        ) == 0


with socket.create_server((sys.argv[1], 0), family=FAMILY) as server:
    where = server.getsockname()
    fresh = prepared()
    before = look(fresh)
    bound = socket.socket(FAMILY)
    bound.bind((sys.argv[1], 0))
    bound.connect(where)
    document = {
        "before": before,
        "after": connected(fresh, where),
        "bound": bound.getsockopt(socket.IPPROTO_TCP, IS_MPTCP),
        "watched": watched(where),
    }
print(json.dumps(document))
