"""Pages of a past instant ask for that instant, and lead on to others of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.console.browser import enter
from tests.console.views import goto

from syntony.model import HOUR_NS, S

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from tests.console.server import FakeApi

pytestmark = pytest.mark.slow


def asked(page: Page, view: str, name: str) -> dict[str, list[str]]:
    """Parameters of the first question of that name of a view."""
    with page.expect_request(lambda each: f"/api/v1/{name}" in each.url) as found:
        goto(page, view)
    return parse_qs(urlsplit(found.value.url).query)


def hours_ago(hours: int) -> int:
    """Whole seconds: a browser's numbers are doubles."""
    now_s = int(time.time())  # noqa: TID251 - a browser compares it
    return now_s * S - hours * HOUR_NS


def test_a_pair_of_a_past_matrix_is_shown_as_it_was(page: Page, url: str) -> None:
    end_ns = hours_ago(2)
    enter(page, url)
    # The first view, and later the way back of the past pair, may still be asked for.
    past = f"end_ns={end_ns}"
    with page.expect_request(lambda each: "matrix" in each.url and past in each.url):
        goto(page, f"delay?end={end_ns}")
    worst = page.get_by_role("table", name="Worst pairs").get_by_role("link").first
    with page.expect_request(lambda each: "/api/v1/series" in each.url) as found:
        worst.click()
    assert parse_qs(urlsplit(found.value.url).query)["end_ns"] == [str(end_ns)]
    with page.expect_request(lambda each: "series" in each.url and "end_ns" not in each.url):
        page.get_by_role("button", name="Now").click()


def test_an_incident_shows_its_nic_around_the_instant_it_opened(
    page: Page, url: str, api: FakeApi
) -> None:
    incident = api.answers["incidents"].incidents[0]
    opened_ns = incident["opened_ns"] = hours_ago(5)
    enter(page, url)
    found = asked(page, "incidents/12", "series")
    assert found["src"] == [incident["subject"]]
    assert (found["end_ns"], found["window_ns"]) == (
        [str(opened_ns + HOUR_NS // 2)],
        [str(HOUR_NS)],
    )
    page.get_by_role("img", name=f"One-way delay of {incident['subject']}").wait_for()
    incident["opened_ns"] = hours_ago(0)
    api.announce("incidents")
    page.wait_for_timeout(500)
    goto(page, "overview")
    assert "end_ns" not in asked(page, "incidents/12", "series")


def test_what_a_past_fleet_is_coloured_by_is_in_the_address(page: Page, url: str) -> None:
    enter(page, url)
    goto(page, f"incidents/12?then={hours_ago(1)}&by=loss")
    chosen = page.get_by_role("group", name="Colour by").locator("[aria-pressed=true]")
    chosen.get_by_text("Loss").wait_for()
    page.get_by_role("group", name="Colour by").get_by_text("State").click()
    page.wait_for_function("location.hash.endsWith('by=state')")
