"""What the answer of localisation says between its searches, and without fleet time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.store.rows import T0

from syntony.controller.locating import LocateLoop
from syntony.model import S
from syntony.wire.fabric import Losing


def locating() -> LocateLoop:
    """Without any path."""
    fabric = SimpleNamespace(learnt_paths=lambda *_: ())
    return LocateLoop(cast("Any", SimpleNamespace(fabric=fabric)), "")


def test_delays_of_queues_without_a_cause_are_said_every_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Queues are searched every other second."""
    loop, found = locating(), [5, 3]
    watch = loop._watch

    def queues() -> tuple[()]:
        watch.unexplained_queued = found.pop(0)
        return ()

    monkeypatch.setattr(watch, "queues", queues)
    said = []
    for second in range(T0 // S, T0 // S + 4):
        loop.step((second + 2) * S, second, {})
        said.append(loop.answer.unexplained_late)
    assert said == [5, 5, 3, 3]


def test_without_fleet_time_there_are_no_losses_of_now() -> None:
    loop = locating()
    loop.fresh.losing = Losing(lost=9, paths=3, nics=("h0/rail0",))
    loop.look_at_losses(None)
    assert loop.fresh.losing is None
