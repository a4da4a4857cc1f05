"""Model of a fabric for the fluid simulator: NICs, directional links, equal-cost paths. Pure.

A path of a flow is the `pick`-th of its equal-cost paths; links of all paths are rows of numbers.
Nothing is listed for all pairs, so that 131,072 NICs are possible.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.errors import InputError
from syntony.traffic.fair import Floats, Ints
from syntony.traffic.problem import link_groups

Numbers = NDArray[np.int64]


class LivingPaths(NamedTuple):
    """Living paths of some flows: those of flow f are rows ``first[f] … first[f + 1] - 1``."""

    first: Numbers
    """(flows + 1,)."""
    pick: Numbers
    """Of each row, (rows,)."""
    ways: Ints
    """Links of each row, (rows, hops); -1 where a path has fewer."""


class LineRates(NamedTuple):
    """Capacity of NICs, all their living ports together, in Gb/s, (nics,) each."""

    tx: Floats
    rx: Floats
    port: Floats
    """Rate of a NIC's fastest port: the maximum of one flow."""


class Net(ABC):
    """A fabric. Capacities are in Gb/s, which are bits per nanosecond."""

    capacity: Floats
    """Capacity of each directional link, (links,); 0 is dead."""
    nics: int
    position: Numbers
    """Number of each NIC below its leaf, (nics,), which D-mod-K uses."""

    @abstractmethod
    def choices(self, src: Numbers, dst: Numbers) -> Numbers:
        """How many equal-cost paths each pair has, dead or alive, (flows,)."""

    @abstractmethod
    def path(self, src: Numbers, dst: Numbers, pick: Numbers) -> Ints:
        """Links in order, from the sender's to the receiver's, (flows, hops); -1 fills up."""

    @abstractmethod
    def line_rates(self) -> LineRates:
        """Of all NICs."""

    @abstractmethod
    def link_name(self, link: int) -> str:
        """``leaf3->spine1``."""

    @abstractmethod
    def nic_name(self, nic: int) -> str:
        """Of a NIC."""

    @property
    def links(self) -> int:
        return len(self.capacity)

    @property
    def healthy(self) -> bool:
        """Whether no link is dead."""
        return bool((self.capacity > 0).all())

    def candidates(self, src: Numbers, dst: Numbers) -> LivingPaths:
        """All living paths. Raises `InputError`: a pair has none."""
        counts = self.choices(src, dst)
        flow = np.repeat(np.arange(len(src)), counts)
        pick = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        ways = self.path(src[flow], dst[flow], pick)
        if not self.healthy:
            living = self.alive(ways)
            flow, pick, ways = flow[living], pick[living], ways[living]
            counts = np.bincount(flow, minlength=len(src))
        self._check_connected(counts, src, dst)
        return LivingPaths(np.concatenate(([0], np.cumsum(counts))), pick, ways)

    def alternatives(self, src: Numbers, dst: Numbers) -> Numbers:
        """Groups of links that are alternatives to each other at one stage of these flows' paths:
        the number of the least of them, (links,)."""
        found = self.candidates(src, dst)
        return link_groups(found.first, found.ways, self.links)

    def alive(self, ways: Ints) -> NDArray[np.bool_]:
        """Which paths cross no dead link, (paths,)."""
        return np.asarray((np.append(self.capacity, 1.0)[ways] > 0).all(axis=1))

    def link_numbers(self) -> dict[str, int]:
        """Name to number, for all links."""
        return {self.link_name(link): link for link in range(self.links)}

    def set_links(self, gbps: Mapping[str, float]) -> None:
        """Give links, or cables (both directions), another speed; 0: dead. Raises `InputError`: a
        name is of no link."""
        known = self.link_numbers()
        for name, speed in gbps.items():
            a, cable, b = name.partition("--")
            for each in (f"{a}->{b}", f"{b}->{a}") if cable else (name,):
                if each not in known:
                    raise InputError("unknown-link", f"{each!r} is no link of this topology")
                self.capacity[known[each]] = speed

    def cables(self) -> Numbers:
        """Pairs of fabric links that are one cable, (cables, 2); NICs' own are not among them."""
        known = self.link_numbers()
        found = []
        for name, link in known.items():
            a, _, b = name.partition("->")
            other = known.get(f"{b}->{a}")
            if other is not None and link < other and not {a, b} & self._nic_names:
                found.append((link, other))
        return np.array(found, dtype=np.int64).reshape(-1, 2)

    @property
    def _nic_names(self) -> set[str]:
        return {self.nic_name(nic) for nic in range(self.nics)}

    def _check_connected(self, counts: Numbers, src: Numbers, dst: Numbers) -> None:
        if len(counts) and not counts.all():
            flow = int(np.argmin(counts))
            a, b = self.nic_name(int(src[flow])), self.nic_name(int(dst[flow]))
            raise InputError("disconnected", f"no living path from {a} to {b}")


def break_cables(net: Net, count: int, rng: np.random.Generator) -> Iterable[str]:
    """Break `count` random fabric cables, in both directions; returns their names. Raises
    `InputError`: the fabric has fewer."""
    cables = net.cables()
    if count > len(cables):
        raise InputError("too-many-dead", f"{count} of {len(cables)} cables cannot be dead")
    dead = cables[rng.choice(len(cables), count, replace=False)]
    net.capacity[dead.ravel()] = 0
    return [net.link_name(int(link)).replace("->", "--") for link in dead[:, 0]]
