"""2 Node: reachable, its processes, what its kernel and its board's controller say."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from syntony.audit.check import Compare, HostCheck, Key, Section
from syntony.audit.checks.memory import uptime_s
from syntony.audit.checks.system import one_line
from syntony.audit.facts import FactError, Facts, UnreadableError
from syntony.audit.host_log import READS, kernel_log
from syntony.audit.parse.kernel_faults import LoggedFaults, is_known_fault, kernel_faults
from syntony.audit.parse.kernel_log import lines_of
from syntony.audit.result import ComparedValue, Result, Status, Suspect


class Reach(HostCheck):
    """The host answers, under a name of its own, and has not just been restarted.

    Expected results: an answer within the runner's deadline; up for at least `min_uptime_s`; a host
    that cannot be asked fails here, and only here.
    """

    id = "node.reach"
    section = Section.NODE
    reads = ("/proc/sys/kernel/hostname", "/proc/sys/kernel/random/boot_id", "/proc/uptime")
    meaning = "the host is down, restarts by itself, or answers under another's name"
    remedy = "log in by hand; if that fails, look at its console"
    suspect = Suspect.HOST

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        min_uptime_s: float = 300.0

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        name = one_line(host.read("/proc/sys/kernel/hostname"), "/proc/sys/kernel/hostname")
        same = name.split(".")[0] == host.host.split(".")[0]
        yield self.verdict(
            same, host, name, host.host, "/proc/sys/kernel/hostname", at="name", bad=Status.WARN
        )
        up_s = uptime_s(host)
        least = self.limits.min_uptime_s
        yield self.verdict(
            up_s >= least, host, f"up {up_s / 3600:.1f} h", f"≥ {least:g} s", "/proc/uptime",
            at="uptime", bad=Status.WARN,
        )  # fmt: skip


_STAT = re.compile(r"^(\d{1,10}) \((.{0,64})\) ([A-Za-z]) ", re.DOTALL)
_AGAIN_NS = 2_000_000_000


class StuckProcesses(HostCheck):
    """No process hangs in the kernel, none is left unburied in numbers.

    Expected results: no process in uninterruptible sleep (D) in both of two looks 2 s apart; at
    most `zombies` zombies. Of a recorded tree only one look is known: D is then a warning.
    """

    id = "node.dstate"
    section = Section.NODE
    reads = ("/proc/*/stat",)
    meaning = "a driver or a file system hangs: the next job on it will too"
    remedy = "see /proc/PID/stack and the kernel log; most need a reboot"
    suspect = Suspect.HOST

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        zombies: int = 20

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        first, zombies = self._look(host)
        got, bad = first, Status.WARN
        if first:
            later = host.later(_AGAIN_NS)
            if later is not None:
                again, _ = self._look(later)
                got = {number: name for number, name in first.items() if number in again}
                bad = Status.FAIL
        names = ", ".join(f"{name} ({number})" for number, name in sorted(got.items())[:5])
        yield self.verdict(not got, host, names or "none", "none", "/proc/*/stat: D",
                           at="uninterruptible", bad=bad)  # fmt: skip
        limit = self.limits.zombies
        yield self.verdict(zombies <= limit, host, zombies, f"≤ {limit}", "/proc/*/stat: Z",
                           at="zombies", bad=Status.WARN)  # fmt: skip

    @staticmethod
    def _look(host: Facts) -> tuple[dict[int, str], int]:
        stuck: dict[int, str] = {}
        zombies = reported = 0
        for name in host.names("/proc"):
            if not name.isdigit():
                continue
            try:
                match = _STAT.match(host.read(f"/proc/{name}/stat"))
            except FactError:
                continue  # it has ended since
            if match is None:
                continue
            reported += 1
            if match[3] == "D":
                stuck[int(match[1])] = match[2]
            zombies += match[3] == "Z"
        if not reported:
            raise UnreadableError("no process below /proc")
        return stuck, zombies


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


_NUMBERS = re.compile(
    r"0x[0-9a-f]+|\b[0-9a-f]{2,}(?::[0-9a-f]{2,})+(?:\.[0-7])?|\d+", re.IGNORECASE
)
_SEVERE = re.compile(
    r"\b(error|fail(?:ed|ure)?|fatal|panic|oops|BUG:|corrupt\w*|timed? ?out|hung|soft lockup|"
    r"call trace|denied|unable|cannot|invalid|I/O error)\b",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"ACPI (?:BIOS )?(?:Error|Warning)|acpi PNP|failed to (?:load|find) regulatory|"
    r"Failed to set up TPM|tpm_\w+|platform regulatory|systemd\[1\]|audit: |_OSC|"
    r"\bRAS: Correctable Errors collector|hugetlb: |Couldn't get size|i8042|nouveau|"
    r"error_report|errors=remount|printk: |EDAC .* Giving out|ERST|BERT: Error records|"
    r"command line: |Unknown kernel command line|DMI not present|"
    r"Code: Unable to access opcode",
    re.IGNORECASE,
)
MAX_TEMPLATES = 200


class NovelMessages(HostCheck):
    """The kernel says nothing alarming that the other hosts' kernels do not say.

    Expected results: every severe line of the kernel's log, its numbers left out, is said by the
    majority of the role too, by the golden host, or listed in the spec; a host alone is unknown.
    """

    id = "node.kmsg-novel"
    section = Section.NODE
    reads = READS
    meaning = "this kernel reports what no other does"
    remedy = "read the line; list it in the spec if it is harmless"
    suspect = Suspect.HOST
    keys = (Key("node.kmsg", "``some`` for a severe kernel message that is expected",
                Compare.COMMON, variant="message"),)  # fmt: skip

    Input = KernelFaults.Input
    limits: KernelFaults.Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        found: dict[str, str] = {}
        for line in lines_of(kernel_log(host)):
            listed = any(part in line for part in self.limits.harmless)
            if _SEVERE.search(line) and not _HARMLESS.search(line) and not listed:
                if is_known_fault(line):
                    continue  # node.kernel and node.xid say so
                found.setdefault(template(line), line)
        if not found:
            yield self.verdict(True, host, "nothing severe", "nothing severe", "kernel log")
        for name, line in sorted(found.items())[:MAX_TEMPLATES]:
            yield self.reading(host, "node.kmsg", "some", variant=name, evidence=line[:1000])


def template(line: str) -> str:
    """A message without what differs from host to host: numbers, addresses."""
    return " ".join(_NUMBERS.sub("#", line).split())[:120]
