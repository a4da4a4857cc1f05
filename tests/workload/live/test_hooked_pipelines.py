"""A real pipeline of PyTorch under the hook, by the agent's rows to a verdict: no lab."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.workload import stored_rows as store
from tests.workload.live.test_hooked_training import PATIENCE_S, add

from syntony.agent.operations import JobTelemetry
from syntony.errors import MissingError
from syntony.io.job_hook import hooked_path
from syntony.lab.jobs.torch_build import find_torch
from syntony.model import S
from syntony.wire.tables import COLLECTIVE, STEP
from syntony.workload import diagnose
from syntony.workload.recorded import SETTLE_NS, recorded

pytestmark = pytest.mark.slow
PIPELINE, RANKS = Path(__file__).with_name("pipeline.py"), 4


@pytest.mark.parametrize(
    ("what", "at", "steps", "fault"),
    [
        ("slow", 25, 60, "straggler"), ("stuck", 10, 40, "hang"), ("unsent", 10, 40, "hang"),
        ("dtensor", 10, 40, "hang"), ("absent", 0, 1, "hang"), ("elsewhere", 0, 1, "hang"),
    ],
)  # fmt: skip
def test_the_stage_at_fault_is_named(
    tmp_path: Path, what: str, at: int, steps: int, fault: str
) -> None:
    """It is stage 2; a hang is judged once nothing has come for as long as that takes."""
    try:
        python = find_torch()
    except MissingError as error:
        pytest.skip(f"{error}: pipelines that are watched are NOT tested")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = os.environ | {
        "SYNTONY_AGENT": str(tmp_path / "agent"), "SYNTONY_JOB": "night",
        "WORLD_SIZE": str(RANKS), "PYTHONPATH": hooked_path({}), "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    jobs, began_ns = JobTelemetry("h0", tmp_path), time.monotonic_ns()
    jobs.socket.start()
    rows: dict[str, dict[str, list[Any]]] = {}
    argv = [python, str(PIPELINE), what, str(at), str(steps)]
    quiet_s = 10.0 if at else 40.0
    due = {"slow": RANKS * (steps - 1)}.get(what, RANKS * max(0, at - 2))
    with ExitStack() as stack:
        stack.callback(jobs.close)
        for rank in range(RANKS):
            process = subprocess.Popen(
                argv, env=common | {"RANK": str(rank)}, stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)
        end_s, last_s, count = time.monotonic() + PATIENCE_S, time.monotonic(), 0
        while time.monotonic() - last_s < quiet_s or not count:
            assert time.monotonic() < end_s, {name: len(some) for name, some in rows.items()}
            add(rows, jobs)
            tables = (rows.get(each.name, {}).get("ts_ns", ()) for each in (COLLECTIVE, STEP))
            some, done = map(len, tables)
            if some + done != count or some < RANKS or done < due:
                count, last_s = some + done, time.monotonic()
            time.sleep(0.2)
        end_ns = time.monotonic_ns()
    found = recorded("night", rows, began_ns, end_ns, end_ns + SETTLE_NS + S)
    verdicts = diagnose(store.bundle(found)).verdicts
    assert [(each.fault, each.subjects) for each in verdicts] == [(fault, ("rank 2",))]
