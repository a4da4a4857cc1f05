"""Which known components lie between two devices, for partly learnt paths. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from syntony.fabric.names import ARROW, cable_name, link_ends, link_name

_State = tuple[str, bool]
"""A device, and whether the path to it has already led down."""


class LinkGraph:
    """The directed links in the fully learnt parts of paths.

    Args:
        names: of components; those of links are used.
        is_end: whether a device is a NIC or host, which forwards nothing.
    """

    def __init__(self, names: Iterable[str], is_end: Callable[[str], bool]) -> None:
        self._after: dict[str, set[str]] = defaultdict(set)
        self._before: dict[str, set[str]] = defaultdict(set)
        self._is_end = is_end
        self._ways: dict[str, dict[_State, int]] = {}
        for name in names:
            ends = link_ends(name)
            if ends is not None:
                for a, b in (ends,) if ARROW in name else (ends, ends[::-1]):
                    self._after[a].add(b)
                    self._before[b].add(a)

    def between(self, near: str, far: str) -> set[str]:
        """Devices, links and cables that a path from `near` to `far` may cross: those of the
        shortest known paths, and the links from and to the two ends. For a NIC, these are the links
        of its switch, since one half of a path may be known without the other. The ends themselves
        are left out. A path leads up to a tier and down again, never down and up."""
        pairs = self._on_shortest(near, far)
        # If no whole path is known, it may take any of the links that leave either end.
        begins = (near, *self.only_link(near, away=True)[2:])
        ends = (far, *self.only_link(far, away=False)[2:])
        if begins[-1] != ends[-1]:
            pairs |= {
                (a, b)
                for a in begins
                for b in self._after.get(a, ())
                if self._leads(a, b, ends[-1])
            }
            pairs |= {
                (a, b)
                for b in ends
                for a in self._before.get(b, ())
                if self._leads(b, a, begins[-1])
            }
        devices = {device for pair in pairs for device in pair} - {near, far}
        links = {name(a, b) for a, b in pairs for name in (link_name, cable_name)}
        return devices | links

    def _leads(self, device: str, other: str, far: str) -> bool:
        """Whether the link from a device to another one may be part of a path to `far`. A link down
        leads only to what lies below it: a device of a lower tier, unless other devices of the
        same tier are above that and none of them is above what is known below this one."""
        here, there, aim = (self._tiers.get(each, 0) for each in (device, other, far))
        if self._is_end(other):
            return False
        if there >= here or other == far:
            return True
        above = {each for each in self._near(far) if self._tiers.get(each, 0) == there}
        below = self._below(other)
        return there > aim and (not above or any(below & self._below(each) for each in above))

    def _near(self, device: str) -> set[str]:
        return self._after.get(device, set()) | self._before.get(device, set())

    def _below(self, device: str) -> set[str]:
        """Devices of the next lower tier that a device is cabled to."""
        tier = self._tiers.get(device, 0)
        return {each for each in self._near(device) if self._tiers.get(each, 0) == tier - 1}

    def only_link(self, end: str, *, away: bool) -> tuple[str, ...]:
        """The only known link of a NIC or host in this direction, its cable, and the device at its
        other side; empty if several are known, or for a device that forwards."""
        near = (self._after if away else self._before).get(end, set())
        if not self._is_end(end) or len(near) != 1:
            return ()
        (device,) = near
        link = link_name(end, device) if away else link_name(device, end)
        return link, cable_name(end, device), device

    def shortest(self, near: str, far: str) -> Iterator[tuple[str, ...]]:
        """The devices of the shortest known paths of `between`, including both ends."""
        steps = self._climbed(near)
        stack: list[tuple[_State, tuple[str, ...]]]
        stack = [(end, (far,)) for end in self._nearest(near, far)]
        while stack:
            here, way = stack.pop()
            if not steps[here]:
                yield way
            before = sorted(self._steps_before(steps, here))
            stack.extend((each, (each[0], *way)) for each in before)

    def _nearest(self, near: str, far: str) -> list[_State]:
        """Where the shortest paths end; empty if there is none."""
        steps = self._climbed(near)
        ends = [end for end in ((far, False), (far, True)) if end in steps]
        nearest = min((steps[end] for end in ends), default=0)
        return [end for end in ends if steps[end] == nearest]

    def _on_shortest(self, near: str, far: str) -> set[tuple[str, str]]:
        """Links of the shortest paths, as pairs of devices."""
        steps = self._climbed(near)
        todo = self._nearest(near, far)
        pairs: set[tuple[str, str]] = set()
        seen = set(todo)
        while todo:
            here = todo.pop()
            for before in self._steps_before(steps, here):
                pairs.add((before[0], here[0]))
                if before not in seen:
                    seen.add(before)
                    todo.append(before)
        return pairs

    def _steps_before(self, steps: Mapping[_State, int], here: _State) -> Iterator[_State]:
        """Predecessors of a device on the shortest paths."""
        device, descended = here
        for other in self._before.get(device, ()):
            for before in (False, True):
                fits = self._descends(other, before, device) is descended
                if fits and steps.get((other, before)) == steps[here] - 1:
                    yield other, before

    def _climbed(self, near: str) -> dict[_State, int]:
        """All states reachable from here, with the distance; paths do not pass through ends."""
        if near not in self._ways:
            away = {(near, False): 0}
            todo = deque(away)
            while todo:
                here = todo.popleft()
                if here[0] != near and self._is_end(here[0]):
                    continue
                for other in self._after.get(here[0], ()):
                    descends = self._descends(*here, other)
                    if descends is not None and (other, descends) not in away:
                        away[other, descends] = away[here] + 1
                        todo.append((other, descends))
            self._ways[near] = away
        return self._ways[near]

    def _descends(self, device: str, descended: bool, other: str) -> bool | None:
        """Whether a path has led down after this step; None: it would lead up again."""
        here, there = self._tiers.get(device, 0), self._tiers.get(other, 0)
        if descended and there > here:
            return None
        return descended or there < here

    @cached_property
    def _tiers(self) -> dict[str, int]:
        """Device → number of links to the nearest NIC or host; others are left out."""
        away = {device: 0 for device in (*self._after, *self._before) if self._is_end(device)}
        todo = deque(away)
        while todo:
            here = todo.popleft()
            for other in (*self._after.get(here, ()), *self._before.get(here, ())):
                if other not in away:
                    away[other] = away[here] + 1
                    todo.append(other)
        return away
