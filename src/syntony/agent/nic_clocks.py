"""Clocks of NICs and of their RDMA devices, read together with the host's once a second."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from syntony.clock.cross import CrossStamps
from syntony.errors import MissingError
from syntony.io.phc import Phc
from syntony.model import Edge, NicRef
from syntony.model.names import device_clock
from syntony.model.probes import DeviceClockReading

_log = logging.getLogger(__name__)

NEVER_SET = 1
"""Epoch of a NIC's clock that nobody has set: earlier than all its readings, so that peers keep
what they measured before its agent started."""


class NicClocks:
    """Used by the agent's loop."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._numbers: dict[str, tuple[int, int]] = {}
        self._set_ns: dict[str, int] = {}
        """When a NIC's clock was last set, by itself, by node."""
        self._clocks: dict[str, tuple[Phc, CrossStamps]] = {}
        """By NIC."""
        self._devices: dict[str, CrossStamps] = {}
        """RDMA devices' clocks, by node."""
        self.epochs: dict[str, int] = {}
        """Of all these clocks, by node."""
        self._known_epochs: dict[str, int] = {}
        """The same, including devices that are not present now."""
        self._stale: Mapping[str, DeviceClockReading] | None = {}
        """Readings that may be older than the last setting of the host's clock; None: the next
        ones."""

    def keep(self, numbers: Mapping[str, tuple[int, int]]) -> bool:
        """Read these from now on. Returns whether they differ from before.

        Args:
            numbers: NIC → N of ``/dev/ptpN``, and of its attachment.
        """
        if numbers == self._numbers:
            return False
        self.close()
        self._numbers = dict(numbers)
        for nic, (number, _) in numbers.items():
            try:
                clock = Phc(number)
            except MissingError as error:
                _log.error("the clock of a NIC cannot be read nic=%s reason=%s", nic, error)
                continue
            self._clocks[nic] = clock, CrossStamps(self._host, f"{self._host}/{nic}")
        return True

    def close(self) -> None:
        for clock, _ in self._clocks.values():
            clock.close()
        self._clocks = {}

    def paths(self) -> dict[str, str]:
        """Clock node → device."""
        return {stamps.nic: clock.path for clock, stamps in self._clocks.values()}

    def get(self, node: str) -> Phc | None:
        """The clock of this node, if it is one of this host's."""
        return next((clock for clock, stamps in self._clocks.values() if stamps.nic == node), None)

    def take_crossings(self, devices: Mapping[str, DeviceClockReading]) -> bool:
        """Call it once a second: a window then holds enough readings for an edge.

        Args:
            devices: NIC → its RDMA device's clock, as the reactor last read it.

        Returns:
            Whether one of these clocks is in another epoch than before.
        """
        for clock, stamps in self._clocks.values():
            stamp = clock.cross_stamp()
            if stamps.add(stamp.sys_ns, stamp.phc_ns, stamp.uncertainty_ns):
                _log.warning("the clock of a NIC was set node=%s", stamps.nic)
                self._set_ns[stamps.nic] = max(stamp.phc_ns, self._set_ns.get(stamps.nic, 0) + 1)
        found = {device_clock(NicRef(self._host, nic)): each for nic, each in devices.items()}
        if self._stale is None:
            self._stale = found
        before = self.epochs
        self.epochs = {
            stamps.nic: self._set_ns.get(stamps.nic, NEVER_SET)
            for _, stamps in self._clocks.values()
        } | {node: each.epoch_ns for node, each in found.items()}
        known, self._devices = self._devices, {}
        for node, each in found.items():
            same = before.get(node) == each.epoch_ns
            self._devices[node] = known[node] if same else CrossStamps(self._host, node)
            if self._stale.get(node) != each:
                self._devices[node].add(each.host_ns, each.device_ns, each.uncertainty_ns)
        ever, self._known_epochs = self._known_epochs, self._known_epochs | self.epochs
        return any(ever.get(node, epoch) != epoch for node, epoch in self.epochs.items())

    def forget(self) -> None:
        """Discard readings: the host's clock was set or changed its rate."""
        self._stale = None
        for stamps in self._all():
            stamps.forget()

    def edges(self) -> Iterator[Edge]:
        """NIC clock ↔ host clock, for every NIC and RDMA device that stamps with its own clock."""
        for stamps in self._all():
            edge = stamps.edge()
            if edge is not None:
                yield edge

    def _all(self) -> Iterator[CrossStamps]:
        yield from (stamps for _, stamps in self._clocks.values())
        yield from self._devices.values()
