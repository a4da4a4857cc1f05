"""Messages to those who page: none is lost, none holds up another, whatever fails in between."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.live import eventually

from syntony.alerts.incident_book import Book
from syntony.alerts.incidents import BookState, ChangeKind, Incident, IncidentChange, IncidentState
from syntony.alerts.render import FleetName
from syntony.alerts.rules import Severity
from syntony.controller import notify
from syntony.controller.notify import (
    ECHO_NS,
    RESEND_NS,
    Notifier,
    NotifyResult,
    Post,
    Receiver,
    post_json,
)
from syntony.controller.rejected_messages import BACKOFF_MIN_NS
from syntony.errors import ConfigError
from syntony.io import http_request
from syntony.model import S
from syntony.state import ControlState
from syntony.state.outbox import Outbox

T0 = 1_700_000_000 * S
TAKEN = NotifyResult(True, False, "200 OK")
DOWN = NotifyResult(False, False, "ConnectionRefusedError")
REFUSED = NotifyResult(False, True, "400 Bad Request", answered=True)
ERROR = NotifyResult(False, False, "500 Internal Server Error", answered=True)
HOOK = Receiver(name="hook", kind="webhook", url="http://hook.example/x")
AM = Receiver(name="am", kind="alertmanager", url="http://am.example:9093/")


def incident(number: int = 1, **fields: object) -> Incident:
    made = Incident(
        number=number,
        rule="link-flapping",
        subject="h0/rail0",
        severity=Severity.CRITICAL,
        state=IncidentState.OPEN,
        summary="h0/rail0: link has flapped 9 times within the past hour",
        remedy="reseat",
        opened_ns=T0,
        updated_ns=T0,
        paged=True,
        pages=1,
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def book(*incidents: Incident) -> Book:
    return Book((), BookState(incidents=list(incidents)))


def page(number: int = 1, kind: ChangeKind = ChangeKind.PAGE, **fields: object) -> IncidentChange:
    return IncidentChange(T0, kind, incident(number, **fields))


class Far:
    """A receiver's other side."""

    def __init__(self, *answers: NotifyResult) -> None:
        self.answers = list(answers)
        self.got: list[tuple[str, object, dict[str, str]]] = []

    def __call__(self, url: str, body: bytes, headers: dict[str, str]) -> NotifyResult:
        self.got.append((url, json.loads(body), headers))
        return self.answers.pop(0) if self.answers else TAKEN


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round ends when its receivers have ended, also on a busy machine."""
    monkeypatch.setattr(notify, "ROUND_S", 60.0)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[ControlState]:
    with ControlState(tmp_path / "state") as opened:
        yield opened


class Reported(Notifier):
    """A notifier, and changes that are transactions of their own."""

    def __init__(
        self, receivers: list[Receiver], state: ControlState, post: Post | None = None
    ) -> None:
        super().__init__(receivers, FleetName("lab", "1d"), Outbox(state), post)
        self._state = state

    def tell(self, changes: list[IncidentChange], book: Book) -> None:
        with self._state.transaction() as connection:
            self.take(connection, changes, book)


def test_a_page_is_delivered_once(state: ControlState) -> None:
    far = Far()
    notifier = Reported([HOOK], state, far)
    notifier.tell([page()], book(incident()))
    for now_ns in (0, 1, 2):
        notifier.deliver(now_ns, T0, book(incident()))
    ((url, body, _),) = far.got
    assert url == "http://hook.example/x"
    assert isinstance(body, dict)
    assert body["event"] == "page"
    assert body["incident"]["opened"] == "2023-11-14T22:13:20.000Z"
    assert notifier.waiting() == 0


def test_what_waits_survives_a_restart_and_keeps_its_order(state: ControlState) -> None:
    dead = Reported([HOOK], state, Far(*[DOWN] * 9))
    for number in (1, 2, 3):
        dead.tell([page(number)], book())
    dead.deliver(0, T0, book())
    far = Far()
    Reported([HOOK], state, far).deliver(0, T0, book())
    assert [body["incident"]["number"] for _, body, _ in far.got] == [1, 2, 3]  # type: ignore[index]


def test_a_dead_receiver_is_tried_ever_more_rarely(state: ControlState) -> None:
    far = Far(*[DOWN] * 100)
    notifier = Reported([HOOK], state, far)
    notifier.tell([page()], book())
    for second in range(120):
        notifier.deliver(second * S, T0, book())
    assert 6 <= len(far.got) <= 9
    assert notifier.waiting() == 1
    assert BACKOFF_MIN_NS == S


def test_a_refused_message_does_not_hold_up_the_next(state: ControlState) -> None:
    far = Far(REFUSED, TAKEN)
    notifier = Reported([HOOK], state, far)
    notifier.tell([page(1), page(2)], book())
    notifier.deliver(0, T0, book())
    assert len(far.got) == 2
    assert (notifier.refused, notifier.delivered, notifier.waiting()) == (1, 1, 0)


class Choosy(Far):
    """A receiver that never takes messages about some incidents."""

    def __init__(self, *incidents: int, answer: NotifyResult = ERROR) -> None:
        super().__init__()
        self.incidents, self.answer = incidents, answer

    def __call__(self, url: str, body: bytes, headers: dict[str, str]) -> NotifyResult:
        super().__call__(url, body, headers)
        found = json.loads(body)
        rejects = "event" in found and found["incident"]["number"] in self.incidents
        return self.answer if rejects else TAKEN

    def events(self) -> list[tuple[int, str]]:
        """Incident and event of each attempt."""
        return [(body["incident"]["number"], body["event"]) for _, body, _ in self.got]  # type: ignore[index]


def test_receivers_hear_once_that_an_incident_is_known_better(state: ControlState) -> None:
    far = Choosy()
    notifier = Reported([HOOK, AM], state, far)
    notifier.deliver(0, T0, book(incident()))
    notifier.tell([page(kind=ChangeKind.RENAMED)], book())
    notifier.tell([page(kind=ChangeKind.RENAMED, silenced=True)], book())
    far.got.clear()
    notifier.deliver(S, T0, book(incident(summary="spine1: is dead")))
    urls: dict[str, Any] = {url: body for url, body, _ in far.got}
    assert len(far.got) == 2
    assert urls["http://hook.example/x"]["event"] == "renamed"
    (alert,) = urls["http://am.example:9093/api/v2/alerts"]
    assert alert["annotations"]["summary"] == "spine1: is dead"


@pytest.mark.parametrize("answer", [ERROR, DOWN])
def test_a_message_that_is_never_taken_delays_only_its_incident(
    state: ControlState, answer: NotifyResult
) -> None:
    far = Choosy(1, answer=answer)
    notifier = Reported([HOOK], state, far)
    notifier.tell([page(1), page(2), page(1, ChangeKind.CLEAR), page(3)], book())
    for second in range(5):
        notifier.deliver(second * S, T0, book())
    events = far.events()
    assert [each for each in events if each[0] != 1] == [(2, "page"), (3, "page")]
    assert (1, "clear") not in events, "the order within an incident"
    assert 2 <= events.count((1, "page")) <= 4, "tried again, ever more rarely"
    assert (notifier.waiting(), notifier.refused) == (2, 0)
    notifier.tell([page(4)], book())
    notifier.deliver(61 * S, T0, book())
    assert far.events().count((4, "page")) == 1, "what is new goes first"
    kind = Choosy()
    Reported([HOOK], state, kind).deliver(0, T0, book())
    assert kind.events() == [(1, "page"), (1, "clear")], "nothing lost, nothing doubled"


def test_many_messages_that_are_never_taken_delay_no_others(state: ControlState) -> None:
    far = Choosy(*range(1, 30))
    notifier = Reported([HOOK], state, far)
    notifier.tell([page(number) for number in range(1, 31)], book())
    for second in range(600):
        notifier.deliver(second * S, T0, book())
    assert (30, "page") in far.events()
    before = len(far.got)
    notifier.tell([page(31)], book())
    for second in range(600, 662):
        notifier.deliver(second * S, T0, book())
    assert (31, "page") in far.events()
    assert len(far.got) - before < 100, "a receiver that only answers errors is left alone"


def test_a_message_that_alone_is_rejected_for_an_hour_is_dropped_and_counted(
    state: ControlState, caplog: pytest.LogCaptureFixture
) -> None:
    far = Choosy(1)
    notifier = Reported([HOOK], state, far)
    notifier.tell([page(1), page(1, ChangeKind.CLEAR)], book())
    for minute in range(55):
        notifier.tell([page(2)], book())
        notifier.deliver(minute * 60 * S, T0, book())
    assert (notifier.waiting(), notifier.refused) == (2, 0)
    for minute in range(55, 70):
        notifier.tell([page(2)], book())
        notifier.deliver(minute * 60 * S, T0, book())
    assert (notifier.waiting(), notifier.refused) == (1, 1)
    assert (1, "clear") in far.events(), "the next one of this incident has its own hour"
    assert "message dropped, receiver refuses it name=hook reason=500" in caplog.text


def test_an_outage_drops_nothing(state: ControlState) -> None:
    """A receiver that rejects everything for hours, and once more when it is back."""
    far = Choosy(1, 2)
    notifier = Reported([HOOK], state, far)
    notifier.tell([page(1), page(2)], book())
    for minute in range(300):
        notifier.deliver(minute * 60 * S, T0, book())
    far.incidents = (1,)
    for minute in range(300, 303):
        notifier.deliver(minute * 60 * S, T0, book())
    far.incidents = ()
    for minute in range(303, 306):
        notifier.deliver(minute * 60 * S, T0, book())
    assert (notifier.delivered, notifier.refused, notifier.waiting()) == (2, 0, 0)


def test_what_was_taken_is_not_sent_again_while_it_cannot_be_removed(
    state: ControlState, caplog: pytest.LogCaptureFixture
) -> None:
    far = Far()
    notifier = Reported([HOOK], state, far)
    notifier.tell([page(1), page(2)], book())
    with state.transaction() as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE DELETE ON outbox BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    for _ in range(3):
        notifier.deliver(0, T0, book())
    assert "outbox not used name=hook" in caplog.text
    assert (len(far.got), notifier.waiting()) == (1, 2)
    with state.transaction() as connection:
        connection.execute("DROP TRIGGER full")
    notifier.deliver(0, T0, book())
    assert [body["incident"]["number"] for _, body, _ in far.got] == [1, 2]  # type: ignore[index]
    assert notifier.waiting() == 0


def test_every_message_has_a_key_of_its_own_over_restarts(state: ControlState) -> None:
    far = Far(TAKEN, DOWN)
    first = Reported([HOOK], state, far)
    first.tell([page(1), page(2)], book())
    first.deliver(0, T0, book())
    second = Reported([HOOK], state, far)
    second.deliver(0, T0, book())
    second.tell([page(3)], book())
    second.deliver(0, T0, book())
    keys = [headers["Idempotency-Key"] for _, _, headers in far.got]
    numbers = [body["incident"]["number"] for _, body, _ in far.got]  # type: ignore[index]
    assert numbers == [1, 2, 2, 3]
    assert keys[1] == keys[2]
    assert len(set(keys)) == 3


def test_no_secret_waits_in_the_outbox(tmp_path: Path, state: ControlState) -> None:
    (tmp_path / "key").write_text("R0UT1NG")
    duty = Receiver(name="duty", kind="pagerduty", secret_file=str(tmp_path / "key"))
    Reported([duty], state, Far(DOWN)).tell([page()], book())
    ((body,),) = state.read("SELECT body FROM outbox")
    assert "R0UT1NG" not in body


def test_each_receiver_hears_its_severities(state: ControlState) -> None:
    far = Far()
    critical = Receiver(
        name="c", kind="webhook", url="http://c.example", severities=(Severity.CRITICAL,)
    )
    notifier = Reported([critical], state, far)
    notifier.tell([page(1, severity=Severity.WARNING), page(2)], book())
    notifier.deliver(0, T0, book())
    assert [body["incident"]["number"] for _, body, _ in far.got] == [2]  # type: ignore[index]


def test_a_receiver_hears_the_end_of_its_page_if_it_returned_milder(state: ControlState) -> None:
    far = Far()
    critical = (Severity.CRITICAL,)
    hook, am = (msgspec.structs.replace(each, severities=critical) for each in (HOOK, AM))
    notifier = Reported([hook, am], state, far)
    milder = incident(severity=Severity.WARNING, paged_as=Severity.CRITICAL)
    notifier.deliver(0, T0, book(milder))
    milder.state, milder.paged = IncidentState.RESOLVED, False
    milder.resolved_ns = milder.updated_ns = T0 + S
    notifier.tell([IncidentChange(T0 + S, ChangeKind.CLEAR, milder)], book())
    notifier.deliver(S, T0 + S, book(milder))
    alerts = [body[0] for url, body, _ in far.got if "am." in url]  # type: ignore[index]
    assert [each["labels"]["severity"] for each in alerts] == ["critical"] * 2
    assert [body["event"] for url, body, _ in far.got if "hook." in url] == ["clear"]  # type: ignore[index]


def test_pagerduty_gets_one_key_for_the_life_of_an_incident(
    tmp_path: Path, state: ControlState
) -> None:
    key = tmp_path / "key"
    key.write_text("R0UT1NG\n")
    far = Far()
    duty = Receiver(name="duty", kind="pagerduty", secret_file=str(key))
    notifier = Reported([duty], state, far)
    kinds = (ChangeKind.PAGE, ChangeKind.ACKNOWLEDGED, ChangeKind.CLEAR)
    notifier.tell([page(kind=kind) for kind in kinds], book())
    notifier.deliver(0, T0, book())
    bodies = [body for _, body, _ in far.got]
    assert [body["event_action"] for body in bodies] == ["trigger", "acknowledge", "resolve"]  # type: ignore[index]
    assert {body["dedup_key"] for body in bodies} == {"syntony/lab/1d/1"}  # type: ignore[index]
    assert {body["routing_key"] for body in bodies} == {"R0UT1NG"}  # type: ignore[index]


def test_alertmanager_hears_again_and_again_and_then_the_end(state: ControlState) -> None:
    far = Far()
    notifier = Reported([AM], state, far)
    one = incident()
    for minute in range(3):
        notifier.deliver(minute * RESEND_NS, T0, book(one))
    one.state, one.resolved_ns, one.updated_ns = IncidentState.RESOLVED, T0 + S, T0 + S
    one.paged = False
    for minute in range(3, 60):
        now_ns = T0 + S + (minute - 3) * RESEND_NS
        notifier.deliver(minute * RESEND_NS, now_ns, book(one))
    url, alerts, _ = far.got[0]
    assert url == "http://am.example:9093/api/v2/alerts"
    assert isinstance(alerts, list)
    assert alerts[0]["labels"] == {
        "alertname": "link-flapping",
        "severity": "critical",
        "cluster": "lab",
        "fleet": "1d",
        "component": "h0/rail0",
        "host": "h0",
        "nic": "rail0",
    }
    assert len(far.got) == 3 + ECHO_NS // RESEND_NS
    assert far.got[-1][1][0]["endsAt"] == "2023-11-14T22:13:21.000Z"  # type: ignore[index]


def test_alertmanager_hears_of_the_end_when_the_all_clear_is_sent(state: ControlState) -> None:
    """What has returned before is resolved earlier."""
    far = Far()
    notifier = Reported([AM], state, far)
    one = incident(state=IncidentState.RESOLVED, resolved_ns=T0 + S, updated_ns=T0 + S)
    notifier.deliver(0, T0 + ECHO_NS + 90 * S, book(one))
    one.paged, one.updated_ns = False, T0 + 2 * ECHO_NS
    notifier.deliver(RESEND_NS, T0 + 2 * ECHO_NS, book(one))
    ends = [body[0]["endsAt"] for _, body, _ in far.got]  # type: ignore[index]
    assert ends[0] > "2023-11-14T22:19:50" > ends[1] == "2023-11-14T22:13:21.000Z"


def test_a_restart_repeats_no_alerts_that_were_over_before(state: ControlState) -> None:
    """The labels may be those of an alert that fires now."""
    far = Far()
    ended_ns = T0 - ECHO_NS
    old = incident(
        state=IncidentState.RESOLVED, resolved_ns=ended_ns, updated_ns=ended_ns, paged=False
    )
    Reported([AM], state, far).deliver(0, T0, book(old, incident(2)))
    ((_, alerts, _),) = far.got
    assert isinstance(alerts, list)
    assert [each["annotations"]["incident"] for each in alerts] == ["2"]


def test_alertmanager_does_not_hear_of_what_is_explained(state: ControlState) -> None:
    far = Far()
    notifier = Reported([AM], state, far)
    notifier.deliver(0, T0, book(incident(cause=7), incident(2, paged=False, pages=0)))
    assert far.got == []


@pytest.mark.parametrize(
    ("receiver", "says"),
    [
        (Receiver(name="a", kind="slack"), "give it a url"),
        (Receiver(name="a", kind="webhook", url="ftp://x"), "give it a url"),
        (Receiver(name="a", kind="pagerduty"), "routing key in secret_file"),
        (Receiver(name="a", kind="slack", url_file="/nowhere"), "cannot be read"),
    ],
)
def test_receivers_that_cannot_be(receiver: Receiver, says: str, state: ControlState) -> None:
    with pytest.raises(ConfigError, match=says):
        Reported([receiver], state)


class _Handler(BaseHTTPRequestHandler):
    status = 200
    got: tuple[str, bytes, str] = ("", b"", "")

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        _Handler.got = (self.path, self.rfile.read(length), self.headers["Authorization"])
        self.send_response(_Handler.status)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.parametrize(
    ("status", "taken", "hopeless"),
    [(200, True, False), (202, True, False), (302, False, False), (400, False, True),
     (401, False, False), (404, False, False), (413, False, True), (422, False, True),
     (429, False, False), (500, False, False), (503, False, False)],
)  # fmt: skip
def test_what_an_answer_means(server: str, status: int, taken: bool, hopeless: bool) -> None:
    _Handler.status = status
    answer = post_json(f"{server}/hook?x=1", b"{}", {"Authorization": "Bearer t"})
    assert (answer.taken, answer.hopeless) == (taken, hopeless)
    assert _Handler.got == ("/hook?x=1", b"{}", "Bearer t")


def test_a_receiver_that_hangs_holds_up_nobody_else(
    state: ControlState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "ROUND_S", 0.01)
    released, got = threading.Event(), list[str]()

    def post(url: str, _: bytes, __: dict[str, str]) -> NotifyResult:
        got.append(url)
        if "hangs" in url:
            released.wait()
        return TAKEN

    hangs = Receiver(name="hangs", kind="webhook", url="http://hangs.example/")
    notifier = Reported([hangs, HOOK], state, post)
    for number in (1, 2, 3):
        notifier.tell([page(number)], book())
        notifier.deliver(number * S, T0, book())
        eventually(lambda: notifier.delivered == number, "the other has it")  # noqa: B023
        eventually(lambda: notifier.waiting() == number, "and has taken it")  # noqa: B023
    assert got.count("http://hangs.example") == 1, "asked once, while it thinks"
    released.set()
    eventually(lambda: notifier.waiting() == 0, "all of it")
    assert (notifier.delivered, notifier.refused) == (6, 0)


def test_a_receiver_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time; the answer never does."""
    monkeypatch.setattr(http_request, "DEADLINE_S", 0.2)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            peer, _ = listener.accept()
            with peer, contextlib.suppress(OSError):
                peer.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not over.wait(0.01):
                    peer.sendall(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        answer = post_json(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"{}", {})
        over.set()
        dripping.join()
    assert (answer.taken, answer.hopeless) == (False, False)


def test_nobody_there() -> None:
    assert post_json("http://127.0.0.1:1/", b"{}", {}).hopeless is False


def test_alertmanager_is_told_in_the_worlds_time(state: ControlState) -> None:
    """An end in its future would be no end: fleet time need not be the world's."""
    far = Far()
    over = incident(
        state=IncidentState.RESOLVED, resolved_ns=T0 + S, updated_ns=T0 + S, paged=False
    )
    Reported([AM], state, far).deliver(0, T0 + S, book(over), ahead_ns=3600 * S)
    ((_, alerts, _),) = far.got
    assert isinstance(alerts, list)
    assert alerts[0]["startsAt"] == "2023-11-14T21:13:20.000Z"
    assert alerts[0]["endsAt"] == "2023-11-14T21:13:21.000Z"
