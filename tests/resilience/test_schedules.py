"""A simulated job with random faults: what each rank computes is what it would have without."""

from __future__ import annotations

import random

import pytest
from tests.resilience.simulated import MS, Job, S

RANKS, STEPS = 4, 25


def undisturbed(parts: int = 1) -> list[list[int]]:
    job = Job(0, RANKS, 0, STEPS, parts)
    job.run()
    assert job.ended
    return job.seen()


FAULTS = "kill", "kill", "kill", "stop", "drain", "drain-host", "cut"
EXPECTED = undisturbed()
SPLIT = {2: undisturbed(2), 4: undisturbed(4)}
"""By parts: of each there are two copies, or one and a neighbour's copy of it."""


def kinds(job: Job, event: str) -> list[dict[str, object]]:
    return [each for each in job.events if each["event"] == event]


@pytest.mark.parametrize("seed", range(30))
def test_any_faults_leave_every_step_of_every_rank_as_it_was(seed: int) -> None:
    print("seed", seed)
    choice = random.Random(seed)
    job = Job(seed, RANKS, choice.randrange(1, 4), STEPS)
    for _ in range(choice.randrange(1, 7)):
        kind = choice.choice((*FAULTS, "pause"))
        job.at(choice.randrange(100, 3000) * MS, lambda each=kind: job.fault(each))  # type: ignore[misc]
    job.run(60 * S)
    job.resume()  # more than half may have been stopped at once: that is an operator's pause
    job.run()
    assert job.ended, "the job hangs"
    refused = kinds(job, "gave-up")
    if refused:
        # Only by rules that say so; whatever was computed until then is right.
        reason = str(refused[0]["reason"])
        assert "times at the same step" in reason or "already ended" in reason or "left" in reason
    else:
        assert [len(each) for each in job.seen()] == [STEPS] * RANKS
    for rank, (seen, expected) in enumerate(zip(job.seen(), EXPECTED, strict=True)):
        assert seen == expected[: len(seen)], f"rank {rank}"
    for each in kinds(job, "lost"):
        overtaken = "exit code 97" in str(each["reason"])
        assert each["worker"] in job.at_fault or overtaken, f"false takeover: {each}"


@pytest.mark.parametrize("seed", range(40))
def test_a_coordinator_that_dies_changes_nothing(seed: int) -> None:
    """At a random moment, with its last orders half sent, also while a rank is replaced."""
    print("seed", seed)
    choice = random.Random(seed)
    job = Job(seed, RANKS, 2, STEPS)
    for _ in range(choice.randrange(1, 3)):
        at_ns = choice.randrange(50, 3000) * MS
        job.at(at_ns, lambda: job.fault(choice.choice(("kill", "kill", "stop", "cut", "drain"))))
        job.at(at_ns + choice.randrange(0, 200) * MS, lambda: job.fault("crash"))
    job.run(60 * S)
    job.resume()
    job.run()
    assert job.ended, "the job hangs"
    for rank, (seen, expected) in enumerate(zip(job.seen(), EXPECTED, strict=True)):
        assert seen == expected[: len(seen)], f"rank {rank}"
    if not kinds(job, "gave-up"):
        assert [len(each) for each in job.seen()] == [STEPS] * RANKS


@pytest.mark.parametrize("parts", list(SPLIT))
@pytest.mark.parametrize("seed", range(25))
def test_any_faults_leave_split_parameters_as_they_were(seed: int, parts: int) -> None:
    print("seed", seed)
    choice = random.Random(seed)
    job = Job(seed, RANKS, 2, STEPS, parts)
    faults = choice.randrange(1, 5)
    for _ in range(faults):
        kind = choice.choice((*FAULTS, "pause", "crash"))
        job.at(choice.randrange(100, 4000) * MS, lambda each=kind: job.fault(each))  # type: ignore[misc]
    job.run(60 * S)
    job.resume()
    job.run()
    assert job.ended, "the job hangs"
    if not kinds(job, "gave-up"):
        assert [len(each) for each in job.seen()] == [STEPS] * RANKS
    for rank, (seen, expected) in enumerate(zip(job.seen(), SPLIT[parts], strict=True)):
        assert seen == expected[: len(seen)], f"rank {rank}"


@pytest.mark.parametrize("parts", list(SPLIT))
def test_one_lost_rank_of_split_parameters_is_always_replaced(parts: int) -> None:
    """The test above can fail: jobs survive, by replicas and by copies."""
    for seed in range(8):
        job = Job(seed, RANKS, 1, STEPS, parts)
        rank = seed % RANKS

        def lose(job: Job = job, rank: int = rank) -> None:
            found = job.holder(rank)
            assert found is not None
            job.at_fault.add(found.name)
            job.die(found, -9)

        job.at((900 + 37 * seed) * MS, lose)
        job.run()
        assert not kinds(job, "gave-up"), seed
        assert job.seen() == SPLIT[parts], seed
        assert len(kinds(job, "lost")) == 1


