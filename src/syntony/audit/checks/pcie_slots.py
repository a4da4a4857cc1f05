"""1.3 PCIe: what the slots of a host allow its cards, compared with the other hosts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from syntony.audit.check import HostCheck, Key, Section
from syntony.audit.checks.pcie import link_of, watched
from syntony.audit.facts import Facts
from syntony.audit.pci import DEVICES, DeviceKind, way_to_root
from syntony.audit.result import ComparedValue, Result, Suspect

_Rate = tuple[float, int]
"""GT/s and lanes."""


class Slots(HostCheck):
    """Cards sit in slots as fast as on the other hosts.

    Expected results: for GPUs and NICs of each model, how many can run at which speed and width
    (the lower of what the card, its slot and every bridge above allow) equal to the expected value.
    A link that is slower than it could be is pcie.link's.
    """

    id = "pcie.slots"
    section = Section.PCIE
    reads = tuple(f"{DEVICES}/*/max_link_{what}" for what in ("speed", "width"))
    meaning = "a card is in a slot of fewer lanes or an older generation than elsewhere"
    remedy = "move the card named to the slot it has on a host that passes; check bifurcation"
    suspect = Suspect.HOST
    keys = (Key("pcie.slots", "count × speed and width that slots allow", variant="model"),)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        found: defaultdict[str, dict[str, _Rate]] = defaultdict(dict)
        for device in watched(host):
            rate = allowed(host, device.address)
            if device.kind in {DeviceKind.GPU, DeviceKind.NIC} and rate is not None:
                found[device.model][device.address] = rate
        for model, rates in sorted(found.items()):
            slowest = min(rates.values(), key=_bandwidth)
            names = " ".join(address for address, rate in sorted(rates.items()) if rate == slowest)
            counts = Counter(rates.values())
            said = " + ".join(f"{count} × {speed:g} GT/s x{width}" for (speed, width), count
                              in sorted(counts.items(), reverse=True))  # fmt: skip
            yield self.reading(host, "pcie.slots", said, variant=model,
                               evidence=f"slowest: {names}")  # fmt: skip
        if not found:
            yield self.skip(host, "no GPU or NIC with a PCIe link of its own")


def allowed(host: Facts, address: str) -> _Rate | None:
    """Speed of the slowest hop on the way to the root; None if the card does not report it."""
    links = [link_of(host, each) for each in way_to_root(host, address)]
    if links[0].max_speed is None or not links[0].max_width:
        return None
    # Of a switch, upstream and downstream port are one chip: every second hop is a link.
    hops = (links[at : at + 2] for at in range(0, len(links), 2))
    rates = [
        (
            min(end.max_speed for end in reported if end.max_speed),
            min(end.max_width or 0 for end in reported),
        )
        for hop in hops
        if (reported := [end for end in hop if end.max_speed and end.max_width])
    ]
    return min(rates, key=_bandwidth)


def _bandwidth(rate: _Rate) -> float:
    return rate[0] * rate[1]
