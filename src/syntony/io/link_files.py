"""Ports and their counters from sysfs: unprivileged, below any root, one `pread` per counter.

What is missing is left out, what is there and cannot be read is None: never zero.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from syntony.io.closing import Closing
from syntony.io.files import text_of
from syntony.io.frontend_nics import FrontendNics, frontend_nics
from syntony.links.counters import CounterSource, LinkCounter, of_source
from syntony.links.ports import (
    LinkRate,
    PortState,
    ethernet_rate,
    ethernet_state,
    infiniband_rate,
    infiniband_state,
)
from syntony.links.roles import NicFacts, role_of
from syntony.links.snapshot import PortSnapshot, Slot
from syntony.links.traffic import WORD_BYTES, PortBytes

_IFF_UP = 1 << 0  # linux/if.h
_READ_BYTES = 128
_LARGEST = 1 << 64
_LOOPBACK = "772"
"""ARPHRD_LOOPBACK, linux/if_arp.h."""
_NET_TABLE = {
    "": of_source(CounterSource.NET),
    "statistics": of_source(CounterSource.STATISTICS),
}
_IB_TABLE = {
    "counters": of_source(CounterSource.IB),
    "hw_counters": of_source(CounterSource.IB_HW),
}
_NET_BYTES = "statistics/tx_bytes", "statistics/rx_bytes"
_IB_WORDS = "counters/port_xmit_data", "counters/port_rcv_data"


class _Port(NamedTuple):
    name: str
    net: Path | None
    ib: Path | None


class LinkFiles(Closing):
    """Every port below `root`, read again and again; counters' files are kept open.

    Args:
        root: where ``/sys`` and ``/proc`` are: ``/``, or a captured tree.
        configured: interfaces the operator says are for compute.
    """

    def __init__(self, root: Path = Path("/"), configured: frozenset[str] = frozenset()) -> None:
        self._root = root
        self._configured = configured
        self._files: dict[Path, int] = {}
        self._read: dict[str, _Port] = {}
        """The ports of the last `read`, by name."""

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def read(self) -> tuple[PortSnapshot, ...]:
        """Every port now, by name. Loopback is no port."""
        boot = text_of(self._root / "proc/sys/kernel/random/boot_id") or ""
        frontend = frontend_nics(self._root)
        ports = sorted(self._ports())
        frontend = frontend._replace(storage=_frontend_cards(ports, frontend))
        snapshots = tuple(self._snapshot(port, boot, frontend) for port in ports)
        self._forget({path for port in ports for path in (port.net, port.ib) if path})
        self._read = {port.name: port for port in ports}
        return snapshots

    def byte_counts(self, names: Iterable[str]) -> dict[str, PortBytes]:
        """What the named ports of the last `read` have sent and received until now; those that can
        be read. RDMA does not show in the counters of an interface, nor IP in those of some RDMA
        ports: the larger ones count."""
        found = {}
        for port in (self._read[name] for name in names if name in self._read):
            counts = [
                each
                for base, files, unit in (
                    (port.net, _NET_BYTES, 1),
                    (port.ib, _IB_WORDS, WORD_BYTES),
                )
                if base is not None and (each := self._bytes(base, files, unit)) is not None
            ]
            if counts:
                found[port.name] = max(counts, key=sum)
        return found

    def _bytes(self, base: Path, files: tuple[str, str], unit: int) -> PortBytes | None:
        sent, received = (number(self._pread(base / name) or "") for name in files)
        return None if sent is None or received is None else PortBytes(sent * unit, received * unit)

    def _ports(self) -> list[_Port]:
        nets = {path.name: path for path in _entries(self._root / "sys/class/net")}
        ports = []
        for device in _entries(self._root / "sys/class/infiniband"):
            for ib in _entries(device / "ports"):
                net = _netdev_of(ib, nets)
                name = net or f"{device.name}:{ib.name}"
                ports.append(_Port(name, nets.pop(net) if net else None, ib))
        for name, path in nets.items():
            if text_of(path / "type") != _LOOPBACK:
                ports.append(_Port(name, path, None))
        return ports

    def _snapshot(self, port: _Port, boot: str, frontend: FrontendNics) -> PortSnapshot:
        counters = self._counters(port.net, _NET_TABLE) | self._counters(port.ib, _IB_TABLE)
        layer = text_of(port.ib / "link_layer") if port.ib else "Ethernet"
        layer = layer or "unknown"
        rate = _rate(port, layer)
        facts = _facts(port, layer, rate, frontend)
        device = _device(port)
        return PortSnapshot(
            name=port.name,
            netdev=port.net.name if port.net else "",
            rdma=f"{port.ib.parent.parent.name}:{port.ib.name}" if port.ib else "",
            link_layer=layer,
            driver=facts.driver,
            role=role_of(facts, configured=port.name in self._configured),
            state=_state(port, layer),
            rate=rate,
            epoch=f"{boot}/{_inode(port.net)}/{_inode(port.ib)}",
            counters=counters,
            slot=read_slot(device) if device else None,
        )

    def _counters(
        self, base: Path | None, table: dict[str, dict[str, LinkCounter]]
    ) -> dict[str, int | None]:
        if base is None:
            return {}
        found: dict[str, int | None] = {}
        for folder, counters in table.items():
            for name, counter in counters.items():
                text = self._pread(base / folder / name)
                if text is not None:
                    found[counter.key] = number(text)
        return found

    def _pread(self, path: Path) -> str | None:
        """The file's text, None if no such file, "" if it cannot be read."""
        descriptor = self._files.get(path)
        try:
            if descriptor is None:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._files[path] = descriptor
            return os.pread(descriptor, _READ_BYTES, 0).decode("ascii", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            self._close(path)
            return ""

    def _forget(self, present: set[Path]) -> None:
        """Close the files of ports that are gone."""
        # Of text, not of paths: hundreds of files are looked through at every round.
        kept = tuple(f"{port}{os.sep}" for port in present)
        for path in list(self._files):
            if not str(path).startswith(kept):
                self._close(path)

    def _close(self, path: Path) -> None:
        descriptor = self._files.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)


