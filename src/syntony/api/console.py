"""Serves the console's files; if they were not built, a page that says how to build them."""

from __future__ import annotations

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

FILES = Path(__file__).parent / "console"
_INDEX = "index.html"
_HASHED = "assets"
"""Folder of files whose names change with their contents."""
_ABSENT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Syntony</title>
<h1>The console is not part of this installation</h1>
<p>Build it with <code>npm ci &amp;&amp; npm run build</code> in the folder <code>web/</code> of a
checkout, then install again. The API is here all the same: see
<a href="/api/v1/openapi.json">/api/v1/openapi.json</a>.</p></html>
"""


class ConsoleFiles:
    """An ASGI application for all paths outside the API."""

    def __init__(self, files: Path = FILES) -> None:
        self._files = files
        self._served: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not (self._files / _INDEX).is_file():
            await HTMLResponse(_ABSENT)(scope, receive, send)
            return
        if self._served is None:  # it may be built while the controller runs
            self._served = GZipMiddleware(_Files(directory=self._files), minimum_size=1024)
        await self._served(scope, receive, send)


class _Files(StaticFiles):
    """Serves files; any other path gets the console's page, which handles the path itself."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            response = await super().get_response(path, scope)
            hashed = Path(path).parts[:1] == (_HASHED,)
        except HTTPException as error:
            if error.status_code != 404 or "." in Path(path).name:
                raise
            response, hashed = await super().get_response(_INDEX, scope), False
        if path == ".":
            response = await super().get_response(_INDEX, scope)
        caching = "public, max-age=31536000, immutable" if hashed else "no-cache"
        response.headers["Cache-Control"] = caching
        return response
