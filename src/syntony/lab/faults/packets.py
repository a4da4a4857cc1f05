"""Faults that lose packets silently: carrier stays, sends succeed, nothing (or less) arrives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from syntony.lab import netns
from syntony.lab.faults.base import LabFault, LinkPackets, TargetKind, link_packets

_MODULUS = 100_000
"""`nft numgen` counts in thousandths of a percent."""
_RAW_PRIORITY = -300
"""Before connection tracking and everything else (netfilter's NF_IP_PRI_RAW)."""


class _PacketDrop(LabFault):
    """Packets of one link dropped in its switch; each fault has its own nft table."""

    target = TargetKind.LINK

    def condition(self) -> str:
        """The nft expression of the packets to drop; empty: all."""
        return ""

    @property
    def _table(self) -> str:
        return f"fault{self.number}"

    @property
    def _places(self) -> tuple[LinkPackets, ...]:
        return link_packets(self.link, self.order.text("direction"))

    def apply(self) -> None:
        chains = "".join(_chain(place, self.condition()) for place in self._places)
        node = self._places[0].port.node
        netns.tool(node, ["nft", "-f", "-"], f"table inet {self._table} {{\n{chains}}}\n")

    def undo(self) -> None:
        node = self._places[0].port.node
        # Declared first, so that deleting it cannot fail when `apply` never got that far.
        text = f"table inet {self._table} {{ }}\ndelete table inet {self._table}\n"
        netns.tool(node, ["nft", "-f", "-"], text)


def _chain(place: LinkPackets, condition: str) -> str:
    """Neighbour discovery passes, as ARP does, which nft's inet family never sees."""
    name, hook, match = ("in", "prerouting", "iifname") if place.inwards else (
        "out", "forward", "oifname",
    )  # fmt: skip
    port = f'{match} "{place.port.name}"'
    return (
        f"chain {name} {{\n"
        f"type filter hook {hook} priority {_RAW_PRIORITY}; policy accept;\n"
        f"{port} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept\n"
        f"{port} {condition} counter drop\n}}\n"
    )


class Blackhole(_PacketDrop):
    """Everything is dropped, one way or both."""

    name = "blackhole"
    meaning = "packets vanish, carrier stays up; one way with --direction"
    options: ClassVar[Mapping[str, str]] = {"direction": "both"}


class PacketLoss(_PacketDrop):
    """A random share is dropped."""

    name = "loss"
    meaning = "a percentage of packets is lost at random"
    options: ClassVar[Mapping[str, str]] = {"percent": "", "direction": "both"}

    def condition(self) -> str:
        share = round(float(self.order.values["percent"]) * _MODULUS / 100)
        return f"numgen random mod {_MODULUS} < {share}" if share < _MODULUS else ""
