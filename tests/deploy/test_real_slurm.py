"""Debian's Slurm on the hosts of a lab, with the scripts that we ship: drain, resume, failover.

Cables are broken at the switch's end, as a pulled cable is: the host's port loses its carrier.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deploy.daemons import DEPLOY
from tests.deploy.slurm import _SBIN, PROGRAMS, Slurm
from tests.live import eventually, live, syntony

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="needs root, for slurmd: Slurm's hooks are NOT tested with Slurm"
    ),
    pytest.mark.skipif(
        any(shutil.which(program, path=_SBIN) is None for program in PROGRAMS),
        reason="needs slurmctld, slurmd, slurm-client and munge (Debian packages): Slurm's hooks "
        "are NOT tested with Slurm",
    ),
]
SCRIPTS = DEPLOY / "slurm"
LONG_S = 180.0


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    place = tmp_path_factory.mktemp("slurm")
    (place / "state").mkdir()
    with live("slurm", "--hosts", "2", agents=True) as lab:
        eventually(lab.controller_socket.exists, "a controller", within_s=LONG_S)
        cluster = Slurm(lab, place)
        cluster.configure()
        cluster.wrapped("prolog", SCRIPTS / "prolog-audit.sh")
        # Of a whole audit, what this test can break: the machine's disk is not the lab's.
        cluster.wrapped("healthcheck", SCRIPTS / "healthcheck.sh", "--check", "fe.iface")
        cluster.wrapped("task-prolog", SCRIPTS / "task-prolog.sh")
        with cluster.daemons():
            yield cluster


@pytest.fixture
def no_health_check(slurm: Slurm) -> Iterator[None]:
    switch = slurm.place / "healthcheck.off"
    switch.touch()
    yield
    switch.unlink()


def broken(slurm: Slurm, nic: str) -> None:
    slurm.lab.inject("link-down", nic, {"side": "leaf"})


def mended(slurm: Slurm) -> None:
    slurm.lab.clear()
    for host in slurm.hosts:
        if slurm.node(host).drained:
            slurm.run("scontrol", "update", f"nodename={host}", "state=RESUME")
    eventually(slurm.idle, "idle nodes", within_s=LONG_S)


def test_the_health_check_drains_and_resumes(slurm: Slurm) -> None:
    done = slurm.run("srun", "-N2", "hostname")
    assert done.returncode == 0, done.stderr + slurm.log()
    broken(slurm, "h1/rail0")
    eventually(lambda: slurm.node("h1").drained, "h1 drained", within_s=LONG_S)
    assert slurm.node("h1").reason.startswith("syntony audit: ")
    assert "rail0 fe.iface: " in slurm.node("h1").reason
    assert not slurm.node("h0").drained
    slurm.lab.clear()
    eventually(slurm.idle, "h1 idle again", within_s=LONG_S)


def test_somebody_elses_drain_stays(slurm: Slurm) -> None:
    slurm.run("scontrol", "update", "nodename=h1", "state=DRAIN", "reason=new memory")
    runs = slurm.place / "healthcheck.runs"
    before = runs.read_text().count("h1")
    eventually(lambda: runs.read_text().count("h1") > before + 2, "health checks", within_s=LONG_S)
    assert slurm.node("h1").reason == "new memory"
    mended(slurm)


@pytest.mark.usefixtures("no_health_check")
def test_the_prolog_drains_with_the_reason_and_the_job_does_not_start(slurm: Slurm) -> None:
    broken(slurm, "h1/rail0")
    done = slurm.run("srun", "-w", "h1", "--immediate=30", "echo", "started")
    assert "started" not in done.stdout
    eventually(lambda: slurm.node("h1").drained, "h1 drained", within_s=LONG_S)
    assert "rail0 fe.iface: " in slurm.node("h1").reason
    slurm.run("scancel", "--state=PENDING")
    mended(slurm)
    assert slurm.run("srun", "-w", "h1", "echo", "started").stdout == "started\n"
    # srun returns before the epilog of its job has looked at the NICs, which the next test breaks.
    eventually(lambda: not slurm.run("squeue", "-h").stdout, "ended jobs", within_s=LONG_S)


@pytest.mark.usefixtures("no_health_check")
def test_an_incident_drains_its_host_until_it_is_over(slurm: Slurm) -> None:
    sync = [sys.executable, str(SCRIPTS / "drain-by-incidents.py"), "--", "--controller",
            f"unix:{slurm.lab.controller_socket}"]  # fmt: skip

    def h1_is(drained: bool) -> bool:
        done = slurm.run(*sync)
        assert done.returncode == 0, done.stderr
        return slurm.node("h1").drained is drained

    broken(slurm, "h1/rail0")
    eventually(lambda: h1_is(True), "h1 drained by its incident", within_s=LONG_S)
    reason = slurm.node("h1").reason
    assert reason.startswith("syntony incident ")
    assert "h1/rail0" in reason
    assert not slurm.node("h0").drained
    slurm.lab.clear()
    eventually(lambda: h1_is(False), "h1 resumed after its incident", within_s=LONG_S)


@pytest.mark.usefixtures("no_health_check")
def test_a_job_goes_on_when_its_nic_dies(slurm: Slurm, tmp_path: Path) -> None:
    """Nothing of the job is ours: the task prolog sets the environment."""
    progress, enough = tmp_path / "steps", tmp_path / "steps.enough"
    job = Path(__file__).with_name("steps_job.py")
    address = slurm.lab.addresses(4)["h1/rail0"]
    # Into the user namespace of the lab: its agents cannot look into processes of another one.
    enter = ["nsenter", "-t", "1", "--user", "--preserve-credentials"]
    words = [*enter, sys.executable, str(job), address, str(progress)]
    # The epilog would drain h0, as it should: that is not asked here.
    (slurm.place / "prolog.off").touch()

    def steps() -> int:
        return len(progress.read_text().splitlines()) if progress.exists() else 0

    def managed() -> bool:
        return '"slurm-' in syntony("paths", "--lab", slurm.lab.name, "--json").stdout

    process = subprocess.Popen(
        slurm.argv("h0", "srun", "-N2", *words),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        eventually(lambda: steps() > 20, f"20 steps: {slurm.log()}", within_s=LONG_S)
        eventually(managed, "a job by the name of slurm-ID", within_s=LONG_S)
        broken(slurm, "h0/rail0")
        before = steps()
        eventually(lambda: steps() > before + 100, "steps without the NIC", within_s=LONG_S)
        enough.touch()
        output, _ = process.communicate(timeout=LONG_S)
    finally:
        process.kill()
        (slurm.place / "prolog.off").unlink()
    assert process.returncode == 0, output
    mended(slurm)
