"""A browser, and a made-up fleet for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.console.browser import browser, new_page
from tests.console.server import FakeApi, Serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def url(api: FakeApi) -> Iterator[str]:
    serving = Serving(api).started()
    yield serving.url
    serving.end()


@pytest.fixture
def page(chrome: Browser) -> Iterator[Page]:
    found = new_page(chrome)
    yield found
    found.context.close()
