"""When a controller opens its control state again."""

from __future__ import annotations

import logging
import time

import pytest

from syntony.controller import open_state
from syntony.controller.config import ControllerConfig
from syntony.errors import ConfigError
from syntony.state import ControlState, InUseError, SilentError


def config(*, standby: bool) -> ControllerConfig:
    return ControllerConfig(
        listen="c:1", tls_ca="", tls_cert="", tls_key="", state="postgresql:///x", standby=standby
    )


def test_a_standby_does_not_open_control_state_while_it_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = iter([False] * 40 + [True, False, True])
    attempts, waits = list[object](), list[float]()
    opened = ControlState(None)

    def attempt(place: object) -> ControlState:
        attempts.append(place)
        if len(attempts) < 3:
            raise InUseError("in use")
        return opened

    monkeypatch.setattr(open_state, "ControlState", attempt)
    monkeypatch.setattr(open_state, "check_of", lambda _: lambda: next(checks))
    monkeypatch.setattr(time, "sleep", waits.append)
    with open_state.open_state(config(standby=True)) as state:
        assert state is opened
    assert len(attempts) == 3
    assert waits == [open_state.STANDBY_S] * 43


def answers(monkeypatch: pytest.MonkeyPatch, *errors: ConfigError) -> ControlState:
    """What attempts to open control state give: these errors, then the one returned."""
    opened, left = ControlState(None), iter(errors)

    def attempt(place: object) -> ControlState:
        for error in left:
            raise error
        return opened

    monkeypatch.setattr(open_state, "ControlState", attempt)
    monkeypatch.setattr(open_state, "check_of", lambda _: lambda: True)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return opened


@pytest.mark.parametrize("standby", [False, True])
def test_a_database_that_does_not_answer_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, standby: bool
) -> None:
    """From the first attempt on, and while it starts again; each reason is logged once."""
    silent = [SilentError("no answer")] * 3
    opened = answers(monkeypatch, *silent, ConfigError("it starts"), *silent)
    with caplog.at_level(logging.INFO, "syntony"):
        assert open_state.open_state(config(standby=standby)) is opened
    who = "standby" if standby else "starting"
    assert caplog.messages == [f"{who}, waiting reason={why}" for why in ("no answer", "it starts")]


@pytest.mark.parametrize(
    ("standby", "errors"),
    [
        (True, [ConfigError("refused")]),
        (False, [ConfigError("refused")]),
        (False, [InUseError("in use")]),
        (False, [SilentError("no answer"), InUseError("in use")]),
    ],
)
def test_what_waiting_does_not_help_ends_a_start(
    monkeypatch: pytest.MonkeyPatch, *, standby: bool, errors: list[ConfigError]
) -> None:
    answers(monkeypatch, *errors)
    with pytest.raises(type(errors[-1]), match=str(errors[-1])):
        open_state.open_state(config(standby=standby))
