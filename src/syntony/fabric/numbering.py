"""Build numbered candidates from paths as lists of names (`syntony.fabric.candidates`). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from syntony.fabric.candidates import Candidates, Ints, Listing
from syntony.fabric.crossed import PathCrossings
from syntony.fabric.link_graph import LinkGraph
from syntony.fabric.names import (
    ANY,
    GROUP,
    ComponentKind,
    cable_name,
    guess_kind,
    link_ends,
    link_name,
    replies_name,
)
from syntony.fabric.tally import SHARES, Crossings, Floats, PartlyLearnt, Times
from syntony.model.names import host_of

Kinds = Callable[[str], ComponentKind]

IMPLIED_PRICE = 1.0
"""Additional penalty in nats of a candidate that no path lists: listed components come before
implied ones."""
REPLIES_REBATE = 4.0
"""Penalty reduction in nats of a NIC's replies: the same as strictness requires beyond the number
of candidates (`loss_search.STRICTNESS`). Every host is late now and then; only reported faults must
be certain."""
MAX_TIMES = 4
"""Maximum crossings of a component by a probe; a list with more has repetitions."""
_CLAIM = {
    ComponentKind.NIC: 0,
    ComponentKind.COMPONENT: 1,
    ComponentKind.LEAF: 2,
    ComponentKind.AGG: 2,
    ComponentKind.SPINE: 2,
    ComponentKind.CORE: 2,
    ComponentKind.SWITCH: 2,
    ComponentKind.GROUP: 3,
    ComponentKind.CABLE: 4,
    ComponentKind.HOST: 5,
    ComponentKind.LINK: 6,
    ComponentKind.REPLIES: 7,
    ComponentKind.CLOCK: 8,
}
"""Among candidates that cannot be distinguished the first kind here is named."""


_CLOCK, _BOTH_WAYS, _ONE_OF = "clock", "both ways", "one of"
"""Types of candidates that share their name with others."""


def make_candidates(
    listing: Listing,
    kind_of: Kinds = guess_kind,
    parallel: Mapping[str, int] = MappingProxyType({}),
) -> Candidates:
    """Number everything that can be the cause of the losses of the listed paths.

    Args:
        listing: the paths.
        kind_of: returns the kind of a component from its name.
        parallel: cable between two switches → number of parallel ones, if a topology lists several.
    """
    builder = _Builder(listing, kind_of)
    builder.add_listed()
    builder.add_implied()
    builder.add_parallel(parallel)
    builder.add_groups()
    builder.add_paths_of_parallel()
    builder.add_replies()
    builder.add_clocks()
    return builder.done()


class _Builder:
    """Collects (path, candidate, times) triples, one list from each source of names."""

    def __init__(self, listing: Listing, kind_of: Kinds) -> None:
        self._listing = listing
        self._kind_of = kind_of
        self._number: dict[tuple[str, str], int] = {}
        """Name and type, empty for most → place in `_kinds`."""
        self._kinds: list[ComponentKind] = []
        self._implied: list[bool] = []
        lengths = np.diff(listing.starts)
        self._path = np.repeat(np.arange(listing.paths), lengths)
        self._triples: list[tuple[Ints, Ints, Ints]] = []
        self._is_group = np.array([GROUP in name for name in listing.names], dtype=np.bool_)
        self._groups = {pair for pair in map(_ends_of_group, listing.names) if pair}
        self._inside: Mapping[tuple[str, str], set[str]] = {}
        """Group → components that paths list between its two ends."""
        self._one_of: dict[int, tuple[int, int]] = {}
        """Link that stands for parallel cables → one of these, in its direction and in both."""
        self._parallel: dict[int, int] = {}
        """One of parallel cables → number of them."""
        self._combos: list[frozenset[int]] = []
        self._combo_of = np.full(listing.paths, -1, dtype=np.int64)

    def add_listed(self) -> None:
        names = self._listing.names
        listed = [
            None if group else name for name, group in zip(names, self._is_group, strict=True)
        ]
        self._add_names(listed, implied=False)

    def add_implied(self) -> None:
        """Add cables and end devices of links, hosts of NICs, and links between listed devices."""
        listing = self._listing
        ends = [link_ends(name) for name in listing.names]
        for choose in (_cable_of, _first_of, _second_of, self._host_of):
            implied = [choose(name, end) for name, end in zip(listing.names, ends, strict=True)]
            self._add_names(implied)
        if not any(ends):
            self._add_neighbours()

    def _host_of(self, name: str, ends: tuple[str, str] | None) -> str | None:
        host, slash, _ = name.partition("/")
        is_nic = ends is None and self._kind_of(name) is ComponentKind.NIC
        return host if slash and host and is_nic else None

    def _add_names(self, names: Sequence[str | None], *, implied: bool = True) -> None:
        kind_of = self._implied_kind if implied else self._kind_of
        numbers = np.full(len(names), -1, dtype=np.int64)
        for place, name in enumerate(names):
            if name is not None:
                numbers[place] = self._new(name, kind_of(name), implied)
        chosen = numbers[self._listing.flat]
        real = chosen >= 0
        ones = np.ones(int(real.sum()), dtype=np.int64)
        self._triples.append((self._path[real], chosen[real], ones))

    def _implied_kind(self, name: str) -> ComponentKind:
        kind = self._kind_of(name)
        return ComponentKind.HOST if kind is ComponentKind.COMPONENT else kind

    def _add_neighbours(self) -> None:
        """For paths that list only devices, add the links between neighbours and their cables."""
        listing, flat = self._listing, self._listing.flat
        known = ~self._is_group[flat]
        same = self._path[1:] == self._path[:-1]
        inner = np.flatnonzero(same & known[1:] & known[:-1])
        pairs, which = np.unique(
            np.stack((flat[inner], flat[inner + 1])), axis=1, return_inverse=True
        )
        ends = [(listing.names[a], listing.names[b]) for a, b in pairs.T.tolist()]
        for name, kind in ((link_name, ComponentKind.LINK), (cable_name, ComponentKind.CABLE)):
            numbers = np.array([self._new(name(a, b), kind, True) for a, b in ends], np.int64)
            chosen = numbers[which.reshape(-1)] if ends else np.zeros(0, dtype=np.int64)
            ones = np.ones(len(chosen), dtype=np.int64)
            self._triples.append((self._path[inner], chosen, ones))

    def add_groups(self) -> None:
        """Add groups and, for each set of groups that some path lists, all that such a path may
        cross."""
        listed = np.flatnonzero(self._is_group[self._listing.flat])
        groups: dict[int, list[int]] = {}
        for place in listed.tolist():
            groups.setdefault(int(self._path[place]), []).append(int(self._listing.flat[place]))
        ways = LinkGraph(
            [name for name, sort in self._number if not sort],
            lambda name: self._kind_of(name) in {ComponentKind.NIC, ComponentKind.HOST},
        )
        self._add_ends(groups, ways)
        self._inside = self._listing.between(self._groups, groups)
        members: dict[int, frozenset[int]] = {}
        combos: dict[frozenset[int], int] = {}
        for path, names in groups.items():
            for number in names:
                if number not in members:
                    members[number] = self._members(self._listing.names[number], ways)
            every = frozenset(chain.from_iterable(members[number] for number in names))
            self._combo_of[path] = combos.setdefault(every, len(combos))
        self._combos = list(combos)

    def _add_ends(self, groups: Mapping[int, Sequence[int]], ways: LinkGraph) -> None:
        """Add what paths that list a group at a NIC certainly cross: the only known link of that
        NIC, its cable and the device behind it."""
        for away in (True, False):
            found: dict[int, tuple[int, ...]] = {}
            for number in {each for names in groups.values() for each in names}:
                near, _, far = self._listing.names[number].partition(GROUP)
                found[number] = tuple(
                    self._number[name, ""]
                    for name in ways.only_link(near if away else far, away=away)
                    if (name, "") in self._number
                )
            crossed = [
                (path, place)
                for path, names in groups.items()
                for number in names
                for place in found[number]
            ]
            paths, places = np.array(crossed, dtype=np.int64).reshape(-1, 2).T
            self._triples.append((paths, places, np.ones(len(paths), dtype=np.int64)))

    def _members(self, group: str, ways: LinkGraph) -> frozenset[int]:
        """The group itself, wider groups that contain it, and known components between its ends."""
        near, _, far = group.partition(GROUP)
        found = self._wider(near, far)
        inside = (self._number.get((name, "")) for name in ways.between(near, far))
        for number in inside:
            if number is not None:
                found.update((number, *self._one_of.get(number, ())))
        # Traffic between two NICs of one switch crosses that switch and nothing else.
        homes = [ways.only_link(near, away=True)[2:], ways.only_link(far, away=False)[2:]]
        if self._is_scattered and (not homes[0] or homes[0] != homes[1]):
            anywhere = f"{ANY}{GROUP}{ANY}"
            found.add(self._new(anywhere, ComponentKind.GROUP, True, _BOTH_WAYS))
        return frozenset(found | self._narrower(near, far, ways))

    def _wider(self, near: str, far: str) -> set[int]:
        """A listed group, the wider ones that contain it, and each of these in both directions."""
        found = {self._new(f"{near}{GROUP}{far}", ComponentKind.GROUP, False)}
        begins, ends = ({pair[place] for pair in self._groups} for place in (0, 1))
        both = [(each, ANY) for each in (near, far) if each in begins & ends]
        if (far, near) in self._groups:
            both.insert(0, (min(near, far), max(near, far)))
        for begin, end in both if not any("/" in each for each in (near, far)) else ():
            name = f"{begin}{GROUP}{end}"
            found.add(self._new(name, ComponentKind.GROUP, True, _BOTH_WAYS))
        for begin, end in ((near, ANY), (ANY, far)):
            found.add(self._new(f"{begin}{GROUP}{end}", ComponentKind.GROUP, True))
        return found

    @cached_property
    def _is_scattered(self) -> bool:
        """Whether groups have no end in common: a switch that never answers may be within all of
        them."""
        return not set.intersection(*({*pair} for pair in self._groups))

    def _narrower(self, near: str, far: str, ways: LinkGraph) -> set[int]:
        """Components that paths list within a group, and wider groups. A group at a NIC also
        contains those between the devices that the only known links of its ends lead to."""
        begins = (near, *ways.only_link(near, away=True)[2:])
        ends = (far, *ways.only_link(far, away=False)[2:])
        inner = {(begin, end) for begin in begins for end in ends} & self._groups
        inside = set[str]().union(*(self._inside.get(each, ()) for each in inner))
        parts = {name for each in inside if (name := _cable_of(each, link_ends(each)))}
        known = ((name, "") for name in inside | parts)
        numbers = {self._number[key] for key in known if key in self._number}
        inner |= {pair for each in inside if (pair := _ends_of_group(each))}
        return numbers.union(*(self._wider(*each) for each in inner))

    def add_parallel(self, parallel: Mapping[str, int]) -> None:
        """Add one of the parallel cables that a link stands for, in its direction and in both."""
        links = [
            (number, name, cable_name(*ends))
            for (name, _), number in self._number.items()
            if self._kinds[number] is ComponentKind.LINK and (ends := link_ends(name))
        ]
        for number, link, cable in links:
            many = parallel.get(cable, 1)
            if many > 1:
                one = self._new(link, ComponentKind.LINK, self._implied[number], _ONE_OF)
                both = self._new(cable, ComponentKind.CABLE, True, _ONE_OF)
                self._one_of[number] = one, both
                self._parallel |= {one: many, both: many}

    def add_paths_of_parallel(self) -> None:
        """Paths across a link that stands for parallel cables may cross any one of them."""
        if not self._one_of:
            return
        size = len(self._kinds)
        several = np.zeros(size, dtype=np.bool_)
        several[list(self._one_of)] = True
        crossed = [(path * size + place)[several[place]] for path, place, _ in self._triples]
        keys = np.unique(np.concatenate(crossed))
        path, link = keys // size, keys % size
        counts = np.bincount(path, minlength=self._listing.paths)
        column = np.arange(len(path)) - (np.cumsum(counts) - counts)[path]
        table = np.full((self._listing.paths, 1 + int(counts.max(initial=0))), -1)
        table[:, 0] = self._combo_of
        table[path, 1 + column] = link
        some = counts > 0
        rows = table[some]
        words = np.random.default_rng(0x5E7).integers(1, 1 << 62, rows.shape[1], dtype=np.uint64)
        with np.errstate(over="ignore"):
            marks = (rows.astype(np.uint64) * words).sum(axis=1, dtype=np.uint64)
        _, first, which = np.unique(marks, return_index=True, return_inverse=True)
        self._combo_of[some] = len(self._combos) + which.reshape(-1)
        for combo, *links in rows[first].tolist():
            known = self._combos[combo] if combo >= 0 else frozenset[int]()
            self._combos.append(known.union(*(self._one_of[n] for n in links if n >= 0)))
        self._full = np.bincount(link, minlength=size)

    def _possible_shares(self) -> NDArray[np.bool_] | None:
        """Which of `SHARES` each candidate can have. Each path across parallel cables takes one of
        them; those that list a group there may take another path as well."""
        if not self._parallel:
            return None
        possible = np.ones((len(self._kinds), len(SHARES)), dtype=np.bool_)
        paths = np.bincount(self._combo_of[self._combo_of >= 0], minlength=len(self._combos))
        member, combo = self._flat_combos()
        every = np.bincount(member, paths[combo], minlength=len(self._kinds))
        full = np.zeros(len(self._kinds))
        for link, both in self._one_of.items():
            full[list(both)] += self._full[link]
        for number, many in self._parallel.items():
            most = 1 / many
            least = most * min(1.0, full[number] / max(every[number], 1.0))
            near = [np.argmin(np.abs(np.log(SHARES / max(s, SHARES[-1])))) for s in (most, least)]
            possible[number] = False
            possible[number, near[0] : near[1] + 1] = True
        return possible

    def add_replies(self) -> None:
        """Add the replies on each round trip. A NIC that loses also loses its own probes; a host
        that stalls only loses the probes of others, and no component of the fabric is at fault."""
        listing, flat = self._listing, self._listing.flat
        if not listing.paths:
            return
        first, last = flat[listing.starts[:-1]], flat[listing.starts[1:] - 1]
        nic = np.array([self._kind_of(name) is ComponentKind.NIC for name in listing.names])
        other = nic[flat] & (flat != first[self._path]) & (first == last)[self._path]
        least = np.full(listing.paths, len(nic), dtype=np.int64)
        most = np.full(listing.paths, -1, dtype=np.int64)
        np.minimum.at(least, self._path[other], flat[other])
        np.maximum.at(most, self._path[other], flat[other])
        paths = np.flatnonzero(least == most)
        numbers = {
            number: self._new(replies_name(listing.names[number]), ComponentKind.REPLIES, False)
            for number in np.unique(most[paths]).tolist()
        }
        chosen = np.array([numbers[number] for number in most[paths].tolist()], dtype=np.int64)
        self._triples.append((paths, chosen, np.ones(len(paths), dtype=np.int64)))

    def add_clocks(self) -> None:
        """Add the clock of every end: a jump makes paths to it longer and paths from it shorter."""
        listing = self._listing
        # A path with one component has the same clock at both ends, which proves nothing.
        paths = np.flatnonzero(np.diff(listing.starts) > 1)
        if not len(paths):
            return
        first = listing.flat[listing.starts[paths]]
        last = listing.flat[listing.starts[paths + 1] - 1]
        clocks: list[Ints] = []
        for place, sign in ((first, -1), (last, 1)):
            hosts = [_host_at(listing.names[number], sign) for number in range(len(listing.names))]
            used = np.unique(place)
            numbers = np.full(len(hosts), -1, dtype=np.int64)
            for number in used.tolist():
                numbers[number] = self._new(hosts[number], ComponentKind.CLOCK, True, _CLOCK)
            clocks.append(numbers[place])
        signs = np.repeat(np.array([-1, 1], dtype=np.int64), len(paths))
        self._triples.append((np.tile(paths, 2), np.concatenate(clocks), signs))

    def _new(self, name: str, kind: ComponentKind, implied: bool, sort: str = "") -> int:
        key = (name, sort)
        if key not in self._number:
            self._number[key] = len(self._kinds)
            self._kinds.append(kind)
            self._implied.append(implied)
        return self._number[key]

    def done(self) -> Candidates:
        names = tuple(name for name, _ in self._number)
        path, place, times = _counted(self._triples, len(names))
        marks = self._marks(path, place, times)
        stands_for = self._representatives(marks)
        kept = stands_for[place] == place
        same: list[tuple[int, ...]] = [()] * len(names)
        for number in np.flatnonzero(stands_for != np.arange(len(names))).tolist():
            same[stands_for[number]] += (number,)
        crossings, padded = _padded(path[kept], place[kept], times[kept], self._listing.paths)
        members = [sorted({int(stands_for[n]) for n in combo}) for combo in self._combos]
        partly = PartlyLearnt.of(self._combo_of, members, self._possible_shares())
        return Candidates(
            names,
            tuple(self._kinds),
            self._prices(stands_for),
            tuple(same),
            self._shares(stands_for),
            PathCrossings(crossings, padded, len(names), partly),
            np.array([self._parallel.get(number, 1) for number in range(len(names))]),
            np.array([sort == _BOTH_WAYS for _, sort in self._number], dtype=np.bool_),
        )

    def _marks(self, path: Ints, place: Ints, times: Ints) -> NDArray[np.uint64]:
        """Per candidate two sums of random words of the paths that cross, or may cross, it.

        A component that every path crosses twice is a twin of one that the same paths cross once:
        with half the loss, it explains the same.
        """
        rng = np.random.default_rng(0x5E7)
        words = rng.integers(0, 1 << 62, (4, self._listing.paths), dtype=np.uint64)
        marks = np.zeros((2, len(self._kinds)), dtype=np.uint64)
        partly = self._combo_of >= 0
        least = np.full(len(self._kinds), np.iinfo(np.int64).max)
        most = -least
        np.minimum.at(least, place, times)
        np.maximum.at(most, place, times)
        times = np.where((least == most)[place], np.sign(times), times)
        member, combo = self._flat_combos()
        with np.errstate(over="ignore"):
            for half in range(2):
                np.add.at(marks[half], place, words[half][path] * times.astype(np.uint64))
                sums = np.zeros(len(self._combos), dtype=np.uint64)
                np.add.at(sums, self._combo_of[partly], words[2 + half][partly])
                np.add.at(marks[half], member, sums[combo])
        return marks

    def _flat_combos(self) -> tuple[Ints, Ints]:
        """Members of all sets, and the set of each."""
        lengths = np.array([len(combo) for combo in self._combos], dtype=np.int64)
        member = np.fromiter(chain.from_iterable(self._combos), np.int64, int(lengths.sum()))
        return member, np.repeat(np.arange(len(lengths)), lengths)

    def _representatives(self, marks: NDArray[np.uint64]) -> Ints:
        """For each candidate the twin that represents it."""
        claim = [(_CLAIM[kind] + 10 * self._implied[i], i) for i, kind in enumerate(self._kinds)]
        first: dict[tuple[int, int], int] = {}
        stands_for = np.arange(len(self._kinds))
        for _, number in sorted(claim):
            key = (int(marks[0, number]), int(marks[1, number]))
            stands_for[number] = first.setdefault(key, number)
        return stands_for

    def _shares(self, stands_for: Ints) -> Floats:
        weight = np.exp(-IMPLIED_PRICE * np.array(self._implied, dtype=np.float64))
        total = np.bincount(stands_for, weight, minlength=len(weight))
        return np.asarray(weight / total[stands_for])

    def _prices(self, stands_for: Ints) -> Floats:
        """Penalties: the logarithm of the number of different candidates, with equal shares for
        kinds."""
        different = stands_for == np.arange(len(stands_for))
        clock = np.array([kind is ComponentKind.CLOCK for kind in self._kinds], dtype=np.bool_)
        penalty = np.full(len(self._kinds), np.log(max(1, int((different & ~clock).sum()))))
        penalty += IMPLIED_PRICE * np.array(self._implied, dtype=np.float64)
        replies = np.array([kind is ComponentKind.REPLIES for kind in self._kinds], dtype=np.bool_)
        penalty[replies] = np.maximum(penalty[replies] - REPLIES_REBATE, 0.0)
        penalty[~different] = np.inf
        return penalty


def _ends_of_group(name: str) -> tuple[str, str] | None:
    near, group, far = name.partition(GROUP)
    return (near, far) if group else None


def _cable_of(_name: str, ends: tuple[str, str] | None) -> str | None:
    return None if ends is None else cable_name(*ends)


def _first_of(_name: str, ends: tuple[str, str] | None) -> str | None:
    return None if ends is None else ends[0]


def _second_of(_name: str, ends: tuple[str, str] | None) -> str | None:
    return None if ends is None else ends[1]


def _host_at(name: str, sign: int) -> str:
    """The host at the end of a path, from its last component there."""
    ends = link_ends(name)
    device = name if ends is None else ends[0 if sign < 0 else 1]
    return host_of(device)


def _counted(
    sources: Sequence[tuple[Ints, Ints, Ints]], candidates: int
) -> tuple[Ints, Ints, Ints]:
    """Each candidate once per path, and how many times the path crosses it: the maximum over all
    sources. A clock at both ends of a path is left out."""
    keys, totals = [], []
    for path, place, times in sources:
        key, which = np.unique(path * candidates + place, return_inverse=True)
        keys.append(key)
        totals.append(np.bincount(which.reshape(-1), times, minlength=len(key)))
    key, total = np.concatenate(keys), np.concatenate(totals)
    order = np.lexsort((total, key))
    key, total = key[order], total[order]
    keep = np.append(key[1:] != key[:-1], True) & (total != 0)
    key, total = key[keep], total[keep]
    return key // candidates, key % candidates, np.clip(total, -1, MAX_TIMES).astype(np.int64)


def _padded(path: Ints, place: Ints, times: Ints, paths: int) -> tuple[Crossings, Times]:
    counts = np.bincount(path, minlength=paths)
    starts = np.cumsum(counts) - counts
    column = np.arange(len(path)) - starts[path]
    width = int(counts.max(initial=0))
    crossings = np.full((paths, width), -1, dtype=np.int32)
    padded = np.ones((paths, width), dtype=np.int8)
    crossings[path, column] = place
    padded[path, column] = times
    return crossings, padded
