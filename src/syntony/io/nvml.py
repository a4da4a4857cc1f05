"""NVIDIA's GPUs, by NVIDIA's own binding of NVML (nvidia-ml-py).

Any call may hang in the driver: for a process of its own, `gpu_reader`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import pynvml

from syntony.errors import MissingError
from syntony.model import MS, S
from syntony.wire.gpus import MAX_PROCESSES, GpuReading

GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}
"""PCIe generation to GT/s of a lane."""
REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""nvml.h, nvmlClocksEventReason…; named as nvidia-smi does."""
ALL_LINKS = 0xFFFFFFFF
"""As scope of a field of NVLinks."""
LINK_ERRORS = (
    pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
)
LINK_KIBIBYTES = (
    (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
    (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
)
_GONE = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED,
                   pynvml.NVML_ERROR_UNKNOWN})  # fmt: skip


class NvmlGpus:
    """All GPUs of NVIDIA's driver. Raises `MissingError`: the library or the driver is not
    there."""

    def __init__(self) -> None:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise MissingError(f"NVML: {error}") from error
        self._known: dict[int, str] = {}
        """UUIDs by index: a lost GPU can no longer be asked for it."""
        self._events: Any = None
        self._watched: set[str] = set()
        self._xids: dict[str, int] = {}

    def read(self) -> list[GpuReading]:
        """Every GPU now. Raises `MissingError`: the driver has gone."""
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise MissingError(f"NVML: {error}") from error
        return [self._gpu(index) for index in range(max(count, len(self._known)))]

    def wait(self, seconds: float) -> None:
        """Until then; Xids that come are of the next reading."""
        end_ns = time.monotonic_ns() + int(seconds * S)
        while (left_ns := end_ns - time.monotonic_ns()) > 0:
            if self._events is None:
                time.sleep(left_ns / S)
                return
            try:
                event = pynvml.nvmlEventSetWait(self._events, math.ceil(left_ns / MS))
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    self._events = None
                continue
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                uuid = _value(pynvml.nvmlDeviceGetUUID, event.device)
                self._xids[_text(uuid)] = int(event.eventData) & 0xFFFFFFFF

    def _gpu(self, index: int) -> GpuReading:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = self._known[index] = _text(pynvml.nvmlDeviceGetUUID(handle))
            self._watch(handle, uuid)
            return self._readings(handle, uuid)
        except pynvml.NVMLError as error:
            uuid = self._known.get(index, f"nvidia{index}")
            return GpuReading(gpu=uuid, error=str(error)[:128], xid=self._xids.pop(uuid, 0))

    def _readings(self, handle: Any, uuid: str) -> GpuReading:
        reasons = _value(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if reasons is None:  # a driver before r535
            reasons = _value(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        pci = _value(pynvml.nvmlDeviceGetPciInfo, handle)
        power_mw = _value(pynvml.nvmlDeviceGetPowerUsage, handle)
        running = _value(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        passed_kb = [_value(pynvml.nvmlDeviceGetPcieThroughput, handle, way) for way in (
            pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES)]  # fmt: skip
        link_bytes = _sum_of_fields(handle, LINK_KIBIBYTES)
        return GpuReading(
            gpu=uuid,
            bus="" if pci is None else _text(pci.busId).lower(),
            model=_text(_value(pynvml.nvmlDeviceGetName, handle)),
            pids=tuple(each.pid for each in running[:MAX_PROCESSES]),
            sm_clock_mhz=_value(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=_value(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
            throttle=None if reasons is None else _reasons(reasons),
            temperature_c=_value(
                pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU
            ),
            power_w=None if power_mw is None else power_mw / 1000,
            ecc_errors=_sum(
                _value(pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, pynvml.NVML_VOLATILE_ECC)
                for kind in (
                    pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
                    pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                )
            ),
            xid=self._xids.pop(uuid, 0),
            nvlink_errors=_sum_of_fields(handle, LINK_ERRORS),
            nvlink_bytes=None if link_bytes is None else link_bytes * 1024,
            pcie_gts=GTS.get(_value(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle)),
            pcie_max_gts=GTS.get(_value(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle)),
            pcie_width=_value(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
            pcie_max_width=_value(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
            pcie_replays=_value(pynvml.nvmlDeviceGetPcieReplayCounter, handle),
            pcie_bytes_per_s=None if None in passed_kb else 1000.0 * sum(passed_kb),
        )

    def _watch(self, handle: Any, uuid: str) -> None:
        """Xids are reported by events, from now on."""
        if uuid in self._watched:
            return
        self._watched.add(uuid)
        try:
            if self._events is None:
                self._events = pynvml.nvmlEventSetCreate()
            kind = pynvml.nvmlEventTypeXidCriticalError
            pynvml.nvmlDeviceRegisterEvents(handle, kind, self._events)
        except pynvml.NVMLError as error:
            if error.value in _GONE:
                raise


def _value(function: Callable[..., Any], *given: Any) -> Any:
    """What NVML answers; None where it has no answer.

    Raises:
        pynvml.NVMLError: the device is gone.
    """
    try:
        return function(*given)
    except pynvml.NVMLError as error:
        if error.value in _GONE:
            raise
        return None


def _sum(values: Iterable[int | None]) -> int | None:
    """Of what is known; the driver has all bits set for what it does not know."""
    known = [each for each in values if each is not None and each < 1 << 48]
    return sum(known) if known else None


def _sum_of_fields(handle: Any, fields: tuple[Any, ...]) -> int | None:
    found = _value(pynvml.nvmlDeviceGetFieldValues, handle, list(fields))
    return _sum(each.value.ullVal for each in found or () if each.nvmlReturn == pynvml.NVML_SUCCESS)


def _reasons(bits: int) -> tuple[str, ...]:
    unknown = bits & ~sum(REASONS)
    named = tuple(name for bit, name in REASONS.items() if bits & bit)
    return (*named, f"unknown_{unknown:#x}") if unknown else named


def _text(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
    return text[:128]
