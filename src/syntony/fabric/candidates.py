"""From paths as lists of names to what can be to blame, numbered. Pure.

Beside the listed names, candidates are what they imply: the cable of a link's two directions, the
devices at a link's ends, the link between two neighbouring devices, the host of several NICs.
Candidates that exactly the same paths cross cannot be told apart: the one that claims least stands
for all, the others become its alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.fabric.names import (
    ANY,
    GROUP,
    ComponentKind,
    cable_name,
    guess_kind,
    link_ends,
    link_name,
)
from syntony.fabric.tally import Crossings, Floats

Ints = NDArray[np.int64]
Kinds = Callable[[str], ComponentKind]

IMPLIED_PRICE = 1.0
"""Nats that a candidate no path lists costs more: what is told comes before what is inferred."""
REPLIES_REBATE = 4.0
"""Nats that what a NIC answers with costs less: as many as strictness asks for beyond the number
of candidates (`loss.STRICTNESS`). Every host is late now and then; only what is told need be sure.
"""
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
"""Among candidates that cannot be told apart the first kind here is named."""


class Candidates(NamedTuple):
    """What can be to blame, and which paths cross it."""

    names: tuple[str, ...]
    kinds: tuple[ComponentKind, ...]
    price: Floats
    """Nats each costs in advance, (candidates,)."""
    same: tuple[tuple[int, ...], ...]
    """Per candidate: others crossed by exactly the same paths; they are not in `crossings`."""
    crossings: Crossings
    """(paths, width)."""
    signs: NDArray[np.int8]
    """(paths, width); see `syntony.fabric.delay`."""


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


def make_candidates(listing: Listing, kind_of: Kinds = guess_kind) -> Candidates:
    """Number everything that can be to blame for what the listed paths suffer."""
    builder = _Builder(listing, kind_of)
    builder.add_listed()
    builder.add_implied()
    builder.add_replies()
    builder.add_clocks()
    return builder.done()


class _Builder:
    """Collects (path, candidate, sign) triples."""

    def __init__(self, listing: Listing, kind_of: Kinds) -> None:
        self._listing = listing
        self._kind_of = kind_of
        self._number: dict[tuple[str, bool], int] = {}
        self._kinds: list[ComponentKind] = []
        self._implied: list[bool] = []
        lengths = np.diff(listing.starts)
        self._path = np.repeat(np.arange(listing.paths), lengths)
        self._triples: list[tuple[Ints, Ints, Ints]] = []

    def add_listed(self) -> None:
        numbers = [self._new(name, self._kind_of(name), False) for name in self._listing.names]
        place = np.array(numbers, dtype=np.int64)[self._listing.flat]
        self._triples.append((self._path, place, np.ones(len(place), dtype=np.int64)))

    def add_implied(self) -> None:
        """Cables and end devices of links, hosts of NICs; links between listed devices."""
        listing = self._listing
        ends = [link_ends(name) for name in listing.names]
        for choose in (_cable_of, _first_of, _second_of, _above, _below, self._host_of):
            implied = [choose(name, end) for name, end in zip(listing.names, ends, strict=True)]
            self._add_names(implied)
        if not any(ends):
            self._add_neighbours()

    def _host_of(self, name: str, ends: tuple[str, str] | None) -> str | None:
        host, slash, _ = name.partition("/")
        is_nic = ends is None and self._kind_of(name) is ComponentKind.NIC
        return host if slash and host and is_nic else None

    def _add_names(self, implied: Sequence[str | None]) -> None:
        numbers = np.full(len(implied), -1, dtype=np.int64)
        for place, name in enumerate(implied):
            if name is not None:
                numbers[place] = self._new(name, self._implied_kind(name), True)
        chosen = numbers[self._listing.flat]
        real = chosen >= 0
        ones = np.ones(int(real.sum()), dtype=np.int64)
        self._triples.append((self._path[real], chosen[real], ones))

    def _implied_kind(self, name: str) -> ComponentKind:
        kind = self._kind_of(name)
        return ComponentKind.HOST if kind is ComponentKind.COMPONENT else kind

    def _add_neighbours(self) -> None:
        """Where paths list devices only, the links between neighbours and their cables."""
        listing, flat = self._listing, self._listing.flat
        inner = np.flatnonzero(self._path[1:] == self._path[:-1])
        pairs, which = np.unique(
            np.stack((flat[inner], flat[inner + 1])), axis=1, return_inverse=True
        )
        ends = [(listing.names[a], listing.names[b]) for a, b in pairs.T.tolist()]
        for name, kind in ((link_name, ComponentKind.LINK), (cable_name, ComponentKind.CABLE)):
            numbers = np.array([self._new(name(a, b), kind, True) for a, b in ends], np.int64)
            chosen = numbers[which.reshape(-1)] if ends else np.zeros(0, dtype=np.int64)
            ones = np.ones(len(chosen), dtype=np.int64)
            self._triples.append((self._path[inner], chosen, ones))

    def add_replies(self) -> None:
        """What answers on each round trip. A NIC that loses does so for its own probes too; a host
        that stalls loses what others ask of it, and nothing of the fabric is to blame."""
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
            number: self._new(f"replies of {listing.names[number]}", ComponentKind.REPLIES, False)
            for number in np.unique(most[paths]).tolist()
        }
        chosen = np.array([numbers[number] for number in most[paths].tolist()], dtype=np.int64)
        self._triples.append((paths, chosen, np.ones(len(paths), dtype=np.int64)))

    def add_clocks(self) -> None:
        """The clock of every end: a jump makes paths to it longer and paths from it shorter."""
        listing = self._listing
        if not listing.paths:
            return
        first = listing.flat[listing.starts[:-1]]
        last = listing.flat[listing.starts[1:] - 1]
        for place, sign in ((first, -1), (last, 1)):
            hosts = [_host_at(listing.names[number], sign) for number in range(len(listing.names))]
            used = np.unique(place)
            numbers = np.full(len(hosts), -1, dtype=np.int64)
            for number in used.tolist():
                numbers[number] = self._new(hosts[number], ComponentKind.CLOCK, True)
            signs = np.full(listing.paths, sign, dtype=np.int64)
            self._triples.append((np.arange(listing.paths), numbers[place], signs))

    def _new(self, name: str, kind: ComponentKind, implied: bool) -> int:
        key = (name, kind is ComponentKind.CLOCK)
        if key not in self._number:
            self._number[key] = len(self._kinds)
            self._kinds.append(kind)
            self._implied.append(implied)
        return self._number[key]

    def done(self) -> Candidates:
        path, place, sign = (np.concatenate(part) for part in zip(*self._triples, strict=True))
        names = tuple(name for name, _ in self._number)
        path, place, sign = _unique(path, place, sign, len(names))
        stands_for = self._representatives(path, place, sign)
        kept = stands_for[place] == place
        same: list[tuple[int, ...]] = [()] * len(names)
        for number in np.flatnonzero(stands_for != np.arange(len(names))).tolist():
            same[stands_for[number]] += (number,)
        crossings, signs = _padded(path[kept], place[kept], sign[kept], self._listing.paths)
        return Candidates(
            names, tuple(self._kinds), self._prices(stands_for), tuple(same), crossings, signs
        )

    def _representatives(self, path: Ints, place: Ints, sign: Ints) -> Ints:
        """For each candidate the one that stands for it: equal sums of random words per path."""
        rng = np.random.default_rng(0x5E7)
        word = rng.integers(0, 1 << 62, (2, self._listing.paths), dtype=np.uint64)
        marks = np.zeros((2, len(self._kinds)), dtype=np.uint64)
        with np.errstate(over="ignore"):
            for half in range(2):
                np.add.at(marks[half], place, word[half][path] * sign.astype(np.uint64))
        claim = [(_CLAIM[kind] + 10 * self._implied[i], i) for i, kind in enumerate(self._kinds)]
        first: dict[tuple[int, int], int] = {}
        stands_for = np.arange(len(self._kinds))
        for _, number in sorted(claim):
            key = (int(marks[0, number]), int(marks[1, number]))
            stands_for[number] = first.setdefault(key, number)
        return stands_for

    def _prices(self, stands_for: Ints) -> Floats:
        """The logarithm of how many different candidates there are, kinds sharing alike."""
        different = stands_for == np.arange(len(stands_for))
        clock = np.array([kind is ComponentKind.CLOCK for kind in self._kinds], dtype=np.bool_)
        price = np.full(len(self._kinds), np.log(max(1, int((different & ~clock).sum()))))
        price += IMPLIED_PRICE * np.array(self._implied, dtype=np.float64)
        replies = np.array([kind is ComponentKind.REPLIES for kind in self._kinds], dtype=np.bool_)
        price[replies] = np.maximum(price[replies] - REPLIES_REBATE, 0.0)
        price[~different] = np.inf
        return price


def _cable_of(_name: str, ends: tuple[str, str] | None) -> str | None:
    return None if ends is None else cable_name(*ends)


def _first_of(_name: str, ends: tuple[str, str] | None) -> str | None:
    return None if ends is None else ends[0]


def _second_of(_name: str, ends: tuple[str, str] | None) -> str | None:
    return None if ends is None else ends[1]


def _above(name: str, _ends: tuple[str, str] | None) -> str | None:
    """Where paths are not known, all ways up from one device: they cannot be told apart."""
    a, found, _ = name.partition(GROUP)
    return f"{a}{GROUP}{ANY}" if found else None


def _below(name: str, _ends: tuple[str, str] | None) -> str | None:
    _, found, b = name.partition(GROUP)
    return f"{ANY}{GROUP}{b}" if found else None


def _host_at(name: str, sign: int) -> str:
    """The host at the end of a path, from the name of its last component there."""
    ends = link_ends(name)
    device = name if ends is None else ends[0 if sign < 0 else 1]
    return device.partition("/")[0]


def _unique(path: Ints, place: Ints, sign: Ints, candidates: int) -> tuple[Ints, Ints, Ints]:
    """Each candidate once per path; a clock at both ends of a path says nothing of it."""
    key, which = np.unique(path * candidates + place, return_inverse=True)
    total = np.bincount(which.reshape(-1), sign, minlength=len(key))
    keep = total != 0
    key, total = key[keep], total[keep]
    return key // candidates, key % candidates, np.sign(total).astype(np.int64)


def _padded(path: Ints, place: Ints, sign: Ints, paths: int) -> tuple[Crossings, NDArray[np.int8]]:
    counts = np.bincount(path, minlength=paths)
    starts = np.cumsum(counts) - counts
    column = np.arange(len(path)) - starts[path]
    width = int(counts.max(initial=0))
    crossings = np.full((paths, width), -1, dtype=np.int32)
    signs = np.ones((paths, width), dtype=np.int8)
    crossings[path, column] = place
    signs[path, column] = sign
    return crossings, signs
