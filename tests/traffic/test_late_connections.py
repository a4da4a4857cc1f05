"""Connections that an agent learns recently: every order of acceptance, pause, restart and lost
announcement ends with a path on every rail."""

from __future__ import annotations

import random

import pytest
from tests.cases import mostly_slow
from tests.traffic.late_kernel import LateWorld
from tests.traffic.network import rail_of

from syntony.model import MS, S
from syntony.traffic.instructions import Announce, Create, Note
from syntony.traffic.policy import FailoverMode, Policy
from syntony.traffic.redundancy import DEGRADED_NS

QUICK_NS = 500 * MS
"""From the last hindrance to a path on every rail…"""
LISTED_NS = 8 * S
"""… and where an agent has to find out for itself what it has not been reported."""


def rails(world: LateWorld) -> list[list[int]]:
    return [sorted(rail_of(flow.local) for flow in world.living(host)) for host in "ab"]


def reported(world: LateWorld, host: str, action: str) -> list[Note]:
    return [
        each
        for _, each in world.hosts[host].actions
        if isinstance(each, Note) and each.action == action
    ]


def is_degraded(world: LateWorld, host: str) -> bool:
    return world.hosts[host].machine.connections[7].degraded is not None


@pytest.mark.parametrize("late_ns", [0, 300 * MS, 1_200 * MS, 4 * S, 25 * S])
@pytest.mark.parametrize("host", ["a", "b"])
def test_a_job_that_is_found_late_has_all_its_paths_at_once(host: str, late_ns: int) -> None:
    world = LateWorld(1, {"a": 0, "b": 0, host: late_ns})
    world.run(late_ns + QUICK_NS)
    assert rails(world) == [[0, 1], [0, 1]]


@pytest.mark.slow
def test_many_joins_before_the_announcement_leave_nothing_behind() -> None:
    """The initiator's kernel keeps what every one of them left, until all ids have been used."""
    policy = Policy(mode=FailoverMode.ACT, join_max_ns=100 * MS)
    world = LateWorld(2, {"a": 0, "b": 60 * S}, policy=policy)
    world.run(60 * S)
    tried = [each for _, each in world.hosts["a"].actions if isinstance(each, Create)]
    assert len(tried) > 256, "ids have come round"
    assert not any(
        "this kernel" in each.reason.evidence for each in reported(world, "a", "join-failed")
    )
    world.run(QUICK_NS)
    assert rails(world) == [[0, 1], [0, 1]]


def test_the_log_calls_no_join_made_that_never_came_up() -> None:
    world = LateWorld(3, {"a": 0, "b": 6 * S})
    world.run(6 * S - 1)
    assert not reported(world, "a", "create")
    failed = reported(world, "a", "join-failed")
    read = [each for each in failed if not each.quiet]
    assert len(read) < len(failed), "of many in a row some are read"
    assert all("ECONNREFUSED" in each.reason.evidence for each in failed)
    world.run(QUICK_NS)
    (made,) = reported(world, "a", "create")
    assert made.new in world.hosts["a"].subflows


def test_an_announcement_that_is_refused_is_repeated_and_told() -> None:
    world = LateWorld(4, {"a": 0, "b": 100 * MS})
    world.kernels["b"].broken = 5
    world.run(3 * S)
    assert rails(world) == [[0, 1], [0, 1]]
    orders = [each for _, each in world.hosts["b"].actions if isinstance(each, Announce)]
    assert len(orders) == 5 + 2


@pytest.mark.parametrize("seed", mostly_slow(range(60), range(20)))
def test_whatever_comes_between(seed: int) -> None:
    """Acceptance, pauses, restarts and a lossy start at random instants, all seeded."""
    draw = random.Random(f"late {seed}")
    found = {"a": 0, "b": draw.choice([0, draw.randrange(6 * S)])}
    world = LateWorld(seed, found, event_loss=draw.choice([0, 0, 0.3]))
    done_ns = max(found.values())
    for _ in range(draw.randrange(4)):
        host, what = draw.choice("ab"), draw.choice(["away", "restart", "flap"])
        world.run(draw.randrange(2 * S))
        length_ns = draw.randrange(10 * MS, 5 * S)
        if what == "away":
            world.away(host)
            world.run(length_ns)
            world.back(host)
        elif what == "restart":
            world.away(host)
            world.run(length_ns)
            world.restart(host)
        else:
            nic = f"nic{draw.randrange(2)}"
            world.black.add((host, nic))
            world.run(length_ns)
            world.black.clear()
        done_ns = max(done_ns, world.now_ns)
    world.event_loss = 0
    hold_ns = 8 * world.policy.hold_down_ns
    world.run(max(0, done_ns - world.now_ns) + LISTED_NS + hold_ns)
    assert rails(world) == [[0, 1], [0, 1]], f"seed {seed}"


def test_a_connection_short_of_a_rail_is_told_with_what_is_in_the_way() -> None:
    world = LateWorld(5, {"a": 0, "b": 20 * S})
    world.run(DEGRADED_NS - MS)
    assert not reported(world, "a", "degraded")
    world.run(2 * S)
    (note,) = reported(world, "a", "degraded")
    assert note.reason.evidence.startswith("1 of 2 paths: nic1: ")
    assert "joins in a row failed" in note.reason.evidence
    assert is_degraded(world, "a")
    world.run(20 * S)
    assert len(reported(world, "a", "degraded")) == len(reported(world, "a", "whole")) == 1
    assert not is_degraded(world, "a")


@pytest.mark.parametrize("host", ["a", "b"])
def test_a_dead_rail_degrades_a_connection_at_both_ends_until_it_is_back(host: str) -> None:
    world = LateWorld(6, {"a": 0, "b": 0})
    world.run(1 * S)
    world.black.add((host, "nic1"))
    world.run(DEGRADED_NS - 500 * MS)
    assert not reported(world, "a", "degraded") + reported(world, "b", "degraded")
    world.run(2 * S)
    for each in "ab":
        (note,) = reported(world, each, "degraded")
        assert "probes unanswered" in note.reason.evidence or "withdrawn" in note.reason.evidence
    world.black.clear()
    world.run(3 * S)
    for each in "ab":
        assert len(reported(world, each, "whole")) == 1


def test_nothing_is_degraded_where_nothing_may_be_done() -> None:
    world = LateWorld(7, {"a": 0, "b": 60 * S})
    world.run(8 * S)
    host = world.hosts["a"]
    assert is_degraded(world, "a")
    world.do(host, host.machine.stop(stopped=True, now_ns=world.now_ns))
    assert not is_degraded(world, "a")
    world.run(8 * S)
    assert not is_degraded(world, "a")
