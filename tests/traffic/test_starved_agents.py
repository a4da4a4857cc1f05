"""No healthy path is left because an agent gets no processor time; a dead one is, soon."""

from __future__ import annotations

import random
from functools import partial

import pytest
from tests.cases import mostly_slow
from tests.traffic.starved_agents import StarvedWorld

from syntony.model import MS, S


def world_of(seed: int) -> tuple[StarvedWorld, random.Random]:
    """One host starves, or both do."""
    draw = random.Random(f"starved {seed}")
    world = StarvedWorld(seed, third=draw.random() < 0.5, rails=draw.choice([2, 2, 3, 4]))
    world.run(3 * S)
    world.starved |= set(draw.choice(["a", "b", "ab"]))
    return world, draw


@pytest.mark.parametrize("seed", mostly_slow(range(120), [7, 111]))
def test_no_healthy_path_is_left(seed: int) -> None:
    world, _ = world_of(seed)
    world.run(8 * S)
    assert not world.wrong, f"seed {seed}"


@pytest.mark.parametrize("seed", mostly_slow(range(40), [0]))
def test_a_dead_path_is_left_by_the_time_that_everyone_has_run_again(seed: int) -> None:
    world, draw = world_of(seed)
    world.run(draw.randrange(S // 2, 2 * S))
    world.black_out(draw.choice("ab"), 0)
    world.run(S)
    world.starved.clear()
    world.run(S + S)  # the longest pause; and the time of a peer that is back, twice over
    for host in world.hosts.values():
        assert not any(map(world.dead, host.subflows)), f"seed {seed}"


@pytest.mark.parametrize("who", ["a", "b", "ab"])
@pytest.mark.parametrize("seed", mostly_slow(range(8), [7]))
def test_a_pause_of_twenty_seconds_is_no_fault_of_others(seed: int, who: str) -> None:
    """Reactors are paused, one end's or both; a rail dies meanwhile and stays dead."""
    draw = random.Random(f"paused {seed} {who}")
    world = StarvedWorld(seed, third=draw.random() < 0.5, rails=draw.choice([2, 3, 4]))
    world.run(3 * S)
    before = {host: set(world.living(host)) for host in "ab"}
    for name in who:
        world.pause(name, 20 * S)
    died_ns, rail = draw.randrange(19 * S), draw.randrange(2)
    world.at(died_ns, partial(world.black_out, draw.choice("ab"), rail))
    world.run(20 * S + 2 * S)
    assert not world.wrong, f"seed {seed}"
    for name, host in world.hosts.items():
        assert not any(map(world.dead, host.subflows)), f"seed {seed}: {name} uses a dead path"
        healthy = {flow for flow in before[name] if not world.dead(flow)}
        assert healthy, f"seed {seed}"
        assert healthy <= set(host.subflows), f"seed {seed}: {name} left a healthy path"


@pytest.mark.parametrize("who", ["", "a", "b", "ab"])
def test_these_hosts_do_starve(who: str) -> None:
    """Or the tests above would show nothing."""
    world = StarvedWorld(5)
    world.run(S)
    world.starved |= set(who)
    world.run(5 * S)
    late = dict.fromkeys("ab", 0)
    for name, agent in world.agents.items():
        late[name] = max(row.gap_ns for row in agent.rows.values())
    assert {name for name in "ab" if late["ab".replace(name, "")] > 20 * MS} >= set(who)
    assert who or not any(late.values())
