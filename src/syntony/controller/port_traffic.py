"""Traffic of no known job, from the byte counters of ports: it fills queues as that of jobs. Pure.

Where it goes is not known: only what each NIC sends and receives.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from syntony.fabric.names import ARROW, link_ends, suspects
from syntony.links.traffic import is_busy
from syntony.model.units import format_bps
from syntony.wire.links import LinkStatus

NicRates = Mapping[str, float]
"""NIC → bits per second; of busy NICs only."""


class PortTraffic(NamedTuple):
    """What NICs send and receive that no known job uses."""

    sending: NicRates
    receiving: NicRates
    homes: Mapping[str, str]
    """NIC → the switch that it is at."""

    @property
    def is_any(self) -> bool:
        """Whether any NIC sends or receives such traffic."""
        return bool(self.sending or self.receiving)

    def across(self, subject: str, pairs: Iterable[str]) -> tuple[str, ...]:
        """Evidence that such traffic may cross a component; empty if it cannot.

        Args:
            subject: the component, or several suspects.
            pairs: ``a->b``, those whose learnt paths cross it. Others at the same two switches may
                take the same paths.
        """
        if not self.is_any:
            return ()
        ends = [_ends(name) for name in suspects(subject)]
        sources = {each for found, _ in ends for each in found if "/" in each}
        targets = {each for _, found in ends for each in found if "/" in each}
        if not sources and not targets:
            sending, receiving = self._at(self.sending), self._at(self.receiving)
            for pair in pairs:
                source, target = map(self._home, pair.split(ARROW))
                if source in sending and target in receiving:
                    sources |= sending[source]
                    targets |= receiving[target]
        senders, receivers = self.sending.keys() & sources, self.receiving.keys() & targets
        return (
            *_fastest("sends", senders, self.sending),
            *_fastest("receives", receivers, self.receiving),
        )

    def fills(self, pairs: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
        """The same if it may cross all of these, as both directions of a cable: one that delays
        both does not wait for what crosses it in one.

        Args:
            pairs: component, or several suspects → as of `across`.
        """
        found = [self.across(subject, among) for subject, among in pairs.items()]
        return tuple(dict.fromkeys(itertools.chain(*found))) if all(found) else ()

    def _home(self, nic: str) -> str:
        return self.homes.get(nic, nic)

    def _at(self, rates: NicRates) -> dict[str, set[str]]:
        """Switch → busy NICs at it."""
        found: dict[str, set[str]] = {}
        for nic in rates:
            found.setdefault(self._home(nic), set()).add(nic)
        return found


NO_TRAFFIC = PortTraffic({}, {}, {})


def of_ports(
    ports: Iterable[LinkStatus],
    jobs: Iterable[Collection[tuple[str, str]]],
    homes: Mapping[str, str],
) -> PortTraffic:
    """Busy NICs that no known job uses.

    Args:
        ports: whose readings still hold.
        jobs: of each known job, the pairs of NICs between which it has connections.
        homes: NIC → the switch that it is at.
    """
    used = {nic for pairs in jobs for pair in pairs for nic in pair}
    free = [port for port in ports if port.nic not in used]
    return PortTraffic(
        {each.nic: each.tx_bps for each in free if each.tx_bps and is_busy(each.tx_bps, each.gbps)},
        {each.nic: each.rx_bps for each in free if each.rx_bps and is_busy(each.rx_bps, each.gbps)},
        homes,
    )


def _fastest(does: str, nics: Collection[str], rates: NicRates) -> tuple[str, ...]:
    """A line about the fastest of these NICs, if any."""
    if not nics:
        return ()
    nic = max(nics, key=lambda each: (rates[each], each))
    others = f"; {len(nics) - 1} more NICs do" if len(nics) > 1 else ""
    return (f"{nic} {does} {format_bps(rates[nic])} of no known job{others}",)


def _ends(name: str) -> tuple[set[str], set[str]]:
    """Where packets enter a component, and where they leave it: a cable has both directions, and a
    device is both."""
    ends = link_ends(name) or (name, name)
    return ({ends[0]}, {ends[1]}) if ARROW in name else (set(ends), set(ends))
