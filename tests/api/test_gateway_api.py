"""The API and the console of gateways, between real processes: a leader that may be lost, its
standby, and two gateways."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.api.conftest import ApiController, Asked, Response
from tests.link import ControllerProcess, GatewayProcess
from tests.live import eventually
from tests.ports import free_port

from syntony.client import Client
from syntony.client.http import Access
from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.model import HOUR_NS
from syntony.model.tls_files import TlsFiles
from syntony.wire.access_tokens import AccessTokenCommand, AccessTokensQuery, RevokeAccessCommand
from syntony.wire.control import ChangesQuery, ControllerQuery
from syntony.wire.failover import SwitchCommand
from syntony.wire.probes import MatrixQuery
from syntony.wire.rest import CSRF, EVENTS, OPENAPI, PREFIX, SESSION
from syntony.wire.roles import Role

MATRIX, FLEET, SWITCH = (f"{PREFIX}/{name}" for name in ("matrix", "fleet", "switch"))
STOP = {"stopped": True, "why": "test"}


class ApiGateway(Asked, GatewayProcess):
    """A gateway with an API."""

    def __init__(self, *leaders: ControllerProcess, name: str, address: str = "127.0.0.1") -> None:
        super().__init__(*leaders, name=name)
        self.api_port = free_port()
        with self.config.open("a") as file:
            file.write(f'api = {{ listen = "{address}:{self.api_port}" }}\n')

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    def up(self) -> bool:
        """Whether agents and people are served."""
        return super().up() and "api up" in self.log()


class Fleet(NamedTuple):
    leader: ApiController
    standby: ApiController
    one: ApiGateway
    two: ApiGateway

    def token(self, role: str = "viewer", name: str = "v") -> str:
        """A token that the gateways know of."""
        secret = self.leader.token(role, name)
        for gateway in (self.one, self.two):
            eventually(lambda gateway=gateway: local(gateway, secret))  # type: ignore[misc]
        return secret


def local(gateway: ApiGateway, secret: str) -> bool:
    """Whether it answers what the store knows, or has said that it has no fleet time."""
    found = gateway.call("GET", MATRIX, secret)
    return found.status == 200 or "fleet time" in str(found.data)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("fleet")
    leader = ApiController(directory, name="one")
    standby = ApiController(directory, name="two", standby=True)
    made = Fleet(
        leader, standby,
        *(ApiGateway(leader, standby, name=name) for name in ("gw1", "gw2")),
    )  # fmt: skip
    try:
        for process in (leader, made.one, made.two):
            process.start()
        yield made
    finally:
        for process in made[::-1]:
            with contextlib.suppress(AttributeError, AssertionError, ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.end(signal.SIGKILL)


def cookie_of(found: Response) -> str:
    return found.headers["set-cookie"].partition(";")[0]


def log_in(gateway: ApiGateway, token: str) -> tuple[str, str]:
    """Cookie and CSRF token of a session."""
    found = gateway.call("POST", SESSION, body={"token": token})
    assert found.status == 200, found
    cookie = cookie_of(found)
    assert cookie.startswith(f"syntony-{gateway.api_port}=")
    assert "HttpOnly" in found.headers["set-cookie"]
    assert "SameSite=strict" in found.headers["set-cookie"]
    return cookie, found.json["csrf"]


def changes(leader: ApiController) -> list[Any]:
    return list(ask(leader.local, ChangesQuery()).changes)


def test_what_the_leader_knows_is_passed_on_whole(fleet: Fleet) -> None:
    token = fleet.token()
    for path in (FLEET, f"{PREFIX}/rules", OPENAPI, f"{PREFIX}/oidc"):
        through, direct = (each.call("GET", path, token) for each in (fleet.one, fleet.leader))
        assert through.status == direct.status == 200
        assert set(through.headers) == set(direct.headers)
        if path != FLEET:  # how long something took differs
            assert through.data == direct.data
    with Client(fleet.one.url, token=token) as client:
        assert client.ask(ControllerQuery()).name == "one"
        assert client.session().name == "v"


def test_pages_of_the_leaders_answers_follow_each_other(fleet: Fleet) -> None:
    token = fleet.token()
    first = fleet.one.call("GET", f"{PREFIX}/rules?page_size=2", token)
    assert len(first.json["rules"]) == 2
    cursor = first.headers["x-syntony-next-cursor"]
    second = fleet.two.call("GET", f"{PREFIX}/rules?cursor={cursor}", token)
    assert len(second.json["rules"]) == 2
    assert second.json["rules"] != first.json["rules"]


def test_roles_and_problems_are_the_leaders(fleet: Fleet) -> None:
    token = fleet.token()
    assert fleet.one.call("POST", SWITCH, token, body=STOP).problem[:2] == (403, "denied")
    assert fleet.one.call("GET", f"{FLEET}?x=1", token).problem[:2] == (400, "invalid")
    assert fleet.one.call("GET", f"{MATRIX}?x=1", token).problem[:2] == (400, "invalid")
    assert fleet.one.call("POST", MATRIX, token, body={}).problem[:2] == (405, "method")
    assert fleet.one.call("GET", f"{PREFIX}/none", token).problem[:2] == (404, "unknown")
    assert fleet.one.call("POST", SWITCH, token, body=b"x" * 300_000).problem[:2] == (
        413, "too-large",
    )  # fmt: skip
    for path in (FLEET, MATRIX, EVENTS, SESSION, OPENAPI):
        assert fleet.one.call("GET", path).problem[:2] == (401, "unauthenticated")
        status, name, _ = fleet.one.call("GET", path, "syntony-api-none").problem
        assert (status, name) == (401, "unauthenticated")


def test_a_session_is_good_at_every_gateway_and_orders_with_its_csrf_token(fleet: Fleet) -> None:
    operator = fleet.token("operator", "olga")
    cookie, csrf = log_in(fleet.one, operator)
    for gateway in (fleet.one, fleet.two):
        name, _, secret = cookie.partition("=")
        given = {"Cookie": f"{name.rpartition('-')[0]}-{gateway.api_port}={secret}"}
        assert gateway.call("GET", SESSION, headers=given).json["csrf"] == csrf
        assert gateway.call("POST", SWITCH, body=STOP, headers=given).problem[:2] == (403, "csrf")
        done = gateway.call("POST", SWITCH, body=STOP, headers=given | {CSRF: csrf})
        assert (done.status, done.json["switch"]["by"]) == (200, "olga")
        eventually(
            lambda gateway=gateway, given=given: (  # type: ignore[misc]
                gateway.call("GET", MATRIX, headers=given).status != 401
            )
        )
        newest = changes(fleet.leader)[-1]
        assert newest.who == "olga"
        assert f"through {gateway.name}" in newest.origin
    given = {"Cookie": cookie}
    assert fleet.one.call("DELETE", SESSION, headers=given).problem[:2] == (403, "csrf")
    ended = fleet.one.call("DELETE", SESSION, headers=given | {CSRF: csrf})
    assert ended.status == 204
    eventually(lambda: fleet.one.call("GET", MATRIX, headers=given).status == 401)
    assert fleet.one.call("GET", SESSION, headers=given).status == 401


def test_what_is_revoked_is_refused_at_gateways_within_a_second_or_so(fleet: Fleet) -> None:
    token = fleet.token(name="rita")
    listed = ask(fleet.leader.local, AccessTokensQuery()).tokens
    number = next(each.number for each in listed if each.name == "rita")
    ask(fleet.leader.local, RevokeAccessCommand(number=number, by="t"))
    assert fleet.one.call("GET", FLEET, token).status == 401
    eventually(lambda: fleet.one.call("GET", MATRIX, token).status == 401)


def test_the_console_is_served_by_gateways(fleet: Fleet) -> None:
    page = fleet.one.call("GET", "/incidents")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.data == fleet.leader.call("GET", "/incidents").data


def test_live_events_are_the_leaders_under_its_numbers(fleet: Fleet) -> None:
    operator, viewer = fleet.token("operator", "o"), fleet.token()
    with Client(fleet.one.url, token=viewer) as client:
        events = client.events()
        seen = {next(events).topic for _ in range(4)}
        assert seen == {"incidents", "fleet", "switch", "jobs"}
        with Client(fleet.two.url, token=operator) as other:
            other.ask(SwitchCommand(stopped=False, by="", why="events"))
        event = next(each for each in events if each.topic == "switch")
        assert event.data["stopped"] is False
        events.close()
    # A viewer that was at the leader goes on at a gateway, and the other way round.
    for place, stopped in ((fleet.leader, True), (fleet.two, False)):
        with Client(place.url, token=viewer) as client:
            found = client.events(last_id=event.id)
            with Client(fleet.one.url, token=operator) as other:
                other.ask(SwitchCommand(stopped=stopped, by="", why="again"))
            event = next(each for each in found if each.topic == "switch")
            assert event.data["stopped"] is stopped
            found.close()


def test_a_certificate_is_good_for_what_a_gateway_answers_itself(
    fleet: Fleet, tmp_path: Path
) -> None:
    gateway = ApiGateway(fleet.leader, name="gw3", address="0.0.0.0")  # noqa: S104 - for TLS
    gateway.start()
    try:
        tls: TlsFiles = fleet.leader.issue("olga", Role.OPERATOR)
        access = Access(ca=tls.ca, cert=tls.cert, key=tls.key)
        with Client(f"https://127.0.0.1:{gateway.api_port}", access=access) as client:
            with contextlib.suppress(RemoteError):  # there is no fleet time without agents
                client.ask(MatrixQuery())
            with pytest.raises(RemoteError, match="use a token, or ask the leader, one at"):
                client.ask(ControllerQuery())
        context = ssl.create_default_context(cafile=str(tls.ca))
        token = fleet.token()
        assert gateway.call("GET", FLEET, token, context=context).status == 200
        found = gateway.call("POST", SESSION, body={"token": token}, context=context)
        assert cookie_of(found).startswith("__Host-syntony=")
        assert "Secure" in found.headers["set-cookie"]
    finally:
        gateway.end(signal.SIGKILL)


def test_a_change_of_leader_ends_no_session_and_loses_no_event(fleet: Fleet) -> None:
    operator = fleet.token("operator", "uma")
    cookie, csrf = log_in(fleet.one, operator)
    given = {"Cookie": cookie, CSRF: csrf}
    eventually(lambda: "fleet time" in str(fleet.one.call("GET", MATRIX, headers=given).data))
    with Client(fleet.one.url, token=operator) as client:
        events = client.events()
        last = next(events)
        fleet.leader.end(signal.SIGKILL)
        for last in events:  # to the stream's end  # noqa: B007 - the last one counts
            pass
    eventually(lambda: fleet.one.call("GET", FLEET, headers=given).status == 503)
    eventually(
        lambda: fleet.one.call("POST", SWITCH, body=STOP, headers=given).problem[1] == "leader"
    )
    refused = fleet.one.call("POST", SWITCH, body=STOP, headers=given)
    assert refused.headers["retry-after"]
    assert f"(127.0.0.1:{fleet.leader.port}, 127.0.0.1:{fleet.standby.port})" in refused.problem[2]
    # Who is known stays known, and what the store knows is answered.
    assert fleet.one.call("GET", SESSION, headers=given).json["name"] == "uma"
    assert fleet.one.call("GET", EVENTS, headers=given).problem[:2] == (503, "leader")
    assert fleet.one.call("GET", "/").status == 200
    fleet.standby.begin()
    eventually(lambda: fleet.one.call("GET", FLEET, headers=given).status == 200)
    done = fleet.one.call("POST", SWITCH, body=STOP, headers=given)
    assert (done.status, done.json["switch"]["by"]) == (200, "uma")
    with Client(fleet.one.url, token=operator) as client:
        assert client.ask(ControllerQuery()).name == "two"
        events = client.events(last_id=last.id)
        assert {next(events).topic for _ in range(4)} == {"incidents", "fleet", "switch", "jobs"}
        events.close()


def test_a_leader_without_an_api_is_named_in_the_refusal(tmp_path: Path) -> None:
    leader = ControllerProcess(tmp_path, name="quiet")
    gateway = ApiGateway(leader, name="gw1")
    try:
        leader.start()
        gateway.start()
        token = ask(
            f"unix:{leader.socket}",
            AccessTokenCommand(role="viewer", name="v", valid_ns=HOUR_NS, by="t"),
        ).token
        status, name, detail = gateway.call("GET", FLEET, token).problem
        assert (status, name) == (503, "busy")
        assert "serves no API: set api.listen" in detail
        assert json.loads(gateway.call("GET", FLEET, token).data)["status"] == 503
    finally:
        for process in (gateway, leader):
            process.end(signal.SIGKILL)
