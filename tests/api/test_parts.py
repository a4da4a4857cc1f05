"""Limits, cursors, events and observations by themselves: time is an argument."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from syntony.api import cursors
from syntony.api.cursors import KEEP_NS, Cursors
from syntony.api.events import MAX_EVENTS, MAX_QUEUED, EventHub, Viewer
from syntony.api.identity import MAX_KEYS, RateLimiter
from syntony.api.serve import CONNECTIONS, limited
from syntony.api.topics import MAX_NAMED, TopicState, changed
from syntony.model import S

KEY = ("viewer", "v", "/api/v1/changes")


# --- connections ---


@pytest.mark.parametrize(("open_", "status"), [(2, 200), (3, 503)])
def test_requests_beyond_so_many_connections_are_told_so(open_: int, status: int) -> None:
    sent: list[dict[str, Any]] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "state": {CONNECTIONS: set(range(open_))}}
    asyncio.run(limited(app, most=2)(scope, None, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == status
    if status == 503:
        headers = dict(sent[0]["headers"])
        assert headers[b"content-type"] == b"application/problem+json"
        assert headers[b"retry-after"] == b"5"


# --- rate limits ---


def test_a_burst_is_allowed_then_the_rate() -> None:
    limiter = RateLimiter(2.0, 3)
    for _ in range(3):
        assert limiter.wait_ns("a", 0) == 0
        limiter.count("a", 0)
    assert limiter.wait_ns("a", 0) == S // 2
    assert limiter.wait_ns("a", S // 2 - 10) > 0
    assert limiter.wait_ns("a", S // 2 + 1) == 0
    assert limiter.wait_ns("b", 0) == 0, "others are not limited with it"


def test_no_more_than_a_burst_is_saved_up() -> None:
    limiter = RateLimiter(1.0, 2)
    limiter.count("a", 0)
    for _ in range(2):
        assert limiter.wait_ns("a", 100 * S) == 0
        limiter.count("a", 100 * S)
    assert limiter.wait_ns("a", 100 * S) > 0


def test_a_flood_of_names_takes_no_memory() -> None:
    limiter = RateLimiter(1.0, 1)
    for number in range(3 * MAX_KEYS):
        limiter.count(str(number), number)
    assert len(limiter._buckets) == MAX_KEYS


# --- cursors ---


def test_an_answer_of_one_page_has_no_cursor() -> None:
    assert Cursors().first(KEY, [b"a"], 0) == (b"a", "")


def test_pages_follow_each_other_and_can_be_fetched_again() -> None:
    kept = Cursors()
    body, cursor = kept.first(KEY, [b"a", b"b", b"c"], 0)
    assert body == b"a"
    for _ in range(2):
        second = kept.page(KEY, cursor, 1)
        assert second is not None
        assert second.body == b"b"
        assert kept.page(KEY, second.next_cursor, 1) == (b"c", "")


def test_a_cursor_is_its_owners_for_its_route_and_for_a_while() -> None:
    kept = Cursors()
    _, cursor = kept.first(KEY, [b"a", b"b"], 0)
    assert kept.page(("operator", "v", KEY[2]), cursor, 1) is None
    assert kept.page((*KEY[:2], "/api/v1/moves"), cursor, 1) is None
    assert kept.page(KEY, cursor, KEEP_NS - 1) is not None, "used: kept as long again"
    assert kept.page(KEY, cursor, 2 * KEEP_NS - 2) is not None
    assert kept.page(KEY, cursor, 3 * KEEP_NS) is None


@pytest.mark.parametrize("cursor", ["", "x", "x.1", ".", "{}.9", "{}.-1", "{}.²", "{}." + "9" * 99])
def test_made_up_cursors_are_none(cursor: str) -> None:
    kept = Cursors()
    name = kept.first(KEY, [b"a", b"b"], 0).next_cursor.partition(".")[0]
    assert kept.page(KEY, cursor.format(name), 0) is None


def test_kept_pages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "MAX_BYTES", 10)
    kept = Cursors()
    old = kept.first(KEY, [b"aaaa", b"bbbb"], 0).next_cursor
    new = kept.first(KEY, [b"cccc", b"dddd"], 1).next_cursor
    assert kept.page(KEY, old, 1) is None
    assert kept.page(KEY, new, 1) is not None


# --- events ---


@pytest.mark.parametrize(
    ("before", "now", "names"),
    [
        ({}, {}, []),
        ({}, {"a": 1}, ["a"]),
        ({"a": 1}, {}, ["a"]),
        ({"a": None}, {}, ["a"]),
        ({}, {"a": None}, ["a"]),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}, ["b", "c"]),
    ],
)
def test_changed_names(before: dict[str, object], now: dict[str, object], names: list[str]) -> None:
    assert changed(before, now) == names


async def nothing() -> dict[str, TopicState]:
    return {}


def on_loop(play: Callable[[EventHub], Awaitable[None]]) -> None:
    async def run() -> None:
        await play(EventHub(nothing))

    asyncio.run(run())


def fleet(**hosts: int) -> dict[str, TopicState]:
    return {"fleet": TopicState(hosts, {"hosts": len(hosts)})}


def read(viewer: Viewer) -> list[tuple[str, str, dict[str, object]]]:
    """(id, event, data) of what is queued."""
    found = []
    while not viewer.queue.empty():
        data = viewer.queue.get_nowait()
        assert data is not None
        assert data.endswith(b"\n\n")
        fields = dict(line.split(": ", 1) for line in data.decode().strip().split("\n"))
        payload = msgspec.json.decode(fields["data"], type=dict[str, object])
        found.append((fields["id"], fields["event"], payload))
    return found


def test_a_change_is_told_once_with_what_changed() -> None:
    async def play(hub: EventHub) -> None:
        viewer = hub.join("")
        hub.take(fleet(h0=1))
        hub.take(fleet(h0=1))
        hub.take(fleet(h0=1, h1=1))
        (_, topic, first), (_, _, second) = read(viewer)
        assert topic == "fleet"
        assert first == {"revision": 1, "hosts": 1, "changed": ["h0"], "changed_count": 1}
        assert second == {"revision": 2, "hosts": 2, "changed": ["h1"], "changed_count": 1}

    on_loop(play)


def test_whoever_comes_back_is_told_what_it_missed() -> None:
    async def play(hub: EventHub) -> None:
        viewer = hub.join("")
        for number in range(5):
            hub.take(fleet(h0=number))
        told = read(viewer)
        for index, (last_id, _, _) in enumerate(told):
            assert read(hub.join(last_id)) == told[index + 1 :]

    on_loop(play)


@pytest.mark.parametrize("last_id", ["", "other-1", "nonsense", "{}-99", "{}-x", "{}--1", "{}-²"])
def test_others_get_the_newest_of_each_topic(last_id: str) -> None:
    async def play(hub: EventHub) -> None:
        hub.take(fleet(h0=1))
        hub.take(fleet(h0=2) | {"jobs": TopicState({}, {"running": 0})})
        told = read(hub.join(last_id.format(hub._epoch)))
        assert [(topic, data["revision"]) for _, topic, data in told] == [("fleet", 2), ("jobs", 1)]

    on_loop(play)


def test_an_id_that_is_too_old_gets_the_newest() -> None:
    async def play(hub: EventHub) -> None:
        hub.take(fleet(h0=0))
        for number in range(MAX_EVENTS + 1):
            hub.take(fleet(h0=number + 1))
        told = read(hub.join(f"{hub._epoch}-1"))
        assert [data["revision"] for _, _, data in told] == [MAX_EVENTS + 2]
        assert len(read_many(hub, f"{hub._epoch}-2")) == 0

    on_loop(play)


def read_many(hub: EventHub, last_id: str) -> list[bytes]:
    """A viewer that missed more than may wait is hung up on at once, with what fitted."""
    viewer = hub.join(last_id)
    assert viewer.ended
    assert viewer.queue.qsize() == MAX_QUEUED + 1
    return []


def test_a_slow_viewer_is_hung_up_on_and_others_are_not() -> None:
    async def play(hub: EventHub) -> None:
        slow, quick = hub.join(""), hub.join("")
        for number in range(MAX_QUEUED + 5):
            hub.take(fleet(h0=number))
            if number % 10 == 0:
                read(quick)
        assert slow.ended
        assert not quick.ended
        hub.close()
        assert quick.ended

    on_loop(play)


def test_many_changes_are_counted_not_named() -> None:
    async def play(hub: EventHub) -> None:
        viewer = hub.join("")
        hub.take(fleet(**{f"h{number}": 1 for number in range(MAX_NAMED + 7)}))
        ((_, _, data),) = read(viewer)
        assert data["changed_count"] == MAX_NAMED + 7
        assert len(data["changed"]) == MAX_NAMED  # type: ignore[arg-type]

    on_loop(play)


def test_one_look_serves_all_and_none_is_made_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syntony.api.events.INTERVAL_NS", 1_000_000)
    looks = 0
    thrice = asyncio.Event()

    async def observe() -> dict[str, TopicState]:
        nonlocal looks
        looks += 1
        if looks == 3:
            thrice.set()
        return fleet(h0=looks)

    async def play() -> None:
        hub = EventHub(observe)
        task = asyncio.create_task(hub.run())
        await asyncio.sleep(0.05)
        assert looks == 0
        viewers = [hub.join("") for _ in range(50)]
        await thrice.wait()
        first = read(viewers[0])
        assert len(first) >= 2
        assert all(read(viewer)[: len(first)] == first for viewer in viewers[1:])
        for viewer in viewers:
            hub.leave(viewer)
        await asyncio.sleep(0.02)
        before = looks
        await asyncio.sleep(0.05)
        assert looks == before
        task.cancel()

    asyncio.run(play())
