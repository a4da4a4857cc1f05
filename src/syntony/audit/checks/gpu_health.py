"""2 Node: whether GPUs run as fast as they can, and whether one waits for a reset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from syntony.audit.check import HostCheck, Key, Section
from syntony.audit.facts import FactError, Facts
from syntony.audit.gpus import (
    AMD_METRIC,
    AMD_STATIC,
    NvidiaCheck,
    amd_smi,
    has_amd,
    has_nvidia,
    nvidia_smi,
    without_gpu,
)
from syntony.audit.parse.nvidia import Gpu
from syntony.audit.result import ComparedValue, Result, Status, Suspect

HOT_C = 85.0
"""For a GPU that reports no limit: the highest operating temperature of A100 and H100."""
MEMORY_HOT_C = 95.0
"""The same of HBM (A100, H100)."""
LOCKED_BELOW = 0.9
"""Of the highest clock: a GPU at P0 without any reason for less reaches more."""
_REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")
_THROTTLES = (
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
)


class GpuHealth(HostCheck):
    """GPUs are cool, unthrottled, in one mode, and free.

    Expected results: below the card's own limits (its highest operating temperature, else where it
    slows down; `hot_c` and `memory_hot_c` stand in for both, or for a card that reports none); no
    hardware or thermal slowdown, clocks not locked below the highest, persistence on; MIG mode,
    power limit, highest and application clocks equal to the expected values; no process when
    `idle` is asked for.
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
        Key("node.gpu-app-clock", "application clocks a GPU is set to", variant="GPU model"),
    )

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        hot_c: float | None = None
        memory_hot_c: float | None = None
        idle: bool = False
        """No process may be on it: for a prolog."""

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        nvidia, amd = has_nvidia(host), has_amd(host)
        if not nvidia and not amd:
            yield without_gpu(self, host, "no GPU of NVIDIA or AMD here")
        if nvidia:
            for gpu in nvidia_smi(host).gpus:
                yield from self._nvidia(host, gpu)
        if amd:
            limits = amd_limits(host)
            for number, record in enumerate(amd_smi(host, *AMD_METRIC)):
                name = record.get("gpu", number)
                yield self._amd(host, f"gpu{name}", record, limits.get(name, {}))

    def _nvidia(self, host: Facts, gpu: Gpu) -> Iterator[Result | ComparedValue]:
        yield from self._temperatures(host, gpu)
        yield self._slowdown(host, gpu)
        yield from self._locked(host, gpu)
        mode = gpu.text("persistence_mode")
        if mode is not None:
            yield self.verdict(mode == "Enabled", host, f"persistence {mode}", "Enabled",
                               "persistence_mode", at=gpu.bus, bad=Status.WARN)  # fmt: skip
        if self.limits.idle:
            processes = gpu.element.findall("processes/process_info")
            yield self.verdict(not processes, host, f"{len(processes)} processes", "none",
                               "nvidia-smi: processes", at=gpu.bus)  # fmt: skip
        yield from self._modes(host, gpu)

    def _temperatures(self, host: Facts, gpu: Gpu) -> Iterator[Result]:
        if gpu.number("temperature/gpu_temp") is None:
            yield self.unknown(host, "nvidia-smi reports no temperature", gpu.bus)
        else:
            yield self._core(host, gpu)
        memory = gpu.number("temperature/memory_temp")
        if memory is not None:
            own = gpu.number("temperature/gpu_temp_max_mem_threshold")
            limit = _first(self.limits.memory_hot_c, own, MEMORY_HOT_C)
            yield self.verdict(memory < limit, host, f"memory {memory:g} °C", f"< {limit:g} °C",
                               "temperature/memory_temp", at=gpu.bus)  # fmt: skip

    def _core(self, host: Facts, gpu: Gpu) -> Result:
        value = gpu.number("temperature/gpu_temp") or 0.0
        margin = gpu.number("temperature/gpu_temp_tlimit")
        if margin is not None and self.limits.hot_c is None:
            # Since Ada a card reports its margin to the limit, not the limit.
            floors = (gpu.number(f"temperature/gpu_temp_{name}_tlimit_threshold")
                      for name in ("max_gpu", "slow"))  # fmt: skip
            floor = _first(*floors, 0.0)
            return self.verdict(
                margin > floor, host, f"{value:g} °C, {margin:g} °C below its limit",
                f"> {floor:g} °C below its limit", "temperature/gpu_temp_tlimit", at=gpu.bus,
            )  # fmt: skip
        own = (gpu.number(f"temperature/gpu_temp_{name}_threshold")
               for name in ("max_gpu", "slow", "max"))  # fmt: skip
        limit = _first(self.limits.hot_c, *own, HOT_C)
        return self.verdict(value < limit, host, f"{value:g} °C", f"< {limit:g} °C",
                            "temperature/gpu_temp", at=gpu.bus)  # fmt: skip

    def _locked(self, host: Facts, gpu: Gpu) -> Iterator[Result]:
        """Clocks that somebody set below what the card can do (nvidia-smi -ac, -lgc)."""
        highest = gpu.number("max_clocks/graphics_clock") or gpu.number("max_clocks/sm_clock")
        if highest is None:
            return
        set_ = gpu.number("applications_clocks/graphics_clock")
        usual = gpu.number("default_applications_clocks/graphics_clock")
        if set_ is not None and usual is not None and set_ < usual:
            yield self._slow_clock(host, gpu, f"application clock {set_:g} MHz", usual)
        elif _reason(gpu, "applications_clocks_setting"):
            yield self._slow_clock(host, gpu, "clocks limited by a setting", highest)
        else:
            now = gpu.number("clocks/graphics_clock") or gpu.number("clocks/sm_clock")
            freely = gpu.text("performance_state") == "P0" and not _any_reason(gpu)
            if now is not None and freely and now < LOCKED_BELOW * highest:
                yield self._slow_clock(host, gpu, f"{now:g} MHz with no reason given", highest)

    def _slow_clock(self, host: Facts, gpu: Gpu, got: str, highest: float) -> Result:
        return self.verdict(
            False, host, got, f"{highest:g} MHz", "nvidia-smi: clocks", at=gpu.bus,
            bad=Status.WARN, meaning="somebody locked the GPU's clocks: it is slower than the rest",
            remedy="nvidia-smi -rgc and -rac reset the clocks",
        )  # fmt: skip

    def _slowdown(self, host: Facts, gpu: Gpu) -> Result:
        active = [name for name in _THROTTLES if _reason(gpu, name)]
        reported = any(gpu.element.find(group) is not None for group in _REASONS)
        if not reported:
            return self.unknown(host, "nvidia-smi does not tell why clocks are low", gpu.bus)
        got = " ".join(sorted(set(active))) or "none"
        return self.verdict(
            not active, host, got, "no slowdown", "clocks_event_reasons", at=gpu.bus
        )

    def _modes(self, host: Facts, gpu: Gpu) -> Iterator[ComparedValue]:
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
        sm, memory = (
            gpu.number(f"applications_clocks/{name}_clock") for name in ("graphics", "mem")
        )
        if sm is not None and memory is not None:
            yield self.reading(host, "node.gpu-app-clock", f"{sm:g}/{memory:g} MHz", gpu.bus,
                               variant=model, evidence="applications_clocks")  # fmt: skip

    def _amd(self, host: Facts, at: str, record: dict[str, Any], own: dict[str, float]) -> Result:
        temperatures = record.get("temperature")
        reported = temperatures if isinstance(temperatures, dict) else {}
        hot = {name: degrees(reported.get(name)) for name in ("hotspot", "edge", "mem")}
        known = {name: value for name, value in hot.items() if value is not None}
        if not known:
            return self.unknown(host, "amd-smi reports no temperature", at)
        limits = {
            "hotspot": _first(self.limits.hot_c, own.get("hotspot"), MEMORY_HOT_C),
            "edge": _first(self.limits.hot_c, own.get("edge"), HOT_C),
            "mem": _first(self.limits.memory_hot_c, own.get("vram"), MEMORY_HOT_C),
        }
        bad = [name for name, value in known.items() if value >= limits[name]]
        got = ", ".join(f"{name} {value:g} °C" for name, value in known.items())
        expected = ", ".join(f"{name} < {limits[name]:g} °C" for name in known)
        return self.verdict(not bad, host, got, expected, "amd-smi metric", at=at)


