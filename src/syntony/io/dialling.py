"""Connects agents and gateways to controllers: address, backoff, gRPC settings, error texts."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Iterable

from syntony.io.credentials import load_credentials
from syntony.io.transport import grpc
from syntony.model import MS, S
from syntony.model.tls_files import TlsFiles
from syntony.wire.coding import MAX_MESSAGE_BYTES
from syntony.wire.x509 import check_validity

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


def _keepalive(idle_ms: int, answer_ms: int) -> tuple[tuple[str, int], ...]:
    """Options that close a connection after silence for the sum of both times. gRPC bounds the wait
    for an answer twice, and by 60 s unless both options are set."""
    return (
        ("grpc.keepalive_time_ms", idle_ms),
        ("grpc.keepalive_timeout_ms", answer_ms),
        ("grpc.http2.ping_timeout_ms", answer_ms),
    )


_PATIENT = _keepalive(5_000, 15_000)
"""Settings if there is no other controller."""
_HASTY = (
    *_keepalive(2_500, 2_000),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # how long a dead host may take to answer a connect
)
"""Time limits if another controller may be in charge: leaving a live one by mistake costs a
reconnection."""
BACKOFF_MIN_NS = 100 * MS
BACKOFF_MAX_NS = 5 * S
STANDBY_BACKOFF_MAX_NS = 1 * S
"""Where another controller may be in charge."""
LOST_NS = 2 * S
"""A controller whose stream was lost is not dialled for so long if there is another: one that hangs
does not answer, which costs as long, and its standby is about to serve."""


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """The identity in force, for a connection. Raises `MissingError`, `WireError`: it cannot be
    used."""
    own = load_credentials(files)
    check_validity(own.certificate, files.cert, dt.datetime.now(dt.UTC))
    return grpc.ssl_channel_credentials(own.ca, own.key, own.certificate)


class ControllerDialer:
    """Which controller to dial, and how long to wait first. Pure.

    Args:
        controllers: their addresses, in order of preference.
    """

    def __init__(self, controllers: Iterable[str]) -> None:
        self._controllers = deque(controllers)
        self.several = len(self._controllers) > 1
        self._max_ns = STANDBY_BACKOFF_MAX_NS if self.several else BACKOFF_MAX_NS
        self._backoff_ns = BACKOFF_MIN_NS
        self._lost, self._lost_ns = "", 0

    @property
    def controller(self) -> str:
        return self._controllers[0]

    def next_controller(self, now_ns: int, *, established: bool) -> None:
        """A stream ended that we did not end: another controller may be in charge.

        Args:
            now_ns: monotonic.
            established: whether its controller ever answered.
        """
        if established:
            self._lost, self._lost_ns = self.controller, now_ns
        self._controllers.rotate(-1)
        if self.controller == self._lost and now_ns - self._lost_ns < LOST_NS:
            self._controllers.rotate(-1)

    def wait_ns(self, draw: Callable[[float, float], float], *, established: bool) -> int:
        """How long to wait before the next dial. With full jitter, so that a fleet does not come
        back in step after a controller restart.

        Args:
            draw: a number between two.
            established: whether the last stream's controller ever answered.
        """
        doubled_ns = min(2 * self._backoff_ns, self._max_ns)
        self._backoff_ns = BACKOFF_MIN_NS if established else doubled_ns
        return round(draw(BACKOFF_MIN_NS / 2, self._backoff_ns))


def channel_options(*, several: bool) -> tuple[tuple[str, int], ...]:
    """gRPC options of a channel to a controller; `several`: there is another one to go to."""
    return _OPTIONS + (_HASTY if several else _PATIENT)


_NO_TLS = "WRONG_VERSION"
"""OpenSSL's WRONG_VERSION_NUMBER: the first bytes received are not TLS."""
_WRONG_NAME = "Hostname Verification Check failed"
_TLS_TROUBLE = ("Tls handshake failed", "SSL_ERROR", "verification check failed")


def explain_tls(details: str) -> str:
    """What gRPC says of a failed TLS handshake in plain words; empty: it says something else."""
    if _NO_TLS in details:
        return "TLS: the port does not speak TLS; give the one of `listen` in controller.toml"
    if _WRONG_NAME in details:
        return (
            "TLS: the controller's certificate was not made for this address; use an address that "
            "it has (syntony enrol authority --address)"
        )
    if any(mark in details for mark in _TLS_TROUBLE):
        return (
            "TLS: a certificate is not accepted; check that both are of the same CA, not expired, "
            f"and the controller's made for this address ({details[-160:]})"
        )
    return ""


def explain(error: grpc.RpcError) -> str:
    """gRPC's account of a failed stream as one line."""
    details = " ".join(str(error.details() or "").split())
    if reason := explain_tls(details):
        return reason
    if "Socket closed" in details:
        # With TLS 1.3 a server refuses a client's certificate only after the client is done.
        return (
            "the controller closed the connection: it is going down, or does not accept this "
            "certificate (of another CA, or expired by the controller's clock)"
        )
    return f"{error.code().name}: {details[:300]}"
