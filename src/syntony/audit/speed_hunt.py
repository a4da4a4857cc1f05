"""Finds low bandwidth between pairs of hosts, and the host or path to blame. Pure.

Several things are measured for a pair at a time (the NICs of a host, with and without the GPU's
memory); each is hunted by itself, since one NIC of a host may be bad.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from syntony.audit.hunt import Blamed, Pair, PairHunt

USUAL_SHARE = 0.9
"""Without a line rate, below this share of what good pairs reach is low."""
MIN_PAIRS = 3
"""Fewer do not say what is usual."""


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """One thing measured for one pair."""

    gbps: float | None = None
    """Gb/s of the slower direction; None: there is no figure."""
    line_gbps: float | None = None
    """Of the slower end's interface; None: unknown, or a virtual interface."""
    least_gbps: float | None = None
    """Minimum for this pair, derived from another measurement of it; None: there is none."""
    why: str = ""
    """Why there is no figure."""
    broke: bool = False
    """It was started and failed, as a job would; else it could not be reported."""


class SpeedHunt:
    """Plans rounds for all things at once, judges them, and names who is to blame.

    Args:
        hosts: names.
        things: what is measured for each pair.
        share: of the line rate that a good pair reaches.
        at_least: Gb/s that are asked for in place of that.
    """

    def __init__(
        self, hosts: Sequence[str], things: Sequence[str], *, share: float,
        at_least: float | None = None, every_pair: bool = False, seed: int = 1,
    ) -> None:  # fmt: skip
        self._hunts = {thing: PairHunt(hosts, every_pair=every_pair, seed=seed) for thing in things}
        self._share, self._at_least = share, at_least
        self._seen: dict[str, dict[Pair, Speed]] = {thing: {} for thing in things}
        self._again: dict[Pair, tuple[str, ...]] | None = None
        """Low pairs that wait for a second measurement; None before the plan is through."""
        self._judged = False
        self._plan = next(iter(self._hunts.values())).plan
        self.said: dict[str, dict[Pair, str]] = {thing: {} for thing in things}
        """Why pairs failed."""
        self.rounds = 0

    @property
    def plan(self) -> list[list[Pair]]:
        """The rounds before any re-test."""
        return self._plan

    @property
    def planned(self) -> int:
        """Rounds at most, as far as known: what is low is measured again."""
        return max(self.rounds + 1, next(iter(self._hunts.values())).planned)

    def next_round(self) -> dict[Pair, tuple[str, ...]]:
        """Pairs to measure at the same time, and what of each; none when done."""
        if self.rounds < len(self._plan):
            return {pair: tuple(self._hunts) for pair in self._plan[self.rounds]}
        if self._again:
            return _disjoint(self._again)
        requested: dict[Pair, list[str]] = defaultdict(list)
        for thing, hunt in self._hunts.items():
            for pair in hunt.next_round():
                requested[pair].append(thing)
        return {pair: tuple(things) for pair, things in requested.items()}

    def report(self, measured: Mapping[Pair, Mapping[str, Speed]]) -> None:
        """What the round gave. Low is reported once all planned rounds are there, and only of pairs
        that are low twice: the second time fewer others are busy.
        """
        self.rounds += 1
        for pair, speeds in measured.items():
            for thing, speed in speeds.items():
                self._seen[thing][pair] = _better(speed, self._seen[thing].get(pair))
        if self.rounds < len(self._plan):
            return
        if self._judged:
            self._judge(measured)
            return
        if self._again is None:
            self._again = self._low()
        else:
            self._again = {p: things for p, things in self._again.items() if p not in measured}
        if not self._again:
            self._judged = True
            for matching in self._plan:
                self._judge(dict.fromkeys(matching, self._hunts))

    def _judge(self, pairs: Mapping[Pair, Iterable[str]]) -> None:
        for thing, hunt in self._hunts.items():
            seen = self._seen[thing]
            mine = [pair for pair, things in pairs.items() if thing in things and pair in seen]
            outcomes = {pair: self._passed(thing, pair, seen[pair]) for pair in mine}
            hunt.report({pair: ok for pair, ok in outcomes.items() if ok is not None})

    def _low(self) -> dict[Pair, tuple[str, ...]]:
        low: dict[Pair, list[str]] = defaultdict(list)
        for thing, seen in self._seen.items():
            for pair, speed in seen.items():
                if self._passed(thing, pair, speed) is False:
                    low[pair].append(thing)
            self.said[thing].clear()
        return {pair: tuple(things) for pair, things in low.items()}

    def named(self, thing: str) -> tuple[Blamed, ...]:
        """Hosts that are blamed for low results of one test."""
        return self._hunts[thing].named()

    def tested(self, thing: str) -> int:
        return self._hunts[thing].tested

    def untested(self, thing: str) -> tuple[str, ...]:
        """Hosts none of whose tests could be run."""
        return self._hunts[thing].untested

    def usual(self, thing: str) -> float | None:
        """The upper quartile of what pairs reach: one bad host is in half of four hosts' pairs."""
        known = [speed.gbps for speed in self._seen[thing].values() if speed.gbps is not None]
        if len(known) < MIN_PAIRS:
            return None
        return statistics.quantiles(known, n=4, method="inclusive")[2]

    def figures(self, thing: str) -> Iterator[float]:
        """Gb/s of every pair that has one."""
        yield from (s.gbps for s in self._seen[thing].values() if s.gbps is not None)

    def expected(self, thing: str, speed: Speed) -> tuple[float, str] | None:
        """The expected Gb/s and their source; None if there is none."""
        if speed.least_gbps is not None:
            return speed.least_gbps, "the same pair's other figure"
        if self._at_least is not None:
            return self._at_least, "--at-least"
        if speed.line_gbps is not None:
            return self._share * speed.line_gbps, f"{self._share:.0%} of {speed.line_gbps:g} Gb/s"
        usual = self.usual(thing)
        if usual is None:
            return None
        return USUAL_SHARE * usual, f"{USUAL_SHARE:.0%} of what good pairs reach"

    def _passed(self, thing: str, pair: Pair, speed: Speed) -> bool | None:
        said = self.said[thing]
        if speed.gbps is None:
            said[pair] = speed.why or "no figure"
            return False if speed.broke else None
        wanted = self.expected(thing, speed)
        if wanted is None:
            said[pair] = "no line rate and too few pairs to say what is usual: give --at-least"
            return None
        if speed.gbps >= wanted[0]:
            return True
        said[pair] = f"{pair[0]} -- {pair[1]}: {speed.gbps:.4g} Gb/s, not {wanted[0]:.4g}"
        return False


def _better(speed: Speed, before: Speed | None) -> Speed:
    if before is None or before.gbps is None:
        return speed
    return before if speed.gbps is None or speed.gbps < before.gbps else speed


def _disjoint(pairs: Mapping[Pair, tuple[str, ...]]) -> dict[Pair, tuple[str, ...]]:
    """As many of them as share no host."""
    busy: set[str] = set()
    found = {}
    for pair, things in pairs.items():
        if busy.isdisjoint(pair):
            busy.update(pair)
            found[pair] = things
    return found
