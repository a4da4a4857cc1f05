"""Traffic of no known job, from the byte counters of ports: it fills queues as that of jobs. Pure.

Where it goes is not known: only what each NIC sends and receives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from syntony.fabric.names import ARROW, crosses, link_ends, suspects
from syntony.links.traffic import is_busy
from syntony.model.units import format_bps
from syntony.wire.links import LinkStatus

NicRates = Mapping[str, float]
"""NIC → bits per second; of busy NICs only."""


class PortTraffic(NamedTuple):
    """What NICs send and receive that no known job uses."""

    sending: NicRates
    receiving: NicRates

    def across(self, subject: str, crossing: Mapping[str, Collection[str]]) -> tuple[str, ...]:
        """Evidence that such traffic may cross a component; empty if it cannot.

        Args:
            subject: the component, or several suspects.
            crossing: ``a->b`` → components that the learnt paths between them cross.
        """
        if not self.sending and not self.receiving:
            return ()
        return self.between(
            subject, (pair for pair, parts in crossing.items() if crosses(subject, parts))
        )

    def between(self, subject: str, pairs: Iterable[str]) -> tuple[str, ...]:
        """The same, from the pairs (``a->b``) whose learnt paths cross the component."""
        ends = [_ends(name) for name in suspects(subject)]
        sources = {each for found, _ in ends for each in found if "/" in each}
        targets = {each for _, found in ends for each in found if "/" in each}
        if sources or targets:
            return self._said(sources, targets)
        of_pairs = [pair.split(ARROW) for pair in pairs]
        return self._said({a for a, _ in of_pairs}, {b for _, b in of_pairs}, both=True)

    def _said(self, sources: set[str], targets: set[str], *, both: bool = False) -> tuple[str, ...]:
        """`both`: it must come from one of the sources and go to one of the targets."""
        senders, receivers = self.sending.keys() & sources, self.receiving.keys() & targets
        if both and not (senders and receivers):
            return ()
        found = []
        for word, nics, rates in (
            ("sends", senders, self.sending),
            ("receives", receivers, self.receiving),
        ):
            if nics:
                most = max(nics, key=lambda nic: (rates[nic], nic))
                others = f", {len(nics) - 1} more NICs {word[:-1]}" if len(nics) > 1 else ""
                found.append(f"{most} {word} {format_bps(rates[most])} of no known job{others}")
        return tuple(found)


NO_TRAFFIC = PortTraffic({}, {})


def of_ports(
    ports: Iterable[LinkStatus], jobs: Iterable[Collection[tuple[str, str]]]
) -> PortTraffic:
    """Busy NICs that no known job uses.

    Args:
        ports: whose readings still hold.
        jobs: of each known job, the pairs of NICs between which it has connections.
    """
    used = {nic for pairs in jobs for pair in pairs for nic in pair}
    free = [port for port in ports if port.nic not in used]
    return PortTraffic(
        {each.nic: each.tx_bps for each in free if each.tx_bps and is_busy(each.tx_bps, each.gbps)},
        {each.nic: each.rx_bps for each in free if each.rx_bps and is_busy(each.rx_bps, each.gbps)},
    )


def _ends(name: str) -> tuple[set[str], set[str]]:
    """Where packets enter a component, and where they leave it: a cable has both directions, and a
    device is both."""
    ends = link_ends(name) or (name, name)
    return ({ends[0]}, {ends[1]}) if ARROW in name else (set(ends), set(ends))
