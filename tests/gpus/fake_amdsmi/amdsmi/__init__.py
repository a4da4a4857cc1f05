"""An amdsmi that says what the JSON file $FAKE_AMDSMI says; names and shapes are those of 7.0.2."""

from __future__ import annotations

import enum
import json
import os
from pathlib import Path
from typing import Any


class AmdSmiException(Exception):  # noqa: N818 - the library's name
    """As the library's."""


class AmdSmiClkType(enum.IntEnum):
    """Of which the agent asks."""

    GFX = 1
    MEM = 5


def _state() -> dict[str, Any]:
    state: dict[str, Any] = json.loads(Path(os.environ["FAKE_AMDSMI"]).read_text())
    return state


def _of(handle: int, name: str) -> Any:
    gpu = _state()["gpus"][handle]
    if gpu.get("lost") or name not in gpu:
        raise AmdSmiException("Error code:\n\t2 | AMDSMI_STATUS_NOT_SUPPORTED")
    return gpu[name]


def amdsmi_init() -> None:
    """Fails where the file says so."""
    if "init" in _state():
        raise AmdSmiException(_state()["init"])


def amdsmi_get_processor_handles() -> list[int]:
    """Indices."""
    return [*range(len(_state()["gpus"]))]


def amdsmi_get_gpu_device_uuid(handle: int) -> Any:
    """A text."""
    return _of(handle, "uuid")


def amdsmi_get_gpu_device_bdf(handle: int) -> Any:
    """A text."""
    return _of(handle, "bdf")


def amdsmi_get_clock_info(handle: int, kind: AmdSmiClkType) -> Any:
    """Numbers, or "N/A"."""
    return _of(handle, "clocks")[kind.name]


def amdsmi_get_gpu_total_ecc_count(handle: int) -> Any:
    """Numbers."""
    return _of(handle, "ecc")


def amdsmi_get_pcie_info(handle: int) -> Any:
    """Two tables."""
    return _of(handle, "pcie")


def amdsmi_get_gpu_process_list(handle: int) -> Any:
    """Tables."""
    return _of(handle, "processes")


def amdsmi_get_violation_status(handle: int) -> Any:
    """Truths, or "N/A"."""
    return _of(handle, "violations")


def amdsmi_get_link_metrics(handle: int) -> Any:
    """Links."""
    return _of(handle, "links")
