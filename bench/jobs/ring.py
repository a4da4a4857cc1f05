"""One rank of a ring all-reduce over plain TCP, again and again until killed; checks every sum.

python -m bench.jobs.ring RANK BYTES PORT ADDRESS…
"""

from __future__ import annotations

import socket
import sys
import threading
import time

import numpy as np
from numpy.typing import NDArray

CONNECT_S = 30.0
REPORT_S = 5.0


def connect(rank: int, addresses: list[str], port: int) -> tuple[socket.socket, socket.socket]:
    """To the next rank, and from the previous one; from our own address: the rail is chosen."""
    listener = socket.create_server((addresses[rank], port))
    deadline_s = time.monotonic() + CONNECT_S
    peer = (addresses[(rank + 1) % len(addresses)], port)
    while True:
        try:
            ahead = socket.create_connection(peer, source_address=(addresses[rank], 0))
            break
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)
    behind, _ = listener.accept()
    for end in (ahead, behind):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ahead, behind


def receive(behind: socket.socket, into: NDArray[np.int64]) -> None:
    """Exactly as many bytes as fit. Raises `ConnectionError` when the other end has gone."""
    view = into.data.cast("B")
    while view:
        got = behind.recv_into(view)
        if not got:
            raise ConnectionError("the previous rank is gone")
        view = view[got:]


def all_reduce(
    rank: int, ranks: int, ends: tuple[socket.socket, socket.socket], data: NDArray[np.int64]
) -> None:
    """Sum in place: ranks-1 steps of reduce-scatter, as many of all-gather."""
    ahead, behind = ends
    parts = np.array_split(data, ranks)
    for step in range(2 * (ranks - 1)):
        gather = step >= ranks - 1
        # After reduce-scatter, rank r has the whole sum of part r+1; that is what it passes on.
        turn = step - ranks + 1
        out = parts[(rank + 1 - turn if gather else rank - step) % ranks]
        into = parts[(rank - turn if gather else rank - step - 1) % ranks]
        came = np.empty_like(into)
        sending = threading.Thread(target=ahead.sendall, args=(out.tobytes(),))
        sending.start()
        receive(behind, came)
        sending.join()
        if gather:
            into[:] = came
        else:
            into += came


def main() -> None:
    rank, size, port = (int(word) for word in sys.argv[1:4])
    addresses = sys.argv[4:]
    ranks = len(addresses)
    ends = connect(rank, addresses, port)
    step, told_s = 0, time.monotonic()
    while True:
        data = np.full(size // 8, rank + step, dtype=np.int64)
        all_reduce(rank, ranks, ends, data)
        expected = ranks * (ranks - 1) // 2 + ranks * step
        if not (data == expected).all():
            sys.exit(f"rank {rank}, step {step}: wrong sum")
        step += 1
        if time.monotonic() - told_s > REPORT_S:
            told_s = time.monotonic()
            print(step, flush=True)


if __name__ == "__main__":
    main()
