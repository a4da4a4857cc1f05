"""The thread that reacts notices its own pauses before it decides, wherever they hit it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from syntony.agent.steering import control
from syntony.agent.steering.control import PathControl
from syntony.agent.steering.path_corroboration import Corroborated
from syntony.errors import MissingError
from syntony.model import MS, S
from syntony.model.paths import PathEvent
from syntony.traffic.pair_timeouts import PAUSE_NS
from syntony.traffic.policy import Policy


class Clock:
    """CLOCK_MONOTONIC as the thread reads it; standing still unless it is moved."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * S

    def monotonic_ns(self) -> int:
        return self.now_ns


class Corroboration:
    """What the thread says of itself, in order."""

    def __init__(self, *_: object) -> None:
        self.said: list[str] = []

    def note_wakeup(self, late_ns: int, now_ns: int) -> None: ...

    def note_pause(self, now_ns: int) -> None:
        self.said.append("away")

    def corroborate(self, liveness: object, now_ns: int) -> Corroborated:
        self.said.append("decides")
        return Corroborated(back=False, presumed=())


class Source:
    """Something to be read in the middle of a turn, during which the process may be paused."""

    deadline_ns = 0

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        return -1

    def close(self) -> None: ...

    def poll(self, now_ns: int) -> list[PathEvent]:
        self.meanwhile()
        return []


class Thread:
    """Path control, a turn at a time."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock, self.source = Clock(), Source()
        patch.setattr(control, "time", SimpleNamespace(monotonic_ns=self.clock.monotonic_ns))
        patch.setattr(control, "PathCorroboration", Corroboration)
        patch.setattr(control, "kernel_events", self._no_mptcp)
        self.control = PathControl("h0", Policy(), (), stopped=False, sources=(self.source,))

    @staticmethod
    def _no_mptcp() -> None:
        raise MissingError("no MPTCP here")

    def turn(self) -> list[str]:
        said: list[str] = self.control._corroboration.said  # type: ignore[attr-defined]
        said.clear()
        self.control._turn()
        return list(said)

    def pause(self, pause_ns: int) -> None:
        self.clock.now_ns += pause_ns


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[Thread]:
    with _closed(Thread(monkeypatch)) as found:
        yield found


@contextmanager
def _closed(thread: Thread) -> Iterator[Thread]:
    try:
        yield thread
    finally:
        thread.control.close()


def test_a_pause_between_two_turns(thread: Thread) -> None:
    assert thread.turn() == ["decides"]
    thread.pause(PAUSE_NS - MS)
    assert thread.turn() == ["decides"]
    thread.pause(20 * S)
    assert thread.turn() == ["away", "decides"]
    assert thread.turn() == ["decides"]


def test_a_pause_while_a_turn_reads(thread: Thread) -> None:
    """What was read before it is as old as the pause is long."""
    assert thread.turn() == ["decides"]
    thread.source.meanwhile = lambda: thread.pause(20 * S)
    assert thread.turn() == ["away", "decides"]
    thread.source.meanwhile = lambda: thread.pause(PAUSE_NS - MS)
    assert thread.turn() == ["decides"], "that pause was said"
