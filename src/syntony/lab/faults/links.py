"""Faults that take carrier away: a link down, a switch dead, a link that flaps."""

from __future__ import annotations

import asyncio
import itertools
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from syntony.errors import UsageError
from syntony.lab.faults.base import FaultOrder, LabFault, TargetKind
from syntony.lab.plan import LabPlan, Link, LinkKind, Port

CYCLE_MARGIN_NS = 100_000_000
FINAL_MARGIN_NS = 1_000_000_000
"""How much longer than its period one cycle may take, and the last one beyond that."""


def _end(link: Link, order: FaultOrder) -> Port:
    """The end that goes down. Default: a NIC's own end; a fabric link's leaf end."""
    ends = {"leaf": link.a, "spine": link.b}
    if link.kind is not LinkKind.FABRIC:
        ends = {"host": link.a, "leaf": link.b}
    side = str(order.values.get("side", next(iter(ends))))
    if side not in ends:
        raise UsageError(f"--side: {link.name} has no {side} end; use {' or '.join(ends)}")
    return ends[side]


class _CarrierFault(LabFault):
    @property
    @abstractmethod
    def _ports(self) -> list[Port]: ...

    def apply(self) -> None:
        self.site.ports.hold_down(self.number, self._ports)

    def undo(self) -> None:
        self.site.ports.release(self.number, self._ports)


class _EndFault(_CarrierFault):
    target = TargetKind.LINK

    @classmethod
    def check(cls, plan: LabPlan, order: FaultOrder) -> None:
        _end(plan.link(order.target), order)

    @property
    def _ports(self) -> list[Port]:
        return [_end(self.link, self.order)]


class LinkDown(_EndFault):
    """``ip link set down`` at one end; the other end loses carrier."""

    name = "link-down"
    meaning = "a NIC, cable or port goes down; a host's routes come back with the link"
    options: ClassVar[Mapping[str, str]] = {"side": ""}


class SwitchDown(_CarrierFault):
    """A leaf or spine dies: all its links lose carrier at once."""

    name = "switch-down"
    target = TargetKind.SWITCH
    meaning = "a leaf or spine dies: all its links lose carrier"

    @property
    def _ports(self) -> list[Port]:
        node = self.order.target
        return [link.port_at(node) for link in self.site.plan.links_of(node)]


class Flap(_EndFault):
    """Down for `duty` of every `period`, `count` times (0: until cleared)."""

    name = "flap"
    meaning = "a link goes down and up repeatedly"
    options: ClassVar[Mapping[str, str]] = {
        "side": "", "period": "2s", "count": "0", "duty": "0.5",
    }  # fmt: skip
    _turning: asyncio.Task[None] | None = None

    @classmethod
    def own_duration_ns(cls, order: FaultOrder) -> int:
        """All cycles plus a margin: on a busy machine they take longer, and none must be cut
        off."""
        count = order.integer("count")
        return count * (order.integer("period") + CYCLE_MARGIN_NS) + FINAL_MARGIN_NS if count else 0

    def apply(self) -> None:
        self._turning = asyncio.get_running_loop().create_task(self._cycle())

    async def _cycle(self) -> None:
        period_s = self.order.integer("period") / 1e9
        down_s = period_s * float(self.order.values["duty"])
        count = self.order.integer("count")
        for _ in range(count) if count else itertools.count():
            super().apply()
            await asyncio.sleep(down_s)
            super().undo()
            await asyncio.sleep(period_s - down_s)

    def undo(self) -> None:
        if self._turning is not None:
            self._turning.cancel()
        super().undo()
