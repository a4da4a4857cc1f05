"""The controller moves queue pairs from a crowded rail to a free one, and failover goes first."""

from __future__ import annotations

import random

import pytest
from tests.cases import mostly_slow
from tests.controller.railed import Job, World

from syntony.controller.config import PlacementMode
from syntony.controller.flow_delays import DelaySecond, PathDelays, ProbeSecond
from syntony.fabric.book import Way
from syntony.model import S

WIDE = Job("wide", 11, "h0", "h2", (0, 1), demand=0.8)
"""Asks for less than a link, and has two rails."""
NARROW = Job("narrow", 22, "h1", "h2", (0,), demand=1.0)
"""Needs all of rail 0's link to the host that the other one sends to, too."""
RAIL, PATH = "h0:rdma-11:rail0>10.0.0.3", "rail0>rail0"


def test_a_crowded_rail_is_left_to_who_has_no_other() -> None:
    world = World([WIDE, NARROW])
    assert world.total(NARROW) < 0.8
    world.run(12)
    assert world.results() == ["helped"]
    assert world.used(WIDE) == [1]
    assert world.total(NARROW) == pytest.approx(1.0)
    assert world.total(WIDE) == pytest.approx(0.8)
    assert [(each.process, each.instead) for each in world.orders] == [
        (11, world.path(WIDE, 1))
    ]  # fmt: skip


def test_observing_says_what_it_would_do() -> None:
    world = World([WIDE, NARROW], mode=PlacementMode.OBSERVE)
    world.run(12)
    assert set(world.results()) == {"would move"}
    assert world.used(WIDE) == [0, 1]
    assert not world.orders


def test_a_job_that_did_not_opt_in_is_left_alone() -> None:
    world = World([WIDE, NARROW], place=("narrow",))
    world.run(12)
    assert world.results() == []
    assert world.used(WIDE) == [0, 1]


def test_what_does_not_help_is_taken_back() -> None:
    """The other rail has less than the topology says."""
    world = World([WIDE, NARROW], real={"leaf1->h2/rail1": 0.6})
    before = world.total(WIDE) + world.total(NARROW)
    world.run(12)
    assert world.results()[0] == "undone"
    assert world.used(WIDE) == [0, 1]
    assert world.total(WIDE) + world.total(NARROW) == pytest.approx(before)
    made = len(world.orders)
    world.run(20)
    assert len(world.orders) == made, "it is not tried again at once"


def test_jobs_that_use_all_they_have_are_left_alone() -> None:
    world = World([WIDE._replace(demand=2.0), NARROW])
    world.run(20)
    assert world.results() == []


def test_jobs_that_get_what_they_ask_for_are_left_alone() -> None:
    """By their rates alone both rails would look crowded."""
    both = Job("both", 11, "h1", "h0", (0, 1), demand=1.5)
    three = Job("three", 22, "h1", "h0", (0, 1, 2), demand=0.5)
    world = World([both, three], rails=3)
    assert world.total(both) + world.total(three) == pytest.approx(2.0)
    world.run(20)
    assert world.results() == []


def test_what_has_moved_is_no_place_to_move_to() -> None:
    world = World([WIDE._replace(rails=(0, 1, 2)), NARROW], rails=3)
    world.run(12)
    paths = {
        row.view.local: set(row.candidates) for row in world.service.rows if row.view.process == 11
    }
    (moved,) = (row for row in world.service.rows if row.view.moved_to)
    assert moved.view.local == world.address("h0", 0)
    assert "rail0>rail0" in paths.pop(moved.view.local), "it may return"
    assert all(paths.values())
    assert not any("rail0>rail0" in names for names in paths.values())


def test_packets_that_wait_are_known_of_all_links_or_not_at_all() -> None:
    world = World([WIDE, NARROW])
    world.step()
    links = ("h0/rail0->leaf0", "leaf0->h2/rail0")
    delays = PathDelays()
    now_ns = world.now_ns
    for src, dst, link in (("h0/rail0", "h3/rail0", links[0]), ("h3/rail0", "h2/rail0", links[1])):
        assert (RAIL, PATH) not in delays.of(world.service.rows, now_ns)
        wait_ns = 5_000 if link == links[1] else 1_000
        for p50_ns in (100, 100 + wait_ns):
            now_ns += 2 * S
            delays.add([ProbeSecond(src, dst, (link,), DelaySecond(now_ns, p50_ns, p50_ns), 100)])
    assert delays.of(world.service.rows, now_ns)[RAIL, PATH].queue_ns == 5_000


def test_any_path_between_its_nics_may_be_that_of_queue_pairs() -> None:
    """Their ports are not known; the longest delay counts, and only of the direction they send."""
    world = World([WIDE, NARROW])
    world.step()
    row = next(row for row in world.service.rows if row.flow_id == RAIL)
    delays, now_ns = PathDelays(), world.now_ns
    assert delays.worst(row) is None
    for spine, src, dst, p50_ns in (
        ("spine0", row.src, row.dst, 300),
        ("spine1", row.src, row.dst, 900),
        ("spine0", row.dst, row.src, 5_000),
        ("spine1", "h3/rail0", row.dst, 7_000),
    ):
        links = (f"{src}->leaf0", f"leaf0->{spine}", f"{spine}->leaf1", f"leaf1->{dst}")
        delays.add([ProbeSecond(src, dst, links, DelaySecond(now_ns, p50_ns, p50_ns), 100)])
    found = delays.worst(row)
    assert found is not None
    assert found.p50_ns == 900
    for _ in range(2):
        now_ns += 700 * S  # nothing is known of those paths any more
        delays.of(world.service.rows, now_ns)
    assert delays.worst(row) is None


