"""Jobs of a mixed fleet: nothing is said of what they do to themselves, no wrong name is given for
what broke, and what broke is named."""

from __future__ import annotations

import random

import pytest
from tests.workload.mixed_jobs import FAULTS, KINDS
from tests.workload.mixed_recorder import mixed

from syntony.workload import FaultClass as F
from syntony.workload import diagnose

SEED = random.randrange(1 << 32)
TABLES = ("links", "hosts", "steps", "probes", "collectives")


def named(seed: int, faults: tuple[F, ...] = (), **how: object) -> tuple[set[str], set[str]]:
    """What is named of a job, and what of it is wrong."""
    print("seed", seed, faults, how)
    job, bundle = mixed(seed, faults, **how)  # type: ignore[arg-type]
    right = {f"{each.fault} {each.subject}" for each in job.faults}
    found = [each for each in diagnose(bundle).verdicts if each.fault is not F.UNDETERMINED]
    texts = {f"{each.fault} {subject.partition('/')[0]}" if each.fault is F.CLOCK_FAULT
             else f"{each.fault} {subject}"
             for each in found for subject in each.subjects}  # fmt: skip
    wrong = {f"{each.fault} {each.subjects}" for each in found if not any(
        f"{each.fault} {subject}" in right or each.fault is F.CLOCK_FAULT
        for subject in each.subjects)}  # fmt: skip
    return texts & right, wrong


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(2))
def test_nothing_is_named_where_nothing_broke(kind: str, number: int) -> None:
    draw = random.Random(f"{SEED} {kind} {number}")
    without = draw.sample(TABLES, draw.randrange(2))
    seed, unknown = draw.randrange(1 << 30), draw.random() < 0.3
    assert named(seed, kind=kind, without=without, unknown=unknown) == (set(), set())


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        (204, ""),  # hosts of two generations: the flow over their slower NICs
        (205, ""), (209, ""),  # the first stage comes last, in each step
        (214, "moe"), (223, ""),  # a rail carries what its ranks have to send
    ],
)  # fmt: skip
def test_nothing_is_named_of_what_a_job_always_does(seed: int, kind: str) -> None:
    assert named(seed, kind=kind) == (set(), set())
    assert named(seed, kind=kind, without=("links",)) == (set(), set())
    assert named(seed, kind=kind, without=("collectives",)) == (set(), set())


@pytest.mark.parametrize("fault", FAULTS)
def test_no_wrong_name_is_given_for_what_broke(fault: F) -> None:
    draw = random.Random(f"{SEED} {fault}")
    assert named(draw.randrange(1 << 30), (fault,))[1] == set()


@pytest.mark.parametrize("seed", [0, 8, 21])
def test_a_port_that_strangers_fill_is_named_by_the_only_flow_to_it(seed: int) -> None:
    right, wrong = named(seed, (F.INCAST,))
    assert (len(right), wrong) == (1, set())


@pytest.mark.parametrize("seed", [2, 17])
def test_a_slow_nic_is_not_a_slow_flow_in_each_direction(seed: int) -> None:
    """Its slot is slow, and no counters are recorded."""
    assert named(seed, (F.PCIE,), without=("links",)) == (set(), set())


def test_of_two_hosts_neither_is_short_of_cpu_by_its_flows_alone() -> None:
    """Threads wait for a core on one, as far as run queues are recorded."""
    seed = 639_662_359
    assert named(seed, (F.HOST_JITTER,), without=("hosts",), until=5) == (set(), set())
    right, wrong = named(seed, (F.HOST_JITTER,))
    assert (len(right), wrong) == (1, set())
