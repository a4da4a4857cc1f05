"""A real `DistributedDataParallel` job under the hook, by the agent's rows to a verdict: no lab."""

from __future__ import annotations

import os
import subprocess
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from syntony.agent.operations import JobTelemetry
from syntony.agent.queue_pairs import FleetOffset
from syntony.errors import MissingError
from syntony.io.bundle_files import arrow_type, bundle_from_tables
from syntony.io.job_hook import hooked_path
from syntony.lab.jobs.torch_build import find_torch
from syntony.model import S
from syntony.wire.tables import COLLECTIVE, STEP
from syntony.workload import diagnose
from syntony.workload.recorded import SETTLE_NS, recorded
from syntony.workload.schema import TABLES

pytestmark = pytest.mark.slow
TRAIN = Path(__file__).with_name("train_ddp.py")
RANKS, STEPS = 4, 40
PATIENCE_S = 240.0


def offset() -> FleetOffset:
    return FleetOffset(time.monotonic_ns(), 0, 0)


def rows_of(jobs: JobTelemetry, place: Path, *words: str) -> dict[str, dict[str, list[Any]]]:
    """Everything that the agent's rows say of one run, as the store gives it."""
    try:
        python = find_torch()
    except MissingError as error:
        pytest.skip(f"{error}: training that is watched is NOT tested")
    common = os.environ | {
        "SYNTONY_AGENT": str(place / "agent"), "SYNTONY_JOB": "night", "WORLD_SIZE": str(RANKS),
        "PYTHONPATH": hooked_path({}), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    argv = [python, str(TRAIN), f"file://{place / 'meet'}", str(STEPS), *words]
    found: defaultdict[str, defaultdict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        ranks = []
        for rank in range(RANKS):
            process = subprocess.Popen(
                argv, env=common | {"RANK": str(rank)}, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            ranks.append(stack.enter_context(process))
            stack.callback(process.kill)
        end_s = time.monotonic() + PATIENCE_S
        while len(found[STEP.name]["ts_ns"]) < RANKS * (STEPS - 1):
            assert time.monotonic() < end_s, {name: len(some) for name, some in found.items()}
            for table, columns in jobs.rows(offset):
                for name, values in columns.items():
                    found[table.name][name] += np.asarray(values).tolist()
            time.sleep(0.2)
        for process in ranks:
            process.communicate("\n")
    return {name: dict(some) for name, some in found.items()}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("2", "0.3", "0"), ("straggler", ("rank 2",))),
        (("-1", "0", "0.3"), ("data-stall", ("night",))),
    ],
)
def test_what_slows_a_ddp_job_down_is_named(
    tmp_path: Path, words: tuple[str, ...], named: tuple[str, tuple[str, ...]]
) -> None:
    jobs, began_ns = JobTelemetry("h0", tmp_path), time.monotonic_ns()
    jobs.socket.start()
    try:
        rows = rows_of(jobs, tmp_path, *words)
    finally:
        jobs.close()
    end_ns = time.monotonic_ns()
    assert {comm[:4] for comm in rows[COLLECTIVE.name]["comm"]} == {"ddp."}
    assert set(rows[COLLECTIVE.name]["rank"]) == set(range(RANKS))
    found = recorded("night", rows, began_ns, end_ns, end_ns + SETTLE_NS + S)
    tables = {}
    for name, some in found.tables.items():
        kinds = {column.name: arrow_type(column.kind) for column in TABLES[name]}
        tables[name] = pa.table({key: pa.array(values, kinds[key]) for key, values in some.items()})
    verdicts = diagnose(bundle_from_tables(tables, found.manifest)).verdicts
    assert named in [(each.fault, each.subjects) for each in verdicts]
    assert not any(each.fault == "straggler" and each.subjects != named[1] for each in verdicts)
