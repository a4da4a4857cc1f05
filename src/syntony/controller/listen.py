"""Listening addresses, certificates and connection settings of the controller."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from syntony.controller.config import ControllerConfig
from syntony.errors import ConfigError, MissingError, WireError
from syntony.io.credentials import Credentials, load_credentials
from syntony.io.descriptors import Share
from syntony.io.job_socket import is_bound
from syntony.io.transport import grpc
from syntony.wire.coding import MAX_MESSAGE_BYTES
from syntony.wire.roles import Role
from syntony.wire.x509 import check_validity, read_certificate, read_validity

_log = logging.getLogger(__name__)

KEEPALIVE_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 20_000
MIN_PING_INTERVAL_MS = 2_000
"""Agents ping every 5 s, or every 2.5 s; more frequent pings are refused."""
HANDSHAKE_MS = 5_000
"""A connection that has not finished its TLS handshake within this time is closed: idle ones use a
file descriptor each."""
WINDOW_BYTES = 256 << 10
"""Receive window of a stream: about ten seconds of reports. With the default of 64 KiB nearly every
message causes a packet that opens the window again, and probes for a larger one."""
MAX_STREAMS = 1_024
"""Maximum streams of one connection; further ones wait at the client. Agents need two, gateways
relay many."""
_OPTIONS = (
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.so_reuseport", 0),
)


def connection_limit(share: Share) -> tuple[str, int]:
    """The option of a gRPC server that closes further connections as they come."""
    return "grpc.max_allowed_incoming_connections", share.connections


def open_server(
    config: ControllerConfig, handlers: grpc.GenericRpcHandler, certificate: ServerCertificate
) -> tuple[grpc.aio.Server, int]:
    """A server bound to the configured addresses, not started; and its TCP port.

    Raises:
        MissingError: an address that cannot be bound.
    """
    server = grpc.aio.server(options=(*_OPTIONS, connection_limit(Share.AGENTS)))
    server.add_generic_rpc_handlers((handlers,))
    port = add_port(server, config.listen, certificate.credentials(mutual=True))
    if config.local_socket:
        _add_local(server, config.local_socket)
    return server, port


def add_port(server: grpc.aio.Server, listen: str, credentials: grpc.ServerCredentials) -> int:
    """Bind; returns the port. Raises `MissingError`."""
    try:
        port: int = server.add_secure_port(listen, credentials)
    except RuntimeError as error:
        raise MissingError(
            f"cannot listen on {listen}; is another controller running, or the address not of this "
            "machine?"
        ) from error
    return port


def check_role(role: Role, config: ControllerConfig) -> None:
    """Check that the certificate was made for this kind of daemon. Raises `ConfigError`."""
    needed = Role.GATEWAY if config.gateway else Role.CONTROLLER
    if role is not needed:
        raise ConfigError(
            f"certificate {config.tls_cert} is of role {role}; a {needed} needs one of role "
            f"{needed} (syntony enrol token {needed} NAME --address …)"
        )


class ServerCertificate:
    """The controller's own certificate and key, read again when the files change: replacing them
    renews the certificate for all later connections. One for each port.

    Raises:
        MissingError: a file that cannot be read.
        ConfigError: an invalid certificate, or one of another role.
    """

    def __init__(self, config: ControllerConfig) -> None:
        self._files = config.tls
        self._signature = self._stat()
        credentials = load_credentials(self._files)
        try:
            check_validity(credentials.certificate, config.tls_cert, dt.datetime.now(dt.UTC))
            self.role, self.name = read_certificate(credentials.certificate).identity
        except WireError as error:
            raise ConfigError(str(error)) from error
        check_role(self.role, config)
        self._failed = ""
        self.validity = read_validity(credentials.certificate)
        """Of the certificate in force."""
        self._initial = _configuration(credentials)

    def credentials(self, *, mutual: bool) -> grpc.ServerCredentials:
        """Credentials for a port.

        Args:
            mutual: clients must present a certificate of the configured CA.
        """
        return grpc.dynamic_ssl_server_credentials(
            self._initial, self._renewed, require_client_authentication=mutual
        )

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC before each handshake, from its own threads; None: unchanged."""
        signature = self._stat()
        if signature == self._signature:
            return None
        try:
            credentials = load_credentials(self._files)
            self.validity = read_validity(credentials.certificate)
        except (MissingError, WireError) as error:
            if str(error) != self._failed:
                self._failed = str(error)
                _log.error("certificate not reloaded, keeping the current one reason=%s", error)
            return None
        self._signature, self._failed = signature, ""
        return _configuration(credentials)

    def _stat(self) -> tuple[int, ...]:
        found = []
        for path in msgspec.structs.astuple(self._files):
            with contextlib.suppress(OSError):
                reported = Path(path).stat()
                found += [reported.st_mtime_ns, reported.st_ino, reported.st_size]
        return tuple(found)


async def first_message(requests: AsyncIterator[bytes], within_s: float) -> bytes | None:
    """The first message of a client; None if it ended its stream before. Raises `TimeoutError`:
    nothing arrived within `within_s`."""
    async with asyncio.timeout(within_s):
        async for data in requests:
            return data
    return None


def _configuration(credentials: Credentials) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(credentials.key, credentials.certificate)], root_certificates=credentials.ca
    )


def _add_local(server: grpc.aio.Server, path: str) -> None:
    if Path(path).is_socket() and is_bound(Path(path)):
        raise MissingError(
            f"{path}: another process listens there, perhaps another controller; stop it, or set "
            "another local_socket"
        )
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        server.add_insecure_port(f"unix:{path}")
    except (RuntimeError, OSError) as error:
        raise MissingError(f"cannot listen on the socket {path}; is its directory ours?") from error
