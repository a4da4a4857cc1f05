"""1.2 Memory of the host."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from syntony.audit.check import Compare, HostCheck, Key, Section
from syntony.audit.facts import AbsentError, Facts, UnreadableError, needed
from syntony.audit.host_log import READS, kernel_log
from syntony.audit.parse.kernel_log import machine_checks
from syntony.audit.parse.smbios import MemorySocket, parse_memory
from syntony.audit.parse.text import json_of, number_of
from syntony.audit.result import ComparedValue, Result, Status, Suspect

_KIB = 1024
_MEMINFO = re.compile(r"^(\w+(?:\(\w+\))?):\s+(\d{1,18})(?: kB)?\s*$", re.MULTILINE)
_NODES = "/sys/devices/system/node"


def meminfo(host: Facts) -> dict[str, int]:
    """/proc/meminfo, in the units it has (kB, or pages). Raises `FactError`."""
    found = {match[1]: int(match[2]) for match in _MEMINFO.finditer(host.read("/proc/meminfo"))}
    if "MemTotal" not in found:
        raise UnreadableError("/proc/meminfo has no MemTotal")
    return found


class MemoryTotal(HostCheck):
    """All memory is there, on every NUMA node.

    Expected results: MemTotal, and each node's, within 3 % of the expected value.
    """

    id = "mem.total"
    section = Section.MEMORY
    reads = ("/proc/meminfo", "/sys/devices/system/node/node*",
             "/sys/devices/system/node/node*/meminfo")  # fmt: skip
    meaning = "a module is lost or switched off by the firmware"
    remedy = "look at the BMC's log and the memory map; reseat or replace the module"
    suspect = Suspect.MEMORY
    keys = (
        Key("mem.total", "bytes of memory", Compare.ABOUT, within=0.03, unit="B"),
        Key("mem.node", "bytes of one NUMA node", Compare.ABOUT, within=0.03, unit="B",
            variant="node"),
        Key("mem.nodes", "NUMA nodes with memory"),
    )  # fmt: skip

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        total = meminfo(host)["MemTotal"] * _KIB
        yield self.reading(host, "mem.total", total, evidence="/proc/meminfo: MemTotal")
        try:
            names = [name for name in host.names(_NODES) if re.fullmatch(r"node\d{1,5}", name)]
        except AbsentError:
            return
        yield self.reading(host, "mem.nodes", len(names), evidence=_NODES)
        for name in names:
            path = f"{_NODES}/{name}/meminfo"
            match = re.search(r"MemTotal:\s+(\d{1,18}) kB", host.read(path))
            if match is None:
                yield self.unknown(host, f"{path} has no MemTotal", name)
            else:
                yield self.reading(host, "mem.node", int(match[1]) * _KIB, name,
                                   variant=name, evidence=path)  # fmt: skip


class MemoryModules(HostCheck):
    """Memory modules are complete and alike.

    Expected results: every filled socket has one size and one speed; their number, size, speed and
    part equal to the expected values; unknown without root (SMBIOS is root's).
    """

    id = "mem.dimms"
    section = Section.MEMORY
    reads = ("$ dmidecode -t 17",)
    meaning = "a module is missing, smaller or slower: the whole channel follows it"
    remedy = "replace the module in the socket named"
    suspect = Suspect.MEMORY
    keys = (
        Key("mem.dimms", "number × size @ speed of the modules"),
        Key("mem.dimm-parts", "part numbers of the modules"),
    )

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        text = needed(host, "dmidecode", "-t", "17")
        filled = [module for module in parse_memory(text) if module.megabytes]
        kinds = Counter((module.megabytes, module.speed) for module in filled)
        if not kinds:
            raise UnreadableError("`dmidecode -t 17` reports no module in any socket")
        yield self._alike(host, filled, kinds)
        said = " + ".join(
            f"{count} × {megabytes} MB @ {speed or '?'}"
            for (megabytes, speed), count in sorted(kinds.items())
        )
        yield self.reading(host, "mem.dimms", said, evidence="dmidecode -t 17")
        parts = sorted({module.part for module in filled})
        yield self.reading(host, "mem.dimm-parts", ", ".join(parts), evidence="dmidecode -t 17")

    def _alike(
        self, host: Facts, filled: list[MemorySocket], kinds: Counter[tuple[int, str]]
    ) -> Result:
        (megabytes, speed), _ = kinds.most_common(1)[0]
        odd = [
            module for module in filled if (module.megabytes, module.speed) != (megabytes, speed)
        ]
        got = ", ".join(f"{each.place}: {each.megabytes} MB @ {each.speed}" for each in odd[:4])
        return self.verdict(
            not odd, host, got or f"{len(filled)} alike", f"{megabytes} MB @ {speed}",
            "dmidecode -t 17",
        )  # fmt: skip


_EDAC = "/sys/devices/system/edac/mc"
_UPTIME_FLOOR_H = 1.0


class Edac(HostCheck):
    """Memory has no errors that could not be corrected, and few that could.

    Expected results: ue_count 0 and fewer than `ce_per_hour` corrected errors an hour since boot,
    on every memory controller; skipped where the kernel has no EDAC driver for it.
    """

    id = "mem.edac"
    section = Section.MEMORY
    reads = ("/sys/devices/system/edac/mc/mc*/ue_count", "/sys/devices/system/edac/mc/mc*/ce_count",
             "/proc/uptime")  # fmt: skip
    meaning = "a module is failing"
    remedy = "find it by edac-util or the BMC's log; replace it"
    suspect = Suspect.MEMORY

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        ce_per_hour: float = 1.0

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        try:
            names = [name for name in host.names(_EDAC) if re.fullmatch(r"mc\d{1,5}", name)]
        except AbsentError:
            names = []
        if not names:
            yield self.skip(host, "no EDAC driver here")
            return
        hours = max(_UPTIME_FLOOR_H, uptime_s(host) / 3600)
        for name in names:
            yield from self.part(host, self._controller(host, name, hours), name)

    def _controller(self, host: Facts, name: str, hours: float) -> Iterator[Result]:
        paths = (f"{_EDAC}/{name}/{file}" for file in ("ue_count", "ce_count"))
        ue, ce = (number_of(host.read(path), path) for path in paths)
        limit = self.limits.ce_per_hour
        good = ue == 0 and ce / hours < limit
        yield self.verdict(
            good, host, f"{ue} uncorrected, {ce} corrected in {hours:.0f} h",
            f"0 uncorrected, < {limit:g} corrected/h", f"{_EDAC}/{name}", at=name,
            bad=Status.FAIL if ue else Status.WARN,
        )  # fmt: skip


def uptime_s(host: Facts) -> float:
    """Seconds since boot. Raises `FactError`."""
    first = host.read("/proc/uptime").partition(" ")[0]
    if not re.fullmatch(r"\d{1,12}(\.\d{1,9})?", first):
        raise UnreadableError("/proc/uptime holds no number")
    return float(first)


class MachineChecks(HostCheck):
    """The processors report no hardware errors.

    Expected results: no uncorrected hardware error in the kernel's log since boot; corrected ones
    are a warning.
    """

    id = "mem.mce"
    section = Section.MEMORY
    reads = READS
    meaning = "a processor, its memory or a bus fails"
    remedy = "decode it (rasdaemon, mcelog), look at the BMC's log, replace the part"
    suspect = Suspect.HOST

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        found = machine_checks(kernel_log(host))
        worst = [each for each in found if not each.corrected] or list(found)
        got = f"{len(found)}: {worst[0].text[:120]}" if found else "none"
        hard = any(not each.corrected for each in found)
        yield self.verdict(
            not found, host, got, "none", "kernel log", bad=Status.FAIL if hard else Status.WARN
        )


_HUGE = "/sys/kernel/mm/transparent_hugepage/enabled"


class Paging(HostCheck):
    """Huge pages are as in the fleet, and nothing is swapped.

    Expected results: no swap in use; the mode of transparent huge pages and the number of reserved
    ones equal to the expected values.
    """

    id = "mem.hugepages"
    section = Section.MEMORY
    reads = ("/proc/meminfo", _HUGE)
    meaning = "memory is swapped or paged differently: registration of buffers slows down"
    remedy = "swapoff -a; set transparent_hugepage= and vm.nr_hugepages as on the others"
    suspect = Suspect.CONFIG
    keys = (
        Key("mem.swap", "kB of swap space", unit="kB"),
        Key("mem.huge-pages", "reserved huge pages"),
        Key("mem.transparent", "mode of transparent huge pages"),
    )

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        reported = meminfo(host)
        if "SwapTotal" in reported:
            used = reported["SwapTotal"] - reported.get("SwapFree", reported["SwapTotal"])
            yield self.verdict(
                used == 0, host, f"{used} kB", "0 kB", "/proc/meminfo: SwapTotal - SwapFree",
                at="swap", bad=Status.WARN,
            )  # fmt: skip
            yield self.reading(host, "mem.swap", reported["SwapTotal"], evidence="/proc/meminfo")
        if "HugePages_Total" in reported:
            yield self.reading(
                host, "mem.huge-pages", reported["HugePages_Total"], evidence="/proc/meminfo"
            )
        try:
            match = re.search(r"\[(\w+)\]", host.read(_HUGE))
        except AbsentError:
            return
        if match is None:
            raise UnreadableError(f"{_HUGE} reports no mode")
        yield self.reading(host, "mem.transparent", match[1], evidence=_HUGE)


TRIAD = ("syntony", "audit", "triad", "--json")


class MemoryBandwidth(HostCheck):
    """Memory is as fast as that of the others.

    Expected results: a triad (a = b + s·c) on all processors of each NUMA node no more than 10 %
    below the expected value. Active: it takes the processors for some seconds, so it runs only when
    asked.
    """

    id = "mem.bw"
    section = Section.MEMORY
    reads = ("$ syntony audit triad --json",)
    active = True
    meaning = "memory channels are missing or slow: firmware (NPS), a module in the wrong socket"
    remedy = "compare firmware settings and sockets with a host that passes"
    suspect = Suspect.MEMORY
    keys = (
        Key(
            "mem.bw", "GB/s of a triad", Compare.AT_LEAST, within=0.10, variant="node", unit="GB/s"
        ),
    )

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        found = json_of(host.run(*TRIAD), "`syntony audit triad`")
        if not isinstance(found, dict) or not found:
            raise UnreadableError("`syntony audit triad` measured nothing")
        for node, rate in sorted(found.items()):
            if isinstance(rate, bool) or not isinstance(rate, int | float):
                yield self.unknown(host, f"no rate of node {node}", str(node))
            else:
                at = f"node{node}"
                said = " ".join(TRIAD)
                yield self.reading(host, "mem.bw", float(rate), at, variant=at, evidence=said)
