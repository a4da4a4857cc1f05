"""Clocks of NICs that stamp in their own, read beside the host's once a second."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from syntony.clock.cross import CrossStamps
from syntony.errors import MissingError
from syntony.io.phc import Phc
from syntony.model import Edge

_log = logging.getLogger(__name__)


class NicClocks:
    """Of the agent's loop."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._numbers: dict[str, tuple[int, int]] = {}
        self._clocks: dict[str, tuple[Phc, CrossStamps]] = {}
        """By NIC."""

    def keep(self, numbers: Mapping[str, tuple[int, int]]) -> bool:
        """Read these from now on. Whether they are others than before.

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
        """Give the devices back."""
        for clock, _ in self._clocks.values():
            clock.close()
        self._clocks = {}

    def paths(self) -> dict[str, str]:
        """Clock node → device."""
        return {stamps.nic: clock.path for clock, stamps in self._clocks.values()}

    def get(self, node: str) -> Phc | None:
        """The clock of this node, if it is one of ours."""
        return next((clock for clock, stamps in self._clocks.values() if stamps.nic == node), None)

    def take_crossings(self) -> None:
        """Once a second: a window then holds enough of them for an edge."""
        for clock, stamps in self._clocks.values():
            stamp = clock.cross_stamp()
            stamps.add(stamp.sys_ns, stamp.phc_ns, stamp.uncertainty_ns)

    def forget(self) -> None:
        """The host's clock was set or changed its rate."""
        for _, stamps in self._clocks.values():
            stamps.forget()

    def edges(self) -> Iterator[Edge]:
        """NIC clock ↔ host clock, of every NIC that stamps in its own."""
        for _, stamps in self._clocks.values():
            edge = stamps.edge()
            if edge is not None:
                yield edge
