"""Faults that slow packets: added delay, reduced rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from syntony.errors import UsageError
from syntony.lab.faults.base import FaultOrder, LabFault, TargetKind
from syntony.lab.plan import LabPlan, LinkKind
from syntony.lab.relay import RelaySpot


class AddedDelay(LabFault):
    """Packets take longer by a constant, one way or both."""

    name = "delay"
    target = TargetKind.LINK
    meaning = "every packet takes longer by --add"
    options: ClassVar[Mapping[str, str]] = {"add": "", "direction": "both"}

    @property
    def _spots(self) -> tuple[RelaySpot, ...]:
        """A fabric link's packets are delayed where they arrive, a NIC's in its leaf."""
        link = self.link
        ways = {"from": RelaySpot(link.b, None), "to": RelaySpot(link.b, link.a)}
        if link.kind is LinkKind.FABRIC:
            ways["to"] = RelaySpot(link.a, None)
        direction = self.order.text("direction")
        return tuple(ways.values()) if direction == "both" else (ways[direction],)

    def apply(self) -> None:
        for spot in self._spots:
            self.site.ports.delay(self.number, spot, self.order.integer("add"))

    def undo(self) -> None:
        for spot in self._spots:
            self.site.ports.undelay(self.number, spot)


class ReducedRate(LabFault):
    """Both ends of a link are shaped to less."""

    name = "rate"
    target = TargetKind.LINK
    meaning = "the link is as slow as --to"
    options: ClassVar[Mapping[str, str]] = {"to": ""}

    def apply(self) -> None:
        self.site.ports.limit(self.number, self.link, self.order.integer("to"))

    def undo(self) -> None:
        self.site.ports.unlimit(self.number, self.link)


class FlowRate(LabFault):
    """One TCP connection of a host sends slowly; all others of its NIC go on as before."""

    name = "flow-rate"
    target = TargetKind.LINK
    meaning = "one TCP connection of the NIC's host sends no faster than --to"
    options: ClassVar[Mapping[str, str]] = {"to": "", "sport": "", "dport": ""}

    @classmethod
    def check(cls, plan: LabPlan, order: FaultOrder) -> None:
        if plan.link(order.target).kind is not LinkKind.RAIL:
            raise UsageError(f"fault {cls.name} needs a NIC of a rail; {order.target} is not one")

    def apply(self) -> None:
        flow = self.order.integer("sport"), self.order.integer("dport")
        self.site.ports.limit_flow(self.number, self.link.a, flow, self.order.integer("to"))

    def undo(self) -> None:
        self.site.ports.unlimit_flow(self.number, self.link.a)
