"""Agents that fall silent: one by one they are hosts, most of them at once is what they share."""

from __future__ import annotations

import random

import pytest
from tests.controller.judged import Control, line

from syntony.controller.places import FLEET
from syntony.model import ClockState, S

TICK_S = 2


def fall_silent(control: Control, hosts: list[str], rng: random.Random, seconds: int) -> None:
    """Each said its last word at an instant of its own, within a second and a half."""
    ages = {host: rng.randrange(-3 * S // 2, 1) for host in hosts}
    for _ in range(seconds // TICK_S):
        ages = {host: age_ns + TICK_S * S for host, age_ns in ages.items()}
        control.silent |= {host: max(0, age_ns) for host, age_ns in ages.items()}
        control.tick()


def hear_again(control: Control, hosts: list[str], seconds: int) -> None:
    control.silent |= dict.fromkeys(hosts, 0)
    control.tick(seconds // TICK_S)


@pytest.mark.parametrize("case", range(6))
def test_a_dead_management_network_is_one_page(control: Control, case: int) -> None:
    seed = random.SystemRandom().randrange(10_000) if case else 1
    rng = random.Random(seed)
    hosts = [f"h{number}" for number in range(rng.randint(3, 60))]
    control.silent = dict.fromkeys(hosts, 0)
    control.timelines = tuple(line(host, ClockState.SYNCHRONIZED) for host in hosts)
    control.tick(3)
    gone = rng.sample(hosts, rng.randint(len(hosts) // 2 + 1, len(hosts)))
    fall_silent(control, gone, rng, 60)
    assert control.pages() == [f"fleet-silent {FLEET}"], f"seed {seed}"
    assert len(control.live()) == len(gone) + 1, f"seed {seed}: each is kept as evidence"
    hear_again(control, gone, 60)
    assert control.live() == {}, f"seed {seed}"
    assert len(control.pages()) == 1, f"seed {seed}: none after it is back"


@pytest.mark.parametrize("case", range(4))
def test_half_of_them_or_fewer_are_hosts_of_their_own(control: Control, case: int) -> None:
    seed = random.SystemRandom().randrange(10_000) if case else 1
    rng = random.Random(seed)
    hosts = [f"h{number}" for number in range(rng.randint(3, 20))]
    control.silent = dict.fromkeys(hosts, 0)
    gone = rng.sample(hosts, rng.randint(1, len(hosts) // 2))
    fall_silent(control, gone, rng, 40)
    assert sorted(control.pages()) == sorted(f"host-silent {host}" for host in gone), f"seed {seed}"


def test_of_two_agents_neither_stands_for_the_fleet(control: Control) -> None:
    fall_silent(control, ["h0", "h1"], random.Random(1), 40)
    assert sorted(control.pages()) == ["host-silent h0", "host-silent h1"]


def test_who_stays_away_when_the_others_are_back_is_a_host_of_its_own(control: Control) -> None:
    hosts = [f"h{number}" for number in range(8)]
    control.silent = dict.fromkeys(hosts, 0)
    fall_silent(control, hosts, random.Random(1), 30)
    hear_again(control, hosts[1:], 30)
    control.silent["h0"] = 90 * S
    control.tick(10)
    assert control.pages() == [f"fleet-silent {FLEET}", "host-silent h0"]
    assert control.live() == {"h0": "host-silent"}