def test_without_contention_nothing_moves() -> None:
    world = World([WIDE, NARROW._replace(dst="h3")])
    world.run(20)
    assert world.results() == []


def test_the_rail_that_stands_in_fails() -> None:
    world = World([WIDE, NARROW])
    world.run(12)
    assert world.used(WIDE) == [1]
    world.port("h0/rail1", up=False)
    assert world.used(WIDE) == [0]
    assert not world.processes["h0"][11].avoided, "not only because nothing else is left"
    world.run(12)
    assert world.used(WIDE) == [0]
    assert len(world.orders) == 1, "a dead rail is no place to move to"


def test_a_dead_rail_is_no_target() -> None:
    world = World([WIDE, NARROW])
    world.port("h0/rail1", up=False)
    world.run(20)
    assert not world.orders
    world.port("h0/rail1", up=True)
    world.run(90)
    assert world.used(WIDE) == [1]


def test_the_stop_switch_frees_what_was_moved() -> None:
    world = World([WIDE, NARROW])
    world.run(12)
    agent, processes = world.agents["h0"], world.processes["h0"]
    agent.act(agent.failover.stop(stopped=True, now_ns=world.now_ns), processes)
    agent.act(agent.failover.tick(world.now_ns), processes)
    assert agent.failover.rails.moved_to == {}
    processes[11].avoided.clear()  # as the page's notice of it does
    world.run(12)
    assert len(world.orders) == 1


def test_a_controller_that_ends_leaves_nothing_moved_for_ever() -> None:
    world = World([WIDE, NARROW])
    world.run(12)
    world.service = World([WIDE, NARROW], mode=PlacementMode.OFF).service
    world.run(605)
    assert world.used(WIDE) == [0, 1]


def _random_world(rng: random.Random) -> World:
    hosts, rails = rng.randint(2, 4), rng.randint(2, 4)
    jobs = []
    for number in range(rng.randint(1, 6)):
        src, dst = rng.sample(range(hosts), 2)
        count = rng.randint(1, rails)
        jobs.append(
            Job(
                f"j{number}",
                100 + number,
                f"h{src}",
                f"h{dst}",
                tuple(sorted(rng.sample(range(rails), count))),
                rng.choice([0.2, 0.5, 0.8, 1.0, 1.5, 4.0]),
            )
        )
    return World(jobs, hosts=hosts, rails=rails)


def _check(world: World) -> None:
    """What no order may break."""
    for host, agent in world.agents.items():
        moved = agent.failover.rails.moved_to
        for (process, *path), instead in moved.items():
            assert (process, *instead) not in moved, "what stands in has not moved itself"
            job = next(each for each in world.jobs if each.process == process)
            assert tuple(path) in {world.path(job, rail) for rail in job.rails}
            assert instead in {world.path(job, rail) for rail in job.rails}
        for job in world.jobs:
            if job.src != host:
                continue
            mine = world.processes[host][job.process]
            free = [r for r in job.rails if world.path(job, r) not in mine.avoided]
            assert free, "orders alone leave a rail, without the process's own care"
            nics = {r: f"{host}/rail{r}" for r in job.rails}
            if any(nic not in world.down for nic in nics.values()):
                up = [r for r in free if nics[r] not in world.down]
                assert up, "and one whose NIC is up"


def test_whatever_fails_orders_leave_a_rail_that_works() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    moved = 0
    for _ in range(12):
        world = _random_world(rng)
        for _ in range(80):
            if rng.random() < 0.08:
                nic = f"{rng.choice(world.hosts)}/rail{rng.choice(world.rails)}"
                world.port(nic, up=nic in world.down)
            world.step()
            _check(world)
        moved += len(world.orders)
    assert moved, "nothing was tried"


@pytest.mark.parametrize("worlds", mostly_slow((3, 12), {3}))
def test_moves_cost_nobody_anything_in_the_end(worlds: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(worlds):
        world = _random_world(rng)
        before = {job: world.total(job) for job in world.jobs}
        world.run(40)
        after = {job: world.total(job) for job in world.jobs}
        assert sum(after.values()) >= 0.95 * sum(before.values()), (before, after)
        asked = len(world.orders)
        world.run(20)
        assert len(world.orders) - asked <= len(world.jobs), "it comes to rest"


def test_flows_are_counted_again_only_where_something_is_new() -> None:
    world = World([WIDE, NARROW])
    world.step()
    service, nics = world.service, {world.address(h, 0): f"{h}/rail0" for h in world.hosts}
    service.step(world.now_ns, nics, world.hosts, ())
    rows = service.rows
    service.step(world.now_ns + S, nics, world.hosts, ())
    assert service.rows is rows
    service.learn(Way("h3/rail0", "h0/rail0", 1, 2), ("leaf0",), world.now_ns)
    service.step(world.now_ns + S, nics, world.hosts, ())
    assert service.rows is not rows
    rows = service.rows
    service.step(world.now_ns + S, nics | {"10.0.0.99": "h9/rail0"}, world.hosts, ())
    assert service.rows is not rows
