"""Numbered candidates for the cause of loss, from paths as lists of names. Pure.

In addition to the listed components, candidates are those that the list implies: the cable of a
link's two directions, the devices at a link's ends, the link between two neighbouring devices, the
host of several NICs. Candidates that exactly the same paths cross are *twins* and cannot be
distinguished: the one with the narrowest claim represents all of them.

A path that lists a group (``leaf0..leaf1``) crosses some of the links between the two devices;
which ones is unknown. It *may cross* the group and every known component on a path between them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.fabric.crossed import PathCrossings
from syntony.fabric.directions import CableDirections
from syntony.fabric.names import ANY, GROUP, ComponentKind, cable_name, link_ends, link_name
from syntony.fabric.tally import CandidateParts, Floats, Index
from syntony.model.findings import Finding

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_SWITCHES = frozenset({
    ComponentKind.LEAF, ComponentKind.AGG, ComponentKind.SPINE, ComponentKind.CORE,
    ComponentKind.SWITCH,
})  # fmt: skip
Key = tuple[str, str, int, bool]
"""Name, kind, number of parallel cables, whether both directions."""
_ENDS = frozenset({ComponentKind.NIC, ComponentKind.HOST, ComponentKind.REPLIES})


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidates for the cause of loss, and the paths that cross each."""

    names: tuple[str, ...]
    kinds: tuple[ComponentKind, ...]
    penalty: Floats
    """Log-prior penalty of each in nats, (candidates,)."""
    same: tuple[tuple[int, ...], ...]
    """Twins of each candidate; they are not in `crossed`."""
    shares: Floats
    """Prior probability of each among its twins, (candidates,)."""
    crossed: PathCrossings
    """Which candidates each path crosses."""
    one_of: Ints
    """How many parallel cables each is one of, (candidates,); 1 for all else."""
    both_ways: Mask
    """Which candidates are a group in both directions, (candidates,)."""

    @cached_property
    def loss_price(self) -> Floats:
        """`penalty` for a fault that loses packets: infinite for clocks, (candidates,)."""
        clocks = np.array([kind is ComponentKind.CLOCK for kind in self.kinds], dtype=np.bool_)
        return np.where(clocks, np.inf, self.penalty)

    def is_fixed(self, candidate: int) -> bool:
        """As `tally.Structure`: components crossed only by paths that begin or end there, and
        groups in both directions, which already explain too much."""
        ends = link_ends(self.names[candidate]) or ()
        at_end = self.kinds[candidate] in _ENDS or any("/" in end for end in ends)
        return at_end or bool(self.both_ways[candidate])

    def are_between_switches(self, candidates: Iterable[int]) -> bool:
        """Whether all of these, and what cannot be told from them, are no hosts, NICs, clocks or
        links of NICs."""
        return not any(
            "/" in self.names[twin] or self.kinds[twin] in _ENDS | {ComponentKind.CLOCK}
            for each in candidates
            for twin in (each, *self.same[each])
        )

    def may_hit_some(self, candidates: Index) -> Mask:
        """As `tally.Structure`: a host that answers late does so on all of its flows."""
        kinds = (self.kinds[candidate] for candidate in candidates.tolist())
        return np.array([kind is not ComponentKind.REPLIES for kind in kinds], dtype=np.bool_)

    def unknown_beside(self, candidate: int) -> int | None:
        """As `tally.Structure`: the group of all paths out of and into a switch that list unknown
        components there."""
        if self.kinds[candidate] not in _SWITCHES:
            return None
        name = f"{self.names[candidate]}{GROUP}{ANY}"
        number = self._beside.get(name)
        return number if number is not None and number != candidate else None

    @cached_property
    def _beside(self) -> dict[str, int]:
        """Groups in both directions → the representative of each."""
        return {
            self.names[each]: number
            for number, twins in enumerate(self.same)
            if np.isfinite(self.loss_price[number])
            for each in (number, *twins)
            if self.both_ways[each]
        }

    def number_of(self, found: Finding) -> int | None:
        """Number of a component found to lose packets; None for delays and for one without a
        representative here."""
        if not found.loss:
            return None
        return self.numbers.get((found.component, found.kind, found.one_of, found.both_ways))

    def key(self, number: int) -> Key:
        """An identity that does not depend on the numbers of candidates."""
        extent = int(self.one_of[number]), bool(self.both_ways[number])
        return self.names[number], self.kinds[number].value, *extent

    @cached_property
    def numbers(self) -> dict[Key, int]:
        """Numbers of the representatives; clocks are left out, as they lose nothing."""
        able = np.flatnonzero(np.isfinite(self.loss_price))
        return {self.key(number): number for number in able.tolist()}

    def across(self, number: int) -> Mask:
        """Paths that certainly cross it, (paths,); for one of parallel cables, the paths across any
        of them."""
        return self.crossed.by(self.whole_of(number))

    def paths_of(self, number: int) -> Mask:
        """As `across`; of a group, which no path certainly crosses, the paths that may."""
        paths = self.across(number)
        if not paths.any():
            paths[self.crossed.maybe.of(number)[0]] = True
        return paths

    def whole_of(self, number: int) -> int:
        """For one of parallel cables, all of them together; any other candidate unchanged."""
        return number if self.one_of[number] == 1 else self._numbered[self.names[number]]

    def parts(self, candidate: int, others: Index) -> CandidateParts:
        """As `tally.Structure`: which of the other candidates are links and cables from this switch
        to other switches. A switch with a twin among them has none: they are named with it
        anyway."""
        device = self.names[candidate]
        is_switch = self.kinds[candidate] in _SWITCHES
        if not is_switch or any(
            device in _switches_at(self.names[n]) for n in self.same[candidate]
        ):
            return CandidateParts(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64))
        places: dict[str, int] = {}
        found = [
            (number, places.setdefault(cable_name(*_switches_at(self.names[number])), len(places)))
            for number in others.tolist()
            if device in _switches_at(self.names[number])
        ]
        numbers, place = np.array(found, dtype=np.int64).reshape(-1, 2).T
        return CandidateParts(numbers.astype(np.intp), place)

    def cable_of(self, link: int) -> CableDirections | None:
        """The cable of a link between switches; None if no path distinguishes the two."""
        ends = _switches_at(self.names[link])
        if not ends or self.kinds[link] is not ComponentKind.LINK or self.one_of[link] > 1:
            return None
        other, whole = (
            self._numbered.get(name, link) for name in (link_name(*ends[::-1]), cable_name(*ends))
        )
        return None if link in {other, whole} else CableDirections(other, whole)

    def both_directions(self, link: int) -> int | None:
        """The cable of which a link between switches is a direction, if that is a candidate."""
        ends = _switches_at(self.names[link])
        if not ends or self.kinds[link] is not ComponentKind.LINK:
            return None
        if self.one_of[link] == 1:
            return self._numbered.get(cable_name(*ends))
        several = int(self.one_of[link])
        return self.numbers.get((cable_name(*ends), ComponentKind.CABLE.value, several, False))

    @cached_property
    def _numbered(self) -> dict[str, int]:
        """Links and cables → the representative of each."""
        return {
            self.names[each]: number
            for number, twins in enumerate(self.same)
            if np.isfinite(self.loss_price[number])
            for each in (number, *twins)
            if link_ends(self.names[each]) and self.one_of[each] == 1
        }

    def place_of(self, part: int) -> str:
        """The component to examine to repair a part of a switch."""
        return cable_name(*_switches_at(self.names[part]))


