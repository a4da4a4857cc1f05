"""Plans the requests of a survey in turns, with re-tests of suspects. Pure.

Up to `EVERY_PAIR` hosts ask everybody; of more, about log₂ N perfect matchings are drawn, which
names a single bad NIC as surely and costs N log N in place of N². Nothing here grows faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from syntony.audit.hunt import Blamed, Pair, PairHunt
from syntony.audit.pairs import rounds_of, sample_rounds
from syntony.audit.reach import (
    FIRST_PORT,
    IP_UDP_BYTES,
    PORTS,
    DirectionResult,
    HostNic,
    ReachFlow,
    tested_mtu,
)
from syntony.model.names import host_of, natural

EVERY_PAIR = 64
"""Up to so many hosts every pair is asked unless a number of rounds is given."""
AGAIN = 2
"""Rounds of re-tests at most."""
CROSS_HOSTS = 8
"""Hosts whose other rails a NIC asks, the next in order: enough for a majority."""
CROSS_PORTS = 3
"""Source ports between rails: with one, a dead member of a group would look like a lost route."""
CROSS_HOSTS_SAMPLED = 2
"""Of a large fleet: neighbours in name share leaves, and a chain of them shows a leaf's members."""


class NicRequests(NamedTuple):
    src: str
    dst: str
    ports: int
    size: int
    """Bytes of one more request that may not be fragmented; 0 for none."""

    def flows(self) -> list[ReachFlow]:
        """Small ones on each port, then the large one."""
        small = [ReachFlow(self.src, self.dst, FIRST_PORT + n, 0) for n in range(self.ports)]
        large = [ReachFlow(self.src, self.dst, FIRST_PORT, self.size)] if self.size else []
        return small + large


class SurveyPlan:
    """The turns of a survey: first the plan, then suspects with partners known good.

    Args:
        nics: of all hosts that take part.
        ports: source ports of every pair.
        rounds: perfect matchings to test; None for all of a small fleet, ⌈log₂ N⌉ of a large one.
    """

    def __init__(
        self, nics: Sequence[HostNic], *, ports: int = PORTS, rounds: int | None = None
    ) -> None:
        self._nics: dict[str, list[HostNic]] = defaultdict(list)
        for nic in nics:
            self._nics[nic.host].append(nic)
        self._hosts = sorted(self._nics, key=natural)
        self._place = {host: number for number, host in enumerate(self._hosts)}
        self._name = {nic: str(nic) for nic in nics}
        self._ports = ports
        mtu = tested_mtu(nics)
        self._size = max(0, mtu - IP_UDP_BYTES)
        every = rounds is None and len(self._hosts) <= EVERY_PAIR
        count = len(self._hosts)
        self.sampled = not every and (rounds or sample_rounds(count)) < rounds_of(count)
        """Whether only a sample of pairs is probed."""
        # If every pair is tested, no partners are left for re-tests.
        again = AGAIN if self.sampled else 0
        self._hunt = PairHunt(self._hosts, every_pair=every, rounds=rounds, seed=1, again=again)
        self._planned = False
        self._partners: dict[str, list[str]] = {}

    @property
    def rounds(self) -> int:
        """Matchings tested so far, re-tests included."""
        return self._hunt.rounds

    def next_turn(self) -> list[str]:
        """Hosts that ask in it; none when done. All of the plan is one turn: a lost packet then
        costs its waiting time once, not in every round.
        """
        matchings = [self._hunt.next_round()] if self._planned else self._hunt.plan
        self._partners = defaultdict(list)
        for a, b in (pair for matching in matchings for pair in matching):
            self._partners[a].append(b)
            self._partners[b].append(a)
        return list(self._partners)

    def legs(self, host: str) -> Iterator[NicRequests]:
        """What a host asks in this turn."""
        for other in self._partners.get(host, ()):
            yield from self._rails(host, other)
        if not self._planned:
            yield from self._across(host)

    def report(self, seen: Iterable[DirectionResult]) -> None:
        """Take the results of the turn; hosts that stopped answering are left out."""
        passed: dict[Pair, bool] = {}
        for each in seen:
            if each.same_rail:
                pair = _sorted(host_of(each.src), host_of(each.dst))
                ok = each.answered and each.big is not False
                passed[pair] = passed.get(pair, True) and ok
        matchings = [self._hunt.next_round()] if self._planned else list(self._hunt.plan)
        for matching in matchings:
            self._hunt.report({pair: passed[pair] for pair in matching if pair in passed})
        self._planned = True

    def named(self) -> tuple[Blamed, ...]:
        """Hosts and pairs to blame, as far as whole hosts go."""
        return self._hunt.named()

    def _rails(self, host: str, other: str) -> Iterator[NicRequests]:
        theirs = {nic.name: nic for nic in self._nics[other]}
        for nic in self._nics[host]:
            if nic.name in theirs:
                dst = self._name[theirs[nic.name]]
                yield NicRequests(self._name[nic], dst, self._ports, self._size)

    def _across(self, host: str) -> Iterator[NicRequests]:
        """A few flows to each NIC of the next hosts; to those of the same rail if not asked yet."""
        here, count = self._place[host], len(self._hosts)
        width = CROSS_HOSTS_SAMPLED if self.sampled else CROSS_HOSTS
        met = set(self._partners.get(host, ()))
        for step in range(1, min(width, count - 1) + 1):
            other = self._hosts[(here + step) % count]
            for nic in self._nics[host]:
                for theirs in self._nics[other]:
                    if nic.name != theirs.name or other not in met:
                        yield NicRequests(self._name[nic], self._name[theirs], CROSS_PORTS, 0)


def _sorted(a: str, b: str) -> Pair:
    return (a, b) if a < b else (b, a)
