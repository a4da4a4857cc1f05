"""Requests to a real controller over HTTP: roles, problems, pages, peers that misbehave."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.conftest import ApiController
from tests.doc_tables import allow_list, route_table
from tests.live import eventually
from tests.store.rows import T0, fill, probed, rows_of

from syntony.api.app import HEADERS
from syntony.api.routes import ROUTES, Route
from syntony.client import Client
from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.model import S
from syntony.store import open_store
from syntony.wire.control import ChangesQuery
from syntony.wire.failover import FailoverLogQuery, FailoverStatusQuery, SwitchCommand
from syntony.wire.incidents import RulesQuery
from syntony.wire.messages import FleetQuery
from syntony.wire.query import Query
from syntony.wire.rest import MAX_BODY_BYTES, MAX_WORDS, OPENAPI, PREFIX, WORDS
from syntony.wire.roles import Role
from syntony.wire.tables import PATH_EVENTS

REPO = Path(__file__).parents[2]
ROWS = 10_000
FLEET = f"{PREFIX}/fleet"


@pytest.fixture(scope="module")
def viewer(api: ApiController) -> str:
    return api.token("viewer", "vera")


@pytest.fixture(scope="module")
def operator(api: ApiController) -> str:
    return api.token("operator", "olga")


def test_the_docs_print_the_routes() -> None:
    assert route_table() in (REPO / "docs/reference/api.md").read_text()


def test_roles_may_do_what_the_printed_allow_list_says(
    api: ApiController, viewer: str, operator: str
) -> None:
    """Every route is tried as every role that can have a token; parameters are left out, so that
    an allowed request is refused for those, and nothing is changed."""
    allowed: dict[str, dict[str, bool]] = {}
    for line in allow_list().splitlines()[5:]:
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        allowed[name] = dict(zip(Role, [cell == "yes" for cell in cells], strict=True))
    tried = 0
    for route in ROUTES.values():
        for role, token in ((Role.VIEWER, viewer), (Role.OPERATOR, operator)):
            status = attempt(api, route, token)
            assert (status != 403) == allowed[route.request.__name__][role], (route.path, role)
            assert status in {200, 400, 403}, (route.path, status)
            tried += 1
    assert tried == 2 * len(allowed)


def attempt(api: ApiController, route: Route, token: str) -> int:
    if route.method == "GET":
        return api.call("GET", route.path, token).status
    return api.call("POST", route.path, token, {"no such field": 1}).status


def test_answers_are_those_of_the_other_way_in(api: ApiController, viewer: str) -> None:
    api.call("POST", f"{PREFIX}/switch", api.token("operator", "o2"), {"stopped": False})
    with Client(api.url, token=viewer) as client:
        queries: tuple[Query[Any], ...] = (
            RulesQuery(), FailoverStatusQuery(), ChangesQuery(limit=3),
        )  # fmt: skip
        for query in queries:
            assert client.ask(query) == ask(api.local, query)


def test_an_order_is_logged_with_the_tokens_name_and_address(
    api: ApiController, operator: str
) -> None:
    found = api.call(
        "POST", f"{PREFIX}/switch", operator, {"stopped": True, "why": "hands in the rack"}
    )
    assert found.status == 200
    assert found.json["switch"]["by"] == "olga"
    (*_, change) = ask(api.local, ChangesQuery()).changes
    assert (change.who, change.what, change.comment) == (
        "olga", "failover switch", "hands in the rack",
    )  # fmt: skip
    assert re.fullmatch(r"http 127\.0\.0\.1:\d+", change.origin)
    with Client(api.url, token=operator) as client:
        client.ask(SwitchCommand(stopped=False, by="olga's script", why="done"))
    (*_, change) = ask(api.local, ChangesQuery()).changes
    assert change.who == "olga olga's script"


WRONG = [
    ("GET", f"{PREFIX}/fleets", 404, "unknown", f"see {OPENAPI}"),
    ("GET", "/api/v2/fleet", 404, "unknown", f"see {OPENAPI}"),
    ("POST", FLEET, 405, "method", "is asked by GET"),
    ("DELETE", FLEET, 405, "method", "is asked by GET"),
    ("GET", f"{PREFIX}/switch", 405, "method", "is asked by POST"),
    ("GET", f"{PREFIX}/matrix?windo=1", 400, "invalid", "did you mean 'window_ns'?"),
    ("GET", f"{PREFIX}/matrix?window_ns=-5", 400, "invalid", "a window of -5 ns; ask for"),
    ("GET", f"{PREFIX}/jobs", 400, "invalid", "missing required field `window_ns`"),
    ("GET", f"{PREFIX}/changes?limit=100000", 400, "invalid", "ask for 1 to 1000"),
    ("GET", f"{PREFIX}/changes?page_size=0", 400, "invalid", "give 1 to 100000 rows"),
    ("GET", f"{PREFIX}/changes?cursor=abc.1", 410, "cursor", "ask again"),
    ("GET", f"{PREFIX}/changes?cursor=", 410, "cursor", "ask again"),
    ("GET", f"{PREFIX}/changes?cursor=abc.1&limit=5", 400, "invalid", "stands alone"),
    ("GET", f"{PREFIX}/changes?page_size=1&page_size=2", 400, "invalid", "given twice"),
    ("OPTIONS", FLEET, 405, "method", "is asked by GET"),
    ("TRACE", f"{PREFIX}/switch", 405, "method", "is asked by POST"),
    ("GET", f"{PREFIX}/rules?page_size=x", 400, "invalid", "give 1 to 100000 rows"),
    ("GET", f"{PREFIX}/incidents?number=99", 400, "invalid", "99"),
    ("GET", f"{PREFIX}/series?step_ns=5", 400, "invalid", "give whole seconds"),
    ("POST", f"{PREFIX}/switch", 415, "media-type", "Content-Type: application/json"),
]
"""Method, path, status, type, and part of the line."""


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_a_problem_of_one_line(
    api: ApiController, operator: str, case: tuple[str, str, int, str, str]
) -> None:
    method, path, status, kind, line = case
    found = api.call(method, path, operator)
    assert found.problem[:2] == (status, kind)
    assert line in found.problem[2]


@pytest.mark.parametrize("field", WORDS)
def test_what_people_say_is_bounded_before_it_is_logged(
    api: ApiController, operator: str, field: str
) -> None:
    switch = (f"{PREFIX}/switch", {"stopped": False})
    path, order = (f"{PREFIX}/revoke-access", {"number": 99}) if field == "comment" else switch
    found = api.call("POST", path, operator, order | {field: "é" * (MAX_WORDS + 1)})
    assert found.problem == (400, "invalid", f"{field} has 501 letters; give 500 at most")
    found = api.call("POST", path, operator, order | {field: "é" * MAX_WORDS})
    assert "letters" not in found.data.decode()


def test_every_response_keeps_browsers_strict(api: ApiController, viewer: str) -> None:
    for path, token in ((FLEET, viewer), (FLEET, ""), ("/", ""), ("/api/none", ""), (OPENAPI, "")):
        found = api.call("GET", path, token)
        for name, value in HEADERS.items():
            assert found.headers[name.lower()] == value
    assert "default-src 'self'" in HEADERS["Content-Security-Policy"]
    assert api.call("GET", FLEET, viewer).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("said", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nbad header\r\n\r\n"])
def test_what_is_no_http_is_a_problem_too(api: ApiController, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", api.api_port), timeout=600) as peer:
        peer.sendall(said)
        answer = http.client.HTTPResponse(peer)
        answer.begin()
        body = json.loads(answer.read())
    assert (answer.status, body["status"]) == (400, 400)
    assert answer.getheader("content-type") == "application/problem+json"
    assert answer.getheader("x-content-type-options") == "nosniff"
    assert body["type"] == "urn:syntony:problem:invalid"


def test_huge_bodies_are_refused_before_they_are_read(api: ApiController, operator: str) -> None:
    path = f"{PREFIX}/switch"
    found = api.call("POST", path, operator, {"stopped": True, "why": "x" * MAX_BODY_BYTES})
    assert found.problem[:2] == (413, "too-large")
    switch = ask(api.local, FailoverStatusQuery()).switch
    assert switch is None or not switch.stopped


def test_long_heads_are_refused(api: ApiController, viewer: str) -> None:
    assert api.call("GET", f"{FLEET}?x={'y' * 100_000}", viewer).status in {400, 431}
    assert api.up()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /api/v1/fleet HTT", b"\x16\x03\x01\x02\x00", b"\x00" * 9]
)
def test_whoever_does_not_finish_a_request_is_hung_up_on(api: ApiController, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", api.api_port), timeout=600) as slow:
        slow.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            while slow.recv(4096):
                pass
    assert api.up()


def test_a_body_that_does_not_come_is_given_up(api: ApiController, operator: str) -> None:
    head = (
        f"POST {PREFIX}/switch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {operator}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    with socket.create_connection(("127.0.0.1", api.api_port), timeout=600) as slow:
        slow.sendall(head.encode())
        assert b"408" in slow.recv(4096)


# --- pages ---


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiController]:
    """A controller whose store has ten thousand events of paths."""
    controller = ApiController(tmp_path_factory.mktemp("busy"))
    with contextlib.closing(open_store(controller.store)) as store:
        fill(store, [probed("a/n", "b/n")])
        events = [{"ts_ns": T0 - n * 1000, "job": f"j{n}", "cause": "join"} for n in range(ROWS)]
        store.insert(PATH_EVENTS, rows_of(PATH_EVENTS, events))
    controller.start()
    try:
        yield controller
    finally:
        controller.end(signal.SIGKILL)


def test_ten_thousand_rows_page_by_page_are_those_of_one_answer(busy: ApiController) -> None:
    token = busy.token()
    path = f"{PREFIX}/failover-log?limit={ROWS}"
    whole = busy.call("GET", path, token).json["events"]
    assert len({each["job"] for each in whole}) == ROWS
    found, pages = [], 0
    at = f"{path}&page_size=999"
    while at:
        page = busy.call("GET", at, token)
        assert page.status == 200
        assert len(page.json["events"]) <= 999
        found += page.json["events"]
        pages += 1
        cursor = page.headers.get("x-syntony-next-cursor")
        at = f"{PREFIX}/failover-log?cursor={cursor}" if cursor else ""
    assert found == whole
    assert pages == 11


def test_a_window_ends_where_it_is_asked_to(busy: ApiController) -> None:
    """So that a list can be read page by page, and an instant of the past be looked at."""
    token, end_ns = busy.token(), T0 - ROWS // 2 * 1000
    path = f"{PREFIX}/failover-log?limit=3&end_ns={end_ns}"
    events = busy.call("GET", path, token).json["events"]
    assert len(events) == 3
    assert end_ns - 3_000 <= events[0]["ts_ns"] < events[-1]["ts_ns"] <= end_ns
    series = f"{PREFIX}/series?window_ns={60 * S}"
    points = busy.call("GET", series, token).json["points"]
    assert points
    before = busy.call("GET", f"{series}&end_ns={points[0]['ts_ns'] - S}", token).json["points"]
    assert before == []


def test_the_client_fetches_every_page(
    busy: ApiController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syntony.client.http.PAGE_ROWS", 1500)
    query = FailoverLogQuery(limit=ROWS, window_ns=60 * S)
    with Client(busy.url, token=busy.token()) as client:
        assert client.ask(query) == ask(busy.local, query)


def test_pages_are_nobody_elses(busy: ApiController) -> None:
    first = busy.call("GET", f"{PREFIX}/failover-log?page_size=10", busy.token("viewer", "a"))
    at = f"{PREFIX}/failover-log?cursor={first.headers['x-syntony-next-cursor']}"
    assert busy.call("GET", at, busy.token("viewer", "b")).problem[:2] == (410, "cursor")


def test_a_client_survives_a_restart_of_the_controller(busy: ApiController) -> None:
    with Client(busy.url, token=busy.token()) as client:
        client.ask(FleetQuery())
        busy.end(signal.SIGKILL)
        with pytest.raises(RemoteError, match="no controller answers"):
            client.ask(FleetQuery())
        busy.start()
        eventually(lambda: busy.call("GET", "/").status == 200)
        client.ask(FleetQuery())
