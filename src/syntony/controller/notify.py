"""Telling the systems that page people: at least once, in order, whatever restarts in between.

What is to be told is first written down, one file a message and receiver, and removed when the
receiver has taken it. Alertmanager is different: it wants to hear what fires again and again, so
it is told from the book, and there is nothing to write down.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import ssl
import urllib.parse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from syntony.alerts import render
from syntony.alerts.incidents import Book, Change, ChangeKind, Incident, explained
from syntony.alerts.rules import Severity
from syntony.controller.whole_files import write_atomically
from syntony.errors import ConfigError
from syntony.model import S

_log = logging.getLogger(__name__)

RESEND_NS = 60 * S
"""Alertmanager hears of what fires so often …"""
ECHO_NS = 5 * 60 * S
"""… and for so long of what has been resolved."""
BACKOFF_MIN_NS, BACKOFF_MAX_NS = 1 * S, 60 * S
TIMEOUT_S = 10.0
MAX_WAITING = 10_000
"""Messages kept for one receiver; beyond it the oldest are shed, and counted."""
_TOLD = frozenset({ChangeKind.PAGE, ChangeKind.CLEAR, ChangeKind.ACKNOWLEDGED})
_RETRY = frozenset({408, 425, 429})
"""Client errors that another try may mend (RFC 9110, RFC 6585)."""
PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"


class Receiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One system to tell."""

    name: str
    kind: Literal["alertmanager", "pagerduty", "slack", "webhook"]
    url: str = ""
    """``http://`` or ``https://``; for Alertmanager its base. PagerDuty's is known."""
    url_file: str = ""
    """A file that holds the URL, where the URL is itself a secret (Slack)."""
    secret_file: str = ""
    """A file that holds PagerDuty's routing key, or a bearer token for the others."""
    severities: tuple[Severity, ...] = (Severity.WARNING, Severity.CRITICAL)


class Answer(NamedTuple):
    """What became of one attempt."""

    taken: bool
    hopeless: bool
    """The receiver will never take this message: trying again would hold up the others."""
    reason: str


Post = Callable[[str, bytes, dict[str, str]], Answer]
"""``post(url, body, headers)``."""


class Notifier:
    """Decides whom to tell what, and keeps at it. Called from one thread.

    Args:
        receivers: whom to tell.
        cluster: names the fleet in every message.
        directory: where messages wait.
        post: does the sending.

    Raises:
        ConfigError: a receiver without an address, or with a file that cannot be read.
    """

    def __init__(
        self, receivers: Iterable[Receiver], cluster: str, directory: Path, post: Post | None = None
    ) -> None:
        self._cluster = cluster
        self._post = post or post_json
        self.delivered = 0
        self.refused = 0
        """Messages that a receiver would never have taken."""
        self.shed = 0
        self._receivers = [
            _Outgoing(receiver, directory / "outbox" / receiver.name) for receiver in receivers
        ]

    def take(self, changes: Iterable[Change], book: Book) -> None:
        """Write down what is to be told of these changes. Before the book is saved: what is told
        twice after a crash has the same key, what is not told at all nobody ever hears."""
        for change in changes:
            if change.kind not in _TOLD:
                continue
            children = explained(book, change.incident.number)
            for outgoing in self._receivers:
                if change.incident.severity in outgoing.receiver.severities:
                    body = self._body(outgoing, change, children)
                    if body is not None:
                        self.shed += outgoing.append(body)

    def deliver(self, now_ns: int, fleet_ns: int, book: Book, ahead_ns: int = 0) -> None:
        """One round: every receiver that is due gets what waits for it, until one fails.

        Args:
            now_ns: CLOCK_MONOTONIC.
            fleet_ns: the same moment in fleet time.
            book: what fires.
            ahead_ns: fleet time minus the time that the receivers' clocks show.
        """
        for outgoing in self._receivers:
            if now_ns < outgoing.due_ns:
                continue
            if outgoing.receiver.kind == "alertmanager":
                self._repeat(outgoing, now_ns, fleet_ns, book, ahead_ns)
            else:
                self._drain(outgoing, now_ns)

    def waiting(self) -> int:
        """Messages not yet taken."""
        return sum(len(outgoing.waiting()) for outgoing in self._receivers)

    def _body(
        self, outgoing: _Outgoing, change: Change, children: list[Incident]
    ) -> dict[str, Any] | None:
        kind, incident = change.kind, change.incident
        match outgoing.receiver.kind:
            case "pagerduty":
                return render.pagerduty(kind, incident, self._cluster, outgoing.secret)
            case "slack":
                return render.slack(kind, incident, self._cluster, children)
            case "webhook":
                return render.webhook(kind, incident, self._cluster, children)
            case _:
                outgoing.due_ns = 0  # something changed: Alertmanager is told at once
                return None

    def _repeat(
        self, outgoing: _Outgoing, now_ns: int, fleet_ns: int, book: Book, ahead_ns: int
    ) -> None:
        told = [
            incident
            for incident in book.incidents
            if incident.severity in outgoing.receiver.severities
            and _fires(incident, outgoing, now_ns)
        ]
        outgoing.due_ns = now_ns + RESEND_NS
        if not told:
            return
        bodies = render.alertmanager(told, self._cluster, fleet_ns, ahead_ns)
        body = json.dumps(bodies).encode()
        answer = self._post(f"{outgoing.url}/api/v2/alerts", body, outgoing.headers)
        self._account(outgoing, answer, now_ns)

    def _drain(self, outgoing: _Outgoing, now_ns: int) -> None:
        for path in outgoing.waiting():
            answer = self._post(outgoing.url, path.read_bytes(), outgoing.headers)
            self._account(outgoing, answer, now_ns)
            if not answer.taken and not answer.hopeless:
                return
            path.unlink()

    def _account(self, outgoing: _Outgoing, answer: Answer, now_ns: int) -> None:
        if answer.taken:
            self.delivered += 1
            if outgoing.backoff_ns:
                _log.info("receiver takes messages again name=%s", outgoing.receiver.name)
            outgoing.backoff_ns = 0
            return
        name = outgoing.receiver.name
        if answer.hopeless:
            self.refused += 1
            _log.error("receiver refuses a message name=%s reason=%s", name, answer.reason)
            return
        if not outgoing.backoff_ns:
            _log.warning("receiver does not answer name=%s reason=%s", name, answer.reason)
        outgoing.backoff_ns = min(BACKOFF_MAX_NS, max(BACKOFF_MIN_NS, 2 * outgoing.backoff_ns))
        outgoing.due_ns = now_ns + outgoing.backoff_ns


