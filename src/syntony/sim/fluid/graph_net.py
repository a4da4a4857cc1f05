"""Any cabled topology as a net: all shortest paths between the NICs' switches. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping

import numpy as np

from syntony.errors import InputError
from syntony.fabric.graph import Cable, Topology
from syntony.fabric.names import ComponentKind
from syntony.model.names import natural
from syntony.sim.fluid.net import LineRates, Net, Numbers
from syntony.traffic.fair import Ints

MAX_PATHS = 1_024
"""Equal-cost paths of one pair that are distinguished: more than switches hash over."""


class GraphNet(Net):
    """A topology of `fabric.graph`. Traffic goes over shortest paths, as routing protocols have it.

    NICs are its devices of kind ``nic``, or its hosts where it lists no NIC; numbered by name as a
    person would order them (``h2`` before ``h10``).

    Args:
        topology: checked.
        gbps: of every cable of which the topology does not tell the speed.
    """

    def __init__(self, topology: Topology, *, gbps: float = 100.0) -> None:
        kinds = (ComponentKind.NIC, ComponentKind.HOST)
        ends = next((found for kind in kinds if (found := topology.of_kind(kind))), ())
        if not ends:
            raise InputError("no-nics", "the topology has neither NICs nor hosts")
        self._nics = sorted(ends, key=natural)
        self.nics = len(self._nics)
        self._hosts = set(topology.of_kind(*kinds))
        self._names: list[str] = []
        self._near: dict[str, list[tuple[str, int]]] = defaultdict(list)
        speeds: list[float] = []
        parallel = Counter(cable.name for cable in topology.cables)
        for cable in topology.cables:
            for a, b, a_port, b_port in _both_ways(cable, ports=parallel[cable.name] > 1):
                self._near[a].append((b, len(speeds)))
                self._names.append(f"{a}{a_port}->{b}{b_port}")
                speeds.append(cable.gbps or gbps)
        self.capacity = np.array(speeds)
        self.position = self._positions()
        self._paths: dict[tuple[str, str], list[tuple[int, ...]]] = {}

    def number_of(self) -> Mapping[str, int]:
        """NICs by name."""
        return {name: number for number, name in enumerate(self._nics)}

    def choices(self, src: Numbers, dst: Numbers) -> Numbers:
        pairs = zip(src.tolist(), dst.tolist(), strict=True)
        return np.array([len(self._between(a, b)) for a, b in pairs], dtype=np.int64)

    def path(self, src: Numbers, dst: Numbers, pick: Numbers) -> Ints:
        rows = [
            self._between(a, b)[k]
            for a, b, k in zip(src.tolist(), dst.tolist(), pick.tolist(), strict=True)
        ]
        width = max((len(row) for row in rows), default=1)
        found = np.full((len(rows), width), -1, dtype=np.int32)
        for place, row in enumerate(rows):
            # The last hop last, so that columns mean the same for long and short paths.
            found[place, : len(row) - 1] = row[:-1]
            found[place, -1] = row[-1]
        return found

    def line_rates(self) -> LineRates:
        tx, rx, port = np.zeros((3, self.nics))
        numbers = self.number_of()
        for link, name in enumerate(self._names):
            a, _, b = (end.partition(":")[0] for end in name.partition("->"))
            speed = self.capacity[link]
            if a in numbers:
                tx[numbers[a]] += speed
                port[numbers[a]] = max(port[numbers[a]], speed)
            if b in numbers:
                rx[numbers[b]] += speed
        return LineRates(tx, rx, port)

    def link_name(self, link: int) -> str:
        return self._names[link]

    def nic_name(self, nic: int) -> str:
        return self._nics[nic]

    def _positions(self) -> Numbers:
        seen: Counter[str] = Counter()
        found = []
        for name in self._nics:
            leaf = self._near[name][0][0] if self._near[name] else ""
            found.append(seen[leaf])
            seen[leaf] += 1
        return np.array(found, dtype=np.int64)

    def _between(self, a: int, b: int) -> list[tuple[int, ...]]:
        key = (self._nics[a], self._nics[b])
        if key not in self._paths:
            self._paths[key] = list(self._shortest(*key))
            if not self._paths[key]:
                raise InputError("disconnected", f"no path from {key[0]} to {key[1]}")
        return self._paths[key]

    def _shortest(self, a: str, b: str) -> Iterator[tuple[int, ...]]:
        """Link numbers of all shortest living paths from `a` to `b`; none through other NICs."""
        away = {b: 0}
        queue = deque([b])
        while queue:
            here = queue.popleft()
            for other, _ in self._near[here]:
                if other not in away and (other == a or other not in self._hosts):
                    away[other] = away[here] + 1
                    queue.append(other)
        if a not in away:
            return
        stack: list[tuple[str, tuple[int, ...]]] = [(a, ())]
        found = 0
        while stack and found < MAX_PATHS:
            here, links = stack.pop()
            if here == b:
                found += 1
                yield links
                continue
            stack += [
                (other, (*links, link))
                for other, link in reversed(self._near[here])
                if away.get(other, -1) == away[here] - 1
            ]


def _both_ways(cable: Cable, *, ports: bool) -> Iterator[tuple[str, str, str, str]]:
    a_port, b_port = (f":{cable.a_port}", f":{cable.b_port}") if ports else ("", "")
    yield cable.a, cable.b, a_port, b_port
    yield cable.b, cable.a, b_port, a_port
