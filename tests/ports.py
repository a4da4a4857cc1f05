"""Ports that were free a moment ago, below those that the kernel gives to clients.

A port of the kernel's own range can be given to any connection, or be named twice, before its
server listens.
"""

from __future__ import annotations

import random
import socket

_LEFT = iter(random.SystemRandom().sample(range(10_000, 32_768), 32_768 - 10_000))
"""Each is named once in a process; processes beside each other begin at random places."""


def free_port() -> int:
    """A TCP port of loopback."""
    return _free(socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1")


def free_udp_port(address: str = "127.0.0.1") -> int:
    """A UDP port of an address of this host."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return _free(family, socket.SOCK_DGRAM, address)


def _free(family: int, kind: int, address: str) -> int:
    for port in _LEFT:
        with socket.socket(family, kind) as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise OSError("no port is free")
