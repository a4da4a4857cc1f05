"""Waiting on a stage: once a second, past a controller that does not answer, not for ever."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from syntony.demo import acts, before_the_race, named_cause
from syntony.demo.screen import Screen
from syntony.demo.stage import ANSWER_NS, Stage
from syntony.errors import RemoteError
from syntony.lab.client import Lab
from syntony.model import S
from syntony.wire.incidents import IncidentsQuery, IncidentsReply

MOST_QUESTIONS_PER_S = 8


class Clock:
    """Time passes when somebody sleeps, and 1 µs whenever it is read."""

    def __init__(self) -> None:
        self.now_ns = 5 * S

    def monotonic_ns(self) -> int:
        self.now_ns += 1_000
        return self.now_ns

    def sleep(self, for_s: float) -> None:
        self.now_ns += round(for_s * S)


class Controller:
    """Does not answer until `silent_s` are over; has a live incident until `open_s` are."""

    def __init__(self, clock: Clock, *, silent_s: int = 0, open_s: int = 0) -> None:
        self._clock, self._began_ns = clock, clock.now_ns
        self._silent_s, self._open_s = silent_s, open_s
        self.questions = 0

    @property
    def passed_s(self) -> float:
        return (self._clock.now_ns - self._began_ns) / S

    def ask(self, _target: str, query: object) -> object:
        self.questions += 1
        assert self.questions <= MOST_QUESTIONS_PER_S * (self.passed_s + 2), (
            "it starves who it asks"
        )
        if self.passed_s < self._silent_s:
            raise RemoteError("the controller did not answer in time")
        if not isinstance(query, IncidentsQuery):
            raise RemoteError("nothing is known yet")
        live = ({"subject": "h1/rail1", "rule": "link-flapping"},)
        return IncidentsReply(
            incidents=live if self.passed_s < self._open_s else (), silences=(), waiting=0
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(time, "monotonic_ns", fake.monotonic_ns)
    monkeypatch.setattr(time, "sleep", fake.sleep)
    return fake


@pytest.fixture
def stage() -> Stage:
    spec = SimpleNamespace(rails=2)
    status = SimpleNamespace(hosts=("h0", "h1"), leaves=("l0",), spines=("s0",), spec=spec)
    lab = SimpleNamespace(controller_socket="nowhere", status=lambda: status, truth=lambda: ())
    return Stage(cast("Lab", lab), Screen(Console(file=io.StringIO(), width=200)))


@pytest.mark.parametrize(
    ("wait", "silent_s", "open_s", "ends_s"),
    [
        (before_the_race.settle, 0, 7, 7),
        (before_the_race.settle, 9, 4, 9),
        (before_the_race.settle, 99, 0, before_the_race.SETTLE_NS // S),
        (before_the_race.settle, 0, 99, before_the_race.SETTLE_NS // S),
        (acts.find_clocks, 99, 0, acts.CONVERGE_TIMEOUT_NS // S),
        (lambda on: named_cause.wait_for_incident(on, lambda _: True), 11, 99, 11),
        (lambda on: named_cause.wait_for_incident(on, lambda _: False), 0, 99, 60),
    ],
)
def test_a_wait_is_patient_and_ends(
    clock: Clock,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    wait: Callable[[Stage], object],
    *,
    silent_s: int,
    open_s: int,
    ends_s: int,
) -> None:
    controller = Controller(clock, silent_s=silent_s, open_s=open_s)
    monkeypatch.setattr("syntony.demo.stage.ask", controller.ask)
    wait(stage)
    assert ends_s <= controller.passed_s < ends_s + 2


def test_what_an_act_needs_is_asked_for_again(
    clock: Clock, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(clock, silent_s=20, open_s=99)
    monkeypatch.setattr("syntony.demo.stage.ask", controller.ask)
    with pytest.raises(RemoteError):
        stage.incidents()
    assert stage.retry(stage.incidents)
    assert 20 <= controller.passed_s < 22


def test_a_controller_that_stays_silent_ends_the_act(
    clock: Clock, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(clock, silent_s=999)
    monkeypatch.setattr("syntony.demo.stage.ask", controller.ask)
    with pytest.raises(RemoteError, match="did not answer in time"):
        stage.retry(stage.incidents)
    assert ANSWER_NS // S <= controller.passed_s < ANSWER_NS // S + 2


def test_fleet_time_without_a_timeline_is_no_defect(
    clock: Clock, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syntony.demo.stage.ask", Controller(clock, silent_s=9).ask)
    monkeypatch.setattr(stage.lab, "truth", lambda: (SimpleNamespace(host="h0"),), raising=False)
    with pytest.raises(RemoteError, match="no timeline of h0"):
        stage.fleet_ns()
