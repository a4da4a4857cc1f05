"""`python -m syntony.io.gpu_reader VENDOR…`: writes readings of GPUs' drivers, one line each.

A process of its own, for a call may hang in a driver for ever, or crash. It ends when nobody reads.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from contextlib import suppress
from typing import Protocol

from syntony.errors import MissingError
from syntony.model import S
from syntony.wire.gpus import MAX_GPUS, GpuReading, GpuSnapshot, encode

PERIOD_NS = 2 * S
"""From one look to the next."""
VENDORS = {"nvidia": ("syntony.io.nvml", "NvmlGpus"), "amd": ("syntony.io.amd_smi", "AmdGpus")}


class Gpus(Protocol):
    def read(self) -> list[GpuReading]: ...

    def wait(self, seconds: float) -> None: ...


def main(vendors: list[str]) -> int:
    """Until nobody reads any more, or nothing can be read."""
    with suppress(OSError):
        os.nice(5)
    found: list[Gpus] = []
    reasons = []
    for vendor in vendors:
        try:
            found.append(_opened(vendor))
        except MissingError as error:
            reasons.append(str(error))
    try:
        while found:
            began_ns = time.monotonic_ns()
            readings = [each for one in found for each in one.read()]
            _write(GpuSnapshot(at_ns=began_ns, gpus=tuple(readings[:MAX_GPUS])))
            left_ns = began_ns + PERIOD_NS - time.monotonic_ns()
            found[0].wait(max(left_ns, PERIOD_NS // 4) / S)
    except MissingError as error:
        reasons.append(str(error))
    except BrokenPipeError:
        return 0
    with suppress(BrokenPipeError):
        _write(GpuSnapshot(reason="; ".join(reasons)[:1_024] or "no GPU to be read"))
    return 3


def _opened(vendor: str) -> Gpus:
    module, name = VENDORS[vendor]
    try:
        made: Gpus = getattr(importlib.import_module(module), name)()
    except ImportError as error:
        raise MissingError(f"{error}; pip install 'syntony[gpu]'") from error
    return made


def _write(look: GpuSnapshot) -> None:
    data = encode(look)
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
