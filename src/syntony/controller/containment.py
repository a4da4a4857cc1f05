"""Which components contain or affect which, by names, traced paths and the switches of NICs.
Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from syntony.fabric.names import (
    ANY,
    ARROW,
    BOTH_WAYS,
    CABLE,
    GROUP,
    HOSTS_AT,
    OR,
    SILENT_AT,
    cable_name,
    crosses,
    hosts_at,
    link_ends,
    link_name,
    suspects,
)
from syntony.model.names import host_of

_MARKS = re.compile("|".join(map(re.escape, (OR, BOTH_WAYS, ARROW, CABLE, GROUP))))
_HOSTS_AT = re.compile(f"(^|{OR}){HOSTS_AT}")
_KINDS = frozenset({"gateway", "job"})
"""Words with which subjects begin that are neither hosts nor parts of the fabric."""
FLEET = "all agents"
"""A subject: no host can have this name."""


class NameContainment:
    """Containment by names: hosts contain their NICs, devices the links at them, cables their two
    directions. Of a group's two directions the first by name represents both; the surroundings of a
    device (``leaf0..*``) contain the links at it, but for those of NICs, which are known."""

    @staticmethod
    def holds(wider: str, narrower: str) -> bool:
        """Whether `narrower` would fail with `wider`: every suspect that `narrower` names is one
        that `wider` names, or would fail with one. Of two that name the same, the first by name."""
        if OR in narrower or OR in wider:
            all_of, some_of = suspects(wider), suspects(narrower)
            mutual = _cover(some_of, all_of)
            return _cover(all_of, some_of) and (not mutual or wider < narrower)
        a, group, b = narrower.partition(GROUP)
        if wider == _mirrored(narrower):
            return wider < narrower
        ends = (a, b) if group else link_ends(narrower)
        if GROUP in wider:
            nics = set() if group else {end for end in ends or () if "/" in end}
            return ends is not None and _surrounds(wider, {*ends}, nics)
        if ends is None:
            return narrower.startswith(f"{wider}/")
        if CABLE in wider and cable_name(*ends) == wider != narrower:
            return True
        return any(end == wider or end.startswith(f"{wider}/") for end in ends)

    @staticmethod
    def same(name: str, subject: str) -> bool:
        """Whether a component may be one of those that a subject names, under another name."""
        return any(
            name == each or NameContainment.holds(name, each) or NameContainment.holds(each, name)
            for each in suspects(subject)
        )


def _surrounds(group: str, ends: set[str], nics: set[str]) -> bool:
    """Whether a group is what surrounds one of these ends, the NICs among which must all be it."""
    around = {*group.split(GROUP)} - {ANY}
    return len(around) == 1 and ANY not in ends and nics <= around <= ends


def _cover(suspected: Iterable[str], names: Iterable[str]) -> bool:
    """Whether each of `names` is, in either direction, a suspect, or fails with one."""
    return all(
        any(a in {b, _mirrored(b)} or NameContainment.holds(a, b) for a in suspected) for b in names
    )


def _pieces(name: str) -> list[str]:
    """The devices, NICs and hosts in a name; of a silent switch those around it, and any others."""
    if name.startswith(SILENT_AT):
        return [ANY, *name.removeprefix(SILENT_AT).split(", ")]
    return _MARKS.split(_HOSTS_AT.sub(r"\1", name))


def _components(subject: str) -> set[str]:
    """Its suspects: cables without a direction, the cable of a NIC as that NIC."""
    found = set()
    for name in suspects(subject):
        ends = link_ends(name)
        nic = next((end for end in ends or () if "/" in end), "")
        found.add(nic or (cable_name(*ends) if ends else name))
    return found


def _is_around(devices: Iterable[str], narrower: str) -> bool:
    """Whether a group, or each of several, ends at one of these devices or anywhere."""
    around = {ANY, *devices}
    groups = [name.split(GROUP) for name in suspects(narrower)]
    return all(len(ends) > 1 and not around.isdisjoint(ends) for ends in groups)


def _mirrored(name: str) -> str:
    """A group's other direction; empty for anything else."""
    a, group, b = name.partition(GROUP)
    return f"{b}{GROUP}{a}" if group else ""


