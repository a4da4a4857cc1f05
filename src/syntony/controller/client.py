"""Asking a controller, from a command line. Light: neither the engine nor pyarrow is loaded."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Protocol, TypeVar

from syntony.errors import RemoteError
from syntony.model import S
from syntony.wire.messages import (
    MAX_MESSAGE_BYTES,
    QUERY,
    Answer,
    Failure,
    Query,
    decode_answer,
    encode,
)
from syntony.wire.x509 import check_validity

# The core library writes every failed handshake to stderr by itself.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc

DEFAULT_TIMEOUT_NS = 10 * S
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_UNHEARD_OF = "not a message of this protocol: Invalid value "
"""How a controller begins its refusal of a question whose tag it does not know (`WireError`)."""
_A = TypeVar("_A", bound=Answer)


class TlsLike(Protocol):
    """PEM files of an identity, for example `syntony.controller.pki.TlsPaths`."""

    @property
    def ca(self) -> str | Path: ...

    @property
    def cert(self) -> str | Path: ...

    @property
    def key(self) -> str | Path: ...


def ask(
    target: str, query: Query, *, tls: TlsLike | None = None, timeout_ns: int = DEFAULT_TIMEOUT_NS
) -> Answer:
    """One question, one answer.

    Args:
        target: ``unix:PATH`` of the local socket, or ``HOST:PORT`` with `tls`.
        query: the question.
        tls: certificate files; needed for, and only for, ``HOST:PORT``.
        timeout_ns: for everything, connecting included.

    Raises:
        RemoteError: no controller there, no answer in time, or it says why it cannot answer.
        WireError: our certificate cannot be used, or the answer is not one.
    """
    with _channel(target, tls) as channel:
        method = channel.unary_unary(QUERY, _registered_method=False)
        try:
            data = method(encode(query), timeout=timeout_ns / S)
        except grpc.RpcError as error:
            raise RemoteError(_explain(target, error)) from error
    answer = decode_answer(data)
    if isinstance(answer, Failure) and answer.reason.startswith(_UNHEARD_OF):
        raise RemoteError(
            f"the controller at {target} is older than this command and does not know its "
            "question; install the same version there"
        )
    if isinstance(answer, Failure):
        raise RemoteError(f"the controller at {target} cannot answer: {answer.reason}")
    return answer


def ask_for(
    target: str,
    query: Query,
    kind: type[_A],
    *,
    tls: TlsLike | None = None,
    timeout_ns: int = DEFAULT_TIMEOUT_NS,
) -> _A:
    """As `ask`, for an answer that must be a `kind`.

    Raises:
        RemoteError: as `ask`, or the answer is of another kind: another version answers there.
    """
    answer = ask(target, query, tls=tls, timeout_ns=timeout_ns)
    if not isinstance(answer, kind):
        found = type(answer).__name__
        raise RemoteError(f"the controller answered {found} for {kind.__name__}: another version?")
    return answer


def _channel(target: str, tls: TlsLike | None) -> grpc.Channel:
    if target.startswith("unix:"):
        return grpc.insecure_channel(target, options=_OPTIONS)
    if tls is None:
        raise RemoteError(f"{target}: certificates are needed to ask a controller over the network")
    certificate = _read(tls.cert)
    check_validity(certificate, str(tls.cert), dt.datetime.now(dt.UTC))
    credentials = grpc.ssl_channel_credentials(_read(tls.ca), _read(tls.key), certificate)
    return grpc.secure_channel(target, credentials, options=_OPTIONS)


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise RemoteError(f"{path}: cannot be read: {error.strerror}") from error


def _explain(target: str, error: grpc.RpcError) -> str:
    details = " ".join(str(error.details() or "").split())[:200]
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"the controller at {target} did not answer in time"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        why = "" if target.startswith("unix:") else f" ({details})"
        return f"no controller answers at {target}; is it running?{why}"
    return f"the controller at {target}: {error.code().name}: {details}"
