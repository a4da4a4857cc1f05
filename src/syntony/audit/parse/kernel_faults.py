"""Kernel messages that mean a fault of the host, whatever driver they come from.

Wordings are those of Linux 4.18 to 6.12 (kernel/hung_task.c, rcu/tree_stall.h, mm/oom_kill.c,
fs/ext4/super.c, fs/xfs/xfs_fsops.c, fs/btrfs/messages.c, drivers/nvme/host/pci.c,
drivers/pci/hotplug/pciehp_ctrl.c, block/blk-core.c). GPU error codes are `xid`'s, NICs' messages
`syntony.links.kernel_log`'s, hardware errors of processors and memory `kernel_log.machine_checks`'.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from syntony.audit.parse.kernel_log import is_amd_fault, lines_of, machine_checks, xids
from syntony.audit.result import Suspect


class FaultPattern(NamedTuple):
    """A kind of message."""

    name: str
    pattern: re.Pattern[str]
    """Its group ``item`` is the device, process or file system that it is about."""
    meaning: str
    remedy: str
    suspect: Suspect = Suspect.HOST
    severe: bool = True
    over: re.Pattern[str] | None = None
    """A later message with this pattern and the same item says that it is over: then a warning."""


class LoggedFaults(NamedTuple):
    """What the log says of one item."""

    fault: FaultPattern
    item: str
    times: int
    text: str
    """The first such message."""
    over: bool


def _fault(name: str, pattern: str, meaning: str, remedy: str, suspect: Suspect = Suspect.HOST,
           *, severe: bool = True, over: str = "") -> FaultPattern:  # fmt: skip
    return FaultPattern(name, re.compile(pattern), meaning, remedy, suspect, severe,
                 re.compile(over) if over else None)  # fmt: skip


_DISK = "back up what is left, look at smartctl and at the cable or slot, replace the disk"
FAULTS = (
    _fault("hung task", r"INFO: task (?P<item>.{1,40}):\d+ blocked for more than \d+ seconds",
           "a process hung in the kernel: a driver, a disk or a file server did not answer",
           "read the call trace after the line; check what it names; reboot if it still hangs"),
    _fault("RCU stall", r"(?P<item>rcu\w*) (?:self-)?detected (?:expedited )?stalls? on CPU",
           "a processor did not leave the kernel for many seconds",
           "read the call trace after the line; update the driver or firmware it names"),
    _fault("soft lockup", r"BUG: soft lockup - (?P<item>CPU#\d+) stuck",
           "a processor was stuck in the kernel",
           "read the call trace after the line; update the driver or firmware it names"),
    _fault("hard lockup", r"[Ww]atchdog detected hard LOCKUP on (?P<item>cpu \d+)",
           "a processor was stuck with interrupts off",
           "reboot; then firmware, then the processor"),
    _fault("kernel crash",
           r"(?P<item>kernel BUG at \S+|BUG: unable to handle|BUG: kernel NULL pointer|"
           r"general protection fault(?! ip:)|Internal error: Oops|Oops: [0-9a-f]{4})",
           "the kernel crashed in a driver and continues, degraded",
           "reboot the host; report the call trace to the maker of the module it names"),
    _fault("out of memory", r"Out of memory: Kill(?:ed)? process \d+ \((?P<item>[^)]{1,40})\)",
           "the host ran out of memory and the kernel killed a process: a daemon may be gone",
           "check that slurmd, kubelet and the agents run; find what took the memory",
           severe=False),
    _fault("read-only file system",
           r"(?:EXT4-fs|EXT3-fs) \((?P<item>[\w.!-]{1,40})\): Remounting filesystem read-only",
           "the kernel made a file system read-only after an error", _DISK, Suspect.DISK),
    _fault("file system error", r"EXT4-fs error \(device (?P<item>[\w.!-]{1,40})\)",
           "a file system is damaged", "unmount it and run fsck; " + _DISK, Suspect.DISK),
    _fault("file system shut down",
           r"XFS \((?P<item>[\w.!-]{1,40})\): .*(?:[Ss]hutting down filesystem|"
           r"[Ff]ilesystem has been shut down|Log I/O Error Detected)",
           "XFS has stopped a file system after an error", "unmount it and run xfs_repair; "
           + _DISK, Suspect.DISK),
    _fault("read-only file system",
           r"BTRFS[^(]{0,20}\(device (?P<item>[\w.-]{1,40})[^)]{0,20}\).*"
           r"(?:forced readonly|remounting read-only)",
           "the kernel made a file system read-only after an error", _DISK, Suspect.DISK),
    _fault("medium error", r"critical (?:medium|target) error, dev (?P<item>\w{1,40})",
           "a disk cannot read or write a part of itself", _DISK, Suspect.DISK),
    _fault("disk I/O error", r"(?:Buffer I/O error on dev(?:ice)?|\bI/O error, dev) "
           r"(?!fd\d|sr\d|loop\d)(?P<item>\w{1,40})",
           "a disk does not answer reads or writes", _DISK, Suspect.DISK),
    _fault("NVMe down",
           r"nvme (?P<item>nvme\d+): (?:controller is down; will reset|Device not ready; aborting|"
           r"Removing after probe failure|Disabling device after reset failure|"
           r"Remov(?:al|ing) after)",
           "an NVMe disk does not answer any more",
           "reseat or replace the disk; look at the PCIe link of its slot", Suspect.DISK,
           over=r"nvme (?P<item>nvme\d+): \d+/\d+/\d+ default/read/poll queues"),
    _fault("fallen off the bus",
           r"^(?!.*\bXid\b).*?(?P<item>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.\d)?)\b"
           r".*fallen off the bus",
           "a device does not answer on the PCIe bus any more",
           "power-cycle the host; reseat the card; if it comes back, replace the riser or the card",
           Suspect.GPU),
    _fault("PCIe link down",
           r"pciehp: (?P<item>Slot\([\w-]{1,20}\)): (?:Link Down|Card not present)",
           "the card in this slot is gone from the bus", "power-cycle the host; reseat the card",
           over=r"pciehp: (?P<item>Slot\([\w-]{1,20}\)): (?:Link Up|Card present)"),
    _fault("PCIe error",
           r"(?P<item>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d): .*"
           r"(?:severity=Uncorrected \((?:Fatal|Non-Fatal)\)|device recovery failed)",
           "a PCIe link lost data that could not be repaired", "reseat the card; then the riser"),
    _fault("file server silent",
           r"(?:nfs: )?(?P<item>server \S{1,80}) not responding",
           "a file server did not answer: jobs that read from it hang",
           "check the server and the route to it", Suspect.HOST, severe=False,
           over=r"(?P<item>server \S{1,80}) OK"),
    _fault("transmit timeout",
           r"NETDEV WATCHDOG: (?P<item>\S{1,40}) .*transmit queue \d+ timed out",
           "a NIC stopped sending for seconds", "update its driver and firmware; reset the NIC",
           Suspect.NIC, severe=False),
    _fault("IOMMU fault",
           r"(?:AMD-Vi: Event logged \[IO_PAGE_FAULT device=(?P<item>\S{1,20})|"
           r"DMAR: \[DMA \w+[^\]]*\] Request device \[(?P<other>[0-9a-f:.]{4,14})\])",
           "a device was refused access to memory", "check iommu=pt and the device's driver",
           severe=False),
)  # fmt: skip


def is_known_fault(line: str) -> bool:
    """Whether a message is one of these, a GPU's error code or a hardware error."""
    if xids(line) or machine_checks(line) or is_amd_fault(line):
        return True
    return any(fault.pattern.search(line) for fault in FAULTS)


def kernel_faults(log: str) -> Iterator[LoggedFaults]:
    """Each kind of fault of each item once, with how often it was said.

    Args:
        log: the kernel's log since boot, with or without time stamps.
    """
    lines = lines_of(log)
    for fault in FAULTS:
        found: dict[str, list[int]] = {}
        ended: dict[str, int] = {}
        for number, line in enumerate(lines):
            if match := fault.pattern.search(line):
                groups = match.groupdict()
                item = groups["item"] or groups.get("other") or "?"
                found.setdefault(" ".join(item.split()), []).append(number)
            elif fault.over is not None and (match := fault.over.search(line)):
                ended[" ".join(match["item"].split())] = number
        for item, numbers in found.items():
            over = ended.get(item, -1) > numbers[-1]
            yield LoggedFaults(fault, item, len(numbers), lines[numbers[0]].strip(), over)
