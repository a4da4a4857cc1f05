"""Notifies receivers (pagers, webhooks): at least once, those about one incident in order, also
over restarts.

A message enters the outbox in the transaction of the change that it reports, and leaves it when the
receiver has accepted it. Only a crash between the two sends it again, under the same
``Idempotency-Key``. Each receiver has its own thread, so that a hanging one does not delay others.
A message that the receiver answers with an error delays only those about the same incident.
Alertmanager expects all firing alerts periodically, so they are sent from the incident book and
not queued.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from syntony.alerts import render
from syntony.alerts.causes import explained
from syntony.alerts.incident_book import Book
from syntony.alerts.incidents import ChangeKind, Incident, IncidentChange
from syntony.alerts.render import FleetName
from syntony.alerts.rules import Severity
from syntony.controller.rejected_messages import (
    BACKOFF_MAX_NS,
    BACKOFF_MIN_NS,
    GIVE_UP_NS,
    RejectedMessages,
)
from syntony.errors import ConfigError, StateError
from syntony.input_files import MAX_SECRET_BYTES, read_text
from syntony.io.http_request import ERRORS, http_request
from syntony.model import S, format_ns
from syntony.state.database import DatabaseConnection
from syntony.state.outbox import Outbox, QueuedMessage

_log = logging.getLogger(__name__)

RESEND_NS = 60 * S
"""Interval at which firing alerts are sent to Alertmanager …"""
ECHO_NS = 5 * 60 * S
"""… and time for which resolved ones are repeated."""
MAX_REJECTED = 3
"""A receiver that answers this many messages in a row with an error gets no further ones for a
while: the error may not be the messages'."""
ROUND_S = 0.5
"""Time that a round waits for its receivers; slower ones continue separately."""
MAX_WAITING = 10_000
"""Messages kept for one receiver; beyond it the oldest are dropped, and counted."""
_NOTIFIED = frozenset(
    {ChangeKind.PAGE, ChangeKind.RENAMED, ChangeKind.CLEAR, ChangeKind.ACKNOWLEDGED}
)
_INVALID = frozenset({400, 411, 413, 414, 415, 422, 431})
"""Errors of the message itself: no retry can succeed (RFC 9110, RFC 6585). Others are errors of the
address, the credentials or the receiver, which can be corrected."""
PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"


class Receiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[alerts.receivers]]``: one system to notify of incidents (docs/reference/incidents.md)."""

    name: str
    """Name of the receiver, for logs and the outbox."""
    kind: Literal["alertmanager", "pagerduty", "slack", "webhook"]
    """The format of its messages: ``alertmanager``, ``pagerduty``, ``slack`` or ``webhook``."""
    url: str = ""
    """``http://`` or ``https://``; for Alertmanager its base URL. PagerDuty's is built in."""
    url_file: str = ""
    """File with the URL, if the URL is itself a secret (Slack)."""
    secret_file: str = ""
    """File with PagerDuty's routing key, or a bearer token for the others."""
    severities: tuple[Severity, ...] = (Severity.WARNING, Severity.CRITICAL)
    """Severities of the incidents that it receives: ``info``, ``warning``, ``critical``."""


class NotifyResult(NamedTuple):
    taken: bool
    hopeless: bool
    """Whether the receiver will never accept this message."""
    reason: str
    answered: bool = False
    """Whether the receiver answered."""


Post = Callable[[str, bytes, dict[str, str]], NotifyResult]
"""``post(url, body, headers)``."""