@pytest.mark.parametrize("parts", [1, *SPLIT])
def test_what_is_kept_without_a_spare_is_the_state_at_one_step(parts: int) -> None:
    """Also when those who write it are lost meanwhile, and with a coordinator that dies."""
    base = Job(0, RANKS, 0, STEPS, parts)
    base.run()
    began_with = {base.part(e.rank): e.began_with for e in base.processes.values()}
    reached: set[int] = set()
    undone = refused = 0
    for seed in range(36):
        job = _loses_without_a_spare(seed, parts)
        if job.kept is None:
            reason = str(kinds(job, "gave-up")[0]["reason"])
            assert parts > 1, (seed, reason)
            assert seed % 3 == 1, (seed, reason)
            assert "a copy of" in reason, (seed, reason)
            refused += 1
            continue
        reached.add(job.kept.boundary)
        undone += sum(each.undo for each in job.kept.states.values())
        names = ["state"] if parts == 1 else [f"state-{part}of{parts}" for part in range(parts)]
        assert sorted(job.kept.states) == names
        for part, name in enumerate(names):
            expected = str(began_with[part][job.kept.boundary])
            assert job.kept.states[name].sha256 == expected, (seed, name)
        assert all((rank, job.kept.boundary) in job.records for rank in range(RANKS))
    assert refused < 12
    assert len(reached) > 5
    assert undone, "no rank had stepped"


def _loses_without_a_spare(seed: int, parts: int) -> Job:
    """A third of the jobs lose one rank, a third two, of a third the coordinator dies as well."""
    choice = random.Random(seed)
    job = Job(seed, RANKS, 0, STEPS, parts, keeps=True)
    at_ms = choice.randrange(400, 1500)
    job.at(at_ms * MS, lambda: job.fault("kill"))
    if seed % 3:
        kind = "kill" if seed % 3 == 1 else "crash"
        job.at((at_ms + choice.randrange(60)) * MS, lambda: job.fault(kind))
    job.run()
    assert job.ended, seed
    return job


@pytest.mark.parametrize(("parts", "ends"), [(2, False), (4, True)])
def test_a_rank_and_its_neighbour_lost_at_once(parts: int, ends: bool) -> None:
    job = Job(3, RANKS, 2, STEPS, parts)

    def both() -> None:
        for rank in (1, 2):
            found = job.holder(rank)
            assert found is not None
            job.at_fault.add(found.name)
            job.die(found, -9)

    job.at(1500 * MS, both)
    job.run()
    assert bool(kinds(job, "gave-up")) == ends
    if ends:
        assert "no remaining rank has a copy" in str(kinds(job, "gave-up")[0]["reason"])
    else:
        assert job.seen() == SPLIT[parts]


def test_coordinators_died_in_those_schedules() -> None:
    """The test above can fail: coordinators die, and those that follow replace ranks."""
    crashes = replaced = 0
    for seed in range(20):
        job = Job(seed, RANKS, 2, STEPS)
        job.at(900 * MS, lambda each=job: each.fault("kill"))  # type: ignore[misc]
        job.at(910 * MS, lambda each=job: each.fault("crash"))  # type: ignore[misc]
        job.run()
        crashes += job.crashes
        replaced += job.state.replaced
        assert job.seen() == EXPECTED
    assert crashes >= 19
    assert replaced >= 5


def test_most_random_faults_are_survived() -> None:
    survived = 0
    for seed in range(30):
        job = Job(seed, RANKS, 2, STEPS)
        for at_ns in (400 * MS, 900 * MS):
            job.at(at_ns, lambda each=job: each.fault("kill"))  # type: ignore[misc]
        job.run()
        survived += job.ended and not kinds(job, "gave-up") and job.seen() == EXPECTED
    assert survived >= 29


@pytest.mark.parametrize("seed", range(10))
def test_two_ranks_lost_at_once(seed: int) -> None:
    job = Job(seed, RANKS, 2, STEPS)

    def both() -> None:
        for rank in (1, 2):
            found = job.holder(rank)
            assert found is not None
            job.at_fault.add(found.name)
            job.die(found, -9)

    job.at(1500 * MS, both)
    job.run()
    assert not kinds(job, "gave-up")
    assert job.seen() == EXPECTED
    assert len(kinds(job, "lost")) == 2


def test_a_paused_coordinator_gives_nobody_up() -> None:
    job = Job(3, RANKS, 1, STEPS)
    job.at(300 * MS, lambda: job.fault("pause"))
    job.run()
    assert not kinds(job, "lost")
    assert job.seen() == EXPECTED
