"""Stages of pipelines: ranks that send to their neighbours, of which each may have other work."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable

_PAIR = re.compile(r"\.p2p (\d{1,7})>(\d{1,7})(?:#\d+)?")
"""End of the name of a communicator of one direction between two ranks
(docs/reference/local-socket.md)."""


def pair_of(name: str) -> tuple[int, int] | None:
    """Sending and receiving rank of such a communicator; None: it is another one."""
    found = _PAIR.search(name)
    return (int(found[1]), int(found[2])) if found else None


def is_from_any(name: str) -> bool:
    """Whether a rank waits in such a communicator for whichever other rank sends."""
    return ".p2p *>" in name


def stages(names: Iterable[str]) -> dict[int, tuple[int, int]]:
    """Rank → number of ranks that send to each other, and its distance from the first of them:
    equal for ranks at the same place of pipelines that are alike.

    Args:
        names: of a job's communicators.
    """
    near: defaultdict[int, set[int]] = defaultdict(set)
    for one, other in filter(None, map(pair_of, names)):
        near[one].add(other)
        near[other].add(one)
    found: dict[int, tuple[int, int]] = {}
    for rank in sorted(near):
        if rank in found:
            continue
        away, left = {rank: 0}, deque([rank])
        while left:
            each = left.popleft()
            for other in near[each] - away.keys():
                away[other] = away[each] + 1
                left.append(other)
        found |= {other: (len(away), steps) for other, steps in away.items()}
    return found
