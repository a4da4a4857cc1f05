"""Subflows whose delay costs more than they carry are put on standby, others are not."""

from __future__ import annotations

import random

import pytest
from tests.cases import mostly_slow
from tests.traffic.delayed import Job, Run, Shape
from tests.traffic.flow_samples import flow_sample

from syntony.model import MS, US, S
from syntony.model.paths import FourTuple
from syntony.traffic import events
from syntony.traffic.failover import Failover
from syntony.traffic.instructions import Retire
from syntony.traffic.pairs import LocalNic
from syntony.traffic.policy import FailoverMode, Policy

LEARN_NS, JUDGE_NS = 12 * S, 6 * S
SEEDS = mostly_slow(range(24), [0])


def both(seed: int, shapes: list[Shape], job: Job) -> tuple[float, float, float, Run]:
    """Bits per second with every path, with the fastest one alone, and with the agent; its run."""
    rates = []
    quick = min(range(len(shapes)), key=lambda k: shapes[k].delay_ns)
    for alone in (False, True):
        run = Run(seed, shapes, job, agent=False)
        for k, path in enumerate(run.paths):
            path.backup = alone and k != quick
        run.run(2 * S)
        rates.append(run.run(JUDGE_NS))
    agent = Run(seed, shapes, job, agent=True)
    agent.run(LEARN_NS)
    return rates[0], rates[1], agent.run(JUDGE_NS), agent


