"""What the answer of localisation says between its searches, and without fleet time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.controller.judged import finding
from tests.store.rows import T0

from syntony.controller.locating import LocateLoop
from syntony.fabric.departures import ENOUGH
from syntony.model import S
from syntony.model.findings import Finding
from syntony.store.fabric import TracedPathRow
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


def test_losses_and_the_silence_of_a_switch_are_its_death(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, hops = locating(), "leaf0 {} leaf1"
    ways = [(f"h{port % 2}/rail0", "h9/rail0", 61_000 + port, 8620) for port in range(ENOUGH)]

    def second(number: int, spine: str = "", losing: tuple[Finding, ...] = ()) -> None:
        now_ns = T0 + number * S
        rows = (TracedPathRow(now_ns, *way, hops.format(spine)) for way in ways if spine)
        monkeypatch.setattr(loop._store.fabric, "learnt_paths", lambda *_: (*rows,))
        monkeypatch.setattr(loop._watch, "findings", lambda: losing)
        loop.step(now_ns + S, now_ns // S, {})

    second(0, "spine0")
    second(1, losing=(finding("spine0", "spine", loss=1.0, window="1s"),))
    second(3, "*")
    assert loop.changes.status is not None
    assert loop.changes.status.gone == {"spine0": 0}


def test_without_fleet_time_there_are_no_losses_of_now() -> None:
    loop = locating()
    loop.fresh.losing = Losing(lost=9, paths=3, nics=("h0/rail0",))
    loop.look_at_losses(None)
    assert loop.fresh.losing is None
