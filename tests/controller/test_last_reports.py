"""Whose silence it is: an agent's, or the controller's own absence."""

from __future__ import annotations

import random

import pytest

from syntony.controller.last_reports import (
    BACK_NS,
    MAX_TICK_NS,
    PAUSE_NS,
    STARTING_NS,
    TICK_NS,
    LastReports,
)
from syntony.model import S

HOSTS = ("h0", "h1")


class Desk:
    """A controller that hears both hosts once a second, but for those that are silent."""

    def __init__(self, now_ns: int = 7 * S) -> None:
        self.now_ns = now_ns
        self.last_reports = LastReports(now_ns)
        self.dead: set[str] = set()

    def run(self, for_ns: int, step_ns: int = TICK_NS) -> int:
        paused_ns, end_ns = 0, self.now_ns + for_ns
        while self.now_ns < end_ns:
            self.now_ns += step_ns
            paused_ns += self.last_reports.tick(self.now_ns)
            for host in HOSTS:
                if host not in self.dead:
                    self.last_reports.received(host)
        return paused_ns

    def settled(self) -> bool:
        return self.last_reports.settled

    def silent(self) -> dict[str, int]:
        return self.last_reports.silent(HOSTS)


def test_a_dead_agent_is_silent_for_as_long_as_it_is() -> None:
    service = Desk()
    service.run(60 * S)
    service.dead.add("h1")
    service.run(12 * S)
    assert service.silent() == {"h0": 0, "h1": 12 * S}


def test_nobody_is_missed_right_after_a_start_and_then_those_never_heard_are() -> None:
    service = Desk()
    service.dead.add("h1")
    service.run(STARTING_NS)
    assert service.silent() == {"h0": 0, "h1": 0}
    service.run(11 * S)
    assert service.silent() == {"h0": 0, "h1": 11 * S}


@pytest.mark.parametrize("paused_ns", [PAUSE_NS, 24 * S, 3600 * S])
def test_a_pause_of_the_controller_is_nobodys_silence(paused_ns: int) -> None:
    service = Desk()
    service.run(60 * S)
    service.dead.add("h1")
    service.run(4 * S)
    service.now_ns += paused_ns - TICK_NS
    assert service.last_reports.tick(service.now_ns + TICK_NS) == paused_ns
    service.now_ns += TICK_NS
    assert service.last_reports.paused_ns == paused_ns
    assert service.silent() == {"h0": MAX_TICK_NS, "h1": 4 * S + MAX_TICK_NS}
    assert not service.settled(), "nothing is judged by what was known before"
    service.run(BACK_NS - TICK_NS)
    assert not service.settled()
    service.run(TICK_NS)
    assert service.settled()
    assert service.silent() == {"h0": 0, "h1": 4 * S + MAX_TICK_NS + BACK_NS}, (
        "the dead one is found"
    )


def test_a_short_gap_is_no_absence() -> None:
    service = Desk()
    service.run(60 * S)
    assert service.last_reports.tick(service.now_ns + PAUSE_NS - 1) == 0
    assert service.settled()
    assert service.last_reports.paused_ns == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_starved_controller_blames_nobody_that_speaks(seed: int) -> None:
    """It comes round at random, and reads then what has been waiting; a dead agent is found when
    it has come round often enough."""
    rng = random.Random(seed)
    service = Desk()
    service.run(60 * S)
    service.dead.add("h1")
    for _ in range(200):
        gap_ns = round(rng.expovariate(1 / 2) * S)
        service.last_reports.tick(service.now_ns + gap_ns)
        service.now_ns += gap_ns
        assert service.silent()["h0"] <= MAX_TICK_NS, f"seed {seed}"
        service.last_reports.received("h0")
    assert service.silent()["h1"] > 10 * S, f"seed {seed}"
