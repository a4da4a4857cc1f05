"""However an audit over SSH ends, one line a host, and nothing stays: no tree, no ssh."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.live import eventually

_SSH = """#!/bin/sh
# Stands in for ssh: the last two words are the host and what it runs.
while [ $# -gt 2 ]; do shift; done
echo $$ >> "$SSH_PIDS"
case "$1" in
  hangs*) exec sleep 600;;
  proxied*) sleep 600 & wait;;
  drips*) head -c 64 /dev/zero; exec sleep 600;;
esac
exec $2
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(_SSH)
    (tmp_path / "bin/ssh").chmod(0o755)
    (tmp_path / "tmp").mkdir()
    return {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "TMPDIR": str(tmp_path / "tmp"),
        "SSH_PIDS": str(tmp_path / "pids"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


def _start(environment: dict[str, str], hosts: str, deadline: str = "4s") -> subprocess.Popen[str]:
    words = ["audit", "run", "--hosts", hosts, "--skip", "4", "--skip", "5"]
    words += ["--deadline", deadline]
    return subprocess.Popen(
        # Anyone who runs the tests in the background ignores SIGINT, and so would the audit.
        ["/usr/bin/env", "--default-signal=INT", sys.executable, "-m", "syntony", *words],
        env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def _nothing_left(tmp_path: Path) -> None:
    assert list((tmp_path / "tmp").glob("syntony-audit-*")) == []
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    eventually(lambda: not any(map(_runs, pids)), f"the end of {pids}")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_hosts_that_do_not_answer_are_one_line_each(
    environment: dict[str, str], tmp_path: Path
) -> None:
    audit = _start(environment, "hangs[1-3],proxied,drips,good")
    out, err = audit.communicate(timeout=600)
    assert "Traceback" not in out + err
    assert "Exception" not in out + err
    assert out.count("no answer") >= 1
    assert audit.returncode == 2
    _nothing_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_audit_that_is_stopped(
    number: signal.Signals, environment: dict[str, str], tmp_path: Path
) -> None:
    audit = _start(environment, "hangs[1-2],proxied,good[1-4]", deadline="60s")
    pids = tmp_path / "pids"
    eventually(lambda: pids.exists() and pids.read_text().count("\n") >= 3, "three asked")
    time.sleep(0.5)
    audit.send_signal(number)
    out, err = audit.communicate(timeout=600)
    assert "Traceback" not in out + err
    assert audit.returncode == 128 + number
    assert len(err.split("\n")) <= 3  # an empty line (click's) and one that says so
    _nothing_left(tmp_path)
