"""Hops of traced paths, and what changed between two traces. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

MIN_CHECKED = 3
"""Minimum hops of a checked path: a shorter one has no alternatives."""


class Hop(NamedTuple):
    """One device of a path; `ttl` 1 is the first."""

    ttl: int
    address: str


def middle_hop(hops: tuple[str, ...] | None) -> Hop:
    """The hop that a check probes; its address is empty if it does not answer, its TTL is 0 if
    there is none."""
    if hops is None or len(hops) < MIN_CHECKED:
        return Hop(0, "")
    place = len(hops) // 2
    return Hop(place + 1, hops[place])


def is_part(now: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    """Whether it is the same path, with some hops that did not answer."""
    if now == whole or len(now) > len(whole):
        return False
    return all(a in {"", b} for a, b in zip(now, whole, strict=False))


def hops_of(src: str, hops: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Pairs of successive devices, the sender first; silent ones are empty."""
    return pairwise((src, *hops))


def hop_at(src: str, hops: tuple[str, ...], ttl: int) -> tuple[str, str]:
    """A device of a path and the one before it."""
    before, hop = (src, *hops)[ttl - 1 : ttl + 1]
    return before, hop


def left_hops(src: str, before: tuple[str, ...], now: tuple[str, ...]) -> set[tuple[str, str]]:
    """Hops that a path no longer uses, silent ones of which it is known what answers there now; a
    hop that only does not answer any more is not among them."""
    pairs = zip(hops_of(src, before), hops_of(src, now), strict=False)
    return {was for was, those in pairs if was != those and was[0] and all(those)}


def hidden_hops(
    src: str, before: tuple[str, ...], now: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Hops of a path that did not answer while those behind them did."""
    for ttl, (was, answer) in enumerate(zip(before, now, strict=False), 1):
        if was and not answer and any(now[ttl:]):
            yield hop_at(src, before, ttl)
