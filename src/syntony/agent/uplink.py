"""The agent's one connection: batches up until they are acknowledged, decisions down.

Everything submitted goes to the spool first and is sent from there, so there is one path for the
live second and for the backlog of an outage. A bounded number of batches is under way
unacknowledged; beyond it, and beyond HTTP/2's own flow control, rows wait in the spool.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from syntony.agent.config import AgentConfig
from syntony.agent.spool import Spool
from syntony.errors import MissingError, WireError
from syntony.io.process import name_thread
from syntony.model import MS, Edge, S, UtcReading
from syntony.wire.audit import AuditReport
from syntony.wire.clocks import Edges
from syntony.wire.failover import PathsReport
from syntony.wire.messages import (
    ATTACH,
    BUNDLE_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_UNACKED,
    Ack,
    Batch,
    ControllerMessage,
    Hello,
    Refuse,
    bundles,
    decode_controller,
    encode,
)
from syntony.wire.spoolfile import Frame
from syntony.wire.traffic import FlowsReport
from syntony.wire.x509 import check_validity

# The core library writes every failed handshake to stderr by itself; each is logged here, once.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc

_log = logging.getLogger(__name__)

BACKOFF_MIN_NS = 100 * MS
BACKOFF_MAX_NS = 5 * S
KEEPALIVE_MS = 5_000
KEEPALIVE_TIMEOUT_MS = 3_000
_OPTIONS = (
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_CLOSE_TIMEOUT_S = 5.0
AUDITS_WAITING = 4

Report = Edges | PathsReport | AuditReport | FlowsReport


class Uplink:
    """Keeps the stream to the controller alive from its own thread.

    Args:
        config: who we are, whom to dial and with which certificate.
        hello: makes the first message of a stream from the spool's identity.
        on_message: called from the uplink's threads with every plan, timeline and refusal.
        spool: where batches live until acknowledged; stays open when the uplink closes.
    """

    def __init__(
        self,
        config: AgentConfig,
        hello: Callable[[str], Hello],
        on_message: Callable[[ControllerMessage], None],
        spool: Spool,
    ) -> None:
        self._config = config
        self._hello = hello
        self._on_message = on_message
        self._spool = spool
        self._changed = threading.Condition()
        self._edges: Edges | None = None
        self._paths: PathsReport | None = None
        self._audits: deque[AuditReport] = deque(maxlen=AUDITS_WAITING)
        self._flows: FlowsReport | None = None
        self._gathering = self._gathered = False
        self._link: _Link | None = None
        self._closing = False
        self.connections = 0
        """Streams that the controller answered on."""
        self._reported: set[str] = set()
        """What was said since the link was last up: each reason once per episode."""
        self._thread = threading.Thread(target=self._run, name="uplink", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def connected(self) -> bool:
        """Whether the controller has answered on the current stream."""
        link = self._link
        return link is not None and link.established

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is handed in meanwhile leaves when this ends, as one message if it can."""
        with self._changed:
            self._gathering = True
        try:
            yield
        finally:
            with self._changed:
                self._gathering = False
                if self._gathered:
                    self._gathered = False
                    self._changed.notify_all()

    def submit(self, table: str, rows: int, arrow: bytes) -> None:
        """Keep a batch and have it sent. Never waits for the network."""
        self._spool.append(table, rows, arrow)
        with self._changed:
            self._tell()

    def send_paths(self, report: PathsReport) -> None:
        """Replace the report waiting to be sent, as `send_edges` does."""
        with self._changed:
            self._paths = report
            self._tell()

    def send_audit(self, report: AuditReport) -> None:
        """Have a report sent, from any thread; without a connection it waits, the newest few."""
        with self._changed:
            self._audits.append(report)
            self._tell()

    def send_flows(self, report: FlowsReport) -> None:
        """Replace the report waiting to be sent, as `send_edges` does."""
        with self._changed:
            self._flows = report
            self._tell()

    def _tell(self) -> None:
        """Wake the sender, now or when everything is gathered. Holding `_changed`."""
        if self._gathering:
            self._gathered = True
        else:
            self._changed.notify_all()

    def send_edges(
        self,
        edges: Sequence[Edge],
        utc: Sequence[UtcReading] = (),
        epochs: Mapping[str, int] | None = None,
    ) -> None:
        """Replace the edges waiting to be sent; without a connection they are simply replaced.

        Args:
            edges: of the agent's own pairs.
            utc: what the host says of UTC at the same time.
            epochs: of the host's clocks, by node.
        """
        with self._changed:
            self._edges = Edges(edges=tuple(edges), utc=tuple(utc), epochs=dict(epochs or {}))
            self._tell()

    def close(self) -> None:
        """End the stream and the thread; what is unacknowledged stays in the spool."""
        with self._changed:
            self._closing = True
            link = self._link
            self._changed.notify_all()
        if link is not None:
            link.cancel()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_TIMEOUT_S)

    # --- the uplink's thread ---

    def _run(self) -> None:
        name_thread("uplink")
        backoff_ns = BACKOFF_MIN_NS
        while not self._closing:
            established = False
            try:
                established = self._connect()
            except (MissingError, WireError) as error:
                self._report(str(error))
            except Exception:  # noqa: BLE001 — supervisor: the uplink outlives one message's fault
                _log.exception("uplink failed, reconnecting controller=%s", self._config.controller)
            backoff_ns = BACKOFF_MIN_NS if established else min(2 * backoff_ns, BACKOFF_MAX_NS)
            self._pause(backoff_ns)

    def _pause(self, backoff_ns: int) -> None:
        # Full jitter, so that a fleet does not come back in step after a controller restart.
        wait_s = random.uniform(BACKOFF_MIN_NS / 2, backoff_ns) / S  # noqa: S311 — not a secret
        with self._changed:
            self._changed.wait_for(lambda: self._closing, wait_s)

    def _connect(self) -> bool:
        """One stream from dial to end. Returns whether the controller ever answered on it."""
        tls = self._config.tls
        certificate = _read(tls.cert)
        check_validity(certificate, tls.cert, dt.datetime.now(dt.UTC))
        credentials = grpc.ssl_channel_credentials(_read(tls.ca), _read(tls.key), certificate)
        with grpc.secure_channel(self._config.controller, credentials, _OPTIONS) as channel:
            link = _Link(self, channel)
            with self._changed:
                if self._closing:
                    return False
                self._link = link
            try:
                link.listen()
            except grpc.RpcError as error:
                if not self._closing:
                    self._report(_explain(error))
            finally:
                self._end(link)
            return link.established

    def _end(self, link: _Link) -> None:
        with self._changed:
            self._link = None
            link.over = True
            self._changed.notify_all()

    def _report(self, reason: str) -> None:
        if reason not in self._reported:
            self._reported.add(reason)
            _log.warning(
                "uplink down, retrying controller=%s reason=%s", self._config.controller, reason
            )

    def _take(self, data: bytes, link: _Link) -> None:
        message = decode_controller(data)
        if not link.established:
            link.established = not isinstance(message, Refuse)
            if link.established:
                self.connections += 1
                self._reported.clear()
                _log.info("uplink up controller=%s", self._config.controller)
        if isinstance(message, Ack):
            before = self._spool.acknowledged
            self._spool.acknowledge(message.seq)
            if self._spool.last_seq - before >= MAX_UNACKED:  # else nobody waits for it
                with self._changed:
                    self._changed.notify_all()
            return
        if isinstance(message, Refuse):
            self._report(f"refused: {message.reason}")
        self._on_message(message)

    def _messages(self, link: _Link) -> Iterator[bytes]:
        """What goes up on one stream, until it is over. Runs in gRPC's sending thread."""
        yield encode(self._hello(self._spool.stream))
        sent = self._spool.acknowledged
        while self._wait_for_work(link, sent):
            waiting = [encode(report) for report in self._take_reports()]
            size = 0
            while self._window_open(sent) and size < BUNDLE_BYTES:
                frame = next(self._spool.pending(sent), None)
                # What was numbered but is no longer readable has been shed and counted.
                sent = self._spool.last_seq if frame is None else frame.seq
                if frame is not None:
                    waiting.append(encode(self._batch(frame)))
                    size += len(waiting[-1])
            yield from bundles(waiting)

    def _wait_for_work(self, link: _Link, sent: int) -> bool:
        """Whether there is something to send, rather than an end to the stream."""
        with self._changed:
            self._changed.wait_for(lambda: link.over or self._closing or self._has_work(sent))
            return not (link.over or self._closing)

    def _take_reports(self) -> list[Report]:
        with self._changed:
            audits = [self._audits.popleft()] if self._audits else []
            found = [self._edges, self._paths, *audits, self._flows]
            self._edges = self._paths = self._flows = None
            return [report for report in found if report is not None]

    def _batch(self, frame: Frame) -> Batch:
        return Batch(
            seq=frame.seq,
            table=frame.table,
            rows=frame.rows,
            dropped=self._spool.dropped_rows,
            arrow=frame.payload,
        )

    def _has_work(self, sent: int) -> bool:
        if self._gathering:
            return False
        waiting = any(each is not None for each in (self._edges, self._paths, self._flows))
        waiting = waiting or bool(self._audits)
        return waiting or self._window_open(sent)

    def _window_open(self, sent: int) -> bool:
        spool = self._spool
        return sent < spool.last_seq and sent - spool.acknowledged < MAX_UNACKED