def number(text: str) -> int | None:
    """A counter's text: None for what is no number of 64 bits ("N/A (no PMA)", "-1", "")."""
    stripped = text.strip()
    if not stripped.isascii() or not stripped.isdigit() or len(stripped) > len(str(_LARGEST)):
        return None
    value = int(stripped)
    return value if value < _LARGEST else None


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


def _netdev_of(ib: Path, nets: dict[str, Path]) -> str:
    """The interface of an RDMA port: as its GID table says, else its device's only one."""
    reported = text_of(ib / "gid_attrs/ndevs/0")
    if reported in nets:
        return reported or ""
    names = [path.name for path in _entries(ib.parent.parent / "device/net") if path.name in nets]
    numbers = {name: int_or(text_of(nets[name] / "dev_port") or "", 0) for name in names}
    same = [name for name in names if numbers[name] == int_or(ib.name, 1) - 1]
    candidates = same or names
    return candidates[0] if len(candidates) == 1 else ""


def int_or(text: str, otherwise: int) -> int:
    """The number a text is, or something else."""
    return int(text) if text.isascii() and text.isdigit() else otherwise


def _state(port: _Port, layer: str) -> PortState:
    if port.ib is not None and (layer == "InfiniBand" or port.net is None):
        return infiniband_state(text_of(port.ib / "state"), text_of(port.ib / "phys_state"))
    if port.net is None:
        return PortState.UNKNOWN
    flags = None
    with contextlib.suppress(ValueError):
        flags = int(text_of(port.net / "flags") or "", 16)
    return ethernet_state(
        admin_up=None if flags is None else bool(flags & _IFF_UP),
        carrier={"1": True, "0": False}.get(text_of(port.net / "carrier") or ""),
    )


