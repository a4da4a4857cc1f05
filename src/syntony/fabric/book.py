"""Which components each flow crosses, as far as it was learnt. Pure.

During an outage a path is learnt only up to where packets still pass. What fits the path as it was
known before, only shorter or with silent hops, is therefore no news: the fuller path stays.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from syntony.fabric.graph import Topology, components_of
from syntony.fabric.names import ComponentKind, guess_kind

SILENT = "*"


class Way(NamedTuple):
    """One direction of one flow."""

    src: str
    """Sending NIC, ``host/nic``."""
    dst: str
    sport: int
    dport: int


class PathBook:
    """The newest hops of every flow, and their names. `version` counts the changes."""

    def __init__(self, topology: Topology | None = None) -> None:
        self._topology = topology
        self._named = {each.name for each in topology.devices} if topology else set[str]()
        self._met: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """NIC → the devices of the topology that its packets meet first, by its paths."""
        self._hops: dict[Way, tuple[str, ...]] = {}
        self._components: dict[Way, tuple[str, ...]] = {}
        self._heard_ns: dict[Way, int] = {}
        self._turned: dict[Way, int] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._hops)

    def learn(self, way: Way, hops: Iterable[str], at_ns: int = 0) -> bool:
        """Take a path as learnt, one address a hop, `SILENT` for none; whether it is news.

        Args:
            at_ns: when it was learnt, fleet time; older than what is known is no news.
        """
        if at_ns < self._heard_ns.get(way, 0):
            return False
        heard = tuple(hops)
        self._heard_ns[way] = at_ns
        before = self._hops.get(way, ())
        if way in self._hops and _says_no_more(heard, before):
            return False
        devices = zip(map(self.device, heard), map(self.device, before), strict=False)
        if any(new != old and new and old for new, old in devices):
            self._turned[way] = at_ns
        self._hops[way] = heard
        self._components.pop(way, None)
        self._meet(way.src, before, heard)
        self.version += 1
        return True

    def turned(self) -> dict[Way, int]:
        """Flows found on other devices since the last call → when their trace began, fleet time.

        What was measured before then belongs to the path before.
        """
        found, self._turned = self._turned, {}
        return found

    def forget(self, before_ns: int, keep: Callable[[Way], bool]) -> tuple[Way, ...]:
        """Drop the ways without an answer since this instant; returns them.

        Args:
            keep: ways to be remembered all the same: those still probed. Of a part that is dark
                no answers come, for as long as that takes.
        """
        old = [way for way, at_ns in self._heard_ns.items() if at_ns < before_ns]
        gone = tuple(way for way in old if not keep(way))
        for way in gone:
            del self._heard_ns[way]
            self._meet(way.src, self._hops.pop(way, ()), ())
            self._components.pop(way, None)
        self.version += bool(gone)
        return gone

    def components(self, way: Way) -> tuple[str, ...]:
        """What the flow crosses, in order; what is unknown is one group between known devices."""
        if way not in self._components:
            self._components[way] = tuple(components_of(self._devices(way)))
        return self._components[way]

    def heard(self, way: Way) -> tuple[str | None, ...]:
        """The sender and the devices that answered, never what the topology says; None for
        a silent one; nothing of a way that is not known."""
        hops = self._hops.get(way)
        return () if hops is None else (way.src, *map(self.device, hops))

    def first_switches(self) -> dict[str, str]:
        """NIC → the device that its packets meet first, by most of its paths; never what the
        topology says."""
        heard: dict[str, Counter[str]] = defaultdict(Counter)
        for way, hops in list(self._hops.items()):
            device = self.device(hops[0]) if hops else None
            if device is not None:
                heard[way.src][device] += 1
        return {nic: devices.most_common(1)[0][0] for nic, devices in heard.items()}

    def cabled_to(self, nic: str) -> str:
        """The one switch that the topology cables a NIC to; empty where it does not say."""
        return self._planned(nic) or ""

    @property
    def parallel(self) -> dict[str, int]:
        """As `Topology.parallel`: nothing where no topology is known."""
        return {} if self._topology is None else self._topology.parallel

    def cabled_nics(self) -> dict[str, str]:
        """NIC → the one switch that the topology cables it to, of all that it knows."""
        nics = () if self._topology is None else self._topology.of_kind(ComponentKind.NIC)
        return {nic: at for nic in nics if (at := self._planned(nic))}

    def kind_of(self, name: str) -> ComponentKind:
        """The kind of a component."""
        return guess_kind(name) if self._topology is None else self._topology.kind_of(name)

    def known(self) -> tuple[Way, ...]:
        return tuple(self._hops)

    def _meet(self, nic: str, before: tuple[str, ...], now: tuple[str, ...]) -> None:
        """One of its paths began with other hops before. Where a NIC is found to be at another
        switch than the topology says, all of its paths go by what is found."""
        first, at = self._met[nic], self._switch_at(nic)
        for hops, count in ((before, -1), (now, 1)):
            device = self.device(hops[0]) if hops else None
            if device is not None and device in self._named:
                first[device] += count
        if self._switch_at(nic) != at:
            self._components.clear()

    def _devices(self, way: Way) -> list[str | None]:
        hops = self._hops.get(way)
        first, last = (self._switch_at(nic) for nic in (way.src, way.dst))
        if hops is None:
            middle: list[str | None] = [first, None, last]
            if first and first == last:
                middle = [first]
        else:
            middle = [self.device(hop) for hop in hops]
            if first and middle and middle[0] is None:
                middle[0] = first
            if last and middle and middle[-1] not in {None, last}:
                middle += [None, last]
        return [way.src, *middle, way.dst]

    def device(self, address: str) -> str | None:
        """Who answers by an address; None for `SILENT`."""
        if address in {"", SILENT}:
            return None
        if self._topology is None:
            return address
        return self._topology.by_address.get(address, address)

    def _switch_at(self, nic: str) -> str | None:
        """The one switch that a NIC is at, where the topology knows of one: the one that most of
        its paths begin with, else the one that it is cabled to there."""
        planned = self._planned(nic)
        if planned is None or not (met := +self._met[nic]):
            return planned
        return max(met, key=lambda device: (met[device], device == planned))

    def _planned(self, nic: str) -> str | None:
        """The one switch that the topology cables a NIC to, where it does."""
        near = () if self._topology is None else self._topology.neighbours.get(nic, ())
        return near[0] if len(near) == 1 else None


def _says_no_more(heard: tuple[str, ...], before: tuple[str, ...]) -> bool:
    """Whether `heard` equals `before` apart from missing or silent hops."""
    if len(heard) > len(before):
        return False
    return all(new in {old, "", SILENT} for new, old in zip(heard, before, strict=False))
