"""How often a loop of the controller comes round."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from syntony.controller import loops
from syntony.controller.loops import Loops, storing
from syntony.model import S


@pytest.mark.parametrize(
    ("rest", "took_s", "begins_s"),
    [
        (0, [1, 1, 1], [0, 10, 20]),
        (0, [4, 14, 1], [0, 10, 24]),  # a late round is followed by the next at once
        (9, [1, 1, 1], [0, 10, 20]),
        (9, [3, 1, 1], [0, 30, 40]),
        (9, [2, 5, 1], [0, 20, 70]),
    ],
)
def test_rounds_begin(
    monkeypatch: pytest.MonkeyPatch, rest: int, took_s: list[int], begins_s: list[int]
) -> None:
    now_s, begun = 0.0, list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        if len(begun) == len(took_s):
            raise asyncio.CancelledError

    async def work() -> None:
        nonlocal now_s
        begun.append(now_s)
        now_s += took_s[len(begun) - 1]

    clock = SimpleNamespace(monotonic_ns=lambda: round(now_s * S))
    monkeypatch.setattr(loops, "time", clock)
    monkeypatch.setattr(loops, "asyncio", SimpleNamespace(sleep=sleep))
    made = Loops()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(made.every(10 * S, work, rest))
    assert begun == begins_s
    assert made.counts["work"].spent_ns == sum(took_s) * S


def test_rows_are_queued_once_there_is_fleet_time() -> None:
    instants = iter((None, S, 2 * S))
    row: Any = object()
    queued = list[Any]()
    work = storing("name", lambda: next(instants), {S: None, 2 * S: row}.get, queued.append)
    assert work.__name__ == "name"
    for _ in range(3):
        asyncio.run(work())
    assert queued == [row]
