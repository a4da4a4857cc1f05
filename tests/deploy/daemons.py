"""Debian's prometheus and prometheus-alertmanager on loopback, and a webhook that listens."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.live import eventually
from tests.ports import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"


def need(*programs: str) -> None:
    """Skip visibly where one is not installed."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(
                f"needs {program} (sh deploy/system-packages.sh --test): shipped files are NOT "
                "checked by it"
            )


class Webhook:
    """What Alertmanager told, alert by alert."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self._bodies: list[dict[str, Any]] = []
        alerts, bodies = self.alerts, self._bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver = self.path.strip("/")
                bodies.append(json.loads(body))
                alerts.extend(alert | {"receiver": receiver} for alert in bodies[-1]["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def reported(self, status: str, **labels: str) -> list[dict[str, Any]]:
        """Alerts of this status that have these labels."""
        return [
            alert
            for alert in list(self.alerts)
            if alert["status"] == status and labels.items() <= alert["labels"].items()
        ]

    def notifications(self, alertname: str) -> list[dict[str, Any]]:
        """Messages with a firing alert of this name, however many of them each tells."""
        return [
            body
            for body in list(self._bodies)
            if any(
                alert["status"] == "firing" and alert["labels"]["alertname"] == alertname
                for alert in body["alerts"]
            )
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def webhook() -> Iterator[Webhook]:
    hook = Webhook()
    try:
        yield hook
    finally:
        hook.close()


@contextlib.contextmanager
def running(log: Path, ready: str, *argv: str) -> Iterator[None]:
    """A daemon until the end of the block; `ready` is the URL that answers when it is."""
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out)
    try:
        eventually(lambda: process.poll() is not None or fetch(ready) is not None)
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def alertmanager(directory: Path, hook: Webhook) -> Iterator[str]:
    """With the configuration that we ship, its waits shortened and its webhooks turned to `hook`;
    yields its URL."""
    shipped = (DEPLOY / "alertmanager/alertmanager.yml").read_text()
    config = directory / "alertmanager.yml"
    config.write_text(
        shipped.replace("127.0.0.1:9095", f"127.0.0.1:{hook.port}")
        .replace("group_wait: 10s", "group_wait: 100ms")
        .replace("group_interval: 1m", "group_interval: 200ms")
        .replace("group_interval: 10s", "group_interval: 200ms")
    )
    url = f"http://127.0.0.1:{free_port()}"
    with running(
        directory / "alertmanager.log", f"{url}/-/ready", "prometheus-alertmanager",
        f"--config.file={config}", f"--storage.path={directory / 'am'}",
        f"--web.listen-address={url.removeprefix('http://')}", "--cluster.listen-address=",
    ):  # fmt: skip
        yield url


@contextlib.contextmanager
def prometheus(directory: Path, config: str) -> Iterator[str]:
    """With this configuration; yields its URL."""
    path = directory / "prometheus.yml"
    path.write_text(config)
    url = f"http://127.0.0.1:{free_port()}"
    with running(
        directory / "prometheus.log", f"{url}/-/ready", "prometheus", f"--config.file={path}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address={url.removeprefix('http://')}",
    ):  # fmt: skip
        yield url


def fetch(url: str) -> str | None:
    """What is there; None while nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - loopback
            return str(answer.read().decode())
    except OSError:
        return None


def value(url: str, query: str) -> float | None:
    """The one value of a query; None if there is none."""
    text = fetch(f"{url}/api/v1/query?query={urllib.parse.quote(query)}")
    result = json.loads(text)["data"]["result"] if text else []
    return float(result[0]["value"][1]) if result else None
