"""Runs a function in a process of its own, for what changes PyTorch or the environment."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def apart(function: Callable[..., Any], *args: Any) -> Any:
    """What it returns; function, arguments and answer are pickled."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()
