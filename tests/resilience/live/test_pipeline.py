"""A job in stages of a pipeline: an operator ends it with its state kept, and it goes on the same.

A killed rank ends it, and that is said at the start.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

pytest.importorskip(
    "torch", reason="needs PyTorch (pip install '.[torch]'): stages of a pipeline are NOT tested"
)

from bench.resilience import Run, differences, start
from tests.live import SYNTONY, eventually

from syntony.torch.orders import PRESERVED

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("programs") / "pipeline.py"


def said(run: Run) -> str:
    return run.out.with_suffix(".out").read_text()[-3000:]


def training(tmp_path: Path, name: str) -> Run:
    options = ["--checkpoint", str(tmp_path / "kept")]
    run = start(tmp_path, name, ["--pause-ms", "300"], options=options, job=PROGRAM)
    eventually(lambda: len(run.lines(3)) > 12, said(run), within_s=120)
    return run


def test_it_is_drained_with_its_state_kept_and_goes_on_from_there(tmp_path: Path) -> None:
    base = start(tmp_path, "alone", [], job=PROGRAM)
    base.must_end_well()
    run = training(tmp_path, "job")
    assert "ranks cannot be replaced, a lost one ends the job: they are stages" in said(run)
    drain = [*SYNTONY, "jobs", "drain", f"job-{os.getpid()}"]
    one = subprocess.run([*drain, "1"], capture_output=True, text=True, check=False)
    assert one.returncode != 0
    assert "ranks cannot be replaced: they are stages of a pipeline" in one.stderr
    host = subprocess.run(
        [*drain, "--host", "127.0.0.1", "--or-checkpoint"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert host.returncode == 0, host.stderr
    assert run.wait() == PRESERVED, said(run)
    (event,) = run.seen("checkpoint")
    again = start(tmp_path, "job", [], options=["--resume", event["path"]], job=PROGRAM)
    assert again.wait() == 0, said(again)
    assert differences(base, again) == []


def test_a_lost_rank_ends_it(tmp_path: Path) -> None:
    run = training(tmp_path, "lost")
    assert run.kill(1, "", signal.SIGKILL, 0) is not None
    assert run.wait() not in {0, PRESERVED}
    assert [each["reason"] for each in run.seen("gave-up")] == [
        "they are stages of a pipeline, whose messages are not repeated"
    ]
