"""UDP echo inside a lab: ``serve`` in the background, or ``ask SRC DST COUNT SPORT``."""

from __future__ import annotations

import json
import os
import socket
import sys
import time

PORT = 7007
TIMEOUT_S = 0.15


def serve() -> None:
    """One dual-stack socket that answers from the address that was asked; returns once bound."""
    own = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    own.bind(("::", PORT))
    if os.fork() != 0:
        return
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    while True:
        data, control, _, peer = own.recvmsg(2048, 64)
        own.sendmsg([data], control, 0, peer)


def ask(src: str, dst: str, count: int, sport: int) -> None:
    """Sends `count` packets, each after the answer to the one before or a timeout."""
    family = socket.AF_INET6 if ":" in src else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as own:
        own.bind((src, sport))
        own.settimeout(TIMEOUT_S)
        rtts = []
        for number in range(count):
            began_ns = time.monotonic_ns()
            own.sendto(str(number).encode(), (dst, PORT))
            if _answered(own, str(number).encode()):
                rtts.append(time.monotonic_ns() - began_ns)
    found = {"got": len(rtts), "rtt_min_ns": min(rtts, default=0)}
    print(json.dumps(found))


def _answered(own: socket.socket, expected: bytes) -> bool:
    """Late answers to earlier packets do not count."""
    while True:
        try:
            if own.recv(2048) == expected:
                return True
        except TimeoutError:
            return False


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        ask(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
