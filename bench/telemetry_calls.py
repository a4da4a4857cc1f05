"""Processor time of a call of the PyTorch hook, warm: `PYTHON bench/telemetry_calls.py`.

PYTHON is an interpreter that has torch; nothing else is needed, and nobody reads the page.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1] / "src/syntony/job_hook"))
os.environ["SYNTONY_AGENT"] = "/nonexistent/agent"

import syntony_job_hook  # type: ignore[import-not-found]

hook = syntony_job_hook.install()

import torch  # noqa: E402 - the hook comes first
import torch.distributed as dist  # noqa: E402

CALLS, TIMES = 400, 5


def least_us(call: Callable[[], object]) -> float:
    """Of the mean call of several goes, µs of the thread."""
    best_ns = float("inf")
    for _ in range(TIMES):
        began_ns = time.thread_time_ns()
        for _ in range(CALLS):
            call()
        best_ns = min(best_ns, (time.thread_time_ns() - began_ns) / CALLS)
    return best_ns / 1e3


with tempfile.TemporaryDirectory() as place:
    dist.init_process_group("gloo", init_method=f"file://{place}/meet", rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ones = torch.ones(1)
    for _ in range(4):
        model(torch.ones(1, 8)).sum().backward()
        optimizer.step()
        dist.all_reduce(ones)
    begin = syntony_job_hook.BEGIN
    names = syntony_job_hook.NAMES.index
    pairs = syntony_job_hook.Pairs(hook)
    pairs.wrap(SimpleNamespace(isend=lambda *_: None), names)
    functional = syntony_job_hook.Functional(hook)
    functional.wrap(
        operators := SimpleNamespace(
            all_reduce=SimpleNamespace(_op=lambda *_: ones, default=SimpleNamespace(_op=None)),
            wait_tensor=SimpleNamespace(_op=lambda each: each, default=SimpleNamespace(_op=None)),
        ),
        names,
    )
    transfer = pairs._wrapped(lambda *_: None, names("isend"), "dst")

    def functionally() -> None:
        operators.wait_tensor._op(operators.all_reduce._op(ones, "sum", "0"))

    for name, call in (
        ("one record", lambda: hook.page.put(begin, 0, 0, 1, 2, 3, 4, 5)),
        ("a collective", lambda: hook._returned(hook._begin(0, ones, None), None)),
        ("a send", lambda: transfer(ones, 1)),
        ("functional", functionally),
        ("asking DDP", lambda: hook._reduced(hook.page, time.monotonic_ns())),
    ):
        print(f"{name:14} {least_us(call):6.2f} µs")
os._exit(0)
