"""The scripts for Slurm: what drains a node, and what must not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy/slurm"
_SCONTROL = '#!/bin/sh\necho "$@" >> "$LOG"\n'


@pytest.mark.parametrize(
    ("code", "prolog", "drained"), [(0, 0, False), (1, 1, True), (2, 0, False), (3, 0, False)]
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
        assert "state=DRAIN reason=syntony audit: h0/mlx5_0:1 be.act.rate: 1X" in log.read_text()


@pytest.mark.skipif(
    shutil.which("shellcheck") is None,
    reason="needs shellcheck (sh deploy/system-packages.sh --test): scripts for schedulers are "
    "NOT checked",
)
@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_sound(script: Path) -> None:
    done = subprocess.run(
        ["shellcheck", "-x", script],
        cwd=DEPLOY.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stdout


def test_the_real_audit_drains_a_node_that_is_not_as_specified(tmp_path: Path) -> None:
    """The health check with the program itself: only Slurm's own commands stand in."""
    spec = tmp_path / "spec.toml"
    programs = {"scontrol": _SCONTROL, "sinfo": "#!/bin/sh\necho idle\n"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "syntony").symlink_to(Path(sys.executable).parent / "syntony")
    log = tmp_path / "log"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(log), "SYNTONY_SPEC": str(spec),
                   "XDG_STATE_HOME": str(tmp_path)}  # fmt: skip
    spec.write_text('[roles.all]\nhosts = ["*"]\n[roles.all.expect]\n"sw.os" = "another"\n')
    subprocess.run([DEPLOY / "healthcheck.sh"], env=environment, check=True, capture_output=True)
    assert "state=DRAIN" in log.read_text()
    log.unlink()
    spec.write_text("[roles.all\n")  # a bad spec drains nobody
    done = subprocess.run([DEPLOY / "healthcheck.sh"], env=environment, check=True,
                          capture_output=True, text=True)  # fmt: skip
    assert not log.exists()
    assert "could not run" in done.stderr


def test_a_node_that_is_drained_keeps_its_reason(tmp_path: Path) -> None:
    for name, text in (("syntony", "#!/bin/sh\nexit 1\n"), ("scontrol", _SCONTROL),
                       ("sinfo", "#!/bin/sh\necho drained\n")):  # fmt: skip
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(tmp_path / "log")}
    subprocess.run([DEPLOY / "healthcheck.sh"], env=environment, check=True, capture_output=True)
    assert not (tmp_path / "log").exists()


def test_what_is_unknown_drains_where_operators_want_it(tmp_path: Path) -> None:
    program = tmp_path / "syntony"
    program.write_text("#!/bin/sh\necho 'gpu001 node.nvlink: no answer'\nexit 3\n")
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    for wanted, code in (("0", 0), ("1", 1)):
        done = subprocess.run([DEPLOY / "prolog-audit.sh"], check=False, capture_output=True,
                              env={**environment, "SYNTONY_DRAIN_UNKNOWN": wanted},
                              text=True)  # fmt: skip
        assert done.returncode == code
        assert "gpu001 node.nvlink: no answer" in done.stderr


@pytest.mark.slow
def test_a_gpu_tool_that_hangs_fails_the_real_prolog(tmp_path: Path) -> None:
    """The program itself, with an nvidia-smi that never ends."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "syntony").symlink_to(Path(sys.executable).parent / "syntony")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [tmp_path / "syntony", "audit", "run", "--local", "--exit-style", "slurm", "--deadline",
         "8s", "--check", "node.gpu-count", "--json"],
        env=environment, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert "hangs" in done.stdout
