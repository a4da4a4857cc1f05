"""`dmesg`: times, NVIDIA's Xid and SXid codes, machine checks.

What NIC drivers say is `syntony.links.kernel_log`'s.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_STAMP = re.compile(r"(?:<\d+>)?(?:kern\s*:\w+\s*:\s*)?\[\s*([^\]]{1,40})\]\s?(.*)")
_XID = re.compile(r"NVRM:\s*(?:GPU at )?Xid\s*\((?:PCI:)?([0-9a-fA-F:.]+)\):\s*(\d{1,5})\b(.*)")
_SXID = re.compile(r"nvidia-nvswitch\d+:\s*SXid\s*\((?:PCI:)?([0-9a-fA-F:.]+)\):\s*(\d{1,6})\b(.*)")
_MACHINE_CHECK = re.compile(
    r"\[Hardware Error\]|mce: .*(?:Machine check|Uncorrected)|EDAC .*\bUE\b", re.IGNORECASE
)
_CORRECTED = re.compile(r"corrected error|severity: corrected|\bCE\b", re.IGNORECASE)


class Xid(NamedTuple):
    """One error that the GPU's driver reported."""

    bus: str
    code: int
    switch: bool
    """It is an NVSwitch's (SXid)."""
    text: str


class MachineCheck(NamedTuple):
    """One hardware error of the processor or its memory."""

    corrected: bool
    text: str


def lines_of(text: str) -> list[str]:
    """The messages without their time stamps."""
    found = []
    for line in text.splitlines():
        match = _STAMP.match(line)
        found.append((match[2] if match else line)[:1024])
    return found


def xids(text: str) -> tuple[Xid, ...]:
    """Every Xid and SXid, in order."""
    found = []
    for line in lines_of(text):
        if match := _XID.search(line):
            found.append(Xid(match[1], int(match[2]), switch=False, text=line.strip()))
        elif match := _SXID.search(line):
            found.append(Xid(match[1], int(match[2]), switch=True, text=line.strip()))
    return tuple(found)


def machine_checks(text: str) -> tuple[MachineCheck, ...]:
    """Every hardware error, in order."""
    hits = (line for line in lines_of(text)
            if _MACHINE_CHECK.search(line) and not is_amd_fault(line))  # fmt: skip
    return tuple(MachineCheck(_CORRECTED.search(line) is not None, line.strip()) for line in hits)


def is_amd_fault(line: str) -> bool:
    """Whether amdgpu reports an error of a GPU that takes more than the application."""
    if "amdgpu" not in line:
        return False
    return any(mark in line for mark in ("uncorrectable hardware error", "GPU reset begin",
                                         "ring gfx timeout", "RAS EEPROM", "poison"))  # fmt: skip
