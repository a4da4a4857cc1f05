"""Where peers may join connections that their application never bound an address for.

A job listens on one address, if at all by then. A join to another NIC of its host needs an MPTCP
listener there, whoever it belongs to: the kernel finds the connection by the token in the SYN.
What connects without joining anything is closed at once.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress

from syntony.errors import MissingError

_log = logging.getLogger(__name__)
_IPPROTO_MPTCP = 262
_BACKLOG = 128


class JoinListeners:
    """One listener per address; they come and go with the addresses."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listeners: dict[str, socket.socket] = {}

    def close(self) -> None:
        """Connections that have been joined stay."""
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    def listen(self, addresses: set[str]) -> list[socket.socket]:
        """Listen on exactly these; the listeners, to be watched for `refuse`.

        Raises:
            MissingError: no MPTCP in this kernel, or the port is taken.
        """
        for address in set(self._listeners) - addresses:
            self._listeners.pop(address).close()
        for address in addresses - set(self._listeners):
            with suppress(_AddressGoneError):
                self._listeners[address] = self._open(address)
        return list(self._listeners.values())

    def _open(self, address: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            listener = socket.socket(family, socket.SOCK_STREAM, _IPPROTO_MPTCP)
        except OSError as error:
            raise MissingError(
                f"no MPTCP here ({error.strerror}); use a kernel with CONFIG_MPTCP and "
                "sysctl net.mptcp.enabled=1"
            ) from error
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, self._port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno == 99:  # EADDRNOTAVAIL
                raise _AddressGoneError from error
            raise MissingError(
                f"cannot listen on {address} port {self._port}: {error.strerror}; is another "
                "agent running? [traffic] port chooses another"
            ) from error
        listener.setblocking(False)
        return listener


class _AddressGoneError(Exception):
    """The address went away between hearing of it and using it."""


def refuse(listener: socket.socket) -> None:
    """Close what has connected there instead of joining."""
    with suppress(BlockingIOError, ConnectionError):
        while True:
            stranger, peer = listener.accept()
            stranger.close()
            _log.debug("connection to the join port closed peer=%s", peer[0])
