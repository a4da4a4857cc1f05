"""The log of failovers: folded, filtered, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.console.browser import enter
from tests.console.fleet import RETURNS

from syntony.model import S

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page
    from tests.console.server import FakeApi

pytestmark = pytest.mark.slow
MANY = 2_500
PAGE = 1_000


def rows(page: Page) -> Locator:
    """Of the log, without its heading."""
    return page.get_by_role("table", name="Failovers").locator("tbody tr")


def test_attempts_to_return_are_one_line_that_opens(page: Page, url: str) -> None:
    enter(page, url, view="traffic")
    rows(page).nth(2).wait_for()
    assert rows(page).count() == 3
    folded = rows(page).filter(has_text="return")
    half, quarter = RETURNS // 2, RETURNS // 4
    done = f"{half} × path asked for, {quarter} × path added, {quarter} × path not joined"
    folded.get_by_text(done).wait_for()
    folded.get_by_text("h4/rail1 > h5/rail1").wait_for()
    folded.locator("summary").press("Enter")
    folded.get_by_role("listitem").nth(RETURNS - 1).wait_for()
    assert folded.get_by_role("listitem").count() == RETURNS


def test_filters_are_in_the_address_and_asked_of_the_server(
    page: Page, url: str, api: FakeApi
) -> None:
    enter(page, url, view="traffic")
    page.get_by_role("button", name="Failovers", exact=True).click()
    rows(page).filter(has_text="return").wait_for(state="detached")
    assert rows(page).count() == 2
    page.get_by_label("Job").select_option("eval-1")
    rows(page).filter(has_text="train-7").wait_for(state="detached")
    assert rows(page).count() == 1
    assert page.evaluate("location.hash") == "#/traffic?kind=failover&job=eval-1"
    page.reload()
    rows(page).filter(has_text="eval-1").wait_for()
    assert rows(page).count() == 1
    page.get_by_label("Job").select_option("all")
    page.get_by_label("Host").select_option("h4")
    rows(page).filter(has_text="train-7").wait_for()
    page.get_by_label("How far back").get_by_text("7 d").click()
    page.get_by_role("button", name="Joins and returns").click()
    page.get_by_label("Host").select_option("h5")
    page.get_by_text("No such change of a path in that time.").wait_for()


def test_older_changes_page_by_page(page: Page, url: str, api: FakeApi) -> None:
    log = api.answers["failover-log"]
    newest = log.events[-1]
    api.answers["failover-log"] = msgspec.structs.replace(
        log,
        events=tuple(
            msgspec.structs.replace(newest, job=f"j{n}", ts_ns=newest.ts_ns - (MANY - n) * S)
            for n in range(MANY)
        ),
    )
    enter(page, url, view="traffic")
    seen: set[str] = set()
    for left in (MANY, MANY - PAGE, MANY - 2 * PAGE):
        page.get_by_role("table", name="Failovers").get_by_text(
            f"j{left - 1}", exact=True
        ).wait_for()
        while page.get_by_role("button", name="more of").count():
            page.get_by_role("button", name="more of").click()
        names = rows(page).locator("td:nth-child(3)").all_inner_texts()
        assert len(names) <= PAGE
        seen.update(names)
        if left > PAGE:
            page.get_by_role("button", name="Older").click()
    assert seen == {f"j{n}" for n in range(MANY)}
    assert not page.get_by_role("button", name="Older").count()
    page.get_by_role("button", name="Newest").click()
    page.get_by_role("table", name="Failovers").get_by_text(f"j{MANY - 1}", exact=True).wait_for()
