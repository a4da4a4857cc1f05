"""A fleet of survey programs that are functions: the conductor's orders, answered by a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from syntony.audit.reach import FIRST_PORT, HostNic
from syntony.errors import RemoteError

LEAF_HOSTS = 32
NEAR_HOPS, FAR_HOPS = 1, 3
Passes = Callable[[HostNic, HostNic, int, int], bool]
"""Whether a packet from one NIC to another, of a source port and a size, arrives."""


class Fleet:
    """Hosts with rails; who shares a leaf is one hop away.

    Args:
        hosts: how many.
        rails: NICs of each.
        passes: the fault.
        mute: hosts whose program ends when it is first asked to measure.
    """

    def __init__(
        self, hosts: int, rails: int, passes: Passes = lambda *_: True,
        mute: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self.passes, self.mute = passes, mute
        self.by_address: dict[str, HostNic] = {}
        self.hosts = [Host(self, f"h{number}", number, rails) for number in range(hosts)]
        self.requested = 0
        """Requests sent, large ones included."""
        self.largest = 0
        """Rows of the largest order."""

    def hops(self, src: HostNic, dst: HostNic) -> int:
        here, there = int(src.host[1:]) // LEAF_HOSTS, int(dst.host[1:]) // LEAF_HOSTS
        return NEAR_HOPS if (here, src.name) == (there, dst.name) else FAR_HOPS


class Host:
    """One program."""

    def __init__(self, fleet: Fleet, name: str, number: int, rails: int) -> None:
        self.host, self._fleet = name, fleet
        self.nics = tuple(
            HostNic(name, f"rail{r}", f"10.{r}.{number >> 8}.{number & 255}", 9000)
            for r in range(rails)
        )
        fleet.by_address.update({nic.address: nic for nic in self.nics})

    def order(self, order: Mapping[str, Any]) -> Any:
        if "ask" in order:
            if self.host in self._fleet.mute:
                raise RemoteError("the program ended")
            self._fleet.largest = max(self._fleet.largest, len(order["ask"]))
            return [self._ask(*leg) for leg in order["ask"]]
        if "heard" in order:
            return [self._heard(*each) for each in order["heard"]]
        if "ping" in order:
            return [10_000 * self._hops(src, dst) for src, dst, _ in order["ping"]]
        if "load" in order:
            return [[1e4, 5e4, 1e8] for _ in order["load"]]
        if "trace" in order:
            return [["10.9.9.9"] for _ in order["trace"]]
        return "" if {"routes", "lldp"} & order.keys() else True

    def close(self) -> None: ...

    def _ask(self, src: str, dst: str, ports: int, size: int) -> list[Any]:
        here, there = self._fleet.by_address[src], self._fleet.by_address[dst]
        passes = self._fleet.passes
        self._fleet.requested += ports + bool(size)
        every = range(FIRST_PORT, FIRST_PORT + ports)
        lost = [
            port for port in every
            if not passes(here, there, port, 0) or not passes(there, here, port, 0)
        ]  # fmt: skip
        big = passes(here, there, FIRST_PORT, size) if size else None
        return [ports, lost, self._fleet.hops(here, there) if len(lost) < ports else 0, big, ""]

    def _heard(self, src: str, port: int, dst: str, big: bool) -> bool:
        here, there = self._fleet.by_address[src], self._fleet.by_address[dst]
        return self._fleet.passes(here, there, port, 9000 if big else 0)

    def _hops(self, src: str, dst: str) -> int:
        return self._fleet.hops(self._fleet.by_address[src], self._fleet.by_address[dst])
