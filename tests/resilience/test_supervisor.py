"""A coordinator that is stopped makes way for another."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.live import SYNTONY, eventually

from syntony.torch import supervisor


@pytest.mark.parametrize("stopped", [True, False])
def test_a_stopped_coordinator_is_killed_a_slow_one_is_not(stopped: bool) -> None:
    code = "import time; time.sleep(5)"
    with subprocess.Popen([sys.executable, "-S", "-c", code]) as process:
        if stopped:
            process.send_signal(signal.SIGSTOP)
        found = supervisor.ended(process)
    assert found == (-signal.SIGKILL if stopped else 0)


RANK = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(90)
"""


def test_ranks_of_a_launcher_that_is_killed_end(tmp_path: Path) -> None:
    """A launcher that starts one rank and is killed: it cannot end it."""
    pid, train, launcher = tmp_path / "pid", tmp_path / "train.py", tmp_path / "launch.py"
    train.write_text(RANK)
    launcher.write_text(
        "import os, subprocess, sys, time\n"
        "environ = os.environ | {'RANK': '0', 'WORLD_SIZE': '1'}\n"
        f"subprocess.Popen([sys.executable, {str(train)!r}, {str(pid)!r}], env=environ)\n"
        f"while not os.path.exists({str(pid)!r}): time.sleep(0.05)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    run = [*SYNTONY, "run", "--spares", "0", "--checkpoint", str(tmp_path / "kept"), "--"]
    done = subprocess.run(
        [*run, sys.executable, "-S", str(launcher)], capture_output=True, text=True, timeout=600,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 128 + signal.SIGKILL
    assert "the launcher was killed: its ranks are ended" in done.stderr
    process = int(pid.read_text())
    eventually(lambda: not Path(f"/proc/{process}").exists(), "the rank ends")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["true"], 0, "not protected: no rank of a training job ran in this command"),
        (["no-such-program"], 127, "error: no-such-program: no such command"),
    ],
)
def test_a_command_without_ranks_says_so_at_its_end(words: list[str], code: int, said: str) -> None:
    done = subprocess.run(
        [*SYNTONY, "run", "--spares", "1", "--", *words], capture_output=True, text=True,
        timeout=300, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stderr.splitlines()[-1].startswith(f"syntony: {said}")
