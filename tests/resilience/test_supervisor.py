"""A coordinator that is stopped makes way for another."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from syntony.torch import supervisor


@pytest.mark.parametrize("stopped", [True, False])
def test_a_stopped_coordinator_is_killed_a_slow_one_is_not(stopped: bool) -> None:
    code = "import time; time.sleep(5)"
    with subprocess.Popen([sys.executable, "-S", "-c", code]) as process:
        if stopped:
            process.send_signal(signal.SIGSTOP)
        found = supervisor.ended(process)
    assert found == (-signal.SIGKILL if stopped else 0)
