"""Ranks of a tensor-parallel job are killed and drained: all losses and weights are the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

pytest.importorskip(
    "torch", reason="needs PyTorch (pip install '.[torch]'): tensor-parallel jobs are NOT tested"
)

from bench.resilience import RANKS, Run, differences, start, wait_ready
from tests.live import SYNTONY, eventually

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("programs") / "tensor_parallel.py"


def said(run: Run) -> str:
    return run.out.with_suffix(".out").read_text()[-3000:]


@pytest.mark.parametrize("words", [[], ["--fsdp2"]], ids=["tensor", "fsdp2"])
def test_nothing_differs_after_a_kill_and_a_drain(tmp_path: Path, words: list[str]) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    choice = random.Random(seed)
    base = start(tmp_path, "alone", words, job=PROGRAM)
    base.must_end_well()
    run = start(tmp_path, "faults", [*words, "--pause-ms", "500"], spares=1, job=PROGRAM)
    assert wait_ready(run, 0), said(run)
    assert run.kill(choice.randrange(RANKS), "", signal.SIGKILL, choice.random()) is not None
    eventually(lambda: bool(run.seen("lost")), "the coordinator sees it")
    assert wait_ready(run, 1), said(run)
    drain = [*SYNTONY, "jobs", "drain", f"faults-{os.getpid()}", str(choice.randrange(RANKS))]
    done = subprocess.run(drain, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert run.wait() == 0, said(run)
    assert differences(base, run) == []
    assert len(run.seen("assigned")) == 2
    assert not run.seen("unprotected")
    assert not run.seen("hang"), "waiting for a replacement is none"
