"""The console in a browser, over a made-up fleet: keyboard, map, widths, accessibility."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.console.browser import enter, new_page
from tests.console.fleet import BAD, Shape
from tests.console.server import FakeApi, Serving
from tests.console.views import VIEWS, goto

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"


def test_keyboard_only(page: Page, url: str, api: FakeApi) -> None:
    enter(page, url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the view"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    goto(page, "delay")
    page.get_by_role("application").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    page.get_by_role("status").get_by_text(" to h").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_function("location.hash.startsWith('#/delay/h')")
    goto(page, "fabric")
    page.get_by_role("application").focus()
    page.wait_for_selector("canvas[data-detail]")
    for _ in range(6):
        page.keyboard.press("-")
    page.wait_for_selector("canvas[data-detail=nics]")
    page.keyboard.press("0")
    page.wait_for_selector("canvas[data-detail=names]")
    goto(page, "traffic")
    page.get_by_role("button", name="Stop all traffic control…").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert api.orders == []


REACHED = """() => {
  const seen = window.reached ??= new Set();
  seen.add(document.activeElement);
  const kinds = ['a[href]', 'button', 'input', 'select', 'summary', '[tabindex="0"]'];
  const all = [...document.querySelectorAll(kinds.map(each => `main ${each}`).join())];
  const open = all.filter(each => !each.disabled && each.checkVisibility());
  return open.filter(each => !seen.has(each)).map(each => each.outerHTML.slice(0, 120));
}"""
"""What of the view the keyboard can reach and has not yet."""
MOST_TABS = 600


@pytest.mark.parametrize("view", VIEWS)
def test_tab_reaches_everything_in_a_view(page: Page, url: str, view: str) -> None:
    enter(page, url)
    goto(page, view)
    page.get_by_text(VIEWS[view]).first.wait_for()
    page.wait_for_timeout(300)
    left = page.evaluate(REACHED)
    for _ in range(MOST_TABS):
        if not left:
            break
        page.keyboard.press("Tab")
        left = page.evaluate(REACHED)
    assert left == [], view
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none", "where the focus is can be seen"


def test_find_a_device_and_open_its_page(page: Page, url: str) -> None:
    enter(page, url, view="fabric")
    page.get_by_label("Find a device").fill(BAD)
    page.keyboard.press("Enter")
    page.wait_for_function("location.hash.includes('at=h5')")
    canvas = page.get_by_role("application")
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": box["width"] / 2, "y": box["height"] / 2})
    page.get_by_text("What happened to the port").wait_for()
    assert page.evaluate("decodeURIComponent(location.hash)") == f"#/fabric/{BAD}"


@pytest.mark.parametrize("zoom", [0, 3, 9])
def test_a_map_that_was_dragged_is_the_map_drawn_there(chrome: Browser, zoom: int) -> None:
    serving = Serving(FakeApi(Shape(hosts=160, rails=4, leaves=10, spines=8))).started()
    page = new_page(chrome)
    try:
        enter(page, serving.url, view="fabric")
        page.wait_for_selector("canvas[data-detail]")
        page.wait_for_timeout(2_000)
        canvas = page.get_by_role("application")
        canvas.focus()
        for _ in range(zoom):
            page.keyboard.press("+")
        before = pixels(page)
        box = canvas.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 300, box["y"] + 200)
        page.mouse.down()
        for x, y in ((331, 200), (340, 217), (250, 290), (251, 180), (700, 260), (333, 231)):
            page.mouse.move(box["x"] + x, box["y"] + y)
            pixels(page)
        page.mouse.up()
        page.mouse.move(0, 0)
        dragged = pixels(page)
        page.get_by_role("button", name="Loss", exact=True).click()
        assert pixels(page) != dragged
        page.get_by_role("group", name="Colour by").get_by_text("State").click()
        assert pixels(page) == dragged != before
    finally:
        page.context.close()
        serving.end()


def pixels(page: Page) -> str:
    """What the map's canvas shows, once a frame has been drawn."""
    found: str = page.evaluate(
        """async () => {
            for (let n = 0; n < 3; n++) await new Promise(requestAnimationFrame);
            return document.querySelector("canvas").toDataURL(); }"""
    )
    return found


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_nothing_is_wider_than_the_screen(page: Page, url: str, width: int) -> None:
    """What is wide scrolls within its panel (WCAG 2.2, 1.4.10); also logging out can be reached."""
    enter(page, url)
    page.set_viewport_size({"width": width, "height": 844})
    for view, text in VIEWS.items():
        goto(page, view)
        page.get_by_text(text).first.wait_for()
        assert page.evaluate(WIDER) == [], view
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Token").wait_for()


WIDER = """async () => {
  await new Promise(requestAnimationFrame);
  const clips = (e) => getComputedStyle(e).overflowX !== 'visible';
  const scrolls = (e) => e && (clips(e) || scrolls(e.parentElement));
  return [...document.querySelectorAll('body *')]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e.parentElement))
    .map(e => `${e.tagName}.${e.className} ${e.textContent.slice(0, 40)}`);
}"""
"""What sticks out of the page, and is in nothing that scrolls."""


@pytest.mark.parametrize("dark", [False, True])
def test_accessible(chrome: Browser, url: str, api: FakeApi, dark: bool) -> None:
    if not AXE.is_file():
        pytest.skip(
            "needs axe-core (`make web` fetches it): the console's accessibility is NOT tested"
        )
    page = new_page(chrome, dark=dark)
    api.provider = "Example SSO"
    page.goto(url)
    page.get_by_role("link", name="Log in with Example SSO").wait_for()
    assert barriers(page) == []
    page.goto("about:blank")
    enter(page, url)
    for view, text in VIEWS.items():
        goto(page, view)
        page.get_by_text(text).first.wait_for()
        page.wait_for_timeout(300)
        assert barriers(page) == [], view
    page.context.close()


def barriers(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds against WCAG 2.2, levels A and AA."""
    page.evaluate(f"window.axe || (() => {{ {AXE.read_text()} }})()")
    found = page.evaluate(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']})"
    )
    return [
        (each["id"], [node["html"][:160] for node in each["nodes"][:3]])
        for each in found["violations"]
    ]
