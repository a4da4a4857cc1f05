"""A standby opens control state only if a check shows that it may be free."""

from __future__ import annotations

import time

import pytest

from syntony.controller import open_state
from syntony.controller.config import ControllerConfig
from syntony.state import ControlState, InUseError


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
    config = ControllerConfig(
        listen="c:1", tls_ca="", tls_cert="", tls_key="", state="postgresql:///x", standby=True
    )
    with open_state.open_state(config) as state:
        assert state is opened
    assert len(attempts) == 3
    assert waits == [open_state.STANDBY_S] * 43
