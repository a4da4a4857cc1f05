"""RDMA devices and their ports from sysfs: what `ports()` does not report (GIDs, keys, LIDs).

States and rates are read by `syntony.links.ports`, roles by `syntony.links.roles` through
`Facts.ports`. A host without that part of sysfs is read through `ibstat`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from syntony.audit.check import HostCheck
from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError, needed, text
from syntony.audit.parse.text import fields, json_of
from syntony.audit.pci import CLASS_NET, address_of
from syntony.audit.result import ComparedValue, Result
from syntony.links.ports import LinkRate, PortState, infiniband_rate, infiniband_state
from syntony.links.roles import LinkRole
from syntony.links.snapshot import PortSnapshot

CLASS = "/sys/class/infiniband"
IPInterface = ipaddress.IPv4Interface | ipaddress.IPv6Interface


class RdmaCheck(HostCheck):
    """A check of the back-end's ports, which hosts without any skip."""

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        try:
            ports = compute_ports(host)
        except AbsentError as error:
            yield self.skip(host, str(error))
            return
        if ports:
            yield from self.look(host, ports)
        else:
            yield self.skip(host, "no RDMA NIC of the back-end here")

    @abstractmethod
    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        """Like `HostCheck.test`, for hosts with RDMA ports."""


class RdmaPortCheck(RdmaCheck):
    """A check of each port by itself; one whose state cannot be read is unknown."""

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        for port in ports:
            if port.state is PortState.UNKNOWN:
                yield self.unknown(host, f"{port.path}: {port.state_text}", port.name)
            else:
                yield from self.look_at(host, port)

    @abstractmethod
    def look_at(self, host: Facts, port: RdmaPort) -> Iterator[Result | ComparedValue]:
        """One port, its state known."""


class RdmaDevice(NamedTuple):
    """One device; empty where a file cannot be read."""

    name: str
    firmware: str
    board: str
    address: str
    """PCI address; empty where the tree does not keep it."""

    @property
    def path(self) -> str:
        return f"{CLASS}/{self.name}"


class RdmaPort(NamedTuple):
    device: str
    number: str
    layer: str
    """``InfiniBand``, ``Ethernet`` or ``unknown``."""
    role: LinkRole
    netdev: str
    state: PortState
    state_text: str
    """``4: ACTIVE, 5: LinkUp`` as the files say; evidence."""
    rate: LinkRate | None
    rate_text: str
    lid: str
    sm_lid: str

    @property
    def name(self) -> str:
        """``mlx5_0:1``"""
        return f"{self.device}:{self.number}"

    @property
    def path(self) -> str:
        return f"{CLASS}/{self.device}/ports/{self.number}"


def rdma_devices(host: Facts) -> tuple[RdmaDevice, ...]:
    """Every device; none where the class does not exist. Raises `UnreadableError`."""
    try:
        names = host.names(CLASS)
    except AbsentError:
        return ()
    return tuple(
        RdmaDevice(
            name,
            text(host, f"{CLASS}/{name}/fw_ver"),
            text(host, f"{CLASS}/{name}/board_id"),
            address_of(host, f"{CLASS}/{name}/device"),
        )
        for name in names
    )


def compute_ports(host: Facts) -> tuple[RdmaPort, ...]:
    """The ports that carry collectives. Raises `FactError` where nothing can be reported them."""
    return tuple(port for port in rdma_ports(host) if port.role is LinkRole.COMPUTE)


def is_spare(host: Facts, port: RdmaPort) -> bool:
    """Whether the port is unused: dark, not configured, and another port of its card is active.

    Dual-port cards with one cable are common. A port with an address, or a leg of a bond, is meant
    to be used; peers that do use theirs are reported by `Compare.PRESENT`.
    """
    if port.state not in {PortState.NO_PEER, PortState.DISABLED}:
        return False
    others = siblings(host, port)
    if not any(each.state is PortState.ACTIVE for each in others):
        return False
    if not port.netdev:
        return True
    if host.exists(f"{CLASS_NET}/{port.netdev}/master"):
        return False
    try:
        return not addresses_of(host, interfaces_of(host, port.netdev))
    except FactError:
        return False


def siblings(host: Facts, port: RdmaPort) -> tuple[RdmaPort, ...]:
    """The other ports of the port's card."""
    cards = {device.name: device.address.rpartition(".")[0] or device.name
             for device in rdma_devices(host)}  # fmt: skip
    own = cards.get(port.device)
    return tuple(each for each in rdma_ports(host)
                 if each.name != port.name and own and cards.get(each.device) == own)  # fmt: skip


def interfaces_of(host: Facts, netdev: str) -> frozenset[str]:
    """An interface and all that is built on it (VLANs, bonds, bridges)."""
    found: set[str] = set()
    waiting = [netdev]
    while waiting:
        name = waiting.pop()
        if name and name not in found:
            found.add(name)
            with contextlib.suppress(FactError):
                names = host.names(f"{CLASS_NET}/{name}")
                waiting += [each[6:] for each in names if each.startswith("upper_")]
    return frozenset(found)


