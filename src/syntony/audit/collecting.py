"""Lists the inputs of a set of checks, for a recorder on another host."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from syntony.audit.check import HostCheck

ALWAYS = (
    "/etc/hostname",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/random/boot_id",
    "/proc/net/route",
    "/proc/net/ipv6_route",
    "/proc/mounts",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/gpus/*",
    "/sys/module/amdgpu/drivers",
    "/sys/bus/pci/devices/*",
    "/sys/bus/pci/devices/*/vendor",
    "/sys/bus/pci/devices/*/device",
    "/sys/bus/pci/devices/*/class",
    "/sys/bus/pci/devices/*/physfn",
    "/sys/class/net/*",
    "/sys/class/net/*/*",
    "/sys/class/net/*/statistics/*",
    "/sys/class/net/*/device/physfn",
    "/sys/class/net/*/device/physfn/net/*",
    "/sys/class/net/*/device/driver",
    "/sys/class/infiniband/*",
    "/sys/class/infiniband/*/*",
    "/sys/class/infiniband/*/device/driver",
    "/sys/class/infiniband/*/device/net/*",
    "/sys/class/infiniband/*/ports/*",
    "/sys/class/infiniband/*/ports/*/*",
    "/sys/class/infiniband/*/ports/*/counters/*",
    "/sys/class/infiniband/*/ports/*/hw_counters/*",
    "/sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*",
)
"""Files that identify the host, its GPUs, and its ports (`Facts.ports`)."""
ALWAYS_RUN = (("nvidia-smi", "-q", "-x"), ("amd-smi", "static", "--json"))


def inputs(checks: Iterable[HostCheck]) -> tuple[list[str], list[list[str]]]:
    """Shell patterns of files, and commands as words with CAPITALS for names of devices."""
    files: dict[str, None] = dict.fromkeys(ALWAYS)
    commands: dict[tuple[str, ...], None] = dict.fromkeys(ALWAYS_RUN)
    for check in checks:
        for each in check.asks():
            if each.startswith("$ "):
                commands[tuple(each[2:].split())] = None
            else:
                files.update(dict.fromkeys(braces(each)))
    return list(files), [list(command) for command in commands]


def split_inputs(
    checks: Iterable[HostCheck],
) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """The same, with commands that load the host listed separately: they run one after the
    other."""
    every = list(checks)
    files, commands = inputs(every)
    _, passive = inputs(each for each in every if not each.active)
    alone = [command for command in commands if command not in passive]
    return files, passive, alone


def braces(pattern: str) -> Iterator[str]:
    """``a/{b,c}`` as a shell expands it."""
    parts = re.split(r"\{([^{}]*)\}", pattern)
    choices = [part.split(",") if at % 2 else [part] for at, part in enumerate(parts)]
    for chosen in itertools.product(*choices):
        yield "".join(chosen)
