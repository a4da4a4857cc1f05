"""The link that affected flows have in common and few others cross.

Boolean set cover for the tens to thousands of flows of a job, where two affected flows are
evidence; `syntony.fabric.locate` evaluates losses of very many probes (docs/decisions/0241).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

MIN_PURITY = 0.75
"""Minimum share of affected flows across a link."""


class Common(NamedTuple):
    """A link, and links that the same affected flows cross with as few others."""

    links: tuple[str, ...]
    flows: frozenset[int]
    """Number of affected flows across it."""
    healthy: int
    """Number of other flows across it."""


def common_hops(
    hops: Sequence[Sequence[str]],
    suffering: Collection[int],
    healthy: Collection[int],
    at_least: int = 2,
) -> list[Common]:
    """The fewest links that explain the affected flows, each shared by `at_least` of them."""
    bad: Mapping[str, set[int]] = _crossing(hops, suffering)
    good: Mapping[str, set[int]] = _crossing(hops, healthy)
    left = set(suffering)
    found: list[Common] = []
    while True:
        scored = {
            link: (len(flows & left), -len(good.get(link, ())))
            for link, flows in bad.items()
            if len(flows & left) >= at_least
            and len(flows) >= MIN_PURITY * (len(flows) + len(good.get(link, ())))
        }
        if not scored:
            return found
        best = max(scored.values())
        chosen = sorted(link for link, score in scored.items() if score == best)
        first = bad[chosen[0]] & left
        twins = tuple(link for link in chosen if bad[link] & left == first)
        found.append(Common(twins, frozenset(bad[chosen[0]]), -best[1]))
        left -= bad[chosen[0]]


def _crossing(hops: Sequence[Sequence[str]], flows: Collection[int]) -> dict[str, set[int]]:
    crossing: dict[str, set[int]] = defaultdict(set)
    for flow in flows:
        for hop in hops[flow]:
            crossing[hop].add(flow)
    return crossing
