"""One measurement of matrix products, in a process of its own.

    python gemm_worker.py gpu              every GPU that PyTorch can use, all at once
    python gemm_worker.py cpu 0,1,2,3      these processors together, through NumPy

Needs torch or NumPy and the standard library only, so that any interpreter that has them can run
it. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from typing import Any

GPU_SIZE, CPU_SIZE = 8192, 2048
GPU_PRODUCTS, CPU_PRODUCTS = 200, 8
"""Some seconds of a GPU, about two of eight processors."""
WARMUP = 20
ROWS = 4
TOLERANCE = 0.02
"""Of the largest element: bfloat16 keeps eight bits."""


def on_gpus() -> dict[str, Any]:
    """All GPUs work at the same time, as in a job: that is when power and heat show."""
    import torch

    if not torch.cuda.is_available():
        return {"devices": [], "why": f"PyTorch {torch.__version__} sees no GPU"}
    devices = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    seconds, wrong = products(torch, devices, GPU_SIZE, GPU_PRODUCTS)
    flops = 2.0 * GPU_SIZE**3 * GPU_PRODUCTS
    return {
        "devices": [
            {"device": f"GPU {number}", "name": torch.cuda.get_device_name(device), "gpu": True,
             "type": "bfloat16", "tflops": flops / took / 1e12, "wrong": bad}
            for number, (device, took, bad) in enumerate(zip(devices, seconds, wrong, strict=True))
        ]
    }  # fmt: skip


def products(
    torch: Any, devices: list[Any], size: int, count: int
) -> tuple[list[float], list[int]]:
    """Seconds of `count` products on each device, and elements of the last that are wrong.

    Wrong is what differs from the first product, bit by bit, and rows that are not what the
    processor computes.
    """
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(size, size, generator=generator).bfloat16() for _ in range(2))
    held = [(a.to(device), b.to(device)) for device in devices]
    first = [x @ y for x, y in held]
    out = [each.clone() for each in first]
    for _ in range(WARMUP):
        for (x, y), into in zip(held, out, strict=True):
            torch.matmul(x, y, out=into)
    _wait(torch, devices)
    starts, ends = [], []
    for device, (x, y), into in zip(devices, held, out, strict=True):
        starts.append(_mark(torch, device))
        for _ in range(count):
            torch.matmul(x, y, out=into)
        ends.append(_mark(torch, device))
    _wait(torch, devices)
    wanted = a[:ROWS].double() @ b.double()
    wrong = []
    for before, into in zip(first, out, strict=True):
        far = (into[:ROWS].cpu().double() - wanted).abs() > TOLERANCE * wanted.abs().max()
        wrong.append(int((before != into).sum()) + int(far.sum()))
    return [_between(start, end) for start, end in zip(starts, ends, strict=True)], wrong


def _wait(torch: Any, devices: list[Any]) -> None:
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def _mark(torch: Any, device: Any) -> Any:
    if device.type != "cuda":
        return time.perf_counter()
    with torch.cuda.device(device):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
    return event


def _between(start: Any, end: Any) -> float:
    return float(end - start if isinstance(start, float) else start.elapsed_time(end) / 1e3)


def on_cpus(cpus: list[int]) -> dict[str, Any]:
    """All together; they are chosen before NumPy is loaded, whose BLAS counts them then."""
    os.sched_setaffinity(0, set(cpus))
    import numpy as np

    draw = np.random.default_rng(1)
    a, b = (draw.standard_normal((CPU_SIZE, CPU_SIZE), dtype=np.float32) for _ in range(2))
    first = a @ b
    out = np.empty_like(first)
    started_s = time.perf_counter()
    for _ in range(CPU_PRODUCTS):
        np.matmul(a, b, out=out)
    took_s = time.perf_counter() - started_s
    wanted = a[:ROWS].astype(np.float64) @ b.astype(np.float64)
    limit = TOLERANCE * np.abs(wanted).max()
    far = np.abs(out[:ROWS] - wanted) > limit
    # Threads may add in another order: what is compared bit by bit on a GPU is near enough here.
    moved = np.abs(out - first) > limit
    return {
        "name": f"{len(cpus)} CPUs {platform.machine()}", "gpu": False, "type": "float32",
        "tflops": 2.0 * CPU_SIZE**3 * CPU_PRODUCTS / took_s / 1e12,
        "wrong": int(moved.sum()) + int(far.sum()),
    }  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "gpu":
        print(json.dumps(on_gpus()))
    else:
        print(json.dumps(on_cpus([int(word) for word in sys.argv[2].split(",")])))
