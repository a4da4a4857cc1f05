"""Listens for MPTCP joins on addresses that the application did not bind.

A job listens on one address, if at all by then. A join to another NIC of its host needs an MPTCP
listener there, anyone who it belongs to: the kernel finds the connection by the token in the SYN.
What connects without joining anything is closed at once.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress

from syntony.errors import MissingError
from syntony.io.interposer import IPPROTO_MPTCP

_log = logging.getLogger(__name__)
_BACKLOG = 4096
"""Joins under way at once; beyond it the kernel falls back to SYN cookies, which lose joins (of a
thousand at once into a backlog of 128, 863 were lost on Linux 6.18). somaxconn may be lower."""


def supported() -> None:
    """Raises `MissingError`: no MPTCP in this kernel and namespace."""
    _socket(socket.AF_INET).close()


class JoinListeners:
    """They come and go with the addresses and ports that are wanted.

    Args:
        port: where all agents of the fleet listen.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listeners: dict[tuple[str, int], socket.socket] = {}
        self.fault: MissingError | None = None
        """Why an address is not listened on, as of the last `keep`."""

    def close(self) -> None:
        """Connections that have been joined stay."""
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    def keep(self, addresses: set[str], ports: set[int]) -> tuple[list[socket.socket], ...]:
        """Listen on every address at the agents' port, and go on listening at others only for
        these `ports`.

        Returns:
            New listeners, to be watched for `refuse`, and old ones that are closed. `fault` says
            why one that is wanted could not be opened; the next call tries it again.
        """
        self.fault = None
        gone = [
            key for key in self._listeners if key[0] not in addresses or key[1] not in
            {self._port, *ports}
        ]  # fmt: skip
        closed = [self._listeners.pop(key) for key in gone]
        for listener in closed:
            listener.close()
        wanted = [(each, self._port) for each in addresses]
        return [new for key in wanted if (new := self._add(*key)) is not None], closed

    def also(self, address: str, port: int) -> socket.socket | None:
        """Listen at one more port, unless we or the application do already."""
        known, listener = self.fault, self._add(address, port)
        self.fault = known
        return listener

    def _add(self, address: str, port: int) -> socket.socket | None:
        if (address, port) in self._listeners:
            return None
        try:
            listener = self._listeners[address, port] = self._open(address, port)
        except _AddressGoneError:
            return None
        except MissingError as error:
            self.fault = error
            return None
        return listener

    @staticmethod
    def _open(address: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = _socket(family)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno == 99:  # EADDRNOTAVAIL
                raise _AddressGoneError from error
            raise MissingError(
                f"cannot listen on {address} port {port}: {error.strerror}; is another "
                "agent running? [traffic] port chooses another"
            ) from error
        listener.setblocking(False)
        return listener


def _socket(family: int) -> socket.socket:
    try:
        return socket.socket(family, socket.SOCK_STREAM, IPPROTO_MPTCP)
    except OSError as error:
        raise MissingError(
            f"no MPTCP on this host ({error.strerror}); use a kernel with CONFIG_MPTCP and "
            "sysctl net.mptcp.enabled=1"
        ) from error


class _AddressGoneError(Exception):
    """The address went away between hearing of it and using it."""


def refuse(listener: socket.socket) -> None:
    """Accept and close connections that do not join."""
    with suppress(BlockingIOError, ConnectionError):
        while True:
            stranger, peer = listener.accept()
            stranger.close()
            _log.debug("connection to the join port closed peer=%s", peer[0])
