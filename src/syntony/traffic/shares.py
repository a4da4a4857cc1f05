"""Share congested links among their flows: by class, then weight, then demand. Pure.

A class gets what the classes above it leave. Within a class rates are weighted max-min fair. What
no flow demands is distributed again by weight: a flow whose demand has grown then finds room, and
the sum over a link never exceeds its budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from syntony.traffic.demand import Priority
from syntony.traffic.fair import Floats, Ints, max_min

LEAST = 0.01
"""Of the tightest of its budgets, to every flow before anything else: a connection that gets
nothing dies, and one of the lowest class must see its own acknowledgements."""


@dataclass(frozen=True, slots=True)
class ShareClaim:
    """One flow's part in the links that are shared out."""

    links: tuple[str, ...]
    """Those of its path that have a budget."""
    priority: Priority
    weight: float
    demand_bps: float
    """What it seems to want; may be infinite."""


def share(claims: Sequence[ShareClaim], budgets: Mapping[str, float]) -> Floats:
    """Rates in bits per second, (claims,); infinite for a claim without links.

    Args:
        claims: of all flows that can be informed what to send.
        budgets: link to bits per second.
    """
    names = sorted(budgets)
    number = {name: at for at, name in enumerate(names)}
    room = np.array([budgets[name] for name in names], dtype=np.float64)
    links = _matrix(claims, number)
    weight = np.array([claim.weight for claim in claims], dtype=np.float64)
    wanted = np.array([claim.demand_bps for claim in claims], dtype=np.float64)
    rates = _least(links, room)
    room = _left(room, links, rates)
    classes = np.array([int(claim.priority) for claim in claims])
    for demand in (np.maximum(wanted - rates, 0.0), np.full(len(claims), np.inf)):
        for priority in np.unique(classes):
            mine = classes == priority
            got = max_min(links[mine], room, weight[mine], demand[mine])
            rates[mine] += got
            room = _left(room, links[mine], got)
    return rates


def _matrix(claims: Sequence[ShareClaim], number: Mapping[str, int]) -> Ints:
    most = max((len(claim.links) for claim in claims), default=0)
    links = np.full((len(claims), max(1, most)), -1, dtype=np.int32)
    for row, claim in enumerate(claims):
        links[row, : len(claim.links)] = [number[link] for link in claim.links]
    return links


def _least(links: Ints, room: Floats) -> Floats:
    """`LEAST` of the tightest link, or an equal part of it where that would be too much."""
    padded = np.append(room, np.inf)
    flows = np.bincount(links[links >= 0], minlength=len(room))
    each = np.append(np.minimum(LEAST, 1 / np.maximum(1, flows)), 1.0) * padded
    least = each[links].min(axis=1, initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)


def _left(room: Floats, links: Ints, rates: Floats) -> Floats:
    taken = np.where(np.isfinite(rates), rates, 0.0)
    used = np.zeros(len(room) + 1)
    np.add.at(used, links, np.broadcast_to(taken[:, None], links.shape))
    return np.maximum(room - used[:-1], 0.0)
