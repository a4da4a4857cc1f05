"""A headless Chromium on the console, for tests and for the bench; skipped where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking"]  # fmt: skip
PATIENCE_MS = 60_000
"""On a machine that does ten other things as well."""
SIZE = (1440, 900)


def chromium() -> str:
    """Path of the browser; empty where there is none."""
    named = os.environ.get("SYNTONY_CHROMIUM", "")
    return named or shutil.which("chromium") or shutil.which("chromium-browser") or ""


@contextmanager
def browser() -> Iterator[Browser]:
    """One that is ended afterwards. Skips the test without Chromium, or without Playwright."""
    api = pytest.importorskip(
        "playwright.sync_api",
        reason="needs Playwright (make dev): the console is NOT tested in a browser",
    )
    if not chromium():
        pytest.skip(
            "needs Chromium (Debian: chromium, or SYNTONY_CHROMIUM): the console is NOT tested "
            "in a browser"
        )
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        try:
            yield found
        finally:
            found.close()


def new_page(found: Browser, *, dark: bool = False) -> Page:
    """A page with cookies of its own."""
    context = found.new_context(
        viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="dark" if dark else "light",
        timezone_id="UTC", reduced_motion="reduce",
    )  # fmt: skip
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    return page


def enter(page: Page, url: str, role: str = "operator", view: str = "overview") -> None:
    """Log in by the address, as a link from the command line does, and open a view."""
    page.goto(f"{url}/#token={role}&to=%2F{view}")
    page.get_by_role("navigation", name="Views").wait_for()
