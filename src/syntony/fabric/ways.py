"""Which known components lie between two devices, for paths that are learnt only in part. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from syntony.fabric.names import ARROW, cable_name, link_ends, link_name


class WayGraph:
    """The directed links that fully learnt parts of paths show.

    Args:
        names: of components; those of links are read.
        is_end: whether a device is a NIC or host, which forwards nothing.
    """

    def __init__(self, names: Iterable[str], is_end: Callable[[str], bool]) -> None:
        self._after: dict[str, set[str]] = defaultdict(set)
        self._before: dict[str, set[str]] = defaultdict(set)
        self._is_end = is_end
        self._ways: dict[str, dict[tuple[str, bool], int]] = {}
        self._distances: dict[str, dict[str, int]] = {}
        for name in names:
            ends = link_ends(name)
            if ends is not None:
                for a, b in (ends,) if ARROW in name else (ends, ends[::-1]):
                    self._after[a].add(b)
                    self._before[b].add(a)

    def between(self, near: str, far: str) -> set[str]:
        """Devices, links and cables that a path from `near` to `far` may cross: those of the
        shortest known ways, and the links from and to the two ends, of a NIC those of the switch
        that it is at, since one half of a way may be known without the other. The ends themselves
        are not among them. A way leads up to a tier and down again, never down and up."""
        pairs = self._on_shortest(near, far)
        # Where no whole way is known a path may take any of the links that leave either end.
        begins = (near, *self.only_link(near, away=True)[2:])
        ends = (far, *self.only_link(far, away=False)[2:])
        if begins[-1] != ends[-1]:
            pairs |= {(a, b) for a in begins for b in self._after.get(a, ()) if not self._is_end(b)}
            pairs |= {(a, b) for b in ends for a in self._before.get(b, ()) if not self._is_end(a)}
        devices = {device for pair in pairs for device in pair} - {near, far}
        links = {name(a, b) for a, b in pairs for name in (link_name, cable_name)}
        return devices | links

    def only_link(self, end: str, *, away: bool) -> tuple[str, ...]:
        """The one known link of a NIC or host in this direction, its cable, and the device at its
        other side; nothing where several are known, or for a device that forwards."""
        near = (self._after if away else self._before).get(end, set())
        if not self._is_end(end) or len(near) != 1:
            return ()
        (device,) = near
        link = link_name(end, device) if away else link_name(device, end)
        return link, cable_name(end, device), device

    def shortest(self, near: str, far: str) -> Iterator[tuple[str, ...]]:
        """The shortest known ways as their devices, both ends among them, last by name first."""
        left = self._distances_to(far)
        if near not in left:
            return
        stack: list[tuple[str, ...]] = [(near,)]
        while stack:
            way = stack.pop()
            if way[-1] == far:
                yield way
                continue
            nexts = sorted(self._after.get(way[-1], ()))
            stack.extend((*way, each) for each in nexts if left.get(each) == left[way[-1]] - 1)

    def _on_shortest(self, near: str, far: str) -> set[tuple[str, str]]:
        """Links of the shortest ways that never lead down and up again, as pairs of devices."""
        steps = self._climbed(near)
        ends = [end for end in ((far, False), (far, True)) if end in steps]
        nearest = min((steps[end] for end in ends), default=0)
        todo = [end for end in ends if steps[end] == nearest]
        pairs: set[tuple[str, str]] = set()
        seen = set(todo)
        while todo:
            here = todo.pop()
            for before in self._steps_before(*here):
                if steps.get(before) == steps[here] - 1:
                    pairs.add((before[0], here[0]))
                    if before not in seen:
                        seen.add(before)
                        todo.append(before)
        return pairs

    def _steps_before(self, device: str, descended: bool) -> Iterator[tuple[str, bool]]:
        """From where one step leads here, and whether the way had led down before it."""
        for other in self._before.get(device, ()):
            for before in (False, True):
                if self._descends(other, before, device) is descended:
                    yield other, before

    def _climbed(self, near: str) -> dict[tuple[str, bool], int]:
        """Device, and whether its way led down already, to its distance; ends are not passed."""
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
        """Whether a way has led down after this step; None: it would lead up again."""
        here, there = self._tiers.get(device, 0), self._tiers.get(other, 0)
        if descended and there > here:
            return None
        return descended or there < here

    @cached_property
    def _tiers(self) -> dict[str, int]:
        """Device to how many links it is away from the nearest NIC or host; the others are not
        named."""
        away = {device: 0 for device in (*self._after, *self._before) if self._is_end(device)}
        todo = deque(away)
        while todo:
            here = todo.popleft()
            for other in (*self._after.get(here, ()), *self._before.get(here, ())):
                if other not in away:
                    away[other] = away[here] + 1
                    todo.append(other)
        return away

    def _distances_to(self, far: str) -> dict[str, int]:
        """Device to its distance to `far`; ends are not passed."""
        if far not in self._distances:
            away = {far: 0}
            todo = deque([far])
            while todo:
                here = todo.popleft()
                if here != far and self._is_end(here):
                    continue
                for other in self._before.get(here, ()):
                    if other not in away:
                        away[other] = away[here] + 1
                        todo.append(other)
            self._distances[far] = away
        return self._distances[far]
