"""The agent's one connection: sends batches until they are acknowledged, receives decisions.

Everything submitted goes to the spool first and is sent from there, so the live second and the
backlog of an outage use the same code. A bounded number of unacknowledged batches is in flight;
beyond it, and beyond HTTP/2's own flow control, rows wait in the spool.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from syntony.agent.config import AgentConfig
from syntony.agent.fence import Fence
from syntony.agent.spool import Spool
from syntony.agent.stream import ConnectionNumbers, Stream
from syntony.errors import MissingError, RemoteError, WireError
from syntony.io.dialling import (
    ControllerDialer,
    channel_credentials,
    channel_options,
    explain,
)
from syntony.io.process import name_thread
from syntony.io.transport import grpc
from syntony.model import Edge, S, UtcReading
from syntony.wire.audit import AuditReport
from syntony.wire.clocks import Edges
from syntony.wire.coding import encode
from syntony.wire.failover import PathsReport
from syntony.wire.messages import (
    ATTACH,
    QUERY,
    Ack,
    ControllerMessage,
    Hello,
    Refuse,
    Unknown,
)
from syntony.wire.parts import PartsReport
from syntony.wire.probes import KeysHeld, LossReport
from syntony.wire.query import A, Failure, Query, answer_type, decode_answer
from syntony.wire.queue_pairs import QueuePairsReport
from syntony.wire.segments import SegmentsReport
from syntony.wire.traffic import FlowsReport

_log = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 5.0
ASK_TIMEOUT_S = 10.0
AUDITS_WAITING = 4
REPEAT_NS = 30 * S
"""A report of an audit that was sent so long before its connection ended may be lost."""

Report = (
    Edges | PathsReport | AuditReport | FlowsReport | QueuePairsReport | SegmentsReport
    | PartsReport | KeysHeld | LossReport
)  # fmt: skip


class UnsentAuditReports:
    """Reports of audits until they are sent, and sent again. The newest few are kept."""

    def __init__(self) -> None:
        self._waiting: deque[AuditReport] = deque(maxlen=AUDITS_WAITING)
        self._sent: deque[tuple[int, AuditReport]] = deque(maxlen=AUDITS_WAITING)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, report: AuditReport) -> None:
        self._waiting.append(report)

    def take(self, now_ns: int) -> list[AuditReport]:
        """One report to send now, if one waits; `now_ns` is monotonic."""
        if not self._waiting:
            return []
        report = self._waiting.popleft()
        self._sent.append((now_ns, report))
        return [report]

    def disconnected(self, now_ns: int) -> None:
        """The connection has ended: what was sent shortly before is sent again."""
        lost = [report for sent_ns, report in self._sent if now_ns - sent_ns <= REPEAT_NS]
        self._sent.clear()
        self._waiting = deque([*lost, *self._waiting], maxlen=AUDITS_WAITING)


class Uplink:
    """Keeps the stream to the controller alive in a separate thread.

    Args:
        config: name, addresses of controllers and certificate.
        hello: makes the first message of a connection from the stream of the spool that it is for.
        on_message: called from the uplink's threads with every plan, timeline and refusal.
        spool: stores batches until they are acknowledged; stays open when the uplink closes.
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
        self._fence = Fence(Path(config.spool_dir))
        self._dialling = ControllerDialer(config.controllers)
        self._options = channel_options(several=self._dialling.several)
        self._changed = threading.Condition()
        self._reports: dict[type[Report], Report] = {}
        self._audits = UnsentAuditReports()
        self._gathering = self._gathered = self._released = False
        self._link: _ControllerStream | None = None
        self._closing = False
        self._attempts = ConnectionNumbers()
        self._stream: Stream | None = None
        """The newest."""
        self.connections = 0
        """Streams on which the controller answered."""
        self._reported: set[str] = set()
        """Reasons logged since the link was last up: each once per outage."""
        self._thread = threading.Thread(target=self._run, name="uplink", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def controller(self) -> str:
        """The controller that it is connected to, or dials next."""
        return self._dialling.controller

    @property
    def connected(self) -> bool:
        """Whether the controller has answered on the current stream."""
        link = self._link
        return link is not None and link.stream.established

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Messages submitted within this context are sent when it ends, as one if possible."""
        with self._changed:
            self._gathering, self._released = True, False
        try:
            yield
        finally:
            with self._changed:
                self._gathering = False
                if self._gathered:
                    self._gathered = False
                    self._changed.notify_all()

    def release(self) -> None:
        """Within `together`: send what has been submitted so far."""
        with self._changed:
            if self._gathered:
                self._gathered, self._released = False, True
                self._changed.notify_all()

    def submit(self, table: str, rows: int, arrow: bytes) -> None:
        """Store a batch and send it. Never waits for the network."""
        self._spool.append(table, rows, arrow)
        with self._changed:
            self._wake()

    def send(self, report: Report) -> None:
        """Send a report, from any thread. Of each kind the newest waits for a connection; of
        audits, the newest few."""
        with self._changed:
            if isinstance(report, AuditReport):
                self._audits.add(report)
            else:
                self._reports[type(report)] = report
            self._wake()

    def reconnect(self) -> None:
        """Begin a new stream: the contents of the hello have changed."""
        with self._changed:
            link = self._link
        if link is not None:
            link.renew()

    def _wake(self) -> None:
        """Wake the sender, now or at the end of `together`. Call it holding `_changed`."""
        if self._gathering:
            self._gathered = True
        else:
            self._changed.notify_all()

    def ask(self, query: Query[A]) -> A | Failure:
        """Send a request over the live connection and wait for the answer; from any thread.

        Raises:
            RemoteError: there is no connection, or it ends meanwhile.
            WireError: the answer is invalid.
        """
        link = self._link
        if link is None or not link.stream.established:
            raise RemoteError(f"not connected to the controller {self.controller}")
        return link.ask(query)

    def send_edges(
        self,
        edges: Sequence[Edge],
        utc: Sequence[UtcReading] = (),
        epochs: Mapping[str, int] | None = None,
    ) -> None:
        """Replace the edges waiting to be sent; without a connection they are simply replaced.

        Args:
            edges: of the agent's own pairs.
            utc: the host's report of UTC at the same time.
            epochs: of the host's clocks, by node.
        """
        self.send(Edges(edges=tuple(edges), utc=tuple(utc), epochs=dict(epochs or {})))

    def close(self) -> None:
        """End the stream and the thread; unacknowledged batches stay in the spool."""
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
        while not self._closing:
            established = False
            try:
                established = self._connect()
            except (MissingError, WireError) as error:
                self._report(str(error))
            except Exception:  # noqa: BLE001 — supervisor: the uplink outlives one message's fault
                _log.exception("uplink failed, reconnecting controller=%s", self.controller)
            wait_ns = self._dialling.wait_ns(random.uniform, established=established)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, wait_ns / S)

    def _connect(self) -> bool:
        """One stream from dial to end. Returns whether the controller ever answered on it."""
        credentials = channel_credentials(self._config.tls)
        with grpc.secure_channel(self.controller, credentials, self._options) as channel:
            link = _ControllerStream(self, channel)
            with self._changed:
                if self._closing:
                    return False
                self._link = link
            try:
                link.listen()
            except grpc.RpcError as error:
                if not link.stream.renewed and not self._closing:
                    self._report(explain(error))
            finally:
                self._end(link)
            return link.stream.established

    def _end(self, link: _ControllerStream) -> None:
        """After any end of a stream another controller may be in charge, unless this side ended
        it."""
        now_ns = time.monotonic_ns()
        with self._changed:
            if not link.stream.renewed:
                self._dialling.next_controller(now_ns, established=link.stream.established)
            self._link = None
            self._audits.disconnected(now_ns)
            link.stream.over = True
            self._changed.notify_all()

    def _report(self, reason: str) -> None:
        if reason not in self._reported:
            self._reported.add(reason)
            _log.warning("uplink down, retrying controller=%s reason=%s", self.controller, reason)

    def _take(self, data: bytes, link: _ControllerStream) -> None:
        stream = link.stream
        waiting, established = stream.delivery.window_full, stream.established
        message = stream.take(data)
        if stream.established and not established:
            self.connections += 1
            self._reported.clear()
            _log.info("uplink up controller=%s", self.controller)
        if stream.delivery.over:
            link.renew()
        elif waiting and not stream.delivery.window_full:
            with self._changed:
                self._changed.notify_all()
        if message is None or isinstance(message, Ack):
            return
        if isinstance(message, Refuse):
            self._report(f"refused: {message.reason}")
        if isinstance(message, Unknown):
            self._report(f"messages of kind {message.kind[:40]!r} skipped: of a newer version")
            return
        self._on_message(message)

    def _messages(self, link: _ControllerStream) -> Iterator[bytes]:
        """Messages to send on one stream, until it is over. Runs in gRPC's sending thread."""
        stream = link.stream
        hello = self._attempts.number(self._hello(stream.delivery.stream))
        yield stream.opening(hello)
        while self._wait_for_work(stream):
            if stream.delivery.over:  # the rest of it is unreadable, or was dropped
                link.renew()
                return
            yield from stream.outgoing(self._take_reports())

    def _wait_for_work(self, stream: Stream) -> bool:
        """Whether there is something to send; False: the stream ends."""
        with self._changed:
            while not (stream.over or self._closing or self._has_work(stream)):
                self._changed.wait(stream.delivery.held_ns / S or None)
            return not (stream.over or self._closing)

    def _take_reports(self) -> list[Report]:
        with self._changed:
            self._released = False
            waiting, self._reports = list(self._reports.values()), {}
            return [*waiting, *self._audits.take(time.monotonic_ns())]

    def _has_work(self, stream: Stream) -> bool:
        if self._gathering and not self._released:
            return False
        waiting = bool(self._reports or self._audits)
        return waiting or stream.delivery.ready or stream.delivery.over


class _ControllerStream:
    def __init__(self, uplink: Uplink, channel: grpc.Channel) -> None:
        self._uplink = uplink
        self.stream = uplink._stream = Stream(uplink._spool, uplink._fence, uplink._stream)
        method = channel.stream_stream(ATTACH, _registered_method=False)
        self._call = method(uplink._messages(self))
        self._query = channel.unary_unary(QUERY, _registered_method=False)

    def listen(self) -> None:
        """Pass on every message; raises grpc.RpcError when the stream ends with an error."""
        for data in self._call:
            self._uplink._take(data, self)

    def ask(self, query: Query[A]) -> A | Failure:
        try:
            data: bytes = self._query(encode(query), timeout=ASK_TIMEOUT_S)
            return decode_answer(data, answer_type(type(query)))
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel has been closed
            why = explain(error) if isinstance(error, grpc.RpcError) else str(error)
            raise RemoteError(f"the controller does not answer: {why}") from error

    def cancel(self) -> None:
        self._call.cancel()

    def renew(self) -> None:
        self.stream.renewed = True
        self.cancel()
