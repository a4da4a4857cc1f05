"""Which known components lie between two devices, for paths that are learnt only in part. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator

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
        self._distances: dict[tuple[str, bool], dict[str, int]] = {}
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
        are not among them."""
        there, back = self._reached(near, forward=True), self._reached(far, forward=False)
        length = there.get(far)
        inner = {
            device
            for device, steps in there.items()
            if length is not None and device in back and steps + back[device] == length
        }
        pairs = {(a, b) for a in inner for b in self._after.get(a, ()) if b in inner}
        pairs = {(a, b) for a, b in pairs if there[a] + 1 == there[b]}
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
        left = self._reached(far, forward=False)
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

    def _reached(self, start: str, *, forward: bool) -> dict[str, int]:
        """Device to its distance from `start` (to it, if not forward); ends are not passed."""
        key = (start, forward)
        if key not in self._distances:
            steps = self._after if forward else self._before
            away = {start: 0}
            todo = deque([start])
            while todo:
                here = todo.popleft()
                if here != start and self._is_end(here):
                    continue
                for other in steps.get(here, ()):
                    if other not in away:
                        away[other] = away[here] + 1
                        todo.append(other)
            self._distances[key] = away
        return self._distances[key]