class Notifier:
    """Queues messages for receivers and delivers them, with retries. `take` is called under its
    caller's lock, `deliver` from one thread.

    Args:
        receivers: to notify.
        fleet: named in every message.
        outbox: where messages wait.
        post: sends them.

    Raises:
        ConfigError: a receiver without an address, or with a file that cannot be read.
    """

    def __init__(
        self,
        receivers: Iterable[Receiver],
        fleet: FleetName,
        outbox: Outbox,
        post: Post | None = None,
    ) -> None:
        self._fleet = fleet
        self._ahead_ns = 0
        self._outbox = outbox
        self._post = post or post_json
        self.shed = 0
        self._receivers = [_Outgoing(receiver) for receiver in receivers]

    @property
    def delivered(self) -> int:
        """Messages accepted, over all receivers."""
        return sum(each.delivered for each in self._receivers)

    @property
    def refused(self) -> int:
        """Messages that were dropped because a receiver refused them."""
        return sum(each.refused for each in self._receivers)

    def take(
        self, connection: DatabaseConnection, changes: Iterable[IncidentChange], book: Book
    ) -> None:
        """Queue messages about these changes, in the same transaction."""
        queued: set[str] = set()
        for change in changes:
            silenced = change.kind is ChangeKind.RENAMED and change.incident.silenced
            if change.kind not in _NOTIFIED or silenced:
                continue
            children = explained(change.incident.number, book.incidents)
            for outgoing in self._receivers:
                if change.incident.reported_severity in outgoing.receiver.severities:
                    body = self._body(outgoing, change, children)
                    if body is not None:
                        name = outgoing.receiver.name
                        number = change.incident.number
                        self._outbox.append(connection, name, number, json.dumps(body))
                        queued.add(name)
        for name in queued:
            self.shed += self._outbox.shed(connection, name, MAX_WAITING)

    def deliver(self, now_ns: int, fleet_ns: int, book: Book, ahead_ns: int = 0) -> None:
        """One round: every receiver that is due and idle gets its waiting messages, until it does
        not answer, or answers several in a row with an error. If the outbox cannot be used, they
        keep waiting.

        Args:
            now_ns: CLOCK_MONOTONIC.
            fleet_ns: the same instant in fleet time.
            book: firing incidents.
            ahead_ns: fleet time minus the time of the receivers' clocks.
        """
        self._ahead_ns = ahead_ns
        for outgoing in self._receivers:
            if now_ns < outgoing.due_ns or outgoing.busy:
                continue
            if outgoing.receiver.kind == "alertmanager":
                outgoing.begin(self._repeat, now_ns, self._firing(outgoing, now_ns, fleet_ns, book))
            else:
                outgoing.begin(self._drain, now_ns)
        until_s = time.monotonic() + ROUND_S
        for outgoing in self._receivers:
            outgoing.wait(until_s)

    def waiting(self) -> int:
        """Messages not yet accepted. Raises `StateError`."""
        return sum(self._outbox.waiting(each.receiver.name) for each in self._receivers)

    def _body(
        self, outgoing: _Outgoing, change: IncidentChange, children: list[Incident]
    ) -> dict[str, Any] | None:
        kind, incident = change.kind, change.incident
        match outgoing.receiver.kind:
            case "pagerduty":
                return render.pagerduty(kind, incident, self._fleet, self._ahead_ns)
            case "slack":
                return render.slack(kind, incident, self._fleet, children, self._ahead_ns)
            case "webhook":
                return render.webhook(kind, incident, self._fleet, children)
            case _:
                outgoing.due_ns = 0  # something changed: send to Alertmanager at once
                return None

    def _firing(self, outgoing: _Outgoing, now_ns: int, fleet_ns: int, book: Book) -> bytes:
        """Alerts for Alertmanager; empty: none."""
        outgoing.due_ns = now_ns + RESEND_NS
        reported = [
            incident
            for incident in book.incidents
            if incident.reported_severity in outgoing.receiver.severities
            and _fires(incident, fleet_ns)
        ]
        if not reported:
            return b""
        bodies = render.alertmanager(reported, self._fleet, fleet_ns, self._ahead_ns)
        return json.dumps(bodies).encode()

    def _repeat(self, outgoing: _Outgoing, now_ns: int, body: bytes) -> None:
        if not body:
            return
        answer = self._post(f"{outgoing.url}/api/v2/alerts", body, outgoing.headers)
        if answer.taken:
            outgoing.took()
        elif answer.hopeless:
            outgoing.refuse(answer.reason)
        else:
            outgoing.pause(now_ns, answer.reason)

    def _drain(self, outgoing: _Outgoing, now_ns: int) -> None:
        name, rejections = outgoing.receiver.name, 0
        stuck: set[int] = set()  # incidents about which a message was rejected in this round
        while due := outgoing.rejected.due(self._outbox.queued(name), now_ns, stuck):
            for message in due:
                if message.incident in stuck:
                    continue
                rejection = self._send(outgoing, message, now_ns)
                if rejection is None:
                    rejections = 0
                    continue
                stuck.add(message.incident)
                rejections += 1
                if rejections == MAX_REJECTED or not rejection.answered:
                    outgoing.pause(now_ns, rejection.reason)
                    return

    def _send(
        self, outgoing: _Outgoing, message: QueuedMessage, now_ns: int
    ) -> NotifyResult | None:
        """Send a message. Returns the answer if it has to be sent again."""
        number, rejected = message.number, outgoing.rejected
        body = None if number in outgoing.taken else self._outbox.body(number)
        if body is not None:
            headers = {"Idempotency-Key": f"{render.key(self._fleet)}/message/{number}"}
            content = json.dumps(json.loads(body) | outgoing.credentials).encode()
            answer = self._post(outgoing.url, content, outgoing.headers | headers)
            if answer.taken:
                outgoing.took()
                rejected.accept(message, now_ns)
            elif answer.hopeless:
                outgoing.refuse(answer.reason)
            elif rejected.reject(message, now_ns):
                outgoing.refuse(f"{answer.reason}, for {format_ns(GIVE_UP_NS)}")
            else:
                return answer
        rejected.forget(message)
        self._finish(outgoing, message)
        return None

    def _finish(self, outgoing: _Outgoing, message: QueuedMessage) -> None:
        outgoing.taken.add(message.number)
        self._outbox.remove(message.number)
        outgoing.taken.discard(message.number)


