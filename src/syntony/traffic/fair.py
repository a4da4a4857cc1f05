"""Weighted max-min fair rates of flows that each have one path. Pure.

What congestion control converges to when flows are long: no flow can get more without another that
has no more (per weight) getting less (Bertsekas and Gallager, Data Networks, 6.5.2).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

TIE = 1e-9
"""Relative difference below which two links are equally tight."""


class Sharer(Protocol):
    """`max_min`, or the native one of `syntony.io.fluid`."""

    def __call__(
        self,
        links: Ints,
        capacity: Floats,
        weight: Floats | None = None,
        demand: Floats | None = None,
    ) -> Floats: ...


def max_min(
    links: Ints,
    capacity: Floats,
    weight: Floats | None = None,
    demand: Floats | None = None,
) -> Floats:
    """Rates, (flows,), in the unit of the capacities; 0 across a dead link.

    Links whose flows are all tightest there are settled together: what is settled later only
    leaves them more room elsewhere.

    Args:
        links: of each flow, (flows, hops); -1 where a path has fewer.
        capacity: of each link, (links,); 0 is dead.
        weight: of each flow, (flows,), positive; None: all alike.
        demand: what each would send at most, (flows,), may be infinite.
    """
    flows, count = len(links), len(capacity)
    room = np.append(capacity, np.inf)
    path = np.where(links < 0, count, links)
    each = np.ones(flows) if weight is None else weight
    limit = np.full(flows, np.inf) if demand is None else demand
    rates = np.zeros(flows)
    left = np.arange(flows)
    while len(left):
        mine, w = path[left], each[left]
        pull = np.bincount(mine.ravel(), np.repeat(w, mine.shape[1]), count + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(pull > 0, room / pull, np.inf)
        share[count] = np.inf
        level = share[mine].min(axis=1, initial=np.inf)
        requested = limit[left] / w
        best = np.minimum(level, requested)
        tight = np.full(count + 1, np.inf)
        np.minimum.at(tight, mine.ravel(), np.repeat(best, mine.shape[1]))
        settled = share <= tight * (1 + TIE)
        settled[count] = False
        done = (settled[mine].any(axis=1) & (level <= requested)) | (requested <= level)
        if not done.any():  # only infinities are left
            done[:] = True
        got = np.where(np.isfinite(best), np.maximum(best, 0), np.inf) * w
        rates[left[done]] = got[done]
        used = np.bincount(mine[done].ravel(), np.repeat(got[done], mine.shape[1]), count + 1)
        room[:count] = np.maximum(room[:count] - used[:count], 0)
        left = left[~done]
    return rates
