"""A peer's agent dies or hangs while one of its rails dies: probes say nothing then, data do."""

from __future__ import annotations

import random

import pytest
from tests.cases import mostly_slow
from tests.traffic.network import rail_of
from tests.traffic.silent_agents import SilentWorld

from syntony.model import MS, S


def rails(world: SilentWorld) -> list[list[int]]:
    return [sorted(rail_of(flow.local) for flow in world.living(host)) for host in "ab"]


@pytest.mark.parametrize("seed", mostly_slow(range(80), [1, 13, 21, 44, 59]))
def test_no_healthy_rail_is_left_for_the_silence_of_an_agent(seed: int) -> None:
    """A rail and an agent die within 0.4 s of each other, and come back in any order."""
    draw = random.Random(f"story {seed}")
    count = draw.choice([2, 2, 3, 4])
    world = SilentWorld(seed, third=draw.random() < 0.4, rails=count)
    world.run(3 * S)
    who, killed = draw.choice("ab"), draw.random() < 0.6
    host, rail = draw.choice("ab"), draw.randrange(count)
    after_ns = draw.randrange(-400 * MS, 400 * MS)
    world.at(max(0, -after_ns), lambda: world.gone(who))
    world.at(max(0, after_ns), lambda: world.black_out(host, rail))
    world.run(abs(after_ns) + 1)
    out_ns = draw.choice([800 * MS, 3 * S, 20 * S])
    world.run(draw.randrange(out_ns // 2, out_ns))
    left = not any(map(world.dead, world.hosts["ab".replace(who, "")].subflows))
    returns = [lambda: world.back(who, killed=killed), lambda: world.light(host, rail)]
    draw.shuffle(returns)
    returns[0]()
    world.run(draw.randrange(2 * S))
    returns[1]()
    world.run(12 * S)
    what = f"seed {seed}"
    assert not world.wrong, what
    assert world.blind_ns <= S, what
    assert left or out_ns < S, f"{what}: by the agent that is there, by the word of the data"
    assert rails(world) == [list(range(count))] * 2, what
