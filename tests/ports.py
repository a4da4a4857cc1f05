"""Ports that were free a moment ago."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A TCP port of loopback."""
    return _free(socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1")


def free_udp_port(address: str = "127.0.0.1") -> int:
    """A UDP port of an address of this host."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return _free(family, socket.SOCK_DGRAM, address)


def _free(family: int, kind: int, address: str) -> int:
    with socket.socket(family, kind) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
