"""Converts GPU rows of the store to those of a bundle. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

Row = dict[str, Any]
K = TypeVar("K")
V = TypeVar("V")
NONE = "none"
"""Throttle reason of a GPU that has none; empty means unknown."""
SLOT = ("pcie_gts", "pcie_max_gts", "pcie_width", "pcie_max_width")
NUMBERS = (
    "sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w", "ecc_errors", "nvlink_errors",
    "nvlink_bps", "pcie_bps", "pcie_replays", *SLOT,
)  # fmt: skip
"""Columns with the same name in both."""


def gpus_of_ranks(rows: Iterable[Row]) -> dict[int, str]:
    """Rank → UUID, for ranks that compute on one GPU only."""
    return only_values((each["rank"], each["gpu"]) for each in rows if each["rank"] >= 0)


def only_values(pairs: Iterable[tuple[K, V]]) -> dict[K, V]:
    """Key → its value, for keys with one value only."""
    found: defaultdict[K, set[V]] = defaultdict(set)
    for key, value in pairs:
        found[key].add(value)
    return {key: next(iter(values)) for key, values in found.items() if len(values) == 1}


def gpu_rows(rows: Iterable[Row], notes: list[str]) -> Iterator[Row]:
    """Rows of the table `hosts`: one per reading, even if several ranks compute on the GPU."""
    done = set()
    silent: dict[str, str] = {}
    for each in rows:
        key = each["gpu"], each["ts_ns"]
        if key in done:
            continue
        done.add(key)
        if each["error"]:
            silent[f"{each['gpu']} of {each['host']}"] = each["error"]
        throttle = each["throttle"]
        yield {
            "at_ns": each["ts_ns"],
            "window_ns": each["window_ns"],
            "host": each["host"],
            "gpu": each["gpu"],
            "throttle": None if not throttle else "" if throttle == NONE else throttle,
            "xid": each["xid"],
            **{name: known(each[name]) for name in NUMBERS},
        }
    notes += [f"GPU {gpu} could not be read: {why}" for gpu, why in sorted(silent.items())]


def known(value: float | None) -> float | None:
    """None for NaN."""
    return None if value is None or math.isnan(value) else value
