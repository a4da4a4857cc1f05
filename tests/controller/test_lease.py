"""A controller whose control state does not answer lets its agents look for another one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from syntony.controller.lease import DOUBT_CHECK_NS, DOUBT_NS, LeaseWatch
from syntony.controller.server import Controller
from syntony.controller.sessions import Opening
from syntony.model import S
from syntony.state import ControlState


class Leader:
    """A controller's look at its lease, and time."""

    def __init__(self, state: ControlState) -> None:
        self.now_ns = time.monotonic_ns()
        self._state = state
        self.released = list[int]()
        self._watch = LeaseWatch(state, lambda _: None, lambda: self.released.append(self.now_ns))

    def look(self) -> None:
        asyncio.run(self._watch.doubt_lease())

    def go_on(self, for_ns: int, *, answers: bool) -> list[float]:
        """When it released its agents, in seconds from the beginning."""
        began_ns = self.now_ns
        self.released.clear()
        while self.now_ns < began_ns + for_ns:
            self.now_ns += DOUBT_CHECK_NS
            if answers:
                self._state.database.check()
            self.look()
        return [(at_ns - began_ns) / S for at_ns in self.released]


@pytest.fixture
def leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leader]:
    with ControlState(tmp_path) as state:
        made = Leader(state)
        monkeypatch.setattr(time, "monotonic_ns", lambda: made.now_ns)
        yield made


def test_agents_are_released_while_the_lease_is_in_doubt(leader: Leader) -> None:
    assert leader.go_on(10 * S, answers=True) == []
    once_s = (DOUBT_NS + DOUBT_CHECK_NS) / S
    assert leader.go_on(3 * DOUBT_NS + S, answers=False) == [once_s, 2 * once_s, 3 * once_s]
    assert leader.go_on(10 * S, answers=True) == []
    assert leader.go_on(DOUBT_NS, answers=False) == []


@pytest.mark.parametrize("pause_s", [3.6, 20])
def test_a_pause_of_the_controller_is_no_doubt(leader: Leader, pause_s: float) -> None:
    """It did not ask meanwhile: its agents stay, while control state answers from then on."""
    leader.look()
    leader.now_ns += round(pause_s * S)
    leader.look()
    assert leader.released == []
    assert leader.go_on(20 * DOUBT_CHECK_NS, answers=True) == []


def test_agents_behind_a_gateway_stay_attached_to_it() -> None:
    """The gateway looks for the next leader; its agents need not."""
    ended = list[str]()

    def session(name: str, via: str) -> SimpleNamespace:
        outbox = SimpleNamespace(close=lambda: ended.append(name))
        return SimpleNamespace(opening=Opening(via=via), outbox=outbox)

    leader = SimpleNamespace(
        _gateways=SimpleNamespace(release=lambda: ended.append("gateways")),
        _sessions={"h0": session("h0", ""), "h1": session("h1", "g1")},
    )
    Controller._release(leader)  # type: ignore[arg-type]
    assert sorted(ended) == ["gateways", "h0"]
