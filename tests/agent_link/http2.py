"""HTTP/2 by hand (RFC 9113): what clients that are not gRPC may do."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

from tests.link import ControllerProcess

from syntony.wire.enrol import JOIN
from syntony.wire.roles import Role

RESET = b"\0\0\4\3\0"
"""How an RST_STREAM frame begins."""


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def _literal(name: bytes, value: bytes) -> bytes:
    """A header field without indexing (RFC 7541, 6.2.2)."""
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


def call(method: str, stream: int = 1) -> bytes:
    """A frame that begins a call of gRPC, and sends nothing more."""
    headers = b"".join(
        _literal(*each)
        for each in (
            (b":method", b"POST"), (b":scheme", b"https"), (b":path", method.encode()),
            (b":authority", b"127.0.0.1"), (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        )
    )  # fmt: skip
    return frame(1, 4, stream, headers)


@contextlib.contextmanager
def http2_call(controller: ControllerProcess, method: str) -> Iterator[ssl.SSLSocket]:
    """A connection on which a call has begun."""
    tls = controller.issue("o2", Role.OPERATOR)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(tls.ca)
    context.load_cert_chain(tls.cert, tls.key)
    context.set_alpn_protocols(["h2"])
    port = controller.join_port if method == JOIN else controller.port
    with (
        socket.create_connection(("127.0.0.1", port), 60) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as connection,
    ):
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        connection.sendall(preface + frame(4, 0, 0, b"") + call(method))
        yield connection


def read_to_the_end(connection: ssl.SSLSocket) -> bytes:
    """What comes until the call has ended, one way or the other."""
    read = b""
    while b"grpc-status" not in read and RESET not in read:
        piece = connection.recv(1 << 16)
        assert piece, "the connection ended without a word"
        read += piece
    return read
