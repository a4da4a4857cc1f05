"""What a gateway's API is made of, in memory: a leader that is as wanted, events, sessions told."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
import pytest
from starlette.types import ASGIApp
from tests.api.test_console import fetch
from tests.api.test_parts import fleet, read
from tests.controller.test_gateways import HELLO, Leader, drive, until

from syntony.api import gateway_app, relay
from syntony.api.events import EventHub, FollowedEvents
from syntony.api.gateway_app import GatewayApi
from syntony.api.routes import ROUTES
from syntony.api.topics import TopicState
from syntony.controller import gateways as gateways_module
from syntony.controller.access_tokens import ReplicatedAccess, csrf_token
from syntony.errors import BusyError, RemoteError, UsageError
from syntony.state.access_tokens import ApiSecret, SecretKind
from syntony.wire.gateways import (
    AccessNews,
    ApiAccess,
    ApiHead,
    ApiRequest,
    LiveEvent,
    decode_head,
)
from syntony.wire.rest import CSRF, EVENTS, OIDC_DEVICE, OIDC_DEVICE_TOKEN, PREFIX, SESSION

NOW_NS, LATER_NS = 10, 1_000
SHARED = sorted(path for (_, path), route in ROUTES.items() if route.question.shared)
OTHERS = sorted((m, path) for (m, path), route in ROUTES.items() if not route.question.shared)


def access(
    secret: str, number: int = 1, kind: SecretKind = SecretKind.TOKEN, role: str = "viewer"
) -> ApiSecret:
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return ApiSecret(digest, number, kind, 0, role, "v", "", 0, LATER_NS)


def told(*known: ApiSecret, first: bool = False, gone: tuple[str, ...] = ()) -> AccessNews:
    rows = tuple(ApiAccess(e.digest, e.number, e.kind, e.parent, e.role, e.name, e.expires_ns)
                 for e in known)  # fmt: skip
    return AccessNews(known=rows, gone=gone, first=first)


# --- sessions, as a leader tells of them ---


def test_a_gateway_knows_what_it_was_told_and_until_when() -> None:
    now = [NOW_NS]
    mirror = ReplicatedAccess(lambda: now[0])
    mirror.take(told(access("a"), access("s", 2, SecretKind.SESSION), first=True))
    assert (mirror.find("a").number, mirror.find("s").kind) == (1, "session")
    mirror.take(told(access("b", 3), gone=(access("a").digest,)))
    assert mirror.find("b").number == 3
    assert not mirror.is_valid(access("a"))
    with pytest.raises(UsageError, match="not known"):
        mirror.find("a")
    now[0] = LATER_NS
    with pytest.raises(UsageError, match="expired"):
        mirror.find("s")
    mirror.take(told(first=True))
    with pytest.raises(UsageError, match="not known"):
        mirror.find("s")


@pytest.mark.parametrize("seed", range(5))
def test_differences_make_the_same_of_any_course(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(gateways_module, "MAX_ENTRIES", 3)
    draw = random.Random(seed)

    async def work() -> None:
        leader = Leader()
        serving = leader.serve()
        leader.say(HELLO)
        await until(lambda: len(leader.sent) == 2)
        mirror, seen = ReplicatedAccess(lambda: NOW_NS), 2
        for _ in range(30):
            numbers = draw.sample(range(12), draw.randrange(13))
            is_valid = [
                access(str(n), n, role=draw.choice(["viewer", "operator"])) for n in numbers
            ]
            wanted = {each.digest: each for each in is_valid}
            leader.gateways.send_state(None, lambda _: "", (), wanted)
            await asyncio.sleep(0)
            await until(lambda: not leader.gateways._known["gw1"].link._writer._queued_bytes)  # type: ignore[union-attr]
            for message in leader.sent[seen:]:
                mirror.take(message)
            seen = len(leader.sent)
            assert mirror._known == wanted, f"seed {seed}"
        leader.gateways.send_state(None, lambda _: "", (), wanted)
        await asyncio.sleep(0.01)
        assert len(leader.sent) == seen, "nothing changed, nothing is said"
        serving.cancel()

    drive(work)


# --- requests that are passed on ---


class FakeHub:
    """A gateway as its API knows it, and a leader that echoes."""

    leader_hint = "the leader, c1 at c1:1"

    def __init__(self, *known: ApiSecret, led: bool = True) -> None:
        self.access = ReplicatedAccess(lambda: NOW_NS)
        self.access.take(told(*known, first=True))
        self.led = led
        self.asked: list[ApiRequest] = []
        self.answered: list[Any] = []
        self.held: asyncio.Event | None = None

    def refusal(self, certificate: object) -> str:
        raise AssertionError

    async def carry_out(self, query: Any, who: Any, render: Callable[[Any], list[bytes]]) -> Any:
        self.answered.append((type(query).__name__, who.identity))
        return [b"{}"]

    async def ask_leader(self, request: ApiRequest) -> tuple[ApiHead, bytes]:
        self.asked.append(request)
        if self.held is not None:
            await self.held.wait()
        headers = ((b"content-type", b"application/json"), (b"set-cookie", b"a=1; HttpOnly"),
                   (b"Content-Length", b"999"), (b"x-syntony-next-cursor", b"c"))  # fmt: skip
        return ApiHead(status=207, headers=headers), request.body or b"[1]"

    async def events_after(self, last_id: str) -> list[LiveEvent]:
        raise BusyError("none")

    @property
    def api(self) -> GatewayApi:
        return GatewayApi(cast("Any", self))


def request(
    method: str = "GET",
    path: str = SESSION,
    headers: Mapping[str, str] = {},
    body: bytes = b"",
) -> ApiRequest:
    raw = tuple((name.lower().encode(), value.encode()) for name, value in headers.items())
    return ApiRequest(
        method=method, scheme="http", host="127.0.0.1", port=80, path=path, query=b"",
        headers=raw, body=body, client="10.0.0.1", client_port=9,
    )  # fmt: skip


def call(app: ASGIApp, asked: ApiRequest) -> tuple[int, Mapping[bytes, bytes], bytes]:
    async def work() -> list[bytes]:
        return await relay.carry_out(app, asked, "gw")

    first, *body = asyncio.run(work())
    head = decode_head(first)
    assert isinstance(head, ApiHead)
    return head.status, dict(head.headers), b"".join(body)


def as_v(secret: str = "t") -> dict[str, str]:  # noqa: S107 - none
    return {"authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("path", SHARED)
def test_what_the_store_knows_asks_no_leader(path: str) -> None:
    hub = FakeHub(access("t"), led=False)
    call(hub.api.app, request("GET", path, as_v()))
    assert hub.asked == []
    found = call(hub.api.app, request("GET", f"{PREFIX}/matrix", as_v()))
    assert (found[0], hub.answered[-1]) == (200, ("MatrixQuery", ("viewer", "v")))


def test_the_console_asks_no_leader() -> None:
    hub = FakeHub(led=False)
    page = fetch(hub.api.app, "/incidents")
    assert (page.status, page.headers[b"content-type"]) == (200, b"text/html; charset=utf-8")
    assert (b"<html" in page.body, hub.asked) == (True, [])


@pytest.mark.parametrize(("method", "path"), OTHERS)
def test_everything_else_goes_to_the_leader_or_names_it(method: str, path: str) -> None:
    hub = FakeHub(access("t"))
    headers = as_v() | {"content-type": "application/json", "x-forwarded-for": "1", "host": "x"}
    asked = request(method, path, headers, b"{}" if method == "POST" else b"")
    status, got, body = call(hub.api.app, asked)
    assert (status, body) == (207, b"{}" if method == "POST" else b"[1]")
    assert got[b"set-cookie"] == b"a=1; HttpOnly"
    assert got[b"content-length"] == str(len(body)).encode()
    assert got[b"x-syntony-next-cursor"] == b"c"
    (passed,) = hub.asked
    assert {name for name, _ in passed.headers} == {b"authorization", b"content-type"}
    assert (passed.client, passed.port, passed.method) == ("10.0.0.1", 80, method)
    assert hub.answered == []
    hub.led = False
    status, got, body = call(hub.api.app, asked)
    problem = msgspec.json.decode(body)
    assert (status, problem["type"]) == (503, "urn:syntony:problem:leader")
    assert "ask the leader, c1 at c1:1" in problem["detail"]
    assert got[b"retry-after"] == b"2"


@pytest.mark.parametrize("path", [OIDC_DEVICE, OIDC_DEVICE_TOKEN])
def test_a_login_by_device_is_the_leaders(path: str) -> None:
    """Nobody has a token yet."""
    hub = FakeHub(access("t"))
    asked = request("POST", path, {"content-type": "application/json"}, b"{}")
    assert call(hub.api.app, asked)[0] == 207
    hub.led = False
    assert call(hub.api.app, asked)[0] == 503


def test_who_is_unknown_here_may_be_known_to_the_leader() -> None:
    hub = FakeHub(access("t"), access("s", 2, SecretKind.SESSION))
    api = hub.api
    for path in (f"{PREFIX}/matrix", SESSION, f"{PREFIX}/openapi.json"):
        for secret, local in (("t", True), ("young", False), ("s", False)):
            before = len(hub.asked)
            call(api.app, request("GET", path, as_v(secret)))
            assert (len(hub.asked) == before) is local, (path, secret)
    status, _, body = call(api.app, request("GET", SESSION, {"cookie": "syntony-80=s"}))
    assert status == 200
    assert msgspec.json.decode(body)["csrf"] == csrf_token("s")
    before = len(hub.asked)
    for method in ("POST", "DELETE"):
        call(api.app, request(method, SESSION, {"cookie": "syntony-80=s", CSRF: "x"}, b"{}"))
    assert [each.method for each in hub.asked[before:]] == ["POST", "DELETE"]
    assert dict(hub.asked[-1].headers) == {b"cookie": b"syntony-80=s", CSRF.lower().encode(): b"x"}


def test_who_shows_nothing_is_refused_here(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub()
    for path in (f"{PREFIX}/matrix", f"{PREFIX}/fleet", SESSION, EVENTS):
        asked = request("GET", path)
        if path == EVENTS:
            monkeypatch.setattr(relay, "EVENTS", "")
        assert call(hub.api.app, asked)[0] == 401
    assert hub.asked == []


def test_requests_that_wait_for_the_leader_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_app, "MAX_FORWARDED", 3)

    async def work() -> None:
        hub = FakeHub(access("t"))
        hub.held, api = asyncio.Event(), hub.api
        asked = request("GET", f"{PREFIX}/fleet", as_v())
        waiting = [asyncio.create_task(relay.carry_out(api.app, asked, "")) for _ in range(3)]
        await until(lambda: len(hub.asked) == 3)
        head = decode_head((await relay.carry_out(api.app, asked, ""))[0])
        assert isinstance(head, ApiHead)
        assert head.status == 503
        hub.held.set()
        await asyncio.gather(*waiting)
        head = decode_head((await relay.carry_out(api.app, asked, ""))[0])
        assert isinstance(head, ApiHead)
        assert head.status == 207

    asyncio.run(asyncio.wait_for(work(), 30))


@pytest.mark.parametrize("path", ["/", "/assets/x.js", "/api/v2/x", EVENTS, f"{PREFIX}"])
def test_a_leader_carries_out_nothing_else_for_gateways(path: str) -> None:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise AssertionError

    with pytest.raises(RemoteError, match="the API alone"):
        call(app, request("GET", path))


def test_a_defect_of_the_leader_is_an_answer() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})
        raise ValueError("a bug")

    assert call(app, request())[::2] == (500, b"x")


# --- live events ---


async def nothing() -> dict[str, TopicState]:
    return {}


def test_viewers_of_gateways_get_the_leaders_events_once_and_go_on_anywhere() -> None:
    async def work() -> None:
        leader = EventHub(nothing)
        asked: list[str] = []

        async def after(last_id: str) -> list[LiveEvent]:
            asked.append(last_id)
            return await leader.after(last_id)

        one, two = FollowedEvents(after), FollowedEvents(leader.after)
        tasks = [asyncio.create_task(each.run()) for each in (one, two)]
        await asyncio.sleep(0.01)
        assert asked == [], "nobody watches"
        direct, viewer, other = leader.join(""), one.join(""), two.join("")
        for number in range(20):
            leader.take(fleet(h0=number))
            await asyncio.sleep(0.001)
        wanted = read(direct)
        await until(lambda: viewer.queue.qsize() == other.queue.qsize() == 20)
        assert read(viewer) == read(other) == wanted
        assert len(asked) <= 22, "one poll for all that came meanwhile"
        middle = wanted[9][0]
        assert read(one.join(middle)) == read(leader.join(middle)) == wanted[10:]
        for task in tasks:
            task.cancel()

    asyncio.run(asyncio.wait_for(work(), 30))


def test_a_viewer_may_be_ahead_of_the_gateway_that_it_comes_to() -> None:
    async def work() -> None:
        leader, gateway = EventHub(nothing), FollowedEvents(lambda _: asyncio.sleep(9, []))
        leader.take(fleet(h0=0))
        gateway.take(await leader.after(""))
        known = read(leader.join(""))[0][0]
        for number in range(3):  # while nobody watches here
            leader.take(fleet(h0=100 + number))
        ahead = read(leader.join(known))
        fresh = FollowedEvents(lambda _: asyncio.sleep(9, []))
        first = fresh.join(ahead[1][0])
        fresh.take(await leader.after(""))
        assert read(first) == ahead[2:]
        viewer, other = gateway.join(ahead[1][0]), gateway.join(known)
        assert read(viewer) == []
        gateway.take(await leader.after(known))
        assert read(viewer) == ahead[2:]
        assert read(other) == ahead
        next_leader = EventHub(nothing)
        next_leader.take(fleet(h0=7))
        gateway.take(await next_leader.after(ahead[-1][0]))
        assert len(read(viewer)) == len(read(other)) == 1

    asyncio.run(work())


def test_events_of_the_next_leader_begin_anew() -> None:
    async def work() -> None:
        leaders = [EventHub(nothing), EventHub(nothing)]
        for number, leader in enumerate(leaders):
            for each in range(3 - number):
                leader.take(fleet(h0=each))
        followed, lost = FollowedEvents(lambda _: asyncio.sleep(9, [])), []
        viewer = followed.join("")
        for leader in leaders:
            followed.take(await leader.after(""))
            followed.take(await leader.after(""))
            lost.append(read(viewer))
        assert [[data["revision"] for _, _, data in each] for each in lost] == [[3], [2]]
        assert read(followed.join(lost[0][0][0])) == lost[1]

    asyncio.run(work())


def test_without_a_leader_streams_end_and_it_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("syntony.api.events.INTERVAL_NS", 1_000_000)

    async def work() -> None:
        asked = 0

        async def after(_: str) -> list[LiveEvent]:
            nonlocal asked
            asked += 1
            if asked < 3:
                raise BusyError("no leader")
            return [LiveEvent(epoch="e", number=1, topic="fleet", data=b"x")]

        followed = FollowedEvents(after)
        viewer = followed.join("")
        task = asyncio.create_task(followed.run())
        assert await viewer.queue.get() is None
        again = followed.join("")
        await until(lambda: asked >= 3)
        while (data := await again.queue.get()) is None:
            again = followed.join("")
        assert data == b"x"
        task.cancel()

    asyncio.run(asyncio.wait_for(work(), 30))


def test_a_poll_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syntony.api.events.WAIT_S", 0.01)

    async def work() -> None:
        leader = EventHub(nothing)
        assert await leader.after("") == []
        assert leader.viewers == 0

    asyncio.run(work())