class _Outgoing:
    """One receiver and what waits for it."""

    def __init__(self, receiver: Receiver, directory: Path) -> None:
        self.receiver = receiver
        self.secret = _read(receiver, receiver.secret_file)
        default = PAGERDUTY if receiver.kind == "pagerduty" else ""
        self.url = (receiver.url or _read(receiver, receiver.url_file) or default).rstrip("/")
        if urllib.parse.urlsplit(self.url).scheme not in {"http", "https"}:
            raise ConfigError(f"receiver {receiver.name!r}: give it a url, http:// or https://")
        if receiver.kind == "pagerduty" and not self.secret:
            raise ConfigError(f"receiver {receiver.name!r}: put its routing key in secret_file")
        bearer = self.secret if receiver.kind != "pagerduty" else ""
        self.headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        self.due_ns = 0
        self.backoff_ns = 0
        self.resolved_at: dict[int, int] = {}
        """Resolved incidents → CLOCK_MONOTONIC at which they were first told as such."""
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        names = [path.stem for path in self.waiting()]
        self._next = 1 + max((int(name) for name in names if name.isdigit()), default=0)

    def append(self, body: dict[str, Any]) -> int:
        """Write a message down; returns how many old ones had to go."""
        path = self._directory / f"{self._next:012d}.json"
        self._next += 1
        write_atomically(path, json.dumps(body).encode())
        surplus = self.waiting()[:-MAX_WAITING]
        for old in surplus:
            old.unlink()
        return len(surplus)

    def waiting(self) -> list[Path]:
        """Oldest first."""
        return sorted(self._directory.glob("*.json"))


def _fires(incident: Incident, outgoing: _Outgoing, now_ns: int) -> bool:
    """Whether Alertmanager should hear of it now."""
    if incident.live:
        outgoing.resolved_at.pop(incident.number, None)
        return incident.paged and not incident.cause
    if not incident.told:
        return False
    first_ns = outgoing.resolved_at.setdefault(incident.number, now_ns)
    return now_ns - first_ns < ECHO_NS


def post_json(url: str, body: bytes, headers: dict[str, str]) -> Answer:
    """One HTTP POST. Redirects are not followed: they would take secrets elsewhere."""
    parts = urllib.parse.urlsplit(url)
    target = parts._replace(scheme="", netloc="").geturl() or "/"
    try:
        connection = _connection(parts)
        with contextlib.closing(connection):
            connection.request(
                "POST", target, body, {"Content-Type": "application/json", **headers}
            )
            answer = connection.getresponse()
            text = answer.read(300).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(False, False, f"{type(error).__name__}: {error}")
    reason = " ".join(f"{answer.status} {answer.reason} {text}".split())
    if 200 <= answer.status < 300:
        return Answer(True, False, reason)
    hopeless = 400 <= answer.status < 500 and answer.status not in _RETRY
    return Answer(False, hopeless, reason)


def _connection(parts: urllib.parse.SplitResult) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)


def _read(receiver: Receiver, path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"receiver {receiver.name!r}: {path}: cannot be read: {error}") from error
