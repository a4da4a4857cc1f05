"""The learnt path of each probe flow, as the components that it crosses. Pure.

During an outage a path can be traced only as far as packets still pass. A trace that matches the
known path, but is shorter or has silent hops, is therefore ignored: the fuller path is kept. If the
switches that are silent go on answering other paths, this one has moved to some that never answer.
Until that is certain, a hop may be doubtful (`syntony.fabric.doubts`): it is unknown which
components the path crosses there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from syntony.fabric.doubts import Devices, Doubts
from syntony.fabric.graph import Topology, components_of
from syntony.fabric.names import ARROW, GROUP, ComponentKind, guess_kind
from syntony.model import S

SILENT = "*"
LEFT_TRACES = 3
"""So many traces of a path in a row, …"""
LEFT_NS = 8 * S
"""… over at least this time, which a switch in its middle does not answer while it answers those of
other paths, and the path has left it. A switch that limits its answers answers one of nine packets
more often than not."""


class Way(NamedTuple):
    """One direction of one flow."""

    src: str
    """Sending NIC, ``host/nic``."""
    dst: str
    sport: int
    dport: int


class _Quiet(NamedTuple):
    """Traces in a row in which hops of a known path did not answer, and those behind them did."""

    traces: int
    since_ns: int


class PathBook:
    """The newest hops of every flow, and the components that they are. `version` counts the
    changes."""

    def __init__(self, topology: Topology | None = None) -> None:
        self.topology = topology
        self.named = {each.name for each in topology.devices} if topology else set[str]()
        """Devices that the topology lists."""
        self._first_devices: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """NIC → the devices of the topology that its packets meet first, from its learnt paths."""
        self._hops: dict[Way, tuple[str, ...]] = {}
        self._components: dict[Way, tuple[str, ...]] = {}
        self._traced_ns: dict[Way, int] = {}
        self._turned: dict[Way, int] = {}
        self._quiet: dict[Way, _Quiet] = {}
        self._answered_ns: dict[str | None, int] = {}
        """Device → when the newest trace began that it answered, fleet time."""
        self.doubts = Doubts()
        self._changes = 0

    @property
    def version(self) -> int:
        """Increases with every change of the components that a flow crosses."""
        return self._changes + self.doubts.version

    def __len__(self) -> int:
        return len(self._hops)

    def learn(self, way: Way, hops: Iterable[str], at_ns: int = 0) -> bool:
        """Store a traced path, one address per hop, `SILENT` for none. Returns whether it is new.

        Args:
            at_ns: when it was traced, fleet time. A path older than the known one is ignored.
        """
        if at_ns < self._traced_ns.get(way, 0):
            return False
        traced = tuple(hops)
        self._traced_ns[way] = at_ns
        before = self._hops.get(way, ())
        old, new = self.devices_on(way), (way.src, *map(self.device, traced))
        for device in new[1:]:
            if at_ns > self._answered_ns.get(device, 0):
                self._answered_ns[device] = at_ns
        if way in self._hops and _adds_nothing(new, old):
            if (left_ns := self._left_ns(way, traced, at_ns)) is None:
                self.doubts.traced(way, old, new, at_ns)
                return False
            self._turned[way] = left_ns
        self._quiet.pop(way, None)
        if any(a != b and a and b for a, b in zip(old, new, strict=False)):
            self._turned[way] = at_ns
        self.doubts.learnt(way, old, new, at_ns)
        self._hops[way] = traced
        self._components.pop(way, None)
        self._count_first_device(way.src, before, traced)
        self._changes += 1
        return True

    def _left_ns(self, way: Way, traced: tuple[str, ...], at_ns: int) -> int | None:
        """Since when a path no longer crosses hops that were silent in its newest traces; None: it
        may cross them."""
        before = self._hops[way]
        silent = [
            old for old, new in zip(before, traced, strict=False) if _is_silent(new) and old != new
        ]
        if not silent or len(traced) < len(before) or _is_silent(traced[-1]):
            self._quiet.pop(way, None)
            return None
        traces, since_ns = self._quiet.get(way, _Quiet(0, at_ns))
        self._quiet[way] = _Quiet(traces + 1, since_ns)
        if traces + 1 < LEFT_TRACES or at_ns - since_ns < LEFT_NS:
            return None
        answers = all(self._answered_ns.get(self.device(hop), 0) > since_ns for hop in silent)
        return since_ns if answers else None

    def turned(self) -> dict[Way, int]:
        """Flows whose path changed since the last call → when their trace began, fleet time.

        Measurements from before that instant belong to the previous path.
        """
        found, self._turned = self._turned, {}
        return found

    def forget(self, before_ns: int, keep: Callable[[Way], bool]) -> tuple[Way, ...]:
        """Drop flow directions without an answer since this instant, and return them.

        Args:
            keep: those to keep nevertheless, because they are still probed: while a part of the
                fabric is down, no answers come.
        """
        old = [way for way, at_ns in self._traced_ns.items() if at_ns < before_ns]
        gone = tuple(way for way in old if not keep(way))
        for way in gone:
            del self._traced_ns[way]
            self._quiet.pop(way, None)
            self.doubts.learnt(way, self.devices_on(way), (), before_ns)
            self._count_first_device(way.src, self._hops.pop(way, ()), ())
            self._components.pop(way, None)
        self._changes += bool(gone)
        return gone

    def traced_ns(self, way: Way) -> int:
        """When a flow direction was last traced with an answer, fleet time; 0: never."""
        return self._traced_ns.get(way, 0)

    def components(self, way: Way, *, doubting: bool = True) -> tuple[str, ...]:
        """Components that the flow crosses, in order. Unknown and doubtful ones between known
        devices are one group. Not `doubting`: as traced last, whatever is doubtful."""
        doubtful = frozenset[int]()
        if doubting and self.doubts.possible:
            doubtful = self.doubts.hops(way, self.devices_on(way))
        if doubtful:
            devices = enumerate(self._devices(way))
            return tuple(components_of([None if n in doubtful else d for n, d in devices]))
        if way not in self._components:
            self._components[way] = tuple(components_of(self._devices(way)))
        return self._components[way]

    def links(self, way: Way) -> tuple[str, ...]:
        """Links that the flow crosses, in order; empty unless all of them are known."""
        parts = self.components(way)
        if any(GROUP in part for part in parts):
            return ()
        return tuple(part for part in parts if ARROW in part)

    def devices_on(self, way: Way) -> tuple[str | None, ...]:
        """The sender and the devices that answered, never taken from the topology. None stands for
        a silent hop. Empty if the path is unknown."""
        hops = self._hops.get(way)
        return () if hops is None else (way.src, *map(self.device, hops))

    def first_switches(self) -> dict[str, str]:
        """NIC → the device that most of its paths meet first; never taken from the topology."""
        first: dict[str, Counter[str]] = defaultdict(Counter)
        for way, hops in list(self._hops.items()):
            device = self.device(hops[0]) if hops else None
            if device is not None:
                first[way.src][device] += 1
        return {nic: devices.most_common(1)[0][0] for nic, devices in first.items()}

    def cabled_to(self, nic: str) -> str:
        """The one switch that the topology cables a NIC to; empty if it lists none or several."""
        return self._planned(nic) or ""

    @property
    def parallel(self) -> dict[str, int]:
        """As `Topology.parallel`; empty without a topology."""
        return {} if self.topology is None else self.topology.parallel

    def cabled_nics(self) -> dict[str, str]:
        """NIC → the one switch that the topology cables it to, for all NICs that it lists."""
        nics = () if self.topology is None else self.topology.of_kind(ComponentKind.NIC)
        return {nic: at for nic in nics if (at := self._planned(nic))}

    def kind_of(self, name: str) -> ComponentKind:
        """The kind of a component."""
        return guess_kind(name) if self.topology is None else self.topology.kind_of(name)

    def known(self) -> tuple[Way, ...]:
        return tuple(self._hops)

    def _count_first_device(self, nic: str, before: tuple[str, ...], now: tuple[str, ...]) -> None:
        """Record that the first hops of one of a NIC's paths changed. If a NIC is found at another
        switch than the topology says, what was found is used for all of its paths."""
        first, at = self._first_devices[nic], self._switch_at(nic)
        for hops, count in ((before, -1), (now, 1)):
            device = self.device(hops[0]) if hops else None
            if device is not None and device in self.named:
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
            if last and middle and (end := middle[-1]) not in {None, last}:
                # Nothing answers behind it. What is cabled to the last switch sends there.
                middle += [last] if end and self._are_cabled(end, last) else [None, last]
        return [way.src, *middle, way.dst]

    def device(self, address: str) -> str | None:
        """The device with an address; None for `SILENT`."""
        if _is_silent(address):
            return None
        if self.topology is None:
            return address
        return self.topology.by_address.get(address, address)

    def _switch_at(self, nic: str) -> str | None:
        """The switch that a NIC is at, if the topology lists its cable: the one that most of its
        paths begin with, else the one that the topology says."""
        planned = self._planned(nic)
        if planned is None or not (met := +self._first_devices[nic]):
            return planned
        return max(met, key=lambda device: (met[device], device == planned))

    def _are_cabled(self, one: str, other: str) -> bool:
        """Whether the topology lists a cable between two devices of different tiers: leaves with a
        link between them send over their spines all the same."""
        if self.topology is None or other not in self.topology.neighbours.get(one, ()):
            return False
        return self.kind_of(one) is not self.kind_of(other)

    def _planned(self, nic: str) -> str | None:
        """The one switch that the topology cables a NIC to, if any."""
        near = () if self.topology is None else self.topology.neighbours.get(nic, ())
        return near[0] if len(near) == 1 else None


def reply(way: Way) -> Way:
    """The direction of a flow's replies."""
    return Way(way.dst, way.src, way.dport, way.sport)


def _is_silent(address: str) -> bool:
    return address in {"", SILENT}


def _adds_nothing(traced: Devices, before: Devices) -> bool:
    """Whether `traced` equals `before` apart from missing or silent hops: devices, as a device may
    answer with any of its addresses."""
    if len(traced) > len(before):
        return False
    return all(new in {old, None} for new, old in zip(traced, before, strict=False))


def path_ids(flows: Sequence[Way]) -> list[str]:
    """Names of flows in files: ``h0/rail0:61000>h1/rail0:8620``."""
    return [f"{way.src}:{way.sport}>{way.dst}:{way.dport}" for way in flows]
