"""Runs the steps of placement on the controller's event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from syntony.controller.batches import BatchPiece
from syntony.controller.fleet import Fleet
from syntony.controller.locating import LocateLoop
from syntony.controller.placement import Placement
from syntony.errors import StoreError
from syntony.wire.messages import ControllerMessage

_log = logging.getLogger(__name__)


class PlacementSteps:
    """Runs the steps of placement on the controller's event loop.

    One per controller.

    Args:
        put_local: takes rows for the store.
        send: sends an order to a host.
    """

    def __init__(
        self,
        placement: Placement,
        fleet: Fleet,
        locating: LocateLoop,
        put_local: Callable[[BatchPiece], None],
        send: Callable[[str, ControllerMessage], None],
    ) -> None:
        self._placement, self._fleet, self._locating = placement, fleet, locating
        self._put_local, self._send = put_local, send

    async def read_paths(self) -> None:
        fleet_now_ns = self._placement.now(time.monotonic_ns())
        if fleet_now_ns is None:
            return
        try:
            await asyncio.to_thread(self._placement.read, fleet_now_ns, self._fleet.nic_names())
        except StoreError as error:
            _log.error("paths not read for placement reason=%s", error)

    async def place(self) -> None:
        """Decide, and send the resulting orders."""
        fleet_now_ns = self._placement.now(time.monotonic_ns())
        if fleet_now_ns is None:
            return
        self._placement.probed(self._fleet.probe_ports(), self._locating.links)
        nics = self._fleet.nic_names()
        hosts, findings = tuple(self._fleet.members), self._locating.answer.findings
        decided = await asyncio.to_thread(self._placement.step, fleet_now_ns, nics, hosts, findings)
        for row in decided.rows:
            self._put_local(row)
        for orders in (decided.orders, decided.paces):
            for host, order in orders.items():
                self._send(host, order)
