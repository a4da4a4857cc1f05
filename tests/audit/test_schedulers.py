"""The scripts for Slurm: what drains a node, and what must not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy/slurm"
_SCONTROL = '#!/bin/sh\necho "$@" >> "$LOG"\n'


@pytest.mark.parametrize(
    ("code", "prolog", "drained"), [(0, 0, False), (1, 1, True), (2, 0, False)]
)
def test_only_a_failure_drains(code: int, prolog: int, drained: bool, tmp_path: Path) -> None:
    programs = {
        "syntony": f'#!/bin/sh\necho "h0/mlx5_0:1 be.act.rate: 1X"\nexit {code}\n',
        "scontrol": _SCONTROL,
        "sinfo": "#!/bin/sh\necho idle\n",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "log"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(log)}
    done = subprocess.run([DEPLOY / "prolog-audit.sh"], env=environment, check=False,
                          capture_output=True)  # fmt: skip
    assert done.returncode == prolog
    done = subprocess.run([DEPLOY / "healthcheck.sh"], env=environment, check=False,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0
    assert log.exists() is drained
    if drained:
        assert "state=DRAIN reason=syntony: h0/mlx5_0:1 be.act.rate: 1X" in log.read_text()


def test_a_node_that_is_drained_keeps_its_reason(tmp_path: Path) -> None:
    for name, text in (("syntony", "#!/bin/sh\nexit 1\n"), ("scontrol", _SCONTROL),
                       ("sinfo", "#!/bin/sh\necho drained\n")):  # fmt: skip
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(tmp_path / "log")}
    subprocess.run([DEPLOY / "healthcheck.sh"], env=environment, check=True, capture_output=True)
    assert not (tmp_path / "log").exists()
