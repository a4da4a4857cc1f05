"""Memory settings of the controller's process: keep freed memory, collect cycles rarely."""

from __future__ import annotations

import ctypes
import gc

GC_THRESHOLDS = (50_000, 20, 100)
"""Thresholds of the collector of cycles: new objects since its last run, and runs before older
objects are examined. Messages of agents and plans have no cycles, and with Python's own thresholds
(700, 10, 10) a tenth of the processor time under 600 agents was spent examining them
(bench/ingest.py)."""
MMAP_THRESHOLD, TRIM_THRESHOLD = 64 << 20, 1 << 30
"""Larger allocations are mapped separately, and returned to the kernel when freed; at most this
many free bytes at the end of the heap are kept."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3), from malloc.h."""


def collect_seldom() -> None:
    """Call it once all modules are imported: they stay, and are not examined again."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def keep_freed() -> bool:
    """Keep freed memory for the next second, which needs as much (docs/decisions/0398).

    Returns:
        Whether the C library supports it; glibc does.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = ((_M_MMAP_THRESHOLD, MMAP_THRESHOLD), (_M_TRIM_THRESHOLD, TRIM_THRESHOLD))
    return {mallopt(name, value) for name, value in wanted} == {1}
