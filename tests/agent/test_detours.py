"""The table of detours is made by another thread than the one that reacts, and misses nothing."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from syntony.agent.steering import detours
from syntony.agent.steering.detours import Detours
from syntony.errors import MissingError
from syntony.model.paths import FourTuple
from syntony.traffic.instructions import Cause, Expect, Reason, Redirect


class Made:
    """What a table and its routes were asked for, and by which threads they were made."""

    def __init__(self, patch: pytest.MonkeyPatch, *, missing: str = "") -> None:
        self.may_open = threading.Event()
        self.by: set[int] = set()
        self.expected: dict[FourTuple, Any] = {}
        self.sent: dict[FourTuple, FourTuple] = {}
        self.offers: set[tuple[str, str]] = set()
        self.closed = 0
        made = self

        class Table:
            def __init__(self) -> None:
                made.by.add(threading.get_ident())
                assert made.may_open.wait(600)
                if missing:
                    raise MissingError(missing)

            def beat(self) -> None: ...

            def change(self, expected: Any = (), sent: Any = ()) -> None:
                made.expected |= dict(expected)
                made.sent |= dict(sent)

            def close(self) -> None:
                made.closed += 1

        class Routes:
            def __init__(self) -> None:
                made.by.add(threading.get_ident())

            def offer(self, remote: str, _like: Any, nic: str, _metric: int) -> None:
                made.offers.add((remote, nic))

            def close(self) -> None:
                made.closed += 1

        patch.setattr(detours, "DetourTable", Table)
        patch.setattr(detours, "HostRoutes", Routes)
        patch.setattr(detours, "strict_nics", lambda _: [])


def flow(number: int) -> FourTuple:
    return FourTuple("10.0.0.1", 1000 + number, "10.0.0.2", 5000)


def expect(number: int) -> Expect:
    wires = tuple(flow(number)._replace(local=f"10.{rail}.0.1") for rail in (0, 1))
    return Expect(flow=flow(number), wires=wires)


def redirect(number: int) -> Redirect:
    wire = flow(number)._replace(local="10.1.0.1", remote="10.1.0.2")
    reason = Reason(cause=Cause.LOCAL_CARRIER, evidence="", at_ns=0, since_ns=0)
    return Redirect(
        token=number, job="j", flow=flow(number), old=flow(number), wire=wire, reason=reason
    )


def make(posted: deque[Callable[[], None]], reported: list[object]) -> Detours:
    names = {"10.0.0.1": "nic0", "10.1.0.1": "nic1"}
    return Detours(lambda: ["nic0", "nic1"], names.get, reported.append, posted.append)


def test_connections_are_known_at_once_and_entered_when_the_table_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed = random.randrange(1 << 32)
    rng, made = random.Random(seed), Made(monkeypatch)
    posted: deque[Callable[[], None]] = deque()
    reported: list[object] = []
    its = make(posted, reported)
    known = 0
    for _ in range(rng.randrange(1, 20)):  # none of these waits: nobody may open yet
        more = rng.randrange(1, 5)
        assert its.do([expect(known + each) for each in range(more)]) == ""
        known += more
    assert made.expected == {}
    made.may_open.set()
    assert its._opener is not None
    its._opener.join()
    (take,) = posted
    take()
    assert made.expected.keys() == {flow(number) for number in range(known)}, f"seed {seed}"
    assert made.offers == {("10.0.0.2", "nic1")}
    assert len(reported) == 1
    assert its.do([expect(known), redirect(0)]) == ""
    assert made.sent.keys() == {flow(0)}
    assert flow(known) in made.expected
    assert threading.get_ident() not in made.by
    assert len(made.by) == 1
    its.close()
    assert made.closed == 2


def test_a_detour_that_cannot_wait_has_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    made, reported = Made(monkeypatch), list[object]()
    its = make(deque(), reported)
    assert its.do([expect(1)]) == ""
    threading.Timer(0.05, made.may_open.set).start()
    assert its.do([expect(2), redirect(1)]) == ""
    assert made.expected.keys() == {flow(1), flow(2)}
    assert made.sent.keys() == {flow(1)}
    its.close()


def test_what_cannot_be_made_is_said_to_whoever_wants_a_detour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, reported = Made(monkeypatch, missing="no nft"), list[object]()
    posted: deque[Callable[[], None]] = deque()
    its = make(posted, reported)
    made.may_open.set()
    assert its.do([expect(1)]) == ""
    assert its.do([redirect(1)]) == "no nft"
    assert its.do([expect(2)]) == "no nft"
    for take in posted:
        take()
    assert reported == []
    its.close()


def test_a_table_that_comes_when_all_is_over_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made, reported = Made(monkeypatch), list[object]()
    its = make(deque(), reported)
    assert its.do([expect(1)]) == ""
    threading.Timer(0.05, made.may_open.set).start()
    its.close()
    assert made.closed == 2
