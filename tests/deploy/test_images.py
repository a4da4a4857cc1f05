"""Container images, built and run by a user without rights from packages that are there.

SYNTONY_IMAGE_USER names a user with subordinate ids (/etc/subuid); the packages are as for
tests/deploy/test_packages.py, the base image is a root of tests/deploy/machines.py.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.deploy.machines import machine_root, run
from tests.deploy.test_packages import DEBS, SUITES

helm = pytest.importorskip(
    "tests.deploy.chart",
    reason="needs the extra [charts] (make dev; x86_64 only): the images are NOT tested",
)

USER = os.environ.get("SYNTONY_IMAGE_USER", "")
SUITE = os.environ.get("SUITE", "bookworm")
SCRIPT = Path(__file__).with_name("images.sh")


def render_pods(place: Path) -> Path:
    """What the chart gives each container: files, command, capabilities beside none."""
    objects = helm.rendered(helm.MINIMAL)
    for name, kind in (("controller", "Secret"), ("agent", "ConfigMap")):
        found = helm.one(objects, kind, f"syntony-{name}")
        (place / name).mkdir(parents=True)
        for file, text in (found.get("data") or found["stringData"]).items():
            (place / name / file).write_text(text)
    containers = helm.containers(objects)
    for name in ("controller/controller", "agent/reactor", "agent/agent"):
        container, file = containers[f"syntony-{name}"], name.partition("/")[2]
        (place / f"{file}.command").write_text("\n".join(container["command"]) + "\n")
        added = container["securityContext"]["capabilities"].get("add", [])
        (place / f"{file}.capabilities").write_text("".join(f",+{each.lower()}" for each in added))
    return place


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, for their base: the images are NOT tested"
)
@pytest.mark.skipif(
    shutil.which("buildah") is None,
    reason="needs buildah and uidmap (Debian packages): the images are NOT tested",
)
@pytest.mark.skipif(
    not USER,
    reason="needs a user with subordinate ids (SYNTONY_IMAGE_USER names one): the images are NOT "
    "tested",
)
def test_images_are_built_and_run_without_root() -> None:
    suffix = SUITES[SUITE].strip("+_")
    if not list(DEBS.glob(f"syntony-controller_*{suffix}*.deb")):
        pytest.skip(
            f"needs packages for {SUITE} in {DEBS} (make release): the images are NOT tested"
        )
    storage = tempfile.mkdtemp(prefix="syntony-images-", dir="/var/tmp")
    os.chown(storage, pwd.getpwnam(USER).pw_uid, -1)
    base = Path(storage) / "base.tar"
    run(
        "tar", "-C", str(machine_root(SUITE)), "--exclude=./dev", "--exclude=./proc",
        "--exclude=./sys", "--exclude=./var/cache/apt", "-cf", str(base), ".", timeout_s=600,
    )  # fmt: skip
    words = [SCRIPT, base, DEBS, suffix, storage, render_pods(Path(storage) / "chart")]
    try:
        done = subprocess.run(
            ["runuser", "-u", USER, "--", *map(str, words)],
            capture_output=True, text=True, timeout=3600, check=False, cwd="/",
        )  # fmt: skip
    finally:
        shutil.rmtree(storage, ignore_errors=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    print(done.stdout)
    assert "pods: well, with a read-only root" in done.stdout
    assert "built and run without root" in done.stdout
