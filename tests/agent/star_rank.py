"""star_rank.py HOW LOG PORT: a rank that adds up over sockets, through rank 0, until it ends.

In its 30th operation the last rank ends as HOW says. Each operation's begin and end is a line in
LOG: number, begin, end (0: none), CLOCK_MONOTONIC.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
from pathlib import Path

how, log, port = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LAST, LONG = 30, 600


def fail() -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "segfault":
        ctypes.string_at(0)
    elif how == "memory":
        hoard = []
        while True:
            hoard.append(b"x" * (1 << 22))
    elif how == "error":
        raise ValueError("no such sample")
    time.sleep(LONG)


def connected() -> list[socket.socket]:
    if rank:
        while True:
            try:
                return [socket.create_connection(("127.0.0.1", port))]
            except ConnectionRefusedError:
                time.sleep(0.02)
    with socket.create_server(("127.0.0.1", port)) as listener:
        return [listener.accept()[0] for _ in range(ranks - 1)]


def add_up(peers: list[socket.socket]) -> None:
    """Raises `ConnectionError`: a peer is gone."""
    for peer in peers if rank == 0 else ():
        if not peer.recv(1):
            raise ConnectionResetError("a rank has left")
    for peer in peers:
        peer.sendall(b"x")
    for peer in peers if rank else ():
        if not peer.recv(1):
            raise ConnectionResetError("rank 0 has left")


others = connected()
with log.open("w", buffering=1) as file:
    for number in range(LONG):
        time.sleep(0.01)
        if number == LAST and rank == ranks - 1:
            fail()
        begin_ns = time.monotonic_ns()
        file.write(f"{number} {begin_ns} 0\n")
        add_up(others)
        file.write(f"{number} {begin_ns} {time.monotonic_ns()}\n")
