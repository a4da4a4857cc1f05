"""The PCI devices of a host and the way from each to its root, from sysfs."""

from __future__ import annotations

import re
from typing import NamedTuple

from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError, text

DEVICES = "/sys/bus/pci/devices"
CLASS_NET = "/sys/class/net"
_ADDRESS = re.compile(r"[0-9a-f]{4,6}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
NVIDIA, AMD = 0x10DE, 0x1002
GONE = 0xFFFF
"""What a device that has fallen off the bus answers to every question."""
_DISPLAY, _ACCELERATOR, _NETWORK, _BRIDGE = 0x03, 0x12, 0x02, 0x06
_MASS_STORAGE, _NVME = 0x01, 0x08
_NVSWITCH = 0x0680
_VGA = 0x0300


class DeviceKind:
    """What a device is for, as far as an audit cares."""

    GPU = "gpu"
    NIC = "nic"
    NVSWITCH = "nvswitch"
    NVME = "nvme"
    BRIDGE = "bridge"
    OTHER = "other"


class PciDevice(NamedTuple):
    """One device as sysfs shows it."""

    address: str
    vendor: int
    device: int
    class_code: int
    """24 bits: class, subclass, programming interface."""

    @property
    def kind(self) -> str:
        """One of `DeviceKind`."""
        base, sub = self.class_code >> 16, self.class_code >> 8
        if self.vendor == NVIDIA and sub == _NVSWITCH:
            return DeviceKind.NVSWITCH
        if self._is_gpu(base, sub):
            return DeviceKind.GPU
        if base == _NETWORK:
            return DeviceKind.NIC
        if base == _MASS_STORAGE and sub & 0xFF == _NVME:
            return DeviceKind.NVME
        return DeviceKind.BRIDGE if base == _BRIDGE else DeviceKind.OTHER

    def _is_gpu(self, base: int, sub: int) -> bool:
        if self.vendor == AMD:
            # Boards' own graphics are VGA controllers; Instinct cards are 0380 or 1200.
            return base == _ACCELERATOR or (base == _DISPLAY and sub != _VGA)
        return self.vendor == NVIDIA and base in {_DISPLAY, _ACCELERATOR}

    @property
    def model(self) -> str:
        """``10de:2330``"""
        return f"{self.vendor:04x}:{self.device:04x}"


def devices(host: Facts) -> tuple[PciDevice, ...]:
    """Every device, by address. Raises `FactError` where sysfs does not list them."""
    found = [_device(host, name) for name in host.names(DEVICES) if _ADDRESS.fullmatch(name)]
    if found and not any(device.vendor or device.class_code for device in found):
        raise UnreadableError(f"{DEVICES}: no device's vendor can be read")
    return tuple(found)


def _device(host: Facts, address: str) -> PciDevice:
    vendor, device, class_code = (
        hexadecimal(host, f"{DEVICES}/{address}/{name}") for name in ("vendor", "device", "class")
    )
    return PciDevice(address, vendor, device, class_code)


def hexadecimal(host: Facts, path: str) -> int:
    """A file such as ``vendor``: ``0x10de``; 0 where it is missing or makes no sense."""
    number = text(host, path)
    return int(number, 16) if re.fullmatch(r"(0x)?[0-9a-fA-F]{1,16}", number) else 0


def is_virtual_function(host: Facts, address: str) -> bool:
    """Whether the device is an SR-IOV function of another."""
    return host.exists(f"{DEVICES}/{address}/physfn")


def way_to_root(host: Facts, address: str) -> tuple[str, ...]:
    """`path_to_root`, or the device alone where that is unknown."""
    try:
        return path_to_root(host, address)
    except FactError:
        return (address,)


def path_to_root(host: Facts, address: str) -> tuple[str, ...]:
    """The device, then each bridge above it, the root port last. Raises `AbsentError`: the tree
    does not keep where the device hangs."""
    real = host.real(f"{DEVICES}/{address}")
    hops = [part for part in real.split("/") if _ADDRESS.fullmatch(part)]
    if "/devices/pci" not in real or not hops or hops[-1] != address:
        raise AbsentError(
            f"{DEVICES}/{address} is not a link into /sys/devices: its path is unknown"
        )
    return tuple(reversed(hops))


def address_of(host: Facts, path: str) -> str:
    """The PCI address of the device behind a class directory's ``device`` link; empty if none."""
    try:
        last = host.real(path).rsplit("/", 1)[-1]
    except FactError:
        return ""
    return last if _ADDRESS.fullmatch(last) else ""
