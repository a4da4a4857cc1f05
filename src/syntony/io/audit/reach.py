"""TCP connections to peers: how many fail, how long they take."""

from __future__ import annotations

import socket
import threading
import time
from typing import NamedTuple

from syntony.errors import UsageError

TIMEOUT_S = 1.0
DEFAULT_PORT = 22
P99_SAMPLES = 100
"""Of fewer, the 99th percentile is the largest."""


class ConnectionTries(NamedTuple):
    """What became of `tries` connections to one peer."""

    peer: str
    tries: int
    lost: int
    p50_ns: int | None
    max_ns: int | None
    p99_ns: int | None
    """None of fewer than `P99_SAMPLES`: it would be the largest."""
    error: str
    """Of the last that failed."""


def reach(peers: tuple[str, ...], count: int) -> list[ConnectionTries]:
    """All peers at once. Raises `UsageError`: a peer that is no ``HOST[:PORT]``."""
    targets = [(peer, *parse_peer(peer)) for peer in peers]
    found: dict[str, ConnectionTries] = {}
    threads = [
        threading.Thread(
            target=lambda p=peer, h=host, n=port: found.update({p: _one(p, h, n, count)}),
            daemon=True,
        )
        for peer, host, port in targets
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[peer] for peer in peers]


def parse_peer(text: str) -> tuple[str, int]:
    """``gpu002``, ``gpu002:8080``, ``[fd00::2]:22``. Raises `UsageError`."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = rest.removeprefix(":") or str(DEFAULT_PORT)
        good = bool(bracket)
    else:
        host, _, port = text.partition(":")
        port, good = port or str(DEFAULT_PORT), True
    if not host or not good or not port.isdigit() or not 0 < int(port[:6]) < 1 << 16:
        raise UsageError(f"{text!r} is not HOST[:PORT]")
    return host, int(port)


def _one(peer: str, host: str, port: int, count: int) -> ConnectionTries:
    times: list[int] = []
    error = ""
    for _ in range(count):
        started_ns = time.monotonic_ns()
        try:
            socket.create_connection((host, port), TIMEOUT_S).close()
        except OSError as problem:
            error = problem.strerror or str(problem)
            if isinstance(problem, socket.gaierror):
                return ConnectionTries(peer, count, count, None, None, None, error)
            continue
        times.append(time.monotonic_ns() - started_ns)
    times.sort()
    p50 = times[len(times) // 2] if times else None
    p99 = times[len(times) * 99 // 100] if len(times) >= P99_SAMPLES else None
    largest = times[-1] if times else None
    return ConnectionTries(peer, count, count - len(times), p50, largest, p99, error)
