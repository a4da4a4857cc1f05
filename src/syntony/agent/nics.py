"""The NICs that a host probes from: each is attached to the probe engine while it is present."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from syntony.agent.config import AgentConfig, NicConfig
from syntony.errors import MissingError
from syntony.io.clocks import ClockSource
from syntony.io.interfaces import address, addresses
from syntony.io.phc import Phc
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import ProbeNic
from syntony.model import NicRef
from syntony.model.names import nic_number
from syntony.wire.messages import NicInfo

RING_RECORDS = 1 << 13
"""Two seconds of a mesh of 4,000 probes a second, 0.6 MB."""
MAX_TEXT = 119
"""Maximum length of a reason, as in the probe engine."""


class _Attached(NamedTuple):
    ifindex: int
    """The kernel's interface index, which changes when the driver is reloaded."""
    address: str
    others: tuple[str, ...]
    stamping: str
    """How its packets are timestamped, and the reason."""


class ProbedNics:
    """The probe engine with the configured NICs. Used by one thread."""

    def __init__(self, config: AgentConfig, clock: ClockSource) -> None:
        self._host = config.host
        self._family = config.family
        self._port = config.probe_port
        self._configs = {nic.name: nic for nic in config.nics}
        self.numbers = {name: nic_number(NicRef(config.host, name)) for name in self._configs}
        """Number of each NIC on the wire."""
        self._attached: dict[str, _Attached] = {}
        self.seen: set[str] = set()
        """NICs that have been attached since the start."""
        self.clocks: dict[str, tuple[int, int]] = {}
        """NICs that stamp with their own clock: the clock's number N in ``/dev/ptpN``, and that of
        the attachment, since another device may get the same N."""
        self._attachments = 0
        self.engine = ProbeEngine(
            [self._probe_nic(nic) for nic in config.nics], clock, ring_records=RING_RECORDS
        )
        self.engine.start()

    def close(self) -> None:
        """Stop probing and reflecting."""
        self.engine.close()

    def attach(self, name: str) -> None:
        """Probe from a NIC and reflect on it. Raises `MissingError`: it is missing, has no address,
        or another program has the reflector's port."""
        self._forget(name)
        probed = address(name, self._family)
        self.engine.attach(name, probed, self.numbers[name])
        stamping = self._open_clock(name, probed)
        others = tuple(other for other in addresses(name) if other != probed)
        self.seen.add(name)
        self._attached[name] = _Attached(_index(name), probed, others, stamping)

    def _open_clock(self, name: str, probed: str) -> str:
        """How the NIC's packets are timestamped: by the kernel if its clock cannot be read."""
        status = next(each for each in self.engine.nic_status() if each.name == name)
        if status.stamping != "hardware" or status.phc_index is None:
            return status.reason
        try:
            Phc(status.phc_index).close()
        except MissingError as error:
            self.engine.attach(name, probed, self.numbers[name], stamping="kernel")
            return f"kernel stamps: {error}"[:MAX_TEXT]
        self._attachments += 1
        self.clocks[name] = status.phc_index, self._attachments
        return status.reason

    def detach(self, name: str) -> None:
        self._forget(name)
        self.engine.detach(name)

    def gone(self) -> dict[str, MissingError]:
        """Attached NICs that are no longer the same, with the reason. A NIC that is down keeps its
        sockets, and so does one that lost its address: it returns with the carrier."""
        found = {}
        for name, known in self._attached.items():
            index = _index(name)
            if index == 0:
                found[name] = MissingError(f"no interface {name!r} here any more")
            elif index != known.ifindex:
                found[name] = MissingError(f"interface {name!r} was removed and created again")
            else:
                with suppress(MissingError):
                    now = address(name, self._family)
                    if now != known.address:
                        found[name] = MissingError(f"{name!r} has another address, {now}")
        return found

    def renumber(self, numbers: Mapping[str, int]) -> bool:
        """Take the controller's numbers; returns whether any is new. Flows must then be set
        again."""
        fresh = {
            name: number
            for name, number in numbers.items()
            if self.numbers.get(name, number) != number
        }
        if not fresh:
            return False
        self.engine.set_flows(())
        self.numbers |= fresh
        for name in fresh.keys() & self._attached.keys():
            self.attach(name)
        return True

    def addresses(self) -> dict[str, str]:
        """NIC → its probed address, for attached NICs."""
        return {name: each.address for name, each in self._attached.items()}

    def describe(self) -> tuple[NicInfo, ...]:
        """Every configured NIC; one that is not attached has no address."""
        described = []
        for name, config in self._configs.items():
            found = self._attached.get(name)
            described.append(
                NicInfo(
                    name=name,
                    rail=config.rail,
                    addresses=(found.address, *found.others) if found else (),
                    clock=f"{self._host}/{name}" if name in self.clocks else self._host,
                    stamping=found.stamping if found else "not attached",
                    port=self._port,
                )
            )
        return tuple(described)

    def _forget(self, name: str) -> None:
        self._attached.pop(name, None)
        self.clocks.pop(name, None)

    def _probe_nic(self, nic: NicConfig) -> ProbeNic:
        return ProbeNic(
            name=nic.name,
            nic_id=self.numbers[nic.name],
            address="",
            port=self._port,
            stamping=nic.stamping,
        )


def _index(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0
