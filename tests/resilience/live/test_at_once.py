"""Two things go wrong at the same moment: the result is that of an undisturbed job all the same."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip(
    "torch",
    reason="needs PyTorch (pip install '.[torch]'): losses at the same moment are NOT tested",
)

from bench.resilience import Run, differences, start, wait_ready
from tests.live import SYNTONY, eventually

from syntony.torch.membership import FORMING

pytestmark = pytest.mark.slow
WORDS = ["--epochs", "2", "--batches", "40", "--features", "batchnorm,reduce,plateau"]


def two_ranks(run: Run) -> None:
    """Rank 0, which serves the store in which the others meet, and another within 50 ms."""
    assert run.kill(0, "backward", signal.SIGKILL) is not None
    time.sleep(0.03)
    pid = run.pid(2)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(run.seen("lost")) == 2, "both are lost")


def spare_stops(run: Run) -> None:
    """The spare is stopped while it is being put in place."""
    assert run.kill(1, "forward", signal.SIGKILL) is not None
    while run.running() and not run.seen("assigned"):
        time.sleep(0.001)
    pid = run.pid(1)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: len(run.seen("lost")) == 2, "it is lost as well")
    assert run.seen("lost")[1]["reason"] == "stopped"


def drained_and_dead(run: Run) -> None:
    """An operator drains the rank that dies: one of the two is first."""
    pid = run.pid(2)
    assert pid is not None
    command = [*SYNTONY, "jobs", "drain", f"faults-{os.getpid()}", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as asking:
        time.sleep(0.25)  # the command starts
        with contextlib.suppress(ProcessLookupError):  # the drain was first
            os.kill(pid, signal.SIGKILL)
        _, said = asking.communicate()
    assert asking.returncode == 0 or FORMING in said
    eventually(lambda: bool(run.seen("lost")), "it is lost")
    assert {each["rank"] for each in run.seen("lost")} == {2}


@pytest.mark.parametrize("strike", [two_ranks, spare_stops, drained_and_dead])
def test_the_result_is_the_same(tmp_path: Path, strike: Callable[[Run], None]) -> None:
    base = start(tmp_path, "alone", WORDS)
    base.must_end_well()
    run = start(tmp_path, "faults", [*WORDS, "--pause-ms", "300"], spares=2)
    assert wait_ready(run, 0, spares=2), run.out.with_suffix(".out").read_text()[-2000:]
    strike(run)
    assert run.wait() == 0, run.out.with_suffix(".out").read_text()[-2000:]
    assert differences(base, run) == []
    assert len(run.seen("assigned")) == len(run.seen("lost"))
    assert all(each["equal"] for each in run.seen("digest"))
