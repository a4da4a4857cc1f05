"""Delays beside a switch that never answers: of paths as traced last, or of a group."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest

from syntony.fabric.as_traced import LATE_SHARE, AsTraced, listed
from syntony.fabric.book import Way, reply
from syntony.fabric.delay_search import MIN_PATHS
from syntony.fabric.locate import WindowCounts, search
from syntony.fabric.names import GROUP, ComponentKind, guess_kind
from syntony.model.findings import Finding

SLOW_NS, NOISE_NS = 500_000.0, 1_000.0


class Doubts(NamedTuple):
    possible: bool = True


class Book:
    """Two leaves, a spine that answers and one that never does.

    Args:
        flows: all.
        silent: those, of either direction, that were traced across the silent spine.
        doubtful: those that may have left the other one since.
    """

    doubts = Doubts()

    def __init__(self, silent: set[Way], doubtful: set[Way]) -> None:
        self.parallel: dict[str, int] = {}
        self.silent, self.doubtful = silent, doubtful

    def components(self, way: Way, *, doubting: bool = True) -> tuple[str, ...]:
        near, far = (f"leaf{int(nic[1]) % 2}" for nic in (way.src, way.dst))
        middle: tuple[str, ...] = (f"{near}->spine0", "spine0", f"spine0->{far}")
        if way in self.silent or (doubting and way in self.doubtful):
            middle = (f"{near}{GROUP}{far}",)
        ends = f"{way.src}->{near}", near, far, f"{far}->{way.dst}"
        return way.src, *ends[:2], *middle, *ends[2:], way.dst

    def kind_of(self, name: str) -> ComponentKind:
        return guess_kind(name)


class Drawn:
    """Hosts at both leaves, and what their paths are listed as.

    Args:
        silent: number of paths known to be across the silent spine; 0: a half.
        flows: number of flows; 0: all.
    """

    def __init__(self, seed: int, silent: int = 0, flows: int = 0) -> None:
        print(f"seed {seed}")
        self.rng = random.Random(seed)
        hosts = [f"h{k}/rail0" for k in range(2 * self.rng.randint(2, 3))]
        self.flows = [
            Way(a, b, 61_000 + port, 8620)
            for a in hosts[::2] for b in hosts[1::2] for port in range(6)
        ][: flows or None]  # fmt: skip
        self.ways = [*self.flows, *map(reply, self.flows)]
        self.silent = {*self.rng.sample(self.ways, silent or len(self.ways) // 2)}
        self.doubtful = {*self.ways} - self.silent

    def named(self, late: set[Way], *, beside: tuple[Finding, ...] = ()) -> set[str]:
        """What the delay of these is blamed on, and losses found `beside` it."""
        book = Book(self.silent, self.doubtful)
        count = 4 * len(self.flows)
        change = np.full(count, np.nan)
        noise = np.random.default_rng(self.rng.randrange(2**31))
        change[: len(self.ways)] = [SLOW_NS * (way in late) for way in self.ways]
        change += noise.normal(0, NOISE_NS, count)
        nothing = np.zeros(count, dtype=np.int64)
        windows = [WindowCounts("10s", nothing, nothing, change, np.full(count, 5_000.0))]
        doubting = listed(book, self.flows)  # type: ignore[arg-type]
        located = search(doubting, windows)
        settled = AsTraced(book).settled(  # type: ignore[arg-type]
            located._replace(findings=(*beside, *located.findings)),
            windows,
            doubting,
            self.flows,
        )
        return {each.component for each in settled.findings}


@pytest.mark.parametrize("seed", [0, 1, random.randrange(10**6)])
def test_a_part_is_named_if_all_traced_across_it_are_late_and_no_other(seed: int) -> None:
    drawn = Drawn(seed)
    late = {way for way in drawn.doubtful if int(way.src[1]) % 2 == 0}
    assert drawn.named(late) in ({"leaf0->spine0"}, {"spine0->leaf1"})
    known = sorted(way for way in drawn.silent if int(way.src[1]) % 2 == 0)
    names = drawn.named({*late, drawn.rng.choice(known)})  # late for a reason of its own
    if len(known) >= 1 / LATE_SHARE:
        assert names & {"leaf0->spine0", "spine0->leaf1"}
    else:
        assert all("spine0" not in name for name in names)


@pytest.mark.parametrize("seed", [0, 1, random.randrange(10**6)])
def test_losses_beside_a_delay_stay(seed: int) -> None:
    drawn = Drawn(seed)
    late = {way for way in drawn.doubtful if int(way.src[1]) % 2 == 0}
    lost = Finding(
        component="leaf7",
        kind="leaf",
        fault="loss",
        loss=0.1,
        delay_ns=0.0,
        window="10s",
        explains=9.0,
        paths=9,
        confidence=1.0,
        alternatives=(),
    )
    names = drawn.named(late, beside=(lost,))
    assert names in ({"leaf7", "leaf0->spine0"}, {"leaf7", "spine0->leaf1"})


@pytest.mark.parametrize("seed", [0, 1, random.randrange(10**6)])
def test_a_group_is_named_if_too_few_are_known_at_the_silent_switch(seed: int) -> None:
    """Those in time there may be the only ones."""
    drawn = Drawn(seed)
    from_leaf0 = sorted(way for way in drawn.silent if int(way.src[1]) % 2 == 0)
    for way in drawn.rng.sample(from_leaf0, len(from_leaf0) - MIN_PATHS + 1):
        drawn.silent.discard(way)
        drawn.doubtful.add(way)
    late = {way for way in drawn.doubtful if int(way.src[1]) % 2 == 0}
    assert all("spine0" not in name for name in drawn.named(late))


@pytest.mark.parametrize("seed", [0, 1, random.randrange(10**6)])
@pytest.mark.parametrize("silent", [0, 4])
def test_a_group_is_named_if_those_at_the_silent_switch_are_late_too(
    seed: int, silent: int
) -> None:
    """All doubtful ones have left, to where the delay is."""
    drawn = Drawn(seed, silent)
    names = drawn.named({*drawn.ways})
    assert all("spine0" not in name for name in names)


@pytest.mark.parametrize("seed", [0, 1, random.randrange(10**6)])
def test_a_group_is_named_if_half_of_those_traced_elsewhere_have_left(seed: int) -> None:
    drawn = Drawn(seed)
    left = {*drawn.rng.sample(sorted(drawn.doubtful), len(drawn.doubtful) // 2)}
    names = drawn.named(left | drawn.silent)
    assert all("spine0" not in name for name in names)


@pytest.mark.parametrize("seed", [0, 1, random.randrange(10**6)])
def test_a_delay_that_doubtful_paths_explain_better_stays(seed: int) -> None:
    """Half of the paths that were traced across the other spine are late."""
    drawn = Drawn(seed)
    from_leaf0 = sorted(way for way in drawn.doubtful if int(way.src[1]) % 2 == 0)
    late = {*drawn.rng.sample(from_leaf0, len(from_leaf0) // 2)}
    assert drawn.named(late) == {"leaf0..leaf1"}


def test_a_few_paths_tell_a_part_from_a_group() -> None:
    """They make a difference of five nats."""
    drawn = Drawn(0, flows=6)
    drawn.silent = {way for way in drawn.ways if {way.sport, way.dport} & {*range(61_000, 61_003)}}
    drawn.doubtful = {*drawn.ways} - drawn.silent
    late = {way for way in drawn.doubtful if int(way.src[1]) % 2 == 0}
    assert drawn.named(late) == {"leaf0->spine0"}
