"""A gateway without a leader lets its agents try another one, each once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.controller.test_sessions import CERTIFICATE
from tests.link import hello

from syntony.controller.gateway import LEADERLESS_NS, RELEASED_AT_ONCE, Gateway
from syntony.controller.sessions import AgentSession
from syntony.model import S


class Bench:
    """A gateway whose leader comes and goes, with agents; time is an argument."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, agents: int) -> None:
        self.gateway = Gateway(("leader:1",), None, None, lambda: 0)  # type: ignore[arg-type]
        self.led = True
        link = type(self.gateway.link)
        monkeypatch.setattr(link, "connected", property(lambda _: self.led))
        self.now_ns = self.gateway._led_ns
        self.sessions = [self.attach(f"h{number}") for number in range(agents)]

    def attach(self, host: str) -> AgentSession:
        greeting = hello(host, "s")
        session = AgentSession(greeting, CERTIFICATE)
        self.gateway.attached(session, greeting, ())
        return session

    def go_on(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_ns += S
            self.gateway._release(self.now_ns)

    def let_go(self) -> list[str]:
        """Those whose stream ends."""
        every: list[Any] = [*self.sessions]
        return [each.host for each in every if each.outbox._closed]


@pytest.mark.parametrize("agents", [1, 7, 40])
def test_agents_are_let_go_once_and_not_all_at_once(
    monkeypatch: pytest.MonkeyPatch, agents: int
) -> None:
    async def work() -> None:
        bench = Bench(monkeypatch, agents)
        bench.go_on(3)
        bench.led = False
        bench.go_on(LEADERLESS_NS // S - 1)
        assert bench.let_go() == []
        bench.go_on(1)
        first = bench.let_go()
        assert 0 < len(first) <= agents * RELEASED_AT_ONCE + 1
        late = bench.attach("late")
        bench.go_on(30)
        assert len(bench.let_go()) == agents
        assert not late.outbox._closed, "it was let go by another one"

    asyncio.run(work())


def test_a_leader_that_is_back_in_time_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        bench = Bench(monkeypatch, 4)
        for _ in range(3):
            bench.led = False
            bench.go_on(LEADERLESS_NS // S - 1)
            bench.led = True
            bench.go_on(1)
        assert bench.let_go() == []
        bench.led = False
        bench.go_on(LEADERLESS_NS // S + 1)
        gone = len(bench.let_go())
        bench.led = True
        bench.go_on(30)
        assert len(bench.let_go()) == gone < 4

    asyncio.run(work())


def test_the_next_time_without_a_leader_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        bench = Bench(monkeypatch, 1)
        bench.led = False
        bench.go_on(60)
        bench.sessions.append(bench.attach("h9"))
        bench.go_on(60)
        assert bench.let_go() == ["h0"]
        bench.led = True
        bench.go_on(1)
        bench.led = False
        bench.go_on(60)
        assert bench.let_go() == ["h0", "h9"]

    asyncio.run(work())
