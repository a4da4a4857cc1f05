"""Readings that the process that queries GPUs' drivers sends to the agent, as JSON lines."""

from __future__ import annotations

from typing import Annotated

import msgspec

from syntony.errors import WireError

MAX_LINE = 1 << 20
"""Maximum size of one line."""
MAX_GPUS, MAX_PROCESSES = 64, 1_024
_Text = Annotated[str, msgspec.Meta(max_length=128)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class GpuReading(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at one instant. None: not reported. Counters count from the driver's start
    or the last reset."""

    gpu: _Text
    """UUID."""
    bus: _Text = ""
    """PCI address."""
    model: _Text = ""
    error: _Text = ""
    """Why the device could not be read, for example: fallen off the bus."""
    pids: Annotated[tuple[_Number, ...], msgspec.Meta(max_length=MAX_PROCESSES)] = ()
    """Processes that compute on it."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=64)] | None = None
    """NVML's reasons why the clock is not higher."""
    temperature_c: float | None = None
    power_w: float | None = None
    ecc_errors: _Count | None = None
    """Counter, corrected and uncorrected."""
    xid: _Number = 0
    """Newest Xid since the previous reading; 0: none."""
    nvlink_errors: _Count | None = None
    """Counter: replays, recoveries, CRC errors of all links."""
    nvlink_bytes: _Count | None = None
    """Counter, both directions of all links."""
    pcie_gts: float | None = None
    pcie_max_gts: float | None = None
    """Maximum GT/s of card and slot."""
    pcie_width: float | None = None
    pcie_max_width: float | None = None
    pcie_replays: _Count | None = None
    """Counter."""
    pcie_bytes_per_s: float | None = None
    """Both directions."""


class GpuSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs of a host at one instant."""

    at_ns: int = 0
    """CLOCK_MONOTONIC."""
    gpus: Annotated[tuple[GpuReading, ...], msgspec.Meta(max_length=MAX_GPUS)] = ()
    reason: Annotated[str, msgspec.Meta(max_length=1_024)] = ""
    """Why nothing can be read; the process ends."""


def encode(snapshot: GpuSnapshot) -> bytes:
    """Encode one line."""
    return msgspec.json.encode(snapshot) + b"\n"


def decode(line: bytes) -> GpuSnapshot:
    """Decode one line. Raises `WireError`: it is invalid."""
    try:
        return msgspec.json.decode(line, type=GpuSnapshot)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"the GPU reader wrote an unreadable line: {error}") from error