def _rate(port: _Port, layer: str) -> LinkRate | None:
    if port.ib is not None:
        rate = infiniband_rate(text_of(port.ib / "rate"))
        if rate is not None or layer == "InfiniBand":
            return rate
    return ethernet_rate(text_of(port.net / "speed")) if port.net else None


def _frontend_cards(ports: list[_Port], frontend: FrontendNics) -> frozenset[str]:
    """Interfaces of the cards that serve the front end and are of another kind than most.

    By one port of theirs the default route leaves or network file systems are mounted. A fleet may
    well mount its data by the rails that carry the job: a card like most others is not set apart.
    """
    kinds = {port.name: _kind_of_card(port) for port in ports if port.ib is not None}
    usual, _ = collections.Counter(kinds.values()).most_common(1)[0] if kinds else ("", 0)
    serving = frontend.storage | (frontend.default or frozenset())
    cards = {_card(port) for port in ports if port.name in serving
             and kinds.get(port.name) not in {usual, None}}  # fmt: skip
    return frozenset(port.name for port in ports if port.ib is not None and _card(port) in cards)


def _kind_of_card(port: _Port) -> str:
    device = port.ib.parent.parent if port.ib else Path()
    return text_of(device / "board_id") or text_of(device / "device/device") or "?"


def _card(port: _Port) -> str:
    """Slot of a port's card: its PCI address without the function."""
    device = _device(port)
    try:
        return device.resolve(strict=True).name.rpartition(".")[0] if device else port.name
    except OSError:
        return port.name


def _device(port: _Port) -> Path | None:
    if port.net:
        return port.net / "device"
    return port.ib.parent.parent / "device" if port.ib else None


def _facts(port: _Port, layer: str, rate: LinkRate | None, frontend: FrontendNics) -> NicFacts:
    device = _device(port)
    return NicFacts(
        name=port.name,
        physical=port.ib is not None or bool(device and device.exists()),
        virtual_function=bool(device and (device / "physfn").exists()),
        rdma=port.ib is not None,
        infiniband=layer == "InfiniBand",
        default_route=None if frontend.default is None else port.name in frontend.default,
        storage=port.name in frontend.storage,
        speed_gbps=rate.gbps if rate else None,
        driver=_driver(device),
    )


def _driver(device: Path | None) -> str:
    try:
        return (device / "driver").resolve(strict=True).name if device else ""
    except OSError:
        return ""


def _inode(path: Path | None) -> int:
    """A directory of sysfs gets another number whenever its device is made anew."""
    try:
        return path.stat().st_ino if path else 0
    except OSError:
        return 0


_SPEED = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)\s*GT/s")
_WIDTH = re.compile(r"\d{1,3}")
_UNKNOWN_WIDTHS = frozenset({0, 255})


def read_slot(device: Path) -> Slot | None:
    """Of ``/sys/class/net/NIC/device`` and the like; None for what is on no PCIe bus.

    What card and slot can is the least of what both ends of the link can.
    """
    try:
        place = device.resolve(strict=True)
    except OSError:
        return None
    speed, width = _speed(place / "current_link_speed"), _width(place / "current_link_width")
    if math.isnan(speed) and math.isnan(width):
        return None
    ends = place, place.parent
    return Slot(
        speed, _least(_speed(end / "max_link_speed") for end in ends),
        width, _least(_width(end / "max_link_width") for end in ends),
    )  # fmt: skip


def _least(values: Iterable[float]) -> float:
    return min((each for each in values if not math.isnan(each)), default=math.nan)


def _speed(file: Path) -> float:
    match = _SPEED.match(text_of(file) or "")
    return float(match[1]) if match else math.nan


def _width(file: Path) -> float:
    match = _WIDTH.match(text_of(file) or "")
    return math.nan if match is None or int(match[0]) in _UNKNOWN_WIDTHS else float(match[0])
