"""The API as the console sees it, over answers of a made-up fleet: for tests and for development.

``python -m tests.console.server PORT`` serves it; log in with the token ``operator`` or ``viewer``.
Sessions, CSRF, problem details and headers are as the controller's; nothing is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from tests.console.fleet import Shape, answers
from tests.console.fleet_work import audit_view
from tests.ports import free_port

from syntony.api.console import ConsoleFiles
from syntony.api.serve import with_headers
from syntony.wire.failover import FailoverLog, FailoverStatus, Switch

CSRF = "csrf-of-the-test"
ORDERS = ("switch", "placement", "incident-action", "silence-action", "audit")


class FakeApi:
    """One fleet, and what tests do to it.

    Args:
        shape: of the fleet.
        now_ns: the instant of its answers; 0: now.
    """

    def __init__(self, shape: Shape | None = None, now_ns: int = 0) -> None:
        self.shape = shape or Shape()
        # By a browser's clock, unless that was set, too.
        self.answers = answers(now_ns or time.time_ns(), self.shape)  # noqa: TID251
        self.orders: list[tuple[str, dict[str, Any]]] = []
        """What was ordered, by name."""
        self.asked: list[str] = []
        """Paths of questions, in order."""
        self.failing: dict[str, tuple[int, str]] = {}
        """Route to the status and reason with which it is refused."""
        self.role = ""
        self.ends_ns = 0
        """Of the session; 0: in twelve hours."""
        self.provider = ""
        """What the login page calls it; empty: there is none."""
        self.vouched = False
        """Whether who is logged in came by it."""
        self.away = False
        """Streams end and every request is refused: a controller that restarts."""
        self._streams: set[asyncio.Queue[bytes]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.app = with_headers(
            Starlette(
                routes=[
                    Route("/api/v1/session", self._session, methods=["GET", "POST", "DELETE"]),
                    Route("/api/v1/events", self._events),
                    Route("/api/v1/oidc", self._offer),
                    Route("/api/v1/oidc/login", self._by_provider),
                    Route("/api/v1/oidc/logout", self._end_at_provider),
                    Route("/api/v1/{name}", self._question, methods=["GET"]),
                    Route("/api/v1/{name}", self._order, methods=["POST"]),
                    Mount("/", ConsoleFiles()),
                ]
            )
        )

    def announce(self, topic: str) -> None:
        """Send an event to every viewer."""
        assert self._loop is not None
        data = f"id: 1-{len(self.asked)}\nevent: {topic}\ndata: {{}}\n\n".encode()
        for stream in list(self._streams):
            self._loop.call_soon_threadsafe(stream.put_nowait, data)

    def drop(self) -> None:
        """End every stream and answer nothing any more."""
        self.away = True
        if self._loop is None:
            return
        for stream in list(self._streams):
            self._loop.call_soon_threadsafe(stream.put_nowait, b"")

    # --- endpoints ---

    async def _session(self, request: Request) -> Response:
        if self.away:
            return problem(503, "the controller is starting")
        if request.method == "POST":
            token = (await request.json())["token"]
            if token not in {"operator", "viewer"}:
                return problem(401, "the token is not known, or was used")
            self.role = token
        if not self.role:
            return problem(401, "log in first")
        if request.method == "DELETE":
            self.role = ""
            return Response(status_code=204)
        ends_ns = self.ends_ns or time.time_ns() + 12 * 3600 * 10**9  # noqa: TID251
        view = {
            "role": self.role, "name": "alice", "csrf": CSRF, "expires_ns": ends_ns,
            "by_provider": self.vouched,
        }  # fmt: skip
        return _json(view)

    async def _offer(self, _: Request) -> Response:
        return _json({"offered": bool(self.provider), "label": self.provider})

    async def _by_provider(self, _: Request) -> Response:
        """As if the provider had sent the browser back."""
        self.role, self.vouched = "viewer", True
        return RedirectResponse("/", 303)

    async def _end_at_provider(self, _: Request) -> Response:
        self.asked.append("logout at the provider")
        self.vouched = False
        return RedirectResponse("/", 303)

    async def _events(self, request: Request) -> Response:
        refused = self._refused("events")
        if refused is not None:
            return refused
        self._loop = asyncio.get_running_loop()
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[bytes]:
        stream: asyncio.Queue[bytes] = asyncio.Queue()
        self._streams.add(stream)
        try:
            yield b"retry: 500\n\n"
            while data := await stream.get():
                yield data
        finally:
            self._streams.discard(stream)

    async def _question(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.asked.append(request.url.path)
        refused = self._refused(name)
        if refused is not None:
            return refused
        if name not in self.answers:
            return problem(404, f"there is no /api/v1/{name}")
        answer = self.answers[name]
        if name == "incidents" and (number := int(request.query_params.get("number", 0))):
            of_one = [i for i in answer.incidents if number in {i["number"], i["cause"]}]
            answer = msgspec.structs.replace(answer, incidents=tuple(of_one))
        if name == "failover-log":
            answer = asked_for(answer, dict(request.query_params))
        return _json(answer)

    async def _order(self, request: Request) -> Response:
        name = request.path_params["name"]
        refused = self._refused(name)
        if refused is not None:
            return refused
        if name not in ORDERS:
            return problem(405, f"{name} is no order")
        if request.headers.get("x-syntony-csrf") != CSRF:
            return problem(403, "the header X-Syntony-CSRF is wrong")
        if self.role != "operator":
            return problem(403, f"{name} needs the role operator; 'alice' has {self.role}")
        body = await request.json()
        self.orders.append((name, body))
        return _json(self._carry_out(name, body))

    def _carry_out(self, name: str, body: dict[str, Any]) -> Any:
        now_ns = time.time_ns()  # noqa: TID251
        if name == "switch":
            status: FailoverStatus = self.answers["failover-status"]
            thrown = Switch(stopped=body["stopped"], at_ns=now_ns, by=body["by"])
            self.answers["failover-status"] = msgspec.structs.replace(status, switch=thrown)
            self.announce("switch")
        if name == "audit":
            hosts = tuple(f"h{host}" for host in range(self.shape.hosts))
            self.answers["audit-view"] = audit_view(now_ns, self.shape.hosts, hosts)
            return {"order": "b" * 32, "hosts": hosts, "absent": ()}
        return {}

    def report(self, waiting: tuple[str, ...]) -> None:
        """Hosts of the audit that have not answered yet; the others have."""
        now_ns = time.time_ns()  # noqa: TID251
        self.answers["audit-view"] = audit_view(now_ns, self.shape.hosts, waiting)

    def _refused(self, name: str) -> Response | None:
        if self.away:
            return problem(503, "the controller is starting")
        if not self.role:
            return problem(401, "log in first")
        if name in self.failing:
            return problem(*self.failing[name])
        return None


def asked_for(log: FailoverLog, given: dict[str, str]) -> FailoverLog:
    """The rows that a controller would answer with."""
    end_ns = int(given.get("end_ns", 0)) or time.time_ns()  # noqa: TID251
    first_ns = end_ns - int(given.get("window_ns", 3600 * 10**9))
    events = [
        each for each in log.events
        if first_ns <= each.ts_ns <= end_ns
        and given.get("job", each.job) == each.job and given.get("host", each.host) == each.host
    ]  # fmt: skip
    return FailoverLog(events=tuple(events[-int(given.get("limit", 1000)) :]))


def problem(status: int, detail: str) -> Response:
    """RFC 9457."""
    body = {"type": "about:blank", "title": "refused", "status": status, "detail": detail}
    return Response(msgspec.json.encode(body), status, media_type="application/problem+json")


def _json(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


class Serving:
    """The fake API on a free port, from a thread, until `end`."""

    def __init__(self, api: FakeApi, port: int = 0) -> None:
        self.port = port or free_port()
        self._api = api
        config = uvicorn.Config(
            api.app, port=self.port, log_level="warning", lifespan="off", ws="none",
            timeout_graceful_shutdown=5,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def started(self, wait: Callable[[float], None] = time.sleep) -> Serving:
        """Itself, once it answers."""
        while not self._server.started:
            wait(0.05)
        return self

    def end(self) -> None:
        """Stop serving."""
        self._api.drop()
        self._server.should_exit = True
        self._thread.join(10)


if __name__ == "__main__":
    serving = Serving(FakeApi(), int(sys.argv[1]) if len(sys.argv) > 1 else 8787)
    print(f"{serving.started().url}/#token=operator", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
    serving.end()
