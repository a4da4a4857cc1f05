"""What a lab's controller tells anyone who is on call: a webhook in the controller's namespace.

with receiver(lab) as pages:
    restart(lab)      # the controller reads its receivers when it starts
    pages.count("port-down", "h3/rail1", "page")
"""

from __future__ import annotations

import json
import sys
import threading
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, NamedTuple

from bench.instant import listener
from tests.live import LiveLab

from syntony.config import to_toml

PORT, LISTEN = 9095, "--listen"


class Message(NamedTuple):
    """One message that was taken."""

    key: str
    """Its Idempotency-Key."""
    event: str
    rule: str
    subject: str


class Doubled(NamedTuple):
    """What a receiver that knows keys, and one that does not, gets more than once."""

    under_new_keys: int
    """Told again as if it were news: never, says the promise."""
    under_the_same_key: int
    """Sent again since the controller died between an answer and its commit: allowed."""


def doubled(messages: Sequence[Message]) -> Doubled:
    """Of what was reported, in order. An incident is told open and over in turns. Pure."""
    seen: set[str] = set()
    newest: dict[tuple[str, str], str] = {}
    news = again = 0
    for each in messages:
        if each.key in seen:
            again += 1
            continue
        seen.add(each.key)
        news += newest.get((each.rule, each.subject)) == each.event
        newest[each.rule, each.subject] = each.event
    return Doubled(news, again)


class Pages:
    """What was told so far."""

    def __init__(self, stream: IO[str]) -> None:
        self._reported: list[Message] = []
        stream.readline()  # it listens
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._reported.append(Message(*json.loads(line)))

    @property
    def reported(self) -> tuple[Message, ...]:
        return tuple(self._reported)

    def count(self, rule: str, subject: str, event: str) -> int:
        """How often, the same message counted once."""
        wanted = (event, rule, subject)
        return len({each.key for each in self.reported if each[1:] == wanted})


@contextmanager
def receiver(lab: LiveLab) -> Iterator[Pages]:
    """A webhook, entered in the controllers' configuration for their next start."""
    hook = {"name": "bench", "kind": "webhook", "url": f"http://127.0.0.1:{PORT}"}
    for config in lab.directory.glob("controller*.toml"):
        settings = tomllib.loads(config.read_text(encoding="utf-8"))
        settings["alerts"]["receivers"] = [hook]
        config.write_text(to_toml(settings), encoding="utf-8")
    command = [sys.executable, "-m", "bench.pages", LISTEN]
    with listener(lab.enter_argv("ctl", command)) as stream:
        yield Pages(stream)


class _Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        incident, key = body["incident"], self.headers["Idempotency-Key"]
        said = json.dumps([key, body["event"], incident["rule"], incident["subject"]])
        sys.stdout.write(f"{said}\n")
        sys.stdout.flush()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def listen() -> None:
    """Inside the namespace, until standard input ends."""
    server = ThreadingHTTPServer(("127.0.0.1", PORT), _Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("listening", flush=True)
    sys.stdin.read()


if __name__ == "__main__" and LISTEN in sys.argv:
    listen()
