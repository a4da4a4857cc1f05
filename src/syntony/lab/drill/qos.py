"""Three jobs on a fabric too small for them, one of them guaranteed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from syntony.lab.drill.contention import SPEC, Times, Wish
from syntony.traffic.classes import JobClass

if TYPE_CHECKING:
    from syntony.lab.drill.contention_figures import Figures

GOLD = "gold"
JOBS = (GOLD, "grey", "brown")
CLASSES = (
    JobClass(jobs=(GOLD,), priority="guaranteed"),
    JobClass(jobs=("*",), priority="scavenger"),
)
HOSTS = 6
"""Three below each leaf with two uplinks: two thirds of what they could send fits."""
RATE_BPS = 30_000_000
"""Three jobs on two cores."""


class Gold(NamedTuple):
    """The guaranteed job's throughput, as a part of what it does alone."""

    before: float
    after: float


def wish(seed: int, times: Times) -> Wish:
    """The drill."""
    spec = msgspec.structs.replace(SPEC, hosts=HOSTS, rate_bps=RATE_BPS, seed=seed)
    return Wish(spec=spec, times=times, jobs=JOBS)


def gold(found: Figures) -> Gold:
    """Pure."""
    alone = found.alone_mbps / len(JOBS)
    if not alone:
        return Gold(0.0, 0.0)
    return Gold(found.before.mbps[GOLD] / alone, found.after.mbps[GOLD] / alone)
