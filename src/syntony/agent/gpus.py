"""The activity of a host's GPUs, as rows on fleet time, with the ranks that use them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from syntony.agent.queue_pairs import FleetOffset
from syntony.io.gpu_process import GpuProcess
from syntony.mesh.stats import Columns
from syntony.model import S
from syntony.wire.gpus import GpuReading, GpuSnapshot
from syntony.wire.tables import GPU


class JobMember(NamedTuple):
    """The job and rank of a process that uses GPUs."""

    job: str
    rank: int
    """-1: not known."""


class GpuTelemetry:
    """Reads the host's GPUs and makes rows of it, with the ranks that use them.

    One per agent, used by its loop.
    """

    def __init__(self, host: str, process: GpuProcess) -> None:
        self._host = host
        self.process = process
        self._before: dict[str, tuple[int, GpuReading]] = {}
        """When each GPU was last read, CLOCK_MONOTONIC, and the values."""

    def rows(self, offset: FleetOffset | None, members: Mapping[int, JobMember]) -> Columns | None:
        """Rows of readings since the last call; None: nothing, or no fleet time. Raises
        `MissingError`, `WireError`: the drivers are no longer read."""
        snapshots = self.process.read()
        found = [row for snapshot in snapshots for row in self._rows(snapshot, members)]
        if not found or offset is None:
            return None
        columns: dict[str, Any] = {}
        for column in GPU.columns:
            values = [row[column.name] for row in found]
            columns[column.name] = (
                values if column.type == "string" else np.array(values, column.type)
            )
        columns["ts_ns"] += offset.offset_ns
        return columns

    def _rows(
        self, snapshot: GpuSnapshot, members: Mapping[int, JobMember]
    ) -> Iterator[dict[str, Any]]:
        """One row for each process of a job on each GPU, or one for the GPU."""
        for each in snapshot.gpus:
            at_ns, before = self._before.get(each.gpu, (snapshot.at_ns, None))
            self._before[each.gpu] = snapshot.at_ns, each
            if before is None:
                continue  # no rates can be computed yet
            row = self._row(each, before, at_ns, snapshot.at_ns - at_ns)
            owners = [(pid, members[pid]) for pid in each.pids if pid in members]
            for pid, member in owners or [(0, JobMember("", -1))]:
                yield row | {"pid": pid, "job": member.job, "rank": member.rank}

    def _row(
        self, now: GpuReading, before: GpuReading, at_ns: int, window_ns: int
    ) -> dict[str, Any]:
        link_bytes = _increase(now.nvlink_bytes, before.nvlink_bytes)
        return {
            "ts_ns": at_ns,
            "window_ns": window_ns,
            "host": self._host,
            "gpu": now.gpu,
            "bus": now.bus,
            "model": now.model,
            "error": now.error,
            "sm_clock_mhz": _known(now.sm_clock_mhz),
            "memory_clock_mhz": _known(now.memory_clock_mhz),
            "throttle": "" if now.throttle is None else ",".join(now.throttle) or "none",
            "temperature_c": _known(now.temperature_c),
            "power_w": _known(now.power_w),
            "ecc_errors": _increase(now.ecc_errors, before.ecc_errors),
            "xid": now.xid,
            "nvlink_errors": _increase(now.nvlink_errors, before.nvlink_errors),
            "nvlink_bps": 8 * link_bytes * S / max(1, window_ns),
            "pcie_gts": _known(now.pcie_gts),
            "pcie_max_gts": _known(now.pcie_max_gts),
            "pcie_width": _known(now.pcie_width),
            "pcie_max_width": _known(now.pcie_max_width),
            "pcie_replays": _increase(now.pcie_replays, before.pcie_replays),
            "pcie_bps": 8 * _known(now.pcie_bytes_per_s),
        }


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def _increase(now: int | None, before: int | None) -> float:
    """Increase of a counter; one that was reset has counted from 0 since. NaN: unknown."""
    if now is None or before is None:
        return math.nan
    return float(now - before if now >= before else now)
