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
import pytest
from tests.workload import stored_rows as store

from syntony.agent.operations import JobTelemetry
from syntony.agent.queue_pairs import FleetOffset
from syntony.errors import MissingError
from syntony.io.job_hook import hooked_path
from syntony.io.process_exits import exit_source
from syntony.lab.jobs.torch_build import find_torch
from syntony.model import S
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS, STEP
from syntony.workload import diagnose
from syntony.workload.recorded import SETTLE_NS, recorded
from syntony.workload.sentences import sentences

pytestmark = pytest.mark.slow
TRAIN, FAIL = (Path(__file__).with_name(name) for name in ("train_ddp.py", "fail.py"))
RANKS, STEPS, FAILING = 4, 40, 3
PATIENCE_S = 900.0
"""Only a hang takes longer."""


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


def add(rows: dict[str, dict[str, list[Any]]], jobs: JobTelemetry) -> None:
    for table, columns in jobs.rows(offset):
        kept = rows.setdefault(table.name, {name: [] for name in columns})
        for name, values in columns.items():
            kept[name] += np.asarray(values).tolist()


@pytest.mark.parametrize("launcher", [("-m", "torch.distributed.run", "--nproc-per-node=3"), ()])
def test_a_rank_that_fails_under_torchs_launchers_is_named(
    tmp_path: Path, launcher: tuple[str, ...]
) -> None:
    """As soon as torchrun, or `torch.multiprocessing.spawn`, ends the others because of it."""
    try:
        python = find_torch()
    except MissingError as error:
        pytest.skip(f"{error}: training that fails is NOT tested")
    if (source := exit_source()) is None:
        pytest.skip("how processes end is not visible here: training that fails is NOT tested")
    source.close()
    environ = os.environ | {
        "SYNTONY_AGENT": str(tmp_path / "agent"), "SYNTONY_JOB": "night",
        "PYTHONPATH": hooked_path({}), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    jobs, began_ns = JobTelemetry("h0", tmp_path), time.monotonic_ns()
    jobs.socket.start()
    rows: dict[str, dict[str, list[Any]]] = {}
    words = [python, *launcher, str(FAIL), f"file://{tmp_path / 'meet'}"]
    try:
        with subprocess.Popen(words, env=environ, stderr=subprocess.DEVNULL) as process:
            end_s = time.monotonic() + PATIENCE_S
            while process.poll() is None or sum(rows[JOB_PROCESS.name]["ended"]) < FAILING:
                assert time.monotonic() < end_s, rows
                add(rows, jobs)
                time.sleep(0.2)
    finally:
        jobs.close()
    end_ns = time.monotonic_ns()
    found = recorded("night", rows, began_ns, end_ns, end_ns + SETTLE_NS + S)
    text = sentences("night", diagnose(store.bundle(found)), end_ns - began_ns)[0]
    assert text.startswith("night stopped because rank 2 on h0 ended with exit status "), text


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
    assert {comm[:4] for comm in rows[COLLECTIVE.name]["comm"]} == {"ddp.", "rend"}
    assert set(rows[COLLECTIVE.name]["rank"]) == set(range(RANKS))
    found = recorded("night", rows, began_ns, end_ns, end_ns + SETTLE_NS + S)
    verdicts = diagnose(store.bundle(found)).verdicts
    assert named in [(each.fault, each.subjects) for each in verdicts]
    assert not any(each.fault == "straggler" and each.subjects != named[1] for each in verdicts)
