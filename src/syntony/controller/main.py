"""The controller's process: its limits, its event loop."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from syntony.controller.api_hub import OpenApi
from syntony.controller.config import ControllerConfig
from syntony.controller.gateway_api import OpenGatewayApi
from syntony.controller.gateway_server import GatewayServer
from syntony.controller.server import Controller
from syntony.io import descriptors
from syntony.io.log_limit import bugs_logged
from syntony.store import Store

GC_THRESHOLDS = (50_000, 20, 100)
"""Thresholds of the collector of cycles: new objects since its last run, and runs before older
objects are examined. Messages of agents and plans have no cycles, and with Python's own thresholds
(700, 10, 10) a tenth of the processor time under 600 agents was spent examining them
(bench/ingest.py)."""
THREADS = 32
"""That wait for the store or for control state: one for each of the controller's loops, so that a
store that does not answer keeps none from control state. asyncio has six with two cores."""
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


class _NoPandas:
    """Finds no module for pandas."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"{name}: not used by the controller", name=name)


def leave_out_pandas() -> None:
    """Keep pyarrow from importing pandas (45 MB, 0.2 s on an idle core), which the embedded store's
    package brings along.

    pyarrow looks for it once, at the first conversion to an array, which here would be on the event
    loop; it has no option against that.
    """
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)


def run(config: ControllerConfig, store: Store, api: OpenApi | None) -> None:
    """A leader's main loop, see `Controller`; returns after SIGTERM or SIGINT."""
    _run(lambda: Controller(config, store, api).serve())


def run_gateway(config: ControllerConfig, store: Store, api: OpenGatewayApi | None) -> None:
    """A gateway's main loop, see `GatewayServer`; returns after SIGTERM or SIGINT."""
    _run(lambda: GatewayServer(config, store, api).serve())


def _run(serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
    import uvloop

    os.umask(0o077)
    descriptors.raise_limit()
    keep_freed()
    leave_out_pandas()
    collect_seldom()

    async def run() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        await serve()

    with bugs_logged():
        uvloop.run(run())
