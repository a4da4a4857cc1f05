"""The Debian packages in bare roots: installed, upgraded, rolled back, purged without a trace.

The packages are those in dist/, or in SYNTONY_DEBS (`make release`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.deploy.daemons import DEPLOY

DEBS = Path(os.environ.get("SYNTONY_DEBS", DEPLOY.parent / "dist"))
SUITES = {"bookworm": "+deb12_", "trixie": "+deb13_"}


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, for a bare system: the packages are NOT installed"
)
@pytest.mark.skipif(
    shutil.which("debootstrap") is None,
    reason="needs debootstrap (Debian package): the packages are NOT installed",
)
@pytest.mark.parametrize("suite", SUITES)
def test_a_life_of_the_packages(suite: str, tmp_path: Path) -> None:
    found = sorted(DEBS.glob(f"syntony-*{SUITES[suite]}*.deb"))
    if not found:
        pytest.skip(f"needs packages for {suite} in {DEBS} (make release): they are NOT installed")
    assert len(found) == 3
    given = tmp_path / "given"
    given.mkdir()
    for deb in found:
        shutil.copy(deb, given)
    done = subprocess.run(
        [DEPLOY / "try-bare-root.sh", suite, "root", "tests/deploy/packages_life.sh"],
        env={**os.environ, "GIVE": str(given)},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "removed without a trace" in done.stdout
