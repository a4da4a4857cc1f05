"""Requests from the command line to a controller. Imports neither the store's engine nor
pyarrow."""

from __future__ import annotations

import os

from syntony.errors import RefusalError, RemoteError, UnansweredError
from syntony.io.dialling import channel_credentials, explain_tls
from syntony.io.files import is_denied
from syntony.io.transport import grpc
from syntony.model import S
from syntony.model.tls_files import TlsFiles
from syntony.wire.coding import MAX_MESSAGE_BYTES, encode
from syntony.wire.enrol import JOIN, Issued
from syntony.wire.messages import QUERY, Joining
from syntony.wire.query import A, Failure, Query, answer_type, decode_answer, join_pages

DEFAULT_TIMEOUT_NS = 10 * S
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_NOT_CONNECTED = "failed to connect"
"""In gRPC's details of a request that was never sent."""
_UNKNOWN_REQUEST = "not a message of this protocol: Invalid value "
"""Start of a controller's refusal of a request with an unknown tag (`WireError`)."""


def ask(
    target: str,
    query: Query[A],
    *,
    tls: TlsFiles | None = None,
    timeout_ns: int = DEFAULT_TIMEOUT_NS,
) -> A:
    """Send one request and return its answer.

    Args:
        target: ``unix:PATH`` of the local socket, or ``HOST:PORT`` with `tls`.
        query: the request.
        tls: certificate files; needed for, and only for, ``HOST:PORT``.
        timeout_ns: for everything, including connecting.

    Raises:
        RemoteError: no controller there.
        UnansweredError: no answer in time, or the connection was lost.
        RefusalError: the controller says why it does not do it.
        MissingError: a certificate file that cannot be read.
        WireError: our certificate or the answer is invalid.
    """
    with _channel(target, tls) as channel:
        method = channel.unary_stream(QUERY, _registered_method=False)
        try:
            found: list[A] = [
                _page(target, data, answer_type(type(query)))
                for data in method(encode(query), timeout=timeout_ns / S)
            ]
        except grpc.RpcError as error:
            unsent = _NOT_CONNECTED in str(error.details())
            failure = RemoteError if unsent else UnansweredError
            raise failure(_explain(target, error)) from error
    if not found:
        raise RemoteError(f"the controller at {target} sent no answer")
    return join_pages(found)


def _page(target: str, data: bytes, kind: type[A]) -> A:
    answer = decode_answer(data, kind)
    if not isinstance(answer, Failure):
        return answer
    if answer.reason.startswith(_UNKNOWN_REQUEST):
        raise RemoteError(
            f"the controller at {target} is older than this command and does not know its "
            "question; install the same version there"
        )
    raise RefusalError(f"{answer.reason} (the controller at {target})")


def join(
    target: str, request: Joining, ca: bytes, *, timeout_ns: int = DEFAULT_TIMEOUT_NS
) -> Issued:
    """Request a first certificate from the enrolment port.

    Args:
        target: ``HOST:PORT``.
        request: a token and a signing request.
        ca: PEM of the CA that must have signed the port's certificate.
        timeout_ns: for everything, including connecting.

    Raises:
        RemoteError: nothing answers there, or it refuses.
    """
    credentials = grpc.ssl_channel_credentials(ca)
    with grpc.secure_channel(target, credentials, options=_OPTIONS) as channel:
        method = channel.unary_unary(JOIN, _registered_method=False)
        try:
            data = method(encode(request), timeout=timeout_ns / S)
        except grpc.RpcError as error:
            raise RemoteError(_explain(target, error)) from error
    answer = decode_answer(data, Issued)
    if isinstance(answer, Failure):
        raise RemoteError(f"the controller at {target} refuses a certificate: {answer.reason}")
    return answer


def _channel(target: str, tls: TlsFiles | None) -> grpc.Channel:
    if target.startswith("unix:"):
        return grpc.insecure_channel(target, options=_OPTIONS)
    if tls is None:
        raise RemoteError(f"{target}: certificates are needed to ask a controller over the network")
    return grpc.secure_channel(target, channel_credentials(tls), options=_OPTIONS)


def _explain(target: str, error: grpc.RpcError) -> str:
    details = " ".join(str(error.details() or "").split())
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"the controller at {target} did not answer in time; try again, and check its load"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        if target.startswith("unix:"):
            denied = is_denied(target.removeprefix("unix:"), os.W_OK)
            return (
                f"you may not use {target}: run this as root, or log in: syntony login URL"
                if denied
                else f"no controller answers at {target}; is it running?"
            )
        if reason := explain_tls(details):
            return f"no connection to {target}: {reason}"
        return (
            f"no controller answers at {target} ({details[:200]}); on its host, run: "
            "syntony doctor --for controller"
        )
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return (
            f"{target} does not answer such requests; give the port of `listen` in "
            "controller.toml, usually 8443, and to `enrol join` that of [enrolment]"
        )
    return f"the controller at {target}: {error.code().name}: {details[:200]}"
