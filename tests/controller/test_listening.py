"""Whose silence it is: an agent's, or the controller's own absence."""

from __future__ import annotations

import random

import pytest

from syntony.controller.listening import (
    AWAY_NS,
    BACK_NS,
    MOST_NS,
    STARTING_NS,
    TICK_NS,
    Listening,
)
from syntony.model import S

HOSTS = ("h0", "h1")


class Desk:
    """A controller that hears both hosts once a second, but for those that are silent."""

    def __init__(self, now_ns: int = 7 * S) -> None:
        self.now_ns = now_ns
        self.listening = Listening(now_ns)
        self.dead: set[str] = set()

    def run(self, for_ns: int, step_ns: int = TICK_NS) -> int:
        away_ns, end_ns = 0, self.now_ns + for_ns
        while self.now_ns < end_ns:
            self.now_ns += step_ns
            away_ns += self.listening.tick(self.now_ns)
            for host in HOSTS:
                if host not in self.dead:
                    self.listening.heard(host)
        return away_ns

    def settled(self) -> bool:
        return self.listening.settled

    def silent(self) -> dict[str, int]:
        return self.listening.silent(HOSTS)


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


@pytest.mark.parametrize("away_ns", [AWAY_NS, 24 * S, 3600 * S])
def test_a_pause_of_the_controller_is_nobodys_silence(away_ns: int) -> None:
    service = Desk()
    service.run(60 * S)
    service.dead.add("h1")
    service.run(4 * S)
    service.now_ns += away_ns - TICK_NS
    assert service.listening.tick(service.now_ns + TICK_NS) == away_ns
    service.now_ns += TICK_NS
    assert service.listening.away_ns == away_ns
    assert service.silent() == {"h0": MOST_NS, "h1": 4 * S + MOST_NS}
    assert not service.settled(), "nothing is judged by what was known before"
    service.run(BACK_NS - TICK_NS)
    assert not service.settled()
    service.run(TICK_NS)
    assert service.settled()
    assert service.silent() == {"h0": 0, "h1": 4 * S + MOST_NS + BACK_NS}, "the dead one is found"


def test_a_short_gap_is_no_absence() -> None:
    service = Desk()
    service.run(60 * S)
    assert service.listening.tick(service.now_ns + AWAY_NS - 1) == 0
    assert service.settled()
    assert service.listening.away_ns == 0


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
        service.listening.tick(service.now_ns + gap_ns)
        service.now_ns += gap_ns
        assert service.silent()["h0"] <= MOST_NS, f"seed {seed}"
        service.listening.heard("h0")
    assert service.silent()["h1"] > 10 * S, f"seed {seed}"
