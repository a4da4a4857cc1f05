"""Agents that come and go over kernels with address ids: no healthy subflow ends by accident."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from tests.cases import mostly_slow
from tests.traffic.address_ids import IdWorld
from tests.traffic.network import rail_of

from syntony.model import MS, S


@pytest.mark.parametrize("seed", mostly_slow(range(120), range(12)))
def test_restarts_and_rails_that_die_end_no_healthy_subflow(seed: int) -> None:
    draw = random.Random(f"ids {seed}")
    count = draw.choice([2, 2, 3])
    world = IdWorld(seed, rails=count)
    world.run(draw.randrange(2 * S))
    for _ in range(draw.randrange(1, 6)):
        host, nic = draw.choice("ab"), (draw.choice("ab"), f"nic{draw.randrange(count)}")
        steps: list[Callable[[], None]] = [partial(world.away, host), partial(world.black.add, nic)]
        draw.shuffle(steps)
        for step in steps:
            step()
            world.run(draw.choice([draw.randrange(5 * MS), draw.randrange(S), 3 * S]))
        steps = [partial(world.restart, host), partial(world.black.discard, nic)]
        draw.shuffle(steps)
        for step in steps:
            step()
            world.run(draw.choice([draw.randrange(5 * MS), draw.randrange(S), 3 * S]))
    world.run(90 * S)
    what = f"seed {seed}"
    assert not world.wrong, what
    assert not world.clashes, what
    for name in "ab":
        held = sorted(rail_of(flow.local) for flow in world.living(name))
        assert held == list(range(count)), what