def amd_limits(host: Facts) -> dict[Any, dict[str, float]]:
    """GPU → where each part (``hotspot``, ``edge``, ``vram``) slows down; {} if unknown."""
    try:
        records = amd_smi(host, *AMD_STATIC)
    except FactError:
        return {}
    found: dict[Any, dict[str, float]] = {}
    for number, record in enumerate(records):
        limit = record.get("limit")
        reported = limit if isinstance(limit, dict) else {}
        parts = {part: degrees(reported.get(f"slowdown_{part}_temperature"))
                 for part in ("hotspot", "edge", "vram")}  # fmt: skip
        found[record.get("gpu", number)] = {
            part: value for part, value in parts.items() if value is not None
        }
    return found


def _first(*values: float | None) -> float:
    """The first that is reported; the last always is."""
    return next(value for value in values if value is not None)


def _reason(gpu: Gpu, name: str) -> bool:
    """Whether nvidia-smi gives a reason for low clocks as active."""
    return any(
        gpu.text(f"{group}/{prefix}{name}") == "Active"
        for group in _REASONS
        for prefix in (f"{group}_", f"{group.removesuffix('s')}_")
    )


def _any_reason(gpu: Gpu) -> bool:
    groups = (gpu.element.find(group) for group in _REASONS)
    reported = [each for group in groups if group is not None for each in group]
    return not reported or any((each.text or "").strip() == "Active" for each in reported)


def degrees(value: Any) -> float | None:
    """amd-smi writes ``45`` or ``{"value": 45, "unit": "C"}``, ``N/A`` for nothing."""
    if isinstance(value, dict):
        value = value.get("value")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class GpuRecovery(NvidiaCheck):
    """No GPU waits for a reset or a reboot.

    Expected results: reset required No, drain and reset recommended No, recovery action None, on
    every GPU that reports them (drivers before 525, 535 and 570 do not).
    """

    id = "node.gpu-recovery"
    section = Section.NODE
    reads = ("$ nvidia-smi -q -x",)
    meaning = "the driver has given the GPU up until it is reset: CUDA fails on it, or soon will"
    remedy = "drain the host; nvidia-smi --gpu-reset, or reboot if the action says so"
    suspect = Suspect.GPU

    def look(self, host: Facts) -> Iterator[Result | ComparedValue]:
        reported = 0
        for gpu in nvidia_smi(host).gpus:
            for path, good in _RECOVERY.items():
                said = gpu.text(path)
                if said is not None:
                    reported += 1
                    yield self.verdict(said == good, host, f"{path.rpartition('/')[2]}: {said}",
                                       good, "nvidia-smi -q -x", at=gpu.bus)  # fmt: skip
        if not reported:
            yield self.skip(host, "this driver does not tell what a GPU needs")


_RECOVERY = {
    "gpu_reset_status/reset_required": "No",
    "gpu_reset_status/drain_and_reset_recommended": "No",
    "gpu_recovery_action": "None",
}
