"""Finds the GPUs of a host by the bus and the vendors' tools."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from syntony.audit.check import HostCheck
from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError
from syntony.audit.parse.nvidia import Smi, parse_query
from syntony.audit.parse.text import json_of
from syntony.audit.pci import AMD, NVIDIA, DeviceKind, PciDevice, devices
from syntony.audit.result import ComparedValue, Result

SMI_QUERY = ("nvidia-smi", "-q", "-x")
AMD_METRIC = ("amd-smi", "metric", "--json")
AMD_STATIC = ("amd-smi", "static", "--json")
AMD_BAD_PAGES = ("amd-smi", "bad-pages", "--json")


def on_bus(host: Facts, vendor: int) -> tuple[PciDevice, ...]:
    """The vendor's GPUs on the bus. Raises `FactError` where the bus cannot be read."""
    found = (device for device in devices(host) if device.kind == DeviceKind.GPU)
    return tuple(device for device in found if device.vendor == vendor)


def has_nvidia(host: Facts) -> bool:
    """Whether there is, or should be, an NVIDIA GPU: bus, driver or tool says so."""
    return _has(host, NVIDIA, "/proc/driver/nvidia", SMI_QUERY)


def has_amd(host: Facts) -> bool:
    """The same for AMD."""
    return _has(host, AMD, "/sys/module/amdgpu/drivers", AMD_STATIC)


def _has(host: Facts, vendor: int, driver: str, command: tuple[str, ...]) -> bool:
    try:
        if on_bus(host, vendor):
            return True
    except FactError:
        pass
    if host.exists(driver):
        return True
    try:
        host.run(*command)
    except AbsentError:
        return False
    except UnreadableError as error:
        return "was not recorded" not in str(error)
    return True


def without_gpu(check: HostCheck, host: Facts, why: str) -> Result:
    """Skipped where a source reports that there is none; else unknown."""
    if _reported(host):
        return check.skip(host, why)
    return check.unknown(
        host, "neither the PCI bus nor a vendor's tool reports whether GPUs are present"
    )


def _reported(host: Facts) -> bool:
    try:
        devices(host)
    except FactError:
        return any(_requested(host, command) for command in (SMI_QUERY, AMD_STATIC))
    return True


def _requested(host: Facts, command: tuple[str, ...]) -> bool:
    """Whether it is known what the tool says, or that it is not there."""
    try:
        host.run(*command)
    except FactError as error:
        return isinstance(error, AbsentError) or "was not recorded" not in str(error)
    return True


def nvidia_smi(host: Facts) -> Smi:
    """Everything `nvidia-smi` reports. Raises `FactError`."""
    try:
        text = host.run(*SMI_QUERY)
    except AbsentError as error:
        raise UnreadableError("there is an NVIDIA GPU, but nvidia-smi is not installed") from error
    return parse_query(text)


def amd_smi(host: Facts, *command: str) -> list[dict[str, Any]]:
    """One record per GPU of an `amd-smi … --json`. Raises `FactError`."""
    what = f"`{' '.join(command)}`"
    try:
        found = json_of(host.run(*command), what)
    except AbsentError as error:
        raise UnreadableError("there is an AMD GPU, but amd-smi is not installed") from error
    if isinstance(found, dict):
        # Since ROCm 6.4 the list is below a name.
        found = found.get("gpu_data", found.get("gpu", [found] if "gpu" in found else None))
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise UnreadableError(f"{what} printed no list of GPUs")
    return found


class NvidiaCheck(HostCheck):
    """A check that hosts without an NVIDIA GPU skip."""

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        if has_nvidia(host) or not _reported(host):
            yield from self.look(host)  # of what was recorded, if that is all
        else:
            yield self.skip(host, "no NVIDIA GPU here")

    @abstractmethod
    def look(self, host: Facts) -> Iterator[Result | ComparedValue]:
        """Like `HostCheck.test`, for hosts with an NVIDIA GPU."""
