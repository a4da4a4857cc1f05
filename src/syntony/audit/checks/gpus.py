"""2 Node: the GPUs, their drivers' errors and their links."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from syntony.audit.check import HostCheck, Key, Section
from syntony.audit.facts import AbsentError, FactError, Facts, ProgramTimeoutError, UnreadableError
from syntony.audit.gpus import (
    NvidiaCheck,
    amd_smi,
    has_amd,
    has_nvidia,
    nvidia_smi,
    on_bus,
    without_gpu,
)
from syntony.audit.host_log import READS, kernel_log
from syntony.audit.parse.kernel_log import Xid, is_amd_fault, xids
from syntony.audit.parse.nvidia import NvLinks, parse_nvlink_errors, parse_nvlink_status
from syntony.audit.parse.text import json_of
from syntony.audit.pci import AMD, NVIDIA
from syntony.audit.result import ComparedValue, Result, Status, Suspect
from syntony.audit.xid import Action, action_of, latest


class GpuCount(HostCheck):
    """All GPUs are on the bus and known to their driver.

    Expected results: the number on the bus equal to the expected value, and the driver serves as
    many as the bus has; nvidia-smi and amd-smi answer, and call no GPU lost.
    """

    id = "node.gpu-count"
    section = Section.NODE
    reads = ("/sys/bus/pci/devices/*/class", "/proc/driver/nvidia/gpus/*", "$ nvidia-smi -q -x",
             "$ amd-smi static --json")  # fmt: skip
    meaning = "a GPU is lost, or its driver has given it up"
    remedy = "power-cycle the host; then reseat or replace the GPU"
    suspect = Suspect.GPU
    keys = (Key("node.gpu-count", "GPUs of the host"),)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        total, known = 0, False
        for name, vendor, driven in (("NVIDIA", NVIDIA, _nvidia), ("AMD", AMD, _amd)):
            try:
                seen: int | None = len(on_bus(host, vendor))
            except FactError:
                seen = None
            lost, count = _requested(host, driven)
            known = known or seen is not None or count is not None
            yield from (self._lost(host, at or name, why) for at, why in lost)
            if count is None and not seen:
                continue
            if count is None and not lost:
                yield self.unknown(host, f"{seen} on the bus; the driver does not tell", name)
            elif count is not None and seen is not None:
                yield self.verdict(count == seen, host, f"{count} driven", f"{seen} on the bus",
                                   "driver and bus", at=name)  # fmt: skip
            total += seen if seen is not None else count or 0
        if known:
            yield self.reading(host, "node.gpu-count", total, evidence="PCI bus, driver")
        else:
            yield self.unknown(host, "neither the bus nor a driver reports GPUs")

    def _lost(self, host: Facts, at: str, why: str) -> Result:
        return self.verdict(False, host, why, "every GPU answers", "the vendor's tool", at=at)


_GONE = re.compile(
    r"GPU is lost|fallen off the bus|Unable to determine the device handle|No devices were found|"
    r"couldn't communicate with the NVIDIA driver|describes \d+$",
    re.IGNORECASE,
)
"""What nvidia-smi says when a GPU or the driver is gone; the last: it describes too few."""
_GONE_FIELDS = frozenset({"gpu is lost", "[gpu is lost]"})
_Lost = list[tuple[str, str]]
"""(which, why) of GPUs that are there and do not answer."""


def _requested(
    host: Facts, driven: Callable[[Facts], tuple[_Lost, int]]
) -> tuple[_Lost, int | None]:
    """GPUs that are lost, and the number that the driver serves; None if unknown."""
    try:
        return driven(host)
    except ProgramTimeoutError as error:
        return [("", f"the driver hangs: {error}")], None
    except FactError as error:
        return ([("", str(error))] if _GONE.search(str(error)) else []), None


def _nvidia(host: Facts) -> tuple[_Lost, int]:
    if not has_nvidia(host):
        raise AbsentError("no NVIDIA GPU here")
    try:
        gpus = nvidia_smi(host).gpus
    except UnreadableError as error:
        if isinstance(error, ProgramTimeoutError) or _GONE.search(str(error)):
            raise
        return [], len(host.names("/proc/driver/nvidia/gpus"))
    lost = [
        (gpu.bus, f"nvidia-smi: {word.strip()}")
        for gpu in gpus
        for word in gpu.element.itertext()
        if word.strip().lower() in _GONE_FIELDS
    ]
    return list(dict(lost).items()), len(gpus)


def _amd(host: Facts) -> tuple[_Lost, int]:
    if not has_amd(host):
        raise AbsentError("no AMD GPU here")
    return [], len(amd_smi(host, "amd-smi", "static", "--json"))


class Xids(HostCheck):
    """The GPUs' drivers report no error that is the host's.

    Expected results: no Xid since boot that asks for a reset, a reboot or an isolation; those of
    applications (13, 31, 43, 45…) do not count; unknown codes are a warning. An Xid 154 counts by
    the action it names last, an NVSwitch's SXid by its own word, Fatal or Non-fatal. AMD: no RAS
    error and no GPU reset in the kernel's log.
    """

    id = "node.xid"
    section = Section.NODE
    reads = READS
    meaning = "the GPU, its memory, its NVLink or its firmware has failed"
    remedy = "see the code in NVIDIA's Xid catalogue; reset, reboot or RMA as it says"
    suspect = Suspect.GPU

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        nvidia, amd = has_nvidia(host), has_amd(host)
        text = kernel_log(host)
        found = xids(text)
        if not nvidia and not amd and not found:
            yield without_gpu(self, host, "no GPU of NVIDIA or AMD here")
            return
        worst = latest(found)
        for each in worst:
            yield self._one(host, each)
        ras = [line for line in text.splitlines() if is_amd_fault(line)]
        for line in ras[:5]:
            yield self.verdict(False, host, line.strip()[:160], "none", "kernel log: amdgpu")
        if not worst and not ras:
            yield self.verdict(True, host, "none", "none", "kernel log")

    def _one(self, host: Facts, each: Xid) -> Result:
        rule = action_of(each)
        name = f"{'SXid' if each.switch else 'Xid'} {each.code}"
        if rule.action is Action.APPLICATION:
            return self.result(Status.PASS, f"{host.host}/{each.bus}", f"{name}: {rule.meaning}",
                               "no error of the host", each.text[:160])  # fmt: skip
        bad = Status.WARN if rule.action in {Action.UNKNOWN, Action.WATCH} else Status.FAIL
        return self.verdict(False, host, name, "none", each.text[:160], at=each.bus, bad=bad,
                            meaning=rule.meaning, remedy=rule.action.value)  # fmt: skip


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

    def look(self, host: Facts) -> Iterator[Result | ComparedValue]:
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
        yield from self.part(host, self._errors(host), "errors")

    def _state(self, host: Facts, gpu: NvLinks) -> Result:
        speeds = set(gpu.rates.values())
        got = f"{len(gpu.rates)} up, down: {' '.join(map(str, gpu.down)) or 'none'}"
        if len(speeds) > 1:
            got += f", speeds {sorted(speeds)} GB/s"
        good = bool(gpu.rates) and not gpu.down and len(speeds) == 1 and 0.0 not in speeds
        return self.verdict(good, host, got, "all up, one speed", "nvidia-smi nvlink -s",
                            at=f"GPU {gpu.gpu}")  # fmt: skip

    def _errors(self, host: Facts) -> Iterator[Result]:
        rows = list(parse_nvlink_errors(host.run("nvidia-smi", "nvlink", "-e")))
        if not rows:
            yield self.unknown(host, "`nvidia-smi nvlink -e` reported no counts", "errors")
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

    def look(self, host: Facts) -> Iterator[Result | ComparedValue]:
        try:
            text = host.run("dcgmi", "diag", "-r", str(self.limits.level), "-j")
        except AbsentError:
            yield self.skip(host, "dcgmi is not installed")
            return
        rows = list(dcgm_tests(json_of(text, "`dcgmi diag`")))
        if not rows:
            raise UnreadableError("`dcgmi diag` reported no test")
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
