"""Processes of jobs under the hook, and the rows that the agent makes of what they say."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from syntony.agent.operations import JobTelemetry
from syntony.agent.queue_pairs import FleetOffset
from syntony.io.job_hook import hooked_path
from syntony.model import S
from syntony.wire.arrow import encode_columns
from syntony.wire.tables import Table

HERE = Path(__file__).parent
AHEAD_NS = 1_000_000 * S
"""Of CLOCK_MONOTONIC, by our fleet time."""
PATIENCE_S = 300.0


def now() -> FleetOffset:
    return FleetOffset(time.monotonic_ns(), AHEAD_NS, 0)


def start(
    place: Path, *words: str, python: str = sys.executable, torch: str = "", **environ: str
) -> subprocess.Popen[str]:
    given = {
        "SYNTONY_AGENT": str(place / "agent"), "SYNTONY_JOB": "night", "RANK": "2",
        "WORLD_SIZE": "4", "PYTHONPATH": hooked_path({"PYTHONPATH": torch}),
    }  # fmt: skip
    return subprocess.Popen(
        [python, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | given | environ,
    )  # fmt: skip


def seq_of(row: dict[str, Any]) -> int:
    return int(row["seq"])


@contextmanager
def hooked(place: Path, mode: str, code: int = 0, **environ: str) -> Iterator[list[str]]:
    """A process under the hook that is ready: what it said until then."""
    fake = str(HERE / "fake_torch")
    with start(place, str(HERE / "hooked.py"), mode, torch=fake, **environ) as process:
        assert process.stdout is not None
        said: list[str] = []
        while (line := process.stdout.readline().strip()) != "ready":
            assert line
            said.append(line)
        try:
            yield said
        finally:
            process.communicate("end\n")
            assert process.returncode == code


def wait_for(jobs: JobTelemetry, processes: int) -> None:
    """Until so many are connected."""
    end_s = time.monotonic() + PATIENCE_S
    while jobs.socket.processes != processes:
        assert time.monotonic() < end_s
        time.sleep(0.01)


class Gathered:
    """Rows as they come, until there are enough."""

    def __init__(self, jobs: JobTelemetry) -> None:
        self._jobs = jobs
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def of(self, table: Table, count: int = 1) -> list[dict[str, Any]]:
        end_s = time.monotonic() + PATIENCE_S
        while len(self.rows.get(table.name, ())) < count:
            assert time.monotonic() < end_s, self.rows
            for each, columns in self._jobs.rows(now):
                assert encode_columns(each, columns)
                found = zip(*columns.values(), strict=True)
                some = self.rows.setdefault(each.name, [])
                some += [dict(zip(columns, row, strict=True)) for row in found]
            time.sleep(0.02)
        return self.rows[table.name]
