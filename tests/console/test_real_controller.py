"""The console on a real controller without agents: login, live events, an order, the log."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.api.conftest import ApiController
from tests.console.browser import browser, enter, new_page

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
