"""The console's files, as they are served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Message

from syntony.api.console import ConsoleFiles


class Got(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def caching(self) -> str:
        return self.headers.get(b"cache-control", b"").decode()


def get(files: Path, path: str) -> Got:
    """One request to the console of a folder."""
    return fetch(Starlette(routes=[Mount("/", ConsoleFiles(files))]), path)


def fetch(app: ASGIApp, path: str) -> Got:
    """One request to an application."""

    async def play() -> list[Message]:
        sent: list[Message] = []
        asked = False

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()  # the client stays
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b"",
                 "root_path": "", "scheme": "http", "server": ("x", 1)}  # fmt: skip
        await asyncio.wait_for(app(scope, receive, send), 60)
        return sent

    sent = asyncio.run(play())
    headers = {name.lower(): value for name, value in sent[0]["headers"]}
    body = b"".join(each.get("body", b"") for each in sent)
    return Got(sent[0]["status"], headers, body)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    built = tmp_path / "console"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<p>console</p>")
    (built / "assets" / "app-1234.js").write_text("1;")
    (tmp_path / "secret.txt").write_text("s3cret")
    return built


def test_without_a_built_console_a_page_says_how_to_get_it(tmp_path: Path) -> None:
    found = get(tmp_path, "/anything")
    assert found.status == 200
    assert b"npm run build" in found.body


@pytest.mark.parametrize("path", ["/", "/index.html", "/jobs/train-7"])
def test_the_pages_own_routes_are_the_page(files: Path, path: str) -> None:
    found = get(files, path)
    assert (found.status, found.caching, found.body) == (200, "no-cache", b"<p>console</p>")


def test_files_named_after_their_contents_stay_cached(files: Path) -> None:
    found = get(files, "/assets/app-1234.js")
    assert (found.status, found.body) == (200, b"1;")
    assert found.caching == "public, max-age=31536000, immutable"


@pytest.mark.parametrize(
    "path", ["/assets/none.js", "/../secret.txt", "/%2e%2e/secret.txt", "/assets/../../secret.txt"]
)
def test_nothing_else_is_served(files: Path, path: str) -> None:
    found = get(files, path)
    assert found.status == 404
    assert b"s3cret" not in found.body
