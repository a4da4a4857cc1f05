"""What the answer of localisation says between its searches, and without fleet time."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.controller.judged import finding
from tests.store.rows import T0

from syntony.controller.locating import LocateLoop
from syntony.fabric.book import Way
from syntony.fabric.changes import HOLD_NS, LOOK_NS
from syntony.fabric.departures import ENOUGH
from syntony.model import S
from syntony.model.findings import Finding
from syntony.store import TracedPathRow
from syntony.wire.fabric import Losing


def locating(paths: Collection[TracedPathRow] = ()) -> LocateLoop:
    """Of a fleet with these paths, which may become more."""

    def learnt_paths(first_ns: int, last_ns: int) -> list[TracedPathRow]:
        return sorted(row for row in paths if first_ns <= row.ts_ns <= last_ns)

    return LocateLoop(cast("Any", SimpleNamespace(fabric=SimpleNamespace(
        learnt_paths=learnt_paths))), "")  # fmt: skip


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


def traced(second: int, port: int, hops: str) -> TracedPathRow:
    return TracedPathRow(second * S, "h0/rail0", "h1/rail0", port, 8620, hops)


def run(loop: LocateLoop, first: int, last: int) -> None:
    for second in range(first, last):
        loop.step((second + 2) * S, second, {})


def test_an_answer_that_was_lost_once_counts_once_although_paths_are_read_again() -> None:
    """Each second those of the last ten are."""
    first = T0 // S
    paths = [traced(first, 61_000, "leaf0 spine1 leaf1"),
             traced(first + 20, 61_000, "leaf0 * leaf1")]  # fmt: skip
    loop = locating(paths)
    run(loop, first, first + 24)
    paths.append(traced(first + 24, 61_000, "leaf0 spine1 leaf1"))
    run(loop, first + 24, first + 40)
    assert loop.changes._map.silent._answers.lost(["leaf0"]) == 1


def test_a_lost_cable_is_not_back_because_old_paths_are_read_again_beside_late_ones() -> None:
    first, kept = T0 // S, Way("h0/rail0", "h1/rail0", 61_000, 8620)
    ports = range(kept.sport + 1, kept.sport + 2 * ENOUGH)
    paths = [traced(first, port, "leaf0 spine1 leaf1") for port in (kept.sport, *ports)]
    paths += [traced(first + 2, port, "leaf0 spine0 leaf1") for port in ports]
    loop, lost = locating(paths), first + (LOOK_NS + 2 * HOLD_NS) // S
    run(loop, first, lost)
    cables = {"leaf0--spine1", "leaf1--spine1"}
    assert loop.changes.status is not None
    assert set(loop.changes.status.lost) == cables
    assert kept not in loop.changes._map
    loop.path_window.stored(first * S)
    run(loop, lost, lost + 2 * HOLD_NS // S)
    assert set(loop.changes.status.lost) == cables
