"""Hops of known paths that are doubtful, beside switches that never answer. Pure.

A path that moves to a switch that never answers is traced as before, but for one silent hop, and
silence alone proves nothing: switches limit their answers, and packets are lost. Where such a
switch is known, because the same paths have had the same silent hop for a minute, it is as good an
explanation as any. A path counts there as only partly known from the first sign that it may have
left its hop until that hop answers it again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from syntony.fabric.names import ANY, GROUP, link_ends
from syntony.model import S

MANY = 3
"""So many paths with a silent hop at one device make a switch that never answers known there, if
each of them …"""
SURE_TRACES = 3
"""… had it in so many traces, all other hops answering and that one never, …"""
SURE_NS = 60 * S
"""… over at least this time: a switch that limits its answers, or whose answers are lost, answers
one of so many."""
KEPT_NS = 600 * S
"""It is known until no such path has been traced for this long: to a controller that starts, too,
as it reads as much (`PATHS_BACK_NS`)."""
UNSURE_TRACES = 2
"""Traces of a path in a row that its hop does not answer, while those behind it do: it may have
left. One is enough if the hop answers others."""
NEARBY_NS = 20 * S
"""For so long after a path has left a place all others are doubtful there: agents check hops all
the time, and would have found by then that they left as well. Those traced since, too: lossy paths
are traced first, and being known among doubtful ones they would speak against the place."""

Devices = Sequence[str | None]
"""The sender of a path and the devices on it, None for one that did not answer."""


class Place(NamedTuple):
    """Where a path may leave a switch."""

    before: str
    """The device before it."""
    device: str


class _Unsure(NamedTuple):
    """Traces in a row that one hop of a path did not answer."""

    since_ns: int
    """When the first began."""
    passed: int
    """Number of those in which a device behind it answered."""


class _Silence(NamedTuple):
    """Traces of a path in which the same hops were silent, and all others answered."""

    traces: int
    since_ns: int
    """When the first began."""


class Doubts:
    """Takes traces and the paths that they make known. `version` counts what may change answers."""

    def __init__(self) -> None:
        self.version = 0
        self._silent: dict[Hashable, _Silence] = {}
        """Paths with silent hops behind the first switch."""
        self._beside: defaultdict[str, set[Hashable]] = defaultdict(set)
        """Device → paths with a hop before or behind it that is surely silent."""
        self._hidden: dict[str, int] = {}
        """Devices beside which a switch that never answers is known → when the newest trace of a
        path across it began."""
        self._aged_ns = 0
        self._crossed_ns: dict[Place, int] = {}
        """When the newest trace began that was answered there, …"""
        self._left_ns: dict[Place, int] = {}
        """… and that of the newest path that was found to have left."""
        self._now_ns = self._nearby_until_ns = 0
        self._unsure: dict[Hashable, dict[int, _Unsure]] = {}
        """By the hop's place in the path."""
        self._waiting: set[Place] = set()
        """Places that did not answer a path, and none since."""
        self._middle: set[str] = set()
        """Devices of all places: what a path may leave."""

    @property
    def possible(self) -> bool:
        """Whether any hop can be doubtful: a switch that never answers is known."""
        return bool(self._hidden)

    def learnt(self, way: Hashable, before: Devices, now: Devices, at_ns: int) -> None:
        """A path goes elsewhere than before, is new, or (`now` empty) is no longer known.

        Args:
            way: names one direction of one flow, here and below.
            at_ns: since when, fleet time.
        """
        self._unsure.pop(way, None)
        self._proceed(at_ns)
        self._silent.pop(way, None)
        for device in _beside_silent(before):
            self._beside[device].discard(way)
        if any(_beside_silent(now)):
            self._silent[way] = _Silence(1, at_ns)
        new = dict(_places(now))
        for number, place in _places(before):
            if number < len(now) and new.get(number) != place and now[number - 1] == place.before:
                self._left_ns[place] = max(at_ns, self._left_ns.get(place, 0))
                self._nearby_until_ns = max(self._nearby_until_ns, at_ns + NEARBY_NS)
        for place in new.values():
            self._answered(place, at_ns)

    def traced(self, way: Hashable, known: Devices, now: Devices, at_ns: int) -> None:
        """A trace that does not differ from the known path but for hops that did not answer."""
        unsure = self._unsure.pop(way, {})
        self._proceed(at_ns)
        if way in self._silent and now == known:
            self._still_silent(way, known, at_ns)
        for number, place in _places(known):
            if number < len(now) and now[number] is not None:
                self.version += unsure.pop(number, None) is not None
                self._answered(place, at_ns)
            elif self._is_beside_hidden(known, number):
                before = unsure.get(number, _Unsure(at_ns, 0))
                passed = before.passed + any(now[number + 1 :])
                self.version += number not in unsure or before.passed < UNSURE_TRACES <= passed
                unsure[number] = before._replace(passed=passed)
                self._waiting.add(place)
        if unsure:
            self._unsure[way] = unsure

    def hops(self, way: Hashable, known: Devices) -> frozenset[int]:
        """Which hops of a path it may have left, by their places in `known`."""
        unsure = self._unsure.get(way, {})
        return frozenset(
            number
            for number, place in _places(known)
            if self._is_beside_hidden(known, number)
            and self._may_have_left(place, unsure.get(number))
        )

    def rival(self, component: str) -> str:
        """The group of unknown components where flows may be that seem to cross a link or switch;
        empty if no switch that never answers is known there, or no flow can leave it: hosts, NICs
        and their links."""
        ends = link_ends(component) or (component,)
        if any("/" in end for end in ends):
            return ""
        near = sorted(self._hidden.keys() & {*ends})
        if not near and self._hidden and component in self._middle:
            near = [ANY]
        return f"{near[0]}{GROUP}{ANY}" if near else ""

    def _still_silent(self, way: Hashable, devices: Devices, at_ns: int) -> None:
        """One more trace in which only the same hops were silent."""
        traces, since_ns = self._silent[way]
        self._silent[way] = _Silence(traces + 1, since_ns)
        if traces + 1 < SURE_TRACES or at_ns - since_ns < SURE_NS:
            return
        for device in _beside_silent(devices):
            self._beside[device].add(way)
            if len(self._beside[device]) >= MANY:
                self.version += device not in self._hidden
                self._hidden[device] = at_ns

    def _may_have_left(self, place: Place, unsure: _Unsure | None) -> bool:
        """Whether a path may have left a place, from its own traces or as another did lately."""
        if unsure is not None:
            others = self._crossed_ns.get(place, 0) > unsure.since_ns
            if others or unsure.passed >= UNSURE_TRACES:
                return True
        return self._left_ns.get(place, 0) > self._now_ns - NEARBY_NS

    def _proceed(self, at_ns: int) -> None:
        """A trace began at this time."""
        self.version += self._now_ns < self._nearby_until_ns <= at_ns
        self._now_ns = max(self._now_ns, at_ns)
        if self._now_ns - self._aged_ns >= SURE_NS:
            self._aged_ns = self._now_ns
            before, oldest_ns = len(self._hidden), self._now_ns - KEPT_NS
            self._hidden = {each: ns for each, ns in self._hidden.items() if ns > oldest_ns}
            self.version += before - len(self._hidden)

    def _answered(self, place: Place, at_ns: int) -> None:
        if at_ns > self._crossed_ns.get(place, 0):
            self._crossed_ns[place] = at_ns
            self._middle.add(place.device)
            if place in self._waiting:
                self._waiting.discard(place)
                self.version += 1

    def _is_beside_hidden(self, known: Devices, number: int) -> bool:
        return known[number - 1] in self._hidden or known[number + 1] in self._hidden


def _places(devices: Devices) -> Iterator[tuple[int, Place]]:
    """Known devices behind known ones, and their numbers. The first and the last switch are where
    the NICs are, and no path leaves them."""
    for number, (before, device) in enumerate(pairwise(devices[:-1]), 1):
        if number > 1 and before is not None and device is not None:
            yield number, Place(before, device)


def _beside_silent(devices: Devices) -> Iterator[str]:
    """Devices before and behind each silent hop, without those before the first switch."""
    for before, hop, behind in zip(devices[1:], devices[2:], devices[3:], strict=False):
        if hop is None:
            yield from (each for each in (before, behind) if each is not None)
