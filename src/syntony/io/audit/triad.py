"""STREAM's triad (a = b + s·c) on the processors of one NUMA node: memory bandwidth.

McCalpin's rule holds: arrays far larger than the caches, the best of several rounds, two reads and
one write of eight bytes counted per element. NumPy takes two passes over `a` for it, so figures are
below those of the C program; they are compared with those of other hosts, not with a data sheet.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import numpy as np

from syntony.io.cores import parse_cpus
from syntony.model import S

ELEMENTS = 8 << 20
"""64 MiB an array, three of them, for each process."""
ROUNDS = 5
_NODES = Path("/sys/devices/system/node")


def nodes() -> dict[int, list[int]]:
    """NUMA node → the processors of it that we may use; one node 0 where sysfs lists none."""
    allowed = os.sched_getaffinity(0)
    found = {}
    for path in sorted(_NODES.glob("node[0-9]*")):
        text = (path / "cpulist").read_text(encoding="ascii")
        mine = [cpu for cpu in parse_cpus(text) if cpu in allowed]
        if mine:
            found[int(path.name.removeprefix("node"))] = mine
    return found or {0: sorted(allowed)}


def triad(cpus: list[int], elements: int = ELEMENTS) -> float:
    """GB/s of all these processors together, each with its own arrays."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(cpus))
    results: multiprocessing.Queue[float] = context.Queue()
    workers = [
        context.Process(target=_work, args=(cpu, elements, barrier, results), daemon=True)
        for cpu in cpus
    ]
    for worker in workers:
        worker.start()
    seconds = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    return len(cpus) * 24 * elements / max(seconds) / 1e9


def _work(cpu: int, elements: int, barrier: object, results: object) -> None:
    # First touched after it is bound, so that its memory is its node's.
    os.sched_setaffinity(0, {cpu})
    b, c = np.ones(elements), np.full(elements, 2.0)
    a = np.empty(elements)
    best_ns = 1 << 62
    barrier.wait()  # type: ignore[attr-defined]
    for _ in range(ROUNDS):
        started_ns = time.monotonic_ns()
        np.multiply(c, 3.0, out=a)
        np.add(a, b, out=a)
        best_ns = min(best_ns, time.monotonic_ns() - started_ns)
    results.put(best_ns / S)  # type: ignore[attr-defined]