def standby(run: Run) -> list[int]:
    """Which paths are."""
    return [number for number, path in enumerate(run.paths) if path.backup]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_connection_gets_what_the_better_choice_gives(seed: int) -> None:
    rng = random.Random(seed)
    rate_bps = int(rng.uniform(20e6, 60e6))
    fast = Shape(rate_bps, int(rng.uniform(0.2, 2) * MS))
    slow = Shape(int(rate_bps * rng.uniform(0.7, 1.3)), int(rng.uniform(4, 100) * MS))
    job = Job(int(10 ** rng.uniform(4.3, 6.5)), int(rng.uniform(0.2, 20) * MS), rng.random() < 0.5)
    with_all, alone, got, run = both(seed, [fast, slow], job)
    reported = [(at_ns // MS, note.action, note.reason.evidence) for at_ns, note in run.reported]
    assert got > 0.85 * max(with_all, alone), (
        seed,
        fast,
        slow,
        job,
        with_all,
        alone,
        got,
        reported,
    )


def test_short_messages_leave_the_slow_path_and_the_log_says_why() -> None:
    shapes = [Shape(50_000_000, 500 * US), Shape(50_000_000, 25 * MS)]
    with_all, alone, got, run = both(1, shapes, Job(200_000))
    assert alone > 1.2 * with_all
    assert got > 0.95 * alone
    (note,) = run.actions("standby")
    assert note.reason.cause == "slow"
    assert "on n0; it carries" in note.reason.evidence


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_paths_are_left_alone(seed: int) -> None:
    rng = random.Random(seed)
    delay_ns = int(10 ** rng.uniform(4.7, 7.5))
    shapes = [Shape(int(rng.uniform(20e6, 60e6)), delay_ns) for _ in range(rng.choice((2, 4)))]
    job = Job(rng.choice((0, int(10 ** rng.uniform(4.3, 6.5)))), int(rng.uniform(0.2, 20) * MS))
    run = Run(seed, shapes, job, agent=True)
    run.run(15 * S)
    assert not run.actions("standby"), (seed, shapes, job)


@pytest.mark.parametrize("delay_ms", mostly_slow([5, 20, 50, 200], [20]))
def test_a_stream_keeps_every_path(delay_ms: int) -> None:
    shapes = [Shape(50_000_000, 500 * US), Shape(50_000_000, delay_ms * MS // 2)]
    run = Run(delay_ms, shapes, Job(0), agent=True)
    run.run(20 * S)
    assert not run.actions("standby")


def test_it_comes_back_when_the_delay_has_gone_and_does_not_flap() -> None:
    quick, late = Shape(50_000_000, 500 * US), Shape(50_000_000, 25 * MS)
    run = Run(3, [quick, late], Job(200_000), agent=True)
    run.run(15 * S)
    (slow,) = run.paths[1:]
    assert standby(run) == [1]
    slow.shape = quick
    run.run(10 * S)
    assert not standby(run)
    assert "again" in run.actions("resume")[-1].reason.evidence
    # A delay that comes and goes: the path is left alone for longer and longer.
    for _ in range(15):
        slow.shape = quick if slow.shape is late else late
        run.run(4 * S)
    assert len(run.actions("standby")) <= 6


def test_a_job_that_begins_to_stream_gets_the_path_back() -> None:
    shapes = [Shape(50_000_000, 500 * US), Shape(50_000_000, 25 * MS)]
    run = Run(4, shapes, Job(100_000), agent=True)
    run.run(10 * S)
    assert standby(run) == [1]
    run.job = Job(0)
    run.run(30 * S)
    assert not standby(run)
    assert run.run(3 * S) > 75e6


def test_the_last_path_is_never_on_standby() -> None:
    shapes = [Shape(50_000_000, 500 * US), Shape(50_000_000, 25 * MS)]
    run = Run(5, shapes, Job(200_000), agent=True)
    run.run(10 * S)
    assert standby(run) == [1]
    gone = run.paths[0]
    run.drop(gone)
    assert not standby(run)
    assert run.actions("resume")[-1].reason.evidence == "no other path lives"


def test_where_agents_only_observe_it_is_told_once() -> None:
    shapes = [Shape(50_000_000, 500 * US), Shape(50_000_000, 25 * MS)]
    run = Run(6, shapes, Job(200_000), agent=False)
    run.run(15 * S)
    assert len(run.actions("would-standby")) == 1
    assert not standby(run)


@pytest.mark.slow
def test_several_slow_paths_of_many() -> None:
    shapes = [Shape(30_000_000, 500 * US)] * 4
    shapes[1:1] = [Shape(30_000_000, 30 * MS)] * 2
    with_all, _, got, run = both(7, shapes, Job(400_000))
    assert standby(run) == [1, 2]
    assert got > 1.3 * with_all


@pytest.mark.parametrize("seconds", mostly_slow([20, 60], [20]))
def test_a_trial_in_vain_is_taken_back_and_not_repeated_soon(seconds: int) -> None:
    run = Run(9, [Shape(50_000_000, 500 * US), Shape(50_000_000, 3 * MS)], Job(500_000), agent=True)
    run.boast = 4
    run.run(seconds * S)
    assert len(run.actions("standby")) == 1
    assert "without it" in run.actions("resume")[0].reason.evidence
    assert not standby(run)


def test_a_refused_order_is_given_again() -> None:
    shapes = [Shape(50_000_000, 500 * US), Shape(50_000_000, 25 * MS)]
    run = Run(8, shapes, Job(200_000), agent=True)
    run.refusals = 1
    run.run(10 * S)
    assert run.refusals == 0
    assert standby(run) == [1]
    assert len(run.actions("standby")) == 2


def test_an_agent_that_begins_anew_uses_what_it_finds_on_standby() -> None:
    nics = [LocalNic(name="n0", rail=0, addresses=("10.0.0.1",))]
    machine = Failover(Policy(mode=FailoverMode.ACT), nics, seed=1)
    flow = FourTuple("10.0.0.1", 40_000, "10.0.0.2", 5_000)
    machine.handle(flow_sample(flow, 0, token=7))
    found = events.JobFound(at_ns=1, token=7, job="train")
    for expected in ([(flow, False)], []):
        out = machine.handle(found)
        assert [(o.flow, o.retired) for o in out if isinstance(o, Retire)] == expected
