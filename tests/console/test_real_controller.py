"""The console on a real controller without agents: login, live events, an order, the log."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from pathlib import Path
from typing import Self
from urllib.parse import quote

import pytest
from tests.api.conftest import ApiController
from tests.console.browser import PATIENCE_MS, browser, enter, new_page

from syntony.controller.client import ask
from syntony.wire.access_tokens import AccessTokensQuery, RevokeAccessCommand

pytestmark = pytest.mark.slow


def test_a_new_fleet_and_its_stop_switch(tmp_path: Path) -> None:
    controller = ApiController(tmp_path)
    controller.start()
    try:
        with browser() as found:
            operator, viewer = new_page(found), new_page(found)
            blocked: list[str] = []
            operator.on("console", lambda message: blocked.append(message.text))
            enter(operator, controller.url, controller.token("operator", "alice"))
            enter(viewer, controller.url, controller.token("viewer", "bob"), view="traffic")
            operator.get_by_text("No agent is attached.").wait_for()
            operator.get_by_text("● Live").wait_for()
            operator.goto(f"{controller.url}/#/traffic")
            operator.get_by_role("button", name="Stop all traffic control…").click()
            operator.get_by_label("Why").fill("new firmware")
            operator.get_by_label("I mean the whole fleet").check()
            operator.get_by_role("dialog").get_by_role("button", name="Stop").click()
            for page in (operator, viewer):
                page.get_by_text("Traffic control is stopped by").wait_for()
            assert not viewer.get_by_role("button", name="Allow traffic control").count()
            operator.goto(f"{controller.url}/#/overview")
            operator.get_by_text("new firmware").wait_for()
            operator.goto(f"{controller.url}/#/audit")
            operator.get_by_text("No audit is kept.").wait_for()
            operator.reload()
            operator.get_by_role("heading", name="Audit", exact=True).wait_for()
            assert not [text for text in blocked if "Content Security Policy" in text]
    finally:
        controller.end(signal.SIGKILL)


def test_a_revoked_token_ends_the_session_and_a_login_comes_back_to_the_view(
    tmp_path: Path,
) -> None:
    """The stream of events ends at once, so that nobody looks at a page that is not live any more
    without being shown so; address and filters stay."""
    controller = ApiController(tmp_path)
    controller.start()
    view = "traffic?window=7d&kind=failover&job=train-7"
    try:
        with browser() as found:
            page = new_page(found)
            enter(page, controller.url, controller.token("viewer", "bob"), view=quote(view))
            page.get_by_text("● Live").wait_for()
            page.get_by_text("No such change of a path in that time.").wait_for()
            page.evaluate("window.kept = true")
            again = controller.token("operator", "alice")
            tokens = ask(controller.local, AccessTokensQuery()).tokens
            number = next(each.number for each in tokens if each.name == "bob")
            ask(controller.local, RevokeAccessCommand(number=number, by="test"))
            page.get_by_text("The session has ended").wait_for()
            assert not page.get_by_role("navigation", name="Views").count()
            page.get_by_label("Token").fill(again)
            page.keyboard.press("Enter")
            page.get_by_text("● Live").wait_for()
            page.get_by_role("button", name="Stop all traffic control…").wait_for()
            assert page.evaluate("location.hash") == f"#/{view}"
            pressed = page.locator("button[aria-pressed=true]").all_inner_texts()
            assert {"7 d", "Failovers"} <= set(pressed)
            assert page.get_by_label("Job").input_value() == "train-7"
            assert page.evaluate("window.kept") is True
    finally:
        controller.end(signal.SIGKILL)


class OneAddress:
    """A port that leads to the first of several that takes a connection, as one name for several
    controllers does."""

    def __init__(self, *ports: int) -> None:
        self._ports = ports
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._lead)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        _shut(self._listener)
        self._threads[0].join()
        _shut(*self._sockets)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _lead(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                outside, _ = self._listener.accept()
                inside = self._connected()
                self._sockets += [outside, *([inside] if inside else [])]
                if inside is None:
                    _shut(outside)
                    continue
                for ends in ((outside, inside), (inside, outside)):
                    self._threads.append(threading.Thread(target=_relay, args=ends))
                    self._threads[-1].start()

    def _connected(self) -> socket.socket | None:
        for port in self._ports:
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", port))
        return None


def _relay(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    _shut(source, sink)


def _shut(*some: socket.socket) -> None:
    for each in some:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def test_a_standby_takes_over_and_page_and_session_go_on(tmp_path: Path) -> None:
    first = ApiController(tmp_path, "0.0.0.0")  # noqa: S104 - beyond loopback it is TLS
    second = ApiController(tmp_path, "0.0.0.0", name="standby", standby=True)  # noqa: S104
    first.start()
    try:
        with browser() as found, OneAddress(first.api_port, second.api_port) as address:
            page = found.new_context(ignore_https_errors=True).new_page()
            page.set_default_timeout(PATIENCE_MS)
            url, token = f"https://127.0.0.1:{address.port}", first.token("operator", "alice")
            with page.expect_response(lambda found: found.url.endswith("/controller")):
                enter(page, url, token, "traffic")
            page.get_by_text("● Live").wait_for()
            page.evaluate("window.kept = true")
            second.begin()
            first.end(signal.SIGKILL)
            page.get_by_role("alert").get_by_text("Connection to the controller lost").wait_for()
            page.get_by_text("Controller standby has taken over").wait_for()
            page.get_by_role("button", name="Stop all traffic control…").click()
            page.get_by_label("Why").fill("after the takeover")
            page.get_by_label("I mean the whole fleet").check()
            page.get_by_role("dialog").get_by_role("button", name="Stop").click()
            page.get_by_text("Traffic control is stopped by alice").wait_for()
            assert page.evaluate("window.kept") is True
    finally:
        first.end(signal.SIGKILL)
        second.end(signal.SIGKILL)
