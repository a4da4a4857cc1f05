"""Periodic jobs on one link: compute, then communicate, again and again. Pure, exact.

What a job's iteration takes depends on whose communication falls together with its own. Between
events rates are constant; nothing is random but where in its turn each job starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Periodic:
    """One job. Times are seconds; what it sends takes `send_s` if it has the link alone."""

    compute_s: float
    send_s: float
    weight: float = 1.0
    """Share of the link against others that send at the same time."""
    limit: float = 1.0
    """Part of the link that it may use at most, anyone who else sends."""
    start_s: float = 0.0
    """When its first communication begins."""


def iteration_s(jobs: Sequence[Periodic], turns: int = 200, settle: int = 50) -> list[float]:
    """Mean time of an iteration of each job, over the turns after the first `settle`.

    Args:
        jobs: on one link of rate 1.
        turns: that every job does at least.
        settle: turns that are not counted: phases may slide until they fit.
    """
    now = 0.0
    left = [0.0] * len(jobs)
    """To be sent; 0: it computes."""
    wake = [job.start_s for job in jobs]
    ends: list[list[float]] = [[] for _ in jobs]
    while min(len(each) for each in ends) < turns:
        rates = _rates(jobs, left)
        done = [now + left[k] / rates[k] if rates[k] > 0 else math.inf for k in range(len(jobs))]
        then = min(*done, *wake)
        for k in range(len(jobs)):
            if done[k] == then:
                left[k] = 0.0
                ends[k].append(then)
                wake[k] = then + jobs[k].compute_s
            elif left[k]:
                left[k] -= rates[k] * (then - now)
            if wake[k] == then:
                left[k], wake[k] = jobs[k].send_s, math.inf
        now = then
    return [(each[-1] - each[settle]) / (len(each) - 1 - settle) for each in ends]


def _rates(jobs: Sequence[Periodic], left: Sequence[float]) -> list[float]:
    """Weighted max-min shares of those that send, within their limits."""
    rates = [0.0] * len(jobs)
    open_, room = {k for k, much in enumerate(left) if much > 0}, 1.0
    while open_:
        each = room / sum(jobs[k].weight for k in open_)
        tight = {k for k in open_ if jobs[k].limit <= each * jobs[k].weight}
        for k in tight or open_:
            rates[k] = jobs[k].limit if tight else each * jobs[k].weight
        room -= sum(rates[k] for k in tight)
        open_ -= tight or open_
    return rates
