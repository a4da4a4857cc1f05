"""Reads AMD GPUs through AMD's own binding (amdsmi 6.4 and later, which ROCm installs).

Any call may hang in the driver: for a process of its own, `gpu_reader`.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from syntony.errors import MissingError
from syntony.wire.gpus import MAX_PROCESSES, GpuReading

VIOLATIONS = {
    "active_prochot_thrm": "prochot",
    "active_ppt_pwr": "sw_power_cap",
    "active_socket_thrm": "socket_thermal",
    "active_vr_thrm": "regulator_thermal",
    "active_hbm_thrm": "memory_thermal",
}
"""Of `amdsmi_get_violation_status`; a power cap alone slows nothing (as NVML's reason of that
name)."""


class AmdGpus:
    """All GPUs of AMD's driver. Raises `MissingError`: the library or the driver is not there."""

    def __init__(self) -> None:
        try:
            self._smi: Any = importlib.import_module("amdsmi")
        except Exception as error:  # importing it loads a library and may raise anything
            reason = str(error) or type(error).__name__
            raise MissingError(f"amdsmi cannot be loaded: {reason}") from error
        try:
            self._smi.amdsmi_init()
        except self._smi.AmdSmiException as error:
            raise MissingError(f"amdsmi: {' '.join(str(error).split())}") from error
        self._known: dict[int, str] = {}

    def read(self) -> list[GpuReading]:
        """Every GPU now. Raises `MissingError`: the driver has gone."""
        try:
            handles = self._smi.amdsmi_get_processor_handles()
        except self._smi.AmdSmiException as error:
            raise MissingError(f"amdsmi: {' '.join(str(error).split())}") from error
        return [self._gpu(index, handle) for index, handle in enumerate(handles)]

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def _gpu(self, index: int, handle: Any) -> GpuReading:
        smi, value = self._smi, self._value
        try:
            uuid = self._known[index] = smi.amdsmi_get_gpu_device_uuid(handle)
        except smi.AmdSmiException as error:
            text = " ".join(str(error).split())[:128]
            return GpuReading(gpu=self._known.get(index, f"amd{index}"), error=text)
        clocks = {kind: value(smi.amdsmi_get_clock_info, handle, kind) for kind in (
            smi.AmdSmiClkType.GFX, smi.AmdSmiClkType.MEM)}  # fmt: skip
        ecc = value(smi.amdsmi_get_gpu_total_ecc_count, handle)
        slot = value(smi.amdsmi_get_pcie_info, handle)
        now, limit = slot.get("pcie_metric", {}), slot.get("pcie_static", {})
        processes = value(smi.amdsmi_get_gpu_process_list, handle) or []
        mbps = _number(now.get("pcie_bandwidth"))
        return GpuReading(
            gpu=uuid,
            bus=str(value(smi.amdsmi_get_gpu_device_bdf, handle) or ""),
            pids=tuple(each["pid"] for each in processes[:MAX_PROCESSES]),
            sm_clock_mhz=_number(clocks[smi.AmdSmiClkType.GFX].get("clk")),
            memory_clock_mhz=_number(clocks[smi.AmdSmiClkType.MEM].get("clk")),
            throttle=self._throttle(handle),
            ecc_errors=_whole(ecc.get("correctable_count"), ecc.get("uncorrectable_count")),
            nvlink_bytes=self._between_gpus(handle),
            pcie_gts=_gts(now.get("pcie_speed")),
            pcie_max_gts=_gts(limit.get("max_pcie_speed")),
            pcie_width=_number(now.get("pcie_width")),
            pcie_max_width=_number(limit.get("max_pcie_width")),
            pcie_replays=_whole(now.get("pcie_replay_count")),
            pcie_bytes_per_s=None if mbps is None else mbps * 1e6 / 8,
        )

    def _throttle(self, handle: Any) -> tuple[str, ...] | None:
        status = self._value(self._smi.amdsmi_get_violation_status, handle)
        known = {name: status[key] for key, name in VIOLATIONS.items()
                 if isinstance(status.get(key), bool)}  # fmt: skip
        return tuple(name for name, active in known.items() if active) if known else None

    def _between_gpus(self, handle: Any) -> int | None:
        """Bytes over xGMI."""
        links = self._value(self._smi.amdsmi_get_link_metrics, handle).get("links", [])
        counted = [_whole(each.get("read"), each.get("write")) for each in links]
        known = [each for each in counted if each is not None]
        return 1024 * sum(known) if known else None

    def _value(self, function: Callable[..., Any], *given: Any) -> Any:
        """The library's answer; empty if it has none."""
        try:
            return function(*given)
        except self._smi.AmdSmiException:
            return {}


def _number(value: Any) -> float | None:
    """The library says "N/A" for what it does not know."""
    return float(value) if isinstance(value, int | float) and value >= 0 else None


def _whole(*values: Any) -> int | None:
    known = [each for each in values if isinstance(each, int) and 0 <= each < 1 << 48]
    return sum(known) if known else None


def _gts(value: Any) -> float | None:
    """In GT/s or MT/s, by version of the library."""
    found = _number(value)
    return None if found is None else found / 1000 if found >= 1000 else found
