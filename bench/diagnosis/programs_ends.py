"""How processes of the fifth generator end: a launcher that notices, peers that lose a connection,
people and schedulers that end a job. Written without regard to the rules that read it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from bench.diagnosis.programs import S

if TYPE_CHECKING:
    from bench.diagnosis.programs import Program

LAUNCHERS = {"torchrun": (0.1, 5.0), "mpirun": (0.001, 0.05), "srun": (0.05, 1.0), "none": (0, 0)}
"""After so many seconds it notices a rank that has failed."""
FAILURES = {
    "oom": (-9, True), "segfault": (-11, False), "bus error": (-7, False), "kill": (-9, False),
    "exception": (1, False),
}  # fmt: skip


class Death(NamedTuple):
    """The end of one rank's process, ns since the begin of the job."""

    at: float
    status: int
    oom: bool = False


def deaths(job: Program) -> dict[int, Death]:
    """Of all ranks that end. A rank that hangs for its end has failed; of other jobs somebody ends
    a third when their recording is over."""
    rng = random.Random(f"deaths {job.salt}")
    ranks = [*range(job.size)]
    if job.stuck and job.fault.size == 1.0:
        return _after_failure(job, rng, ranks)
    if job.fault.name or job.stuck or rng.random() > 1 / 3:
        return {}
    return _cancelled(rng, ranks, rng.uniform(0.85, 0.99) * min(max(job.now), job.end))


def _after_failure(job: Program, rng: random.Random, ranks: list[int]) -> dict[int, Death]:
    first = max(job.now)
    status, oom = FAILURES[rng.choice([*FAILURES])]
    found = {job.fault.rank: Death(first, status, oom)}
    launcher = rng.choice([*LAUNCHERS])
    low, high = LAUNCHERS[launcher]
    order = first + rng.uniform(low, high) * S
    closes = rng.random() < 0.5  # the kernel closes its connections, or peers wait for a timeout
    if launcher == "none" and not closes and rng.random() < 0.5:
        return found  # within the recording nobody notices
    for rank in ranks:
        if rank == job.fault.rank:
            continue
        by_error = first + (rng.uniform(0.3, 2.5) if closes else rng.uniform(10, 25)) * S
        ordered = order + rng.expovariate(1 / (0.01 * S))
        if launcher == "none" or (by_error < ordered and rng.random() < 0.8):
            found[rank] = Death(by_error, rng.choice((1, -6)))
        else:
            found[rank] = Death(ordered, -15)
    return found


def _cancelled(rng: random.Random, ranks: list[int], at: float) -> dict[int, Death]:
    number = rng.choice((15, 15, 15, 2))
    handles = rng.choice((0.0, 0.0, 1.0, 0.7))
    slow = rng.random() < 0.3
    status = rng.choice((0, 128 + number))  # all run the same program
    found = {}
    for rank in ranks:
        at_rank = at + rng.expovariate(1 / (0.03 * S))
        if rng.random() >= handles:
            found[rank] = Death(at_rank, -number)
        elif slow:
            found[rank] = Death(at_rank + 30 * S, -9)
        else:
            found[rank] = Death(at_rank + rng.uniform(0.5, 15) * S, status)
    return found
