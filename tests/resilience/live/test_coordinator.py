"""A training job whose coordinator is killed: during steps, and while a rank is replaced."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip(
    "torch", reason="needs PyTorch (pip install '.[torch]'): coordinators that die are NOT tested"
)

from bench.resilience import Run, differences, start, wait_ready
from tests.live import eventually

pytestmark = pytest.mark.slow
WORDS = ["--epochs", "1", "--batches", "80", "--features", "batchnorm,reduce"]


def kill_coordinator(run: Run) -> None:
    os.kill(run.seen("coordinator")[-1]["pid"], signal.SIGKILL)


@pytest.mark.parametrize("event", ["lost", "assigned", "plan"])
def test_a_coordinator_dies_in_steps_and_in_a_takeover(tmp_path: Path, event: str) -> None:
    base = start(tmp_path, "alone", WORDS)
    base.must_end_well()
    run = start(tmp_path, "faults", [*WORDS, "--pause-ms", "300"], spares=1)
    assert wait_ready(run, 0), run.out.with_suffix(".out").read_text()[-2000:]
    kill_coordinator(run)
    eventually(lambda: len(run.seen("formed")) > 1, "another coordinator connects all")
    before = len(run.seen(event))
    assert run.kill(1, "backward", signal.SIGKILL) is not None
    while len(run.seen(event)) == before:
        time.sleep(0.0005)
    kill_coordinator(run)
    assert run.wait() == 0, run.out.with_suffix(".out").read_text()[-2000:]
    assert differences(base, run) == []
    assert len(run.seen("coordinator")) == 3
    assert all(each["equal"] for each in run.seen("digest"))
    assert run.seen("digest")[-1]["at_ns"] > run.seen("formed")[-1]["at_ns"]
