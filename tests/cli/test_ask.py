"""How often a command asks a lab that has just come up."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import click
import msgspec
import pytest

from syntony.cli import enrol, fleet
from syntony.cli.fleet import FleetTarget, ask
from syntony.controller import client
from syntony.errors import RefusalError, RemoteError, UnansweredError
from syntony.lab import state
from syntony.lab.client import Lab
from syntony.lab.messages import LabStatus
from syntony.lab.plan import FabricSpec
from syntony.model import MS
from syntony.wire.enrol import RevokeCommand
from syntony.wire.incidents import IncidentsQuery
from syntony.wire.query import Query

YOUNG = FleetTarget("unix:x", None, 30 * MS, lab="lab")
REVOKE = RevokeCommand(what="nobody", by="eve", comment="")


class Controller:
    """Fails every request in one way, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: RemoteError) -> None:
        self.error, self.asked = error, 0
        monkeypatch.setattr(fleet, "_RETRY_NS", 1 * MS)
        monkeypatch.setattr(fleet, "_ask_once", self._fail)

    def _fail(self, *_: object) -> None:
        self.asked += 1
        raise self.error


@pytest.mark.parametrize(
    ("query", "retry_refusal", "once"),
    [
        (REVOKE, False, True),
        (REVOKE, True, False),
        # Nothing has been measured yet.
        (IncidentsQuery(number=7), False, False),
    ],
)
def test_an_order_that_is_refused_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, query: Query[msgspec.Struct], retry_refusal: bool, once: bool
) -> None:
    controller = Controller(monkeypatch, RefusalError("no"))
    with pytest.raises(RefusalError):
        ask(YOUNG, query, retry_refusal=retry_refusal)
    assert (controller.asked == 1) is once


def test_an_order_that_nobody_answers_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(monkeypatch, RemoteError("nobody answers"))
    with pytest.raises(RemoteError):
        ask(YOUNG, REVOKE)
    assert controller.asked > 1


def test_a_controller_that_does_not_stay_up_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state, "find", lambda _: Path("lab"))
    monkeypatch.setattr(Lab, "crash_reports", lambda *_: ("controller restarted 3 times, last: x",))
    controller = Controller(monkeypatch, RemoteError("nobody answers"))
    with pytest.raises(RemoteError, match="answers; controller restarted 3 times"):
        ask(YOUNG, IncidentsQuery())
    assert controller.asked == 1
    controller = Controller(monkeypatch, RefusalError("nothing is measured yet"))
    with pytest.raises(RefusalError):
        ask(YOUNG, IncidentsQuery())
    assert controller.asked > 1, "a controller that answers is up"


@pytest.mark.parametrize(("query", "once"), [(REVOKE, True), (IncidentsQuery(), False)])
def test_an_order_that_may_have_been_carried_out_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, query: Query[msgspec.Struct], once: bool
) -> None:
    controller = Controller(monkeypatch, UnansweredError("no answer in time"))
    with pytest.raises(UnansweredError) as raised:
        ask(YOUNG, query, retry_refusal=True)
    assert (controller.asked == 1) is once
    assert ("`syntony changes` shows it" in str(raised.value)) is once


@pytest.mark.parametrize(("name", "once"), [("nobody", True), ("h0", False)])
def test_a_revocation_waits_for_hosts_of_the_lab_only(
    monkeypatch: pytest.MonkeyPatch, name: str, once: bool
) -> None:
    """A host's certificate is known once its agent has attached."""
    controller = Controller(monkeypatch, RefusalError("no certificate of it is known"))
    status = LabStatus(
        name="lab", directory="lab", age_ns=0, spec=FabricSpec(), hosts=("h0", "h1"), leaves=(),
        spines=(), links=(), avoided=(), faults=(), daemons=(),
    )  # fmt: skip
    monkeypatch.setattr(state, "find", lambda _: Path("lab"))
    monkeypatch.setattr(Lab, "status", lambda _: status)
    monkeypatch.setattr(fleet, "fleet_target", lambda *_: YOUNG)
    with pytest.raises(RefusalError):
        enrol.revoke.main([name, "--lab", "lab"], standalone_mode=False)
    assert (controller.asked == 1) is once


def test_a_request_that_was_sent_and_not_answered_is_told_from_one_that_was_not(
    tmp_path: Path,
) -> None:
    """A server that takes connections and says nothing; then none."""
    place = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(place)
        silent.listen()
        with pytest.raises(UnansweredError, match="did not answer in time"):
            client.ask(f"unix:{place}", REVOKE, timeout_ns=200 * MS)
    with pytest.raises(RemoteError, match="is it running") as raised:
        client.ask(f"unix:{place}", REVOKE, timeout_ns=20_000 * MS)
    assert not isinstance(raised.value, UnansweredError)


def test_a_socket_of_others_is_no_controller_that_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "is_denied", lambda path, _mode: path == str(tmp_path / "socket"))
    with pytest.raises(RemoteError, match=r"you may not use unix:.*socket: run this as root, or"):
        client.ask(f"unix:{tmp_path / 'socket'}", REVOKE)


def test_a_command_that_asks_twice_says_once_that_it_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = Controller(monkeypatch, RefusalError("nothing is measured yet"))

    @click.command()
    def twice() -> None:
        for _ in range(2):
            with contextlib.suppress(RefusalError):
                ask(YOUNG, IncidentsQuery())

    twice.main([], standalone_mode=False)
    assert controller.asked > 2
    assert capsys.readouterr().err.count("the lab has just come up") == 1