class PathContainment:
    """Containment by names and learnt paths: a pair of NICs fails with all components of its paths,
    a connection (``a<->b``) with those of either direction, a NIC with its switch, a host with its
    only NIC and with the only switch that it is at, everything with the fleet.

    Args:
        crossing: ``a->b`` → the components of its paths, links by direction.
        homes: NIC → the switch that it is at.
    """

    def __init__(
        self, crossing: Mapping[str, frozenset[str]], homes: Mapping[str, str] | None = None
    ) -> None:
        self._crossing = crossing
        self._homes = homes or {}
        self._around: dict[str, tuple[set[str], set[str]]] = {}
        """For each host: its NICs, and the switches that they are at."""
        for nic, switch in self._homes.items():
            nics, switches = self._around.setdefault(host_of(nic), (set(), set()))
            nics.add(nic)
            switches.add(switch)

    def holds(self, wider: str, narrower: str) -> bool:
        """Whether `narrower` would fail with `wider`."""
        if wider == FLEET:
            return narrower != FLEET
        if SILENT_AT in wider:
            return _is_around(wider.removeprefix(SILENT_AT).split(", "), narrower)
        if HOSTS_AT in wider:
            # Of a switch and the hosts at it, these alone are the narrower name.
            among = OR in wider and HOSTS_AT in narrower and narrower in suspects(wider)
            return among or any(self._is_at(narrower, each) for each in suspects(wider))
        one, both, other = narrower.partition(BOTH_WAYS)
        if both:
            return any(self.holds(wider, f"{a}->{b}") for a, b in ((one, other), (other, one)))
        at = self._homes.get(narrower) == wider or {wider} in self._around.get(narrower, ())
        if at or NameContainment.holds(wider, narrower):
            return True
        components = self._crossing.get(narrower)
        return components is not None and crosses(wider, components)

    def _is_at(self, narrower: str, wider: str) -> bool:
        """Whether it is one of the named hosts of a switch, or a NIC of one; for any other subject,
        `holds`."""
        _, hosts, switch = wider.partition(HOSTS_AT)
        if not hosts:
            return self.holds(wider, narrower)
        is_host = narrower in self._homes or narrower in self._around
        return is_host and switch in self._switches(narrower)

    def may_hold(self, wider: str, narrower: str) -> bool:
        """Whether `wider` is or holds any of the suspects that `narrower` names."""
        return any(wider == each or self.holds(wider, each) for each in suspects(narrower))

    def _switches(self, name: str) -> set[str]:
        """Switches of a host, or of the host of a NIC."""
        return self._around.get(host_of(name), (set(), set()))[1]

    def names(self, one: str, other: str) -> bool:
        """Whether `one` names everything that `other` names, alone or among suspects: a cable also
        by one direction, a NIC also by its cable, or by its host if that has no other NIC, the
        hosts at a switch also by that."""
        named = _components(one)
        named |= {hosts_at(each) for each in named}
        for each in tuple(named):
            nics = self._around.get(each, (set(), set()))[0]
            named |= nics if len(nics) == 1 else set()
        return named >= _components(other)

    def may_include(self, group: str, part: str) -> bool:
        """Whether any group that `group` names may include any of the suspects of `part`."""
        if GROUP not in group:
            return False
        groups = [each for each in suspects(group) if GROUP in each]
        return any(self._is_inside(one, each) for one in suspects(part) for each in groups)

    @staticmethod
    def is_anything(name: str) -> bool:
        """Whether a suspect that `name` names is everything unknown."""
        return f"{ANY}{GROUP}{ANY}" in suspects(name)

    def _is_inside(self, part: str, group: str) -> bool:
        """Whether a component or group may be between the ends of a group: a switch next to one of
        them, a link of it, or the leaf of a NIC that is an end. The ends are known, and so is what
        is behind them: the NICs at a leaf."""
        ends = {*group.split(GROUP)}
        near = ends | {self._homes[end] for end in ends & self._homes.keys()}
        if GROUP in part:
            inner = {*part.split(GROUP)}
            within = inner <= near and inner != {ANY}
            return ends == {ANY} or within or NameContainment.holds(group, part)
        link = {*(link_ends(part) or ())}
        if nics := {end for end in link if "/" in end}:
            return not nics.isdisjoint(ends)
        if link:
            return ends == {ANY} or not link.isdisjoint(near)
        beside = self._neighbours.get(part)
        if beside is None or part in ends or "/" in part:
            return False
        if ends == {ANY}:
            return part not in self._homes.values()
        return part in near or not beside.isdisjoint(near)

    @functools.cached_property
    def _neighbours(self) -> dict[str, set[str]]:
        """Device → those that learnt links connect it to."""
        found: dict[str, set[str]] = {}
        for name in set[str]().union(*self._crossing.values()):
            a, b = link_ends(name) or ("", "")
            found.setdefault(a, set()).add(b)
            found.setdefault(b, set()).add(a)
        return found

    def parts(self, name: str) -> frozenset[str]:
        """What a name consists of: each suspect, the ends of links, the switches of NICs, the bare
        name of a gateway or job."""
        kind, _, bare = name.partition(" ")
        found = {*suspects(name), *_pieces(name), *((bare,) if kind in _KINDS else ())}
        return frozenset(found | {self._homes[each] for each in found & self._homes.keys()})

    def hosts(self, name: str) -> frozenset[str]:
        """The hosts that a name describes by the switches that they are at; empty for all other
        names."""
        at = {each.partition(HOSTS_AT)[2] for each in suspects(name) if each.startswith(HOSTS_AT)}
        return frozenset(host for host, (_, near) in self._around.items() if near & at)

    @staticmethod
    def roots(name: str) -> frozenset[str]:
        """The devices and hosts that a name begins with, as a whole or in its parts."""
        return frozenset(host_of(piece) for piece in _pieces(name))

    def around(self, name: str) -> frozenset[str]:
        """Roots of all that may contain or mirror what `name` names, or any of its suspects; of a
        group also of what it may include."""
        found = {FLEET, ANY, *self.roots(name)}
        for each in suspects(name):
            for end in each.split(GROUP) if GROUP in each else ():
                near = {end, self._homes.get(end, end)}
                for device in near.union(*(self._neighbours.get(one, ()) for one in near)):
                    found |= self.roots(device)
            one, both, other = each.partition(BOTH_WAYS)
            for way in (f"{one}->{other}", f"{other}->{one}") if both else (each,):
                near = self._switches(way) | {self._homes.get(way, "")}
                for component in near.union(self._crossing.get(way, ())) - {""}:
                    found |= self.roots(component)
        return frozenset(found)

    @staticmethod
    def mirrors(one: str, other: str) -> bool:
        """Whether these are the two directions of one cable."""
        ends = link_ends(one)
        return ARROW in one and ends is not None and link_name(*reversed(ends)) == other
