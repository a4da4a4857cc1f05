"""Listening addresses, certificates and connection settings of the controller."""

from __future__ import annotations

import datetime as dt
import os
import resource
from pathlib import Path

from syntony.controller.config import ControllerConfig
from syntony.errors import ConfigError, MissingError, WireError
from syntony.wire.messages import MAX_MESSAGE_BYTES
from syntony.wire.x509 import check_validity

# The core library writes every failed handshake to stderr by itself.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc

KEEPALIVE_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000
MIN_PING_INTERVAL_MS = 2_000
"""Agents ping every 5 s; more often than this is not welcome."""
HANDSHAKE_MS = 5_000
"""A connection that has not finished its TLS handshake by then is closed: idle ones hold a file
descriptor each."""
_OPTIONS = (
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
)


def raise_descriptor_limit() -> None:
    """As many file descriptors as this user may have: each agent and each stranger needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def open_server(
    config: ControllerConfig, handlers: grpc.GenericRpcHandler
) -> tuple[grpc.aio.Server, int]:
    """A server bound to the configured addresses, not started; and its TCP port.

    Raises:
        MissingError: a certificate file that cannot be read, or an address that cannot be bound.
        ConfigError: a certificate that cannot be used.
    """
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((handlers,))
    credentials = server_credentials(config)
    try:
        port = server.add_secure_port(config.listen, credentials)
    except RuntimeError as error:
        raise MissingError(
            f"cannot listen on {config.listen}; is another controller running, or the address not "
            "of this machine?"
        ) from error
    if config.local_socket:
        _add_local(server, config.local_socket)
    return server, port


def server_credentials(config: ControllerConfig) -> grpc.ServerCredentials:
    """Mutual TLS: clients must show a certificate of the configured CA."""
    certificate = _read(config.tls_cert)
    try:
        check_validity(certificate, config.tls_cert, dt.datetime.now(dt.UTC))
    except WireError as error:
        raise ConfigError(str(error)) from error
    return grpc.ssl_server_credentials(
        [(_read(config.tls_key), certificate)],
        root_certificates=_read(config.tls_ca),
        require_client_auth=True,
    )


def _add_local(server: grpc.aio.Server, path: str) -> None:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        server.add_insecure_port(f"unix:{path}")
    except (RuntimeError, OSError) as error:
        raise MissingError(f"cannot listen on the socket {path}; is its directory ours?") from error


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MissingError(f"{path}: cannot be read: {error.strerror}") from error
