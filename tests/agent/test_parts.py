"""Supervision of parts, on a seeded machine that breaks and heals by itself."""

from __future__ import annotations

import random
from functools import partial

import pytest

from syntony.agent.parts import MAX_BACKOFF_NS, MIN_BACKOFF_NS, Parts
from syntony.errors import ConfigError, MissingError
from syntony.model import MS, S
from syntony.wire.parts import PartState


class _Machine:
    """Parts that work while nothing is in their way."""

    def __init__(self) -> None:
        self.broken: dict[str, Exception] = {}
        self.attempts: list[str] = []

    def start(self, name: str) -> None:
        self.attempts.append(name)
        if name in self.broken:
            raise self.broken[name]


def _state(parts: Parts, name: str, now_ns: int = 0) -> tuple[PartState, str]:
    status = {each.name: each for each in parts.statuses(now_ns)}[name]
    return status.state, status.reason


def test_a_part_that_cannot_start_costs_no_other() -> None:
    machine, parts = _Machine(), Parts()
    machine.broken = {"b": MissingError("no such NIC"), "c": ZeroDivisionError("bug")}
    for name in "abcd":
        parts.add(name, partial(machine.start, name), 0)
    assert _state(parts, "a") == (PartState.RUNNING, "")
    assert _state(parts, "b") == (PartState.WAITING, "no such NIC")
    assert _state(parts, "c") == (PartState.FAILED, "ZeroDivisionError: bug")
    assert parts.is_running("d")


@pytest.mark.parametrize("seed", range(20))
def test_every_part_runs_soon_after_nothing_is_in_its_way(seed: int) -> None:
    rng = random.Random(seed)
    machine, parts = _Machine(), Parts()
    names = [f"p{number}" for number in range(rng.randint(1, 6))]
    for name in names:
        parts.add(name, partial(machine.start, name), 0)
    now_ns = 0
    for _ in range(400):
        now_ns += rng.randint(1, 2_000) * MS
        name = rng.choice(names)
        if rng.random() < 0.3:
            error: Exception = rng.choice([MissingError("gone"), OSError(5, "I/O"), KeyError("x")])
            machine.broken[name] = error
            if rng.random() < 0.5 and parts.is_running(name):
                parts.fail(name, error, now_ns)
        elif rng.random() < 0.5:
            machine.broken.pop(name, None)
        parts.retry(now_ns)
        for status in parts.statuses(now_ns):
            assert (status.state is PartState.RUNNING) == (status.reason == ""), seed
            assert status.age_ns >= 0
    machine.broken.clear()
    parts.retry(now_ns + MAX_BACKOFF_NS)
    assert all(parts.is_running(name) for name in names), seed


def test_attempts_become_rarer_and_are_bounded() -> None:
    machine, parts = _Machine(), Parts()
    machine.broken["a"] = MissingError("gone")
    parts.add("a", lambda: machine.start("a"), 0)
    for now_s in range(1, 601):
        parts.retry(now_s * S)
    assert 20 <= len(machine.attempts) <= 30
    assert MIN_BACKOFF_NS < MAX_BACKOFF_NS
    assert _state(parts, "a") == (PartState.WAITING, "gone")
    assert next(iter(parts.statuses(600 * S))).age_ns == 600 * S, "since it first failed"


def test_a_step_that_fails_is_not_tried_again_at_once_and_others_go_on() -> None:
    parts, steps = Parts(), []

    def step() -> int:
        steps.append(1)
        raise OSError(5, "Input/output error")

    for name in ("links", "orders"):
        parts.add(name, lambda: None, 0)
    assert parts.run("links", step, 1) is None
    assert parts.run("links", step, 2) is None
    assert len(steps) == 1
    assert _state(parts, "links")[1] == "[Errno 5] Input/output error"
    assert parts.run("orders", lambda: 7, 3) == 7
    parts.retry(2 * S)
    parts.run("links", step, 2 * S)
    assert len(steps) == 2
    assert parts.run("links", lambda: 7, 2 * S, always=True) == 7


def test_a_wrong_configuration_ends_the_start() -> None:
    def start() -> None:
        raise ConfigError("metrics: not an address")

    with pytest.raises(ConfigError):
        Parts().add("metrics", start, 0)


def test_what_stays_is_no_change() -> None:
    """Told again and again, a part is as long as it has been so."""
    machine, parts = _Machine(), Parts()
    parts.add("a", lambda: machine.start("a"), 0)
    machine.broken["a"] = MissingError("gone")
    parts.fail("a", MissingError("gone"), 2 * S)
    for now_s in range(3, 60):
        parts.retry(now_s * S)
    (reported,) = parts.statuses(60 * S)
    assert (reported.state, reported.reason, reported.age_ns) == (PartState.WAITING, "gone", 58 * S)


def test_a_part_may_be_tried_more_often_than_others() -> None:
    machine, parts = _Machine(), Parts()
    machine.broken = {"often": MissingError("gone"), "seldom": MissingError("gone")}
    parts.add("often", lambda: machine.start("often"), 0, 2 * S)
    parts.add("seldom", lambda: machine.start("seldom"), 0)
    for now_s in range(1, 120):
        parts.retry(now_s * S)
    assert machine.attempts.count("often") == 61
    assert 5 <= machine.attempts.count("seldom") <= 10