class _Link:
    """One gRPC stream and what is known of it."""

    def __init__(self, uplink: Uplink, channel: grpc.Channel) -> None:
        self._uplink = uplink
        self.over = False
        self.established = False
        method = channel.stream_stream(ATTACH, _registered_method=False)
        self._call = method(uplink._messages(self))

    def listen(self) -> None:
        """Hand on every message; raises grpc.RpcError when the stream ends badly."""
        for data in self._call:
            self._uplink._take(data, self)

    def cancel(self) -> None:
        self._call.cancel()


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MissingError(f"{path}: cannot be read: {error.strerror}") from error


_TLS_TROUBLE = ("Tls handshake failed", "SSL_ERROR", "verification check failed")


def _explain(error: grpc.RpcError) -> str:
    """gRPC's account of a failed stream as one line."""
    details = " ".join(str(error.details() or "").split())
    if any(mark in details for mark in _TLS_TROUBLE):
        return (
            "TLS: a certificate is not accepted; check that both are of the same CA, not expired, "
            f"and the controller's made for this address ({details[-160:]})"
        )
    if "Socket closed" in details:
        # With TLS 1.3 a server refuses a client's certificate only after the client is done.
        return (
            "the controller closed the connection: it is going down, or does not accept this "
            "agent's certificate (of another CA, or expired by the controller's clock)"
        )
    return f"{error.code().name}: {details[:300]}"
