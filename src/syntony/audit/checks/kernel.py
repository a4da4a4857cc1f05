"""2 Node: faults that the kernel reports."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from syntony.audit.check import HostCheck, Section
from syntony.audit.facts import Facts
from syntony.audit.host_log import READS, kernel_log
from syntony.audit.parse.kernel_faults import LoggedFaults, kernel_faults
from syntony.audit.result import ComparedValue, Result, Status, Suspect


class KernelFaults(HostCheck):
    """The kernel reports no fault of the host since boot.

    Expected results: no hung task, RCU stall, lockup or crash; no file system made read-only, no
    disk that fails, no device gone from the bus. A warning where it is over (an NVMe disk or a slot
    that came back) or may be a job's own fault (out of memory); a job's memory limit is no fault.
    """

    id = "node.kernel"
    section = Section.NODE
    reads = READS
    meaning = "the kernel met a fault of the hardware, of a driver or of a file system"
    remedy = "read the kernel log around the line"
    suspect = Suspect.HOST

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        harmless: tuple[str, ...] = ()
        """Parts of messages that are of no interest here."""

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        found = [each for each in kernel_faults(kernel_log(host))
                 if not any(part in each.text for part in self.limits.harmless)]  # fmt: skip
        yield from (self._one(host, each) for each in found)
        if not found:
            yield self.verdict(True, host, "none", "none", "kernel log")

    def _one(self, host: Facts, reported: LoggedFaults) -> Result:
        fault = reported.fault
        often = f", {reported.times} times" if reported.times > 1 else ""
        over = ", over since" if reported.over else ""
        return self.verdict(
            False, host, f"{fault.name}: {reported.item}{often}{over}", "none",
            reported.text, at=reported.item,
            bad=Status.FAIL if fault.severe and not reported.over else Status.WARN,
            meaning=fault.meaning, remedy=fault.remedy, suspect=fault.suspect,
        )  # fmt: skip
