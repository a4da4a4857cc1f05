"""Drawing clocks from a seed, and reading clock options."""

from __future__ import annotations

import pytest

from syntony.errors import UsageError
from syntony.lab.clocks import (
    DRIFT_PPB,
    OFFSET_NS,
    ClockOptions,
    draw_clocks,
    parse_step,
    parse_swing,
)
from syntony.model import MS, S

HOSTS = tuple(f"h{i}" for i in range(64))


def test_clocks_are_within_their_bounds_different_and_reproducible() -> None:
    clocks = draw_clocks(HOSTS, 1, 10**18, ClockOptions())
    assert clocks == draw_clocks(HOSTS, 1, 10**18, ClockOptions())
    assert len({c.offset_ns for c in clocks.values()}) == len(HOSTS)
    assert len({c.seed for c in clocks.values()}) == len(HOSTS)
    assert all(abs(c.offset_ns) <= OFFSET_NS for c in clocks.values())
    assert all(abs(c.drift_ppb) <= DRIFT_PPB for c in clocks.values())
    assert all(c.base_ns == 10**18 for c in clocks.values())


def test_another_seed_gives_other_clocks() -> None:
    one, two = (draw_clocks(HOSTS, seed, 0, ClockOptions()) for seed in (1, 2))
    assert all(one[host].offset_ns != two[host].offset_ns for host in HOSTS)


def test_a_host_that_knows_utc_has_the_machines_clock() -> None:
    clocks = draw_clocks(HOSTS[:3], 1, 10**18, ClockOptions(utc=("h1",), steps=(("h1", 5, 7),)))
    assert (clocks["h1"].offset_ns, clocks["h1"].drift_ppb, clocks["h1"].wander_ppb) == (0, 0, 0)
    assert clocks["h1"].steps == ((10**18 + 5, 7),)
    assert clocks["h0"] == draw_clocks(HOSTS, 1, 10**18, ClockOptions())["h0"]
    with pytest.raises(UsageError, match="h99"):
        draw_clocks(HOSTS, 1, 0, ClockOptions(utc=("h99",)))


def test_a_host_keeps_its_clock_when_the_fleet_grows() -> None:
    small = draw_clocks(HOSTS[:2], 1, 0, ClockOptions())
    assert small["h1"] == draw_clocks(HOSTS, 1, 0, ClockOptions())["h1"]


def test_steps_are_absolute_and_ascending() -> None:
    options = ClockOptions(steps=(parse_step("h3:30s:-1ms"), parse_step("h3:10s:2ms")))
    clocks = draw_clocks(HOSTS, 1, 100, options)
    assert clocks["h3"].steps == ((10 * S + 100, 2 * MS), (30 * S + 100, -MS))
    assert clocks["h4"].steps == ()


def test_swing() -> None:
    assert parse_swing("200ppb:10m") == (200.0, 600 * S)
    assert parse_swing("12.5:1s") == (12.5, S)


@pytest.mark.parametrize("text", ["", "200", "200ppb", "x:1s", "1:0s", "-5:1s", "nan:1s", "1:1"])
def test_bad_swing(text: str) -> None:
    with pytest.raises(UsageError):
        parse_swing(text)


@pytest.mark.parametrize("text", ["", "h3", "h3:1s", "h3:1s:1", "h3:-1s:1ms", "h3:1s:1ms:2"])
def test_bad_step(text: str) -> None:
    with pytest.raises(UsageError):
        parse_step(text)
