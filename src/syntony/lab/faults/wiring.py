"""Wiring and configuration mistakes: a NIC with another MTU, rails in the wrong order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from syntony.errors import UsageError
from syntony.lab import netns
from syntony.lab.faults.base import FaultOrder, LabFault, TargetKind
from syntony.lab.plan import LabPlan, LinkKind

MTU_BYTES = 1500
"""Of every veth in a lab."""


class Mtu(LabFault):
    """One NIC's MTU is smaller than its leaf port's: large packets to it vanish."""

    name = "mtu"
    target = TargetKind.LINK
    meaning = "a NIC has an MTU of --bytes: large packets to it vanish, small ones pass"
    options: ClassVar[Mapping[str, str]] = {"bytes": "1400"}

    @classmethod
    def check(cls, plan: LabPlan, order: FaultOrder) -> None:
        if plan.link(order.target).kind is not LinkKind.RAIL:
            raise UsageError(f"fault {cls.name} needs a NIC such as h3/rail0")

    def apply(self) -> None:
        self._set(self.order.integer("bytes"))

    def undo(self) -> None:
        self._set(MTU_BYTES)

    def _set(self, size: int) -> None:
        port = self.link.a
        netns.tool(port.node, ["ip", "link", "set", port.name, "mtu", str(size)])


class RailSwap(LabFault):
    """A host's first two rails have each other's cable: their names are exchanged, and everything
    that belongs to the cable (address, routes, leaf port) goes with it.
    """

    name = "rail-swap"
    target = TargetKind.HOST
    meaning = "a host's rail0 and rail1 are on each other's leaf"
    _swapped = False

    @classmethod
    def check(cls, plan: LabPlan, order: FaultOrder) -> None:  # noqa: ARG003 - the base's signature
        if plan.spec.rails < 2:
            raise UsageError(f"fault {cls.name} needs two rails")

    def apply(self) -> None:
        self._exchange()
        self._swapped = True

    def undo(self) -> None:
        if self._swapped:
            self._exchange()
            self._swapped = False

    def _exchange(self) -> None:
        """Renaming an interface that is up keeps its routes (Linux 6.2 and later)."""
        lines = [
            f"link set rail{old} name rail{new}" for old, new in ((0, "-"), (1, 0), ("-", 1))
        ]  # fmt: skip
        netns.batch(self.order.target, ["ip"], lines)