def addresses_of(host: Facts, names: Iterable[str]) -> tuple[IPInterface, ...]:
    """The interfaces' addresses with their prefixes, none link-local, IPv4 first. Raises
    `FactError`: `ip` is not there, or printed something else."""
    reported = json_of(needed(host, "ip", "-j", "address", "show"), "`ip -j address`")
    wanted = frozenset(names)
    found: list[IPInterface] = []
    for link in reported if isinstance(reported, list) else ():
        if not isinstance(link, dict) or link.get("ifname") not in wanted:
            continue
        for each in link.get("addr_info") or ():
            with contextlib.suppress(ValueError, AttributeError):
                text_ = f"{each.get('local')}/{each.get('prefixlen')}"
                address = ipaddress.ip_interface(text_)
                if not address.ip.is_link_local:
                    found.append(address)
    return tuple(sorted(found, key=lambda each: each.version))


def rdma_ports(host: Facts) -> tuple[RdmaPort, ...]:
    """Every port. Raises `FactError`: neither sysfs nor `ibstat` reports any."""
    snapshots = [port for port in host.ports() if port.rdma]
    if not snapshots:
        try:
            names = host.names(CLASS)
        except AbsentError:
            return _from_ibstat(host)
        if names:
            raise UnreadableError(f"{CLASS} has {' '.join(names[:4])}, but no port can be read")
    return tuple(_port(host, snapshot) for snapshot in snapshots)


def number_of(text_: str) -> int | None:
    """``0x1d`` or ``29``"""
    try:
        return int(text_, 0)
    except ValueError:
        return None


def _port(host: Facts, seen: PortSnapshot) -> RdmaPort:
    device, _, number = seen.rdma.rpartition(":")
    path = f"{CLASS}/{device}/ports/{number}"
    reported = (text(host, f"{path}/{name}") for name in ("state", "phys_state"))
    return RdmaPort(
        device=device,
        number=number,
        layer=seen.link_layer,
        role=seen.role,
        netdev=seen.netdev,
        state=seen.state,
        state_text=", ".join(part or "unreadable" for part in reported),
        rate=seen.rate,
        rate_text=text(host, f"{path}/rate"),
        lid=text(host, f"{path}/lid"),
        sm_lid=text(host, f"{path}/sm_lid"),
    )


_CA = re.compile(r"^CA '([\w.-]{1,64})'", re.MULTILINE)
_PORT = re.compile(r"^\s+Port (\d{1,3}):\s*$", re.MULTILINE)
_LOGICAL = {"Down": "1: DOWN", "Initializing": "2: INIT", "Armed": "3: ARMED",
            "Active": "4: ACTIVE"}  # fmt: skip
_PHYSICAL = {"Sleep": "1: Sleep", "Polling": "2: Polling", "Disabled": "3: Disabled",
             "PortConfigurationTraining": "4: PortConfigurationTraining", "LinkUp": "5: LinkUp",
             "LinkErrorRecovery": "6: LinkErrorRecovery"}  # fmt: skip


def _from_ibstat(host: Facts) -> tuple[RdmaPort, ...]:
    try:
        found = tuple(parse_ibstat(host.run("ibstat")))
        why = "`ibstat` reported no port"
    except FactError as error:
        found, why = (), str(error)
    if not found and host.exists("/sys/class"):
        raise AbsentError(f"no {CLASS} here")
    if not found:
        raise UnreadableError(f"neither /sys/class nor ibstat reports RDMA devices: {why}")
    return found


def parse_ibstat(output: str) -> Iterator[RdmaPort]:
    """Every port of infiniband-diags' `ibstat`; what it does not print is unknown."""
    adapters = _CA.split(output)[1:]
    for device, block in zip(adapters[::2], adapters[1::2], strict=True):
        ports = _PORT.split(block)[1:]
        for number, lines in zip(ports[::2], ports[1::2], strict=True):
            reported = fields(lines)
            logical = _LOGICAL.get(reported.get("State", ""), "")
            physical = _PHYSICAL.get(reported.get("Physical state", ""), "")
            layer = {"IB": "InfiniBand"}.get(
                reported.get("Link layer", ""), reported.get("Link layer", "")
            )
            rate_text = f"{reported['Rate']} Gb/sec" if reported.get("Rate") else ""
            yield RdmaPort(
                device=device,
                number=number,
                layer=layer or "unknown",
                role=LinkRole.COMPUTE,
                netdev="",
                state=infiniband_state(logical, physical),
                state_text=f"{reported.get('State', '?')}, "
                f"{reported.get('Physical state', '?')} (ibstat)",
                rate=infiniband_rate(rate_text),
                rate_text=rate_text,
                lid=reported.get("Base lid", ""),
                sm_lid=reported.get("SM lid", ""),
            )
