"""2 Node: the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from syntony.audit.check import HostCheck, Key, Section
from syntony.audit.facts import AbsentError, FactError, UnreadableError
from syntony.audit.gpus import (
    AMD_METRIC,
    NvidiaCheck,
    amd_smi,
    has_amd,
    has_nvidia,
    nvidia_smi,
    on_bus,
    without_gpu,
)
from syntony.audit.host_log import READS, kernel_log
from syntony.audit.parse.kernel_log import Xid, xids
from syntony.audit.parse.nvidia import parse_nvlink_errors, parse_nvlink_status
from syntony.audit.parse.text import json_of
from syntony.audit.pci import AMD, NVIDIA
from syntony.audit.result import Status, Suspect
from syntony.audit.xid import Action, action_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from syntony.audit.facts import Facts
    from syntony.audit.parse.nvidia import Gpu, NvLinks
    from syntony.audit.result import Reading, Result


class GpuCount(HostCheck):
    """All GPUs are on the bus and known to their driver.

    Expected results: the number on the bus equal to the expected value, and the driver serves as
    many as the bus has.
    """

    id = "node.gpu-count"
    section = Section.NODE
    reads = ("/sys/bus/pci/devices/*/class", "/proc/driver/nvidia/gpus/*", "$ nvidia-smi -q -x",
             "$ amd-smi static --json")  # fmt: skip
    meaning = "a GPU is lost, or its driver has given it up"
    remedy = "power-cycle the host; then reseat or replace the GPU"
    suspect = Suspect.GPU
    keys = (Key("node.gpu-count", "GPUs of the host"),)

    def test(self, host: Facts) -> Iterator[Result | Reading]:
        total, known = 0, False
        for name, vendor, driven in (("NVIDIA", NVIDIA, self._nvidia), ("AMD", AMD, self._amd)):
            try:
                seen: int | None = len(on_bus(host, vendor))
            except FactError:
                seen = None
            count = self._driven(host, driven)
            known = known or seen is not None or count is not None
            if count is None and not seen:
                continue
            if count is None:
                yield self.unknown(host, f"{seen} on the bus; the driver does not tell", name)
            elif seen is not None:
                yield self.verdict(count == seen, host, f"{count} driven", f"{seen} on the bus",
                                   "driver and bus", at=name)  # fmt: skip
            total += seen if seen is not None else count or 0
        if known:
            yield self.reading(host, "node.gpu-count", total, evidence="PCI bus, driver")
        else:
            yield self.unknown(host, "neither the bus nor a driver tells of GPUs")

    @staticmethod
    def _driven(host: Facts, driven: Any) -> int | None:
        try:
            count: int = driven(host)
        except FactError:
            return None
        return count

    @staticmethod
    def _nvidia(host: Facts) -> int:
        if not has_nvidia(host):
            raise AbsentError("no NVIDIA GPU here")
        try:
            return len(nvidia_smi(host).gpus)
        except FactError:
            return len(host.names("/proc/driver/nvidia/gpus"))

    @staticmethod
    def _amd(host: Facts) -> int:
        if not has_amd(host):
            raise AbsentError("no AMD GPU here")
        return len(amd_smi(host, "amd-smi", "static", "--json"))


_THROTTLES = (
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
)


class GpuHealth(HostCheck):
    """GPUs are cool, unthrottled, in one mode, and free.

    Expected results: below `hot_c` (memory: `memory_hot_c`), no hardware or thermal slowdown, ECC
    reset not required, persistence on; MIG mode, power limit and highest clocks equal to the
    expected values; no process when `idle` is asked for.
    """

    id = "node.gpu-health"
    section = Section.NODE
    reads = ("$ nvidia-smi -q -x", "$ amd-smi metric --json")
    meaning = "the GPU runs slow or is not free: one slow rank slows the whole job"
    remedy = "look at cooling and power; end left-over processes; nvidia-smi -pm 1, -mig 0"
    suspect = Suspect.GPU
    keys = (
        Key("node.gpu-power-limit", "watts a GPU may draw", variant="GPU model", unit="W"),
        Key("node.gpu-mig", "MIG mode"),
        Key("node.gpu-clock", "highest SM and memory clock", variant="GPU model"),
    )

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        hot_c: float = 75.0
        memory_hot_c: float = 95.0
        idle: bool = False
        """No process may be on it: for a prolog."""

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | Reading]:
        nvidia, amd = has_nvidia(host), has_amd(host)
        if not nvidia and not amd:
            yield without_gpu(self, host, "no GPU of NVIDIA or AMD here")
        if nvidia:
            for gpu in nvidia_smi(host).gpus:
                yield from self._nvidia(host, gpu)
        if amd:
            for number, record in enumerate(amd_smi(host, *AMD_METRIC)):
                yield self._amd(host, f"gpu{record.get('gpu', number)}", record)

    def _nvidia(self, host: Facts, gpu: Gpu) -> Iterator[Result | Reading]:
        for path, limit in (("temperature/gpu_temp", self.limits.hot_c),
                            ("temperature/memory_temp", self.limits.memory_hot_c)):  # fmt: skip
            value = gpu.number(path)
            if value is not None:
                yield self.verdict(value < limit, host, f"{value:g} °C", f"< {limit:g} °C", path,
                                   at=gpu.bus)  # fmt: skip
            elif path.endswith("gpu_temp"):
                yield self.unknown(host, "nvidia-smi tells no temperature", gpu.bus)
        yield self._slowdown(host, gpu)
        mode = gpu.text("persistence_mode")
        if mode is not None:
            yield self.verdict(mode == "Enabled", host, f"persistence {mode}", "Enabled",
                               "persistence_mode", at=gpu.bus, bad=Status.WARN)  # fmt: skip
        if self.limits.idle:
            processes = gpu.element.findall("processes/process_info")
            yield self.verdict(not processes, host, f"{len(processes)} processes", "none",
                               "nvidia-smi: processes", at=gpu.bus)  # fmt: skip
        yield from self._modes(host, gpu)

    def _slowdown(self, host: Facts, gpu: Gpu) -> Result:
        groups = ("clocks_event_reasons", "clocks_throttle_reasons")
        active = [
            name
            for name in _THROTTLES
            for group in groups
            for prefix in (f"{group}_", f"{group.removesuffix('s')}_")
            if gpu.text(f"{group}/{prefix}{name}") == "Active"
        ]
        told = any(gpu.element.find(group) is not None for group in groups)
        if not told:
            return self.unknown(host, "nvidia-smi does not tell why clocks are low", gpu.bus)
        got = " ".join(sorted(set(active))) or "none"
        return self.verdict(
            not active, host, got, "no slowdown", "clocks_event_reasons", at=gpu.bus
        )

    def _modes(self, host: Facts, gpu: Gpu) -> Iterator[Reading]:
        model = gpu.text("product_name") or "GPU"
        mig = gpu.text("mig_mode/current_mig")
        if mig is not None:
            yield self.reading(host, "node.gpu-mig", mig, gpu.bus, evidence="mig_mode")
        for group in ("gpu_power_readings", "power_readings"):
            limit = gpu.number(f"{group}/current_power_limit") or gpu.number(f"{group}/power_limit")
            if limit is not None:
                yield self.reading(host, "node.gpu-power-limit", limit, gpu.bus, variant=model,
                                   evidence=group)  # fmt: skip
                break
        sm, memory = gpu.number("max_clocks/sm_clock"), gpu.number("max_clocks/mem_clock")
        if sm is not None and memory is not None:
            yield self.reading(host, "node.gpu-clock", f"{sm:g}/{memory:g} MHz", gpu.bus,
                               variant=model, evidence="max_clocks")  # fmt: skip

    def _amd(self, host: Facts, at: str, record: dict[str, Any]) -> Result:
        temperatures = record.get("temperature")
        told = temperatures if isinstance(temperatures, dict) else {}
        hot = {name: degrees(told.get(name)) for name in ("hotspot", "edge", "mem")}
        known = {name: value for name, value in hot.items() if value is not None}
        if not known:
            return self.unknown(host, "amd-smi tells no temperature", at)
        limits = {"mem": self.limits.memory_hot_c}
        bad = [name for name, value in known.items()
               if value >= limits.get(name, self.limits.memory_hot_c if name == "hotspot"
                                      else self.limits.hot_c)]  # fmt: skip
        got = ", ".join(f"{name} {value:g} °C" for name, value in known.items())
        return self.verdict(not bad, host, got, f"< {self.limits.memory_hot_c:g} °C",
                            "amd-smi metric", at=at)  # fmt: skip


def degrees(value: Any) -> float | None:
    """amd-smi writes ``45`` or ``{"value": 45, "unit": "C"}``, ``N/A`` for nothing."""
    if isinstance(value, dict):
        value = value.get("value")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class Xids(HostCheck):
    """The GPUs' drivers report no error that is the host's.

    Expected results: no Xid since boot that asks for a reset, a reboot or an isolation; those of
    applications (13, 31, 43, 45…) do not count; unknown codes are a warning. AMD: no RAS error and
    no GPU reset in the kernel's log.
    """

    id = "node.xid"
    section = Section.NODE
    reads = READS
    meaning = "the GPU, its memory, its NVLink or its firmware has failed"
    remedy = "see the code in NVIDIA's Xid catalogue; reset, reboot or RMA as it says"
    suspect = Suspect.GPU

    def test(self, host: Facts) -> Iterator[Result | Reading]:
        nvidia, amd = has_nvidia(host), has_amd(host)
        text = kernel_log(host)
        found = xids(text)
        if not nvidia and not amd and not found:
            yield without_gpu(self, host, "no GPU of NVIDIA or AMD here")
            return
        worst: dict[tuple[str, int], Xid] = {}
        for each in found:
            worst.setdefault((each.bus, each.code), each)
        for each in worst.values():
            yield from self._one(host, each)
        ras = [line for line in text.splitlines() if _is_amd_fault(line)]
        for line in ras[:5]:
            yield self.verdict(False, host, line.strip()[:160], "none", "kernel log: amdgpu")
        if not worst and not ras:
            yield self.verdict(True, host, "none", "none", "kernel log")

    def _one(self, host: Facts, each: Xid) -> Iterator[Result]:
        rule = action_of(each.code, switch=each.switch)
        name = f"{'SXid' if each.switch else 'Xid'} {each.code}"
        if rule.action is Action.APPLICATION:
            yield self.result(Status.PASS, f"{host.host}/{each.bus}", f"{name}: {rule.meaning}",
                              "no error of the host", each.text[:160])  # fmt: skip
            return
        bad = Status.WARN if rule.action is Action.UNKNOWN else Status.FAIL
        yield self.verdict(False, host, name, "none", each.text[:160], at=each.bus, bad=bad,
                           meaning=rule.meaning, remedy=rule.action.value)  # fmt: skip


def _is_amd_fault(line: str) -> bool:
    if "amdgpu" not in line:
        return False
    return any(mark in line for mark in ("uncorrectable hardware error", "GPU reset begin",
                                         "ring gfx timeout", "RAS EEPROM", "poison"))  # fmt: skip


class NvLink(NvidiaCheck):
    """Every NVLink is up, at the speed of its generation, and repeats nothing.

    Expected results: no link inactive, all of one GPU equally fast; number and speed equal to the
    expected values; replay, recovery and CRC counts 0.
    """

    id = "node.nvlink"
    section = Section.NODE
    reads = ("$ nvidia-smi nvlink -s", "$ nvidia-smi nvlink -e")
    meaning = "an NVLink is down or repairs itself: the GPU's share of an all-reduce is slow"
    remedy = "reset the GPU; then its baseboard or NVSwitch tray"
    suspect = Suspect.GPU
    keys = (Key("node.nvlink", "number × GB/s of a GPU's NVLinks", variant="GPU model"),)

    def look(self, host: Facts) -> Iterator[Result | Reading]:
        text = host.run("nvidia-smi", "nvlink", "-s")
        found = parse_nvlink_status(text)
        if not any(gpu.rates or gpu.down for gpu in found):
            if "inactive" in text:
                yield self.verdict(False, host, "all links inactive", "all up", self.reads[0][2:])
            else:
                yield self.skip(host, "these GPUs have no NVLink")
            return
        for gpu in found:
            yield self._state(host, gpu)
            speeds = sorted(gpu.rates.values())
            said = f"{len(speeds)} × {speeds[0]:g} GB/s" if speeds else "none"
            yield self.reading(host, "node.nvlink", said, f"GPU {gpu.gpu}", variant=gpu.name,
                               evidence="nvidia-smi nvlink -s")  # fmt: skip
        yield from self._errors(host)

    def _state(self, host: Facts, gpu: NvLinks) -> Result:
        speeds = set(gpu.rates.values())
        got = f"{len(gpu.rates)} up, down: {' '.join(map(str, gpu.down)) or 'none'}"
        if len(speeds) > 1:
            got += f", speeds {sorted(speeds)} GB/s"
        good = bool(gpu.rates) and not gpu.down and len(speeds) == 1 and 0.0 not in speeds
        return self.verdict(good, host, got, "all up, one speed", "nvidia-smi nvlink -s",
                            at=f"GPU {gpu.gpu}")  # fmt: skip

    def _errors(self, host: Facts) -> Iterator[Result]:
        try:
            rows = list(parse_nvlink_errors(host.run("nvidia-smi", "nvlink", "-e")))
        except FactError as error:
            yield self.unknown(host, str(error), "errors")
            return
        if not rows:
            yield self.unknown(host, "`nvidia-smi nvlink -e` told no counts", "errors")
            return
        bad = [(gpu, link, kind, count) for gpu, link, kind, count in rows if count]
        got = ", ".join(
            f"GPU {gpu} link {link}: {count} {kind}" for gpu, link, kind, count in bad[:5]
        )
        yield self.verdict(not bad, host, got or f"0 in {len(rows)} counts", "0",
                           "nvidia-smi nvlink -e", at="errors", bad=Status.WARN)  # fmt: skip


class Dcgm(NvidiaCheck):
    """DCGM's own diagnosis passes.

    Expected results: `dcgmi diag -r LEVEL` reports no test failed. Active: level 1 takes half a
    minute, 2 two minutes, 3 a quarter of an hour.
    """

    id = "node.dcgm"
    section = Section.NODE
    reads = ("$ dcgmi diag -r LEVEL -j",)
    active = True
    meaning = "a GPU, its memory, its PCIe or its software fails NVIDIA's own test"
    remedy = "as DCGM says"
    suspect = Suspect.GPU

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        level: int = 1

    limits: Input

    def asks(self) -> tuple[str, ...]:
        return (f"$ dcgmi diag -r {self.limits.level} -j",)

    def look(self, host: Facts) -> Iterator[Result | Reading]:
        try:
            text = host.run("dcgmi", "diag", "-r", str(self.limits.level), "-j")
        except AbsentError:
            yield self.skip(host, "dcgmi is not installed")
            return
        rows = list(dcgm_tests(json_of(text, "`dcgmi diag`")))
        if not rows:
            raise UnreadableError("`dcgmi diag` told of no test")
        for name, status, why in rows:
            if status == "skip":
                continue
            yield self.verdict(status == "pass", host, f"{status} {why}".strip(), "pass",
                               "dcgmi diag", at=name,
                               bad=Status.WARN if status == "warn" else Status.FAIL)  # fmt: skip


def dcgm_tests(document: Any) -> Iterator[tuple[str, str, str]]:
    """(test, ``pass``/``fail``/``warn``/``skip``, why) of DCGM 3 and 4's JSON."""
    if isinstance(document, list):
        for each in document:
            yield from dcgm_tests(each)
    elif isinstance(document, dict):
        name, results = document.get("name"), document.get("results")
        if isinstance(name, str) and isinstance(results, list):
            for each in results:
                if isinstance(each, dict) and isinstance(each.get("status"), str):
                    why = each.get("warnings") or each.get("info") or ""
                    yield name, each["status"].lower(), str(why)[:120]
        else:
            for value in document.values():
                yield from dcgm_tests(value)