def check_receiver(receiver: Receiver) -> None:
    """Raises `ConfigError`: no address, or a file that cannot be read."""
    _Outgoing(receiver)


class _Outgoing:
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        secret = _read(receiver, receiver.secret_file)
        default = PAGERDUTY if receiver.kind == "pagerduty" else ""
        self.url = (receiver.url or _read(receiver, receiver.url_file) or default).rstrip("/")
        if urllib.parse.urlsplit(self.url).scheme not in {"http", "https"}:
            raise ConfigError(f"receiver {receiver.name!r}: give it a url, http:// or https://")
        pagerduty = receiver.kind == "pagerduty"
        if pagerduty and not secret:
            raise ConfigError(f"receiver {receiver.name!r}: put its routing key in secret_file")
        self.credentials = {"routing_key": secret} if pagerduty else {}
        """Added to every body when it is sent: the outbox contains no secrets."""
        bearer = bool(secret) and not pagerduty
        self.headers = {"Authorization": f"Bearer {secret}"} if bearer else {}
        self.due_ns = 0
        self.backoff_ns = 0
        self.delivered = self.refused = 0
        self.rejected = RejectedMessages()
        self._thread: threading.Thread | None = None
        self.taken: set[int] = set()
        """Messages that are finished but could not be removed from the outbox yet."""

    @property
    def busy(self) -> bool:
        """Whether its last round is still running."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, work: Callable[..., None], *args: Any) -> None:
        """One round, in a separate thread."""

        def run() -> None:
            try:
                work(self, *args)
            except StateError as error:
                _log.error("outbox not used name=%s reason=%s", self.receiver.name, error)

        self._thread = threading.Thread(target=run, name="receiver", daemon=True)
        self._thread.start()

    def took(self) -> None:
        """Record that the receiver has accepted a message."""
        self.delivered += 1
        if self.backoff_ns:
            _log.info("receiver accepts messages again name=%s", self.receiver.name)
        self.backoff_ns = 0

    def refuse(self, reason: str) -> None:
        """Drop a message that the receiver will never accept."""
        self.refused += 1
        name = self.receiver.name
        _log.error("message dropped, receiver refuses it name=%s reason=%s", name, reason)

    def pause(self, now_ns: int, reason: str) -> None:
        """Send it nothing for a while."""
        if not self.backoff_ns:
            _log.warning("receiver takes no messages name=%s reason=%s", self.receiver.name, reason)
        self.backoff_ns = min(BACKOFF_MAX_NS, max(BACKOFF_MIN_NS, 2 * self.backoff_ns))
        self.due_ns = now_ns + self.backoff_ns

    def wait(self, until_s: float) -> None:
        """Wait until the round is over, or until `until_s` of CLOCK_MONOTONIC."""
        if self._thread is not None:
            self._thread.join(max(0.0, until_s - time.monotonic()))


def _fires(incident: Incident, fleet_ns: int) -> bool:
    """Whether to send it to Alertmanager now."""
    if not incident.over:
        return incident.paged and not incident.cause
    return incident.pages > 0 and fleet_ns - incident.updated_ns < ECHO_NS


def post_json(url: str, body: bytes, headers: dict[str, str]) -> NotifyResult:
    sent = {"Content-Type": "application/json", **headers}
    try:
        answer = http_request("POST", url, body, sent, most_bytes=300)
    except ERRORS as error:
        return NotifyResult(False, False, f"{type(error).__name__}: {error}")
    text = answer.body.decode("utf-8", "replace")
    reason = " ".join(f"{answer.status} {answer.reason} {text}".split())
    if 200 <= answer.status < 300:
        return NotifyResult(True, False, reason, answered=True)
    return NotifyResult(False, answer.status in _INVALID, reason, answered=True)


def _read(receiver: Receiver, path: str) -> str:
    if not path:
        return ""
    try:
        return read_text(path, MAX_SECRET_BYTES).strip()
    except OSError as error:
        raise ConfigError(
            f"receiver {receiver.name!r}: {path}: cannot be read: {error.strerror}"
        ) from error