class Listing(NamedTuple):
    """Paths as lists of names, flat: path i lists ``names[flat[starts[i]:starts[i + 1]]]``."""

    names: tuple[str, ...]
    flat: Ints
    starts: Ints
    """(paths + 1,)."""

    @classmethod
    def of(cls, paths: Sequence[Sequence[str]]) -> Listing:
        numbers: dict[str, int] = {}
        flat = [numbers.setdefault(name, len(numbers)) for path in paths for name in path]
        lengths = np.array([len(path) for path in paths], dtype=np.int64)
        starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
        return cls(tuple(numbers), np.array(flat, dtype=np.int64), starts)

    @property
    def paths(self) -> int:
        return len(self.starts) - 1

    def between(
        self, pairs: Collection[tuple[str, str]], paths: Iterable[int]
    ) -> dict[tuple[str, str], set[str]]:
        """Components that these paths list between the two devices of each pair; empty for a pair
        that no path lists at least two names apart."""
        spans = (self.flat[self.starts[path] : self.starts[path + 1]] for path in paths)
        begins = {begin for begin, _ in pairs}
        found: dict[tuple[str, str], set[str]] = {}
        for flat in {tuple(span.tolist()) for span in spans}:
            names = [self.names[number] for number in flat]
            for first, begin in enumerate(names):
                for last in range(first + 2, len(names)) if begin in begins else ():
                    if (begin, names[last]) in pairs:
                        inside = found.setdefault((begin, names[last]), set())
                        inside.update(names[first + 1 : last])
        return found


@lru_cache(maxsize=1 << 17)
def _switches_at(name: str) -> tuple[str, ...]:
    """The two ends of a link or cable between switches; empty for anything else."""
    ends = link_ends(name)
    return () if ends is None or any("/" in end for end in ends) else ends
