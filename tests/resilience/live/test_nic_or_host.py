"""A job on a lab with agents: a NIC's death moves its connections, a host's death its rank."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip(
    "torch",
    reason="needs PyTorch (pip install '.[torch]'): a NIC's death under a job is NOT tested",
)

from bench.resilience import JOB, Run, differences, start
from tests.live import SYNTONY, LiveLab, eventually, live

from syntony.lab.jobs.torch_build import find_torch
from syntony.torch.suspicion import SILENT_NS

pytestmark = [pytest.mark.slow, pytest.mark.lab]
WORDS = ["--epochs", "1", "--batches", "200", "--features", "batchnorm,reduce"]
LAUNCH = Path(__file__).with_name("launch.py")
RANKS = 3
PLACES = {"h0": "0,1", "h1": "2"}
"""Ranks by host; the spare is on h2."""


@pytest.fixture
def lab() -> Iterator[LiveLab]:
    with live("resilience-nic", "--hosts", "3", agents=True) as found:
        yield found


class LabRun:
    """The job in the lab, the coordinator on h0."""

    def __init__(self, lab: LiveLab, place: Path) -> None:
        self._lab, self._place = lab, place
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        out, events, secret = place / "job", place / "job.events", place / "secret"
        out.mkdir()
        meet = [f"{lab.addresses(4)['h0/rail0']}:29600", "--secret", str(secret)]
        program = [str(JOB), "--out", str(out), *WORDS, "--pause-ms", "400"]
        launch = {
            host: [find_torch(), str(LAUNCH), str(RANKS), ranks, *program]
            for host, ranks in PLACES.items()
        }
        run = [*SYNTONY, "run", "--job", f"nic-{os.getpid()}"]
        self._start("h0", *run, "--listen", *meet, "--events", str(events), "--", *launch["h0"])
        eventually(secret.exists, "the secret")
        self._start("h1", *run, "--join", *meet, "--", *launch["h1"])
        self._start("h2", *SYNTONY, "run", "--join", *meet, "--spares", "1")
        self.run = Run(out, self._started["h0"], events)

    def _start(self, host: str, *words: str) -> None:
        with (self._place / f"{host}.out").open("wb") as output:
            self._started[host] = subprocess.Popen(
                self._lab.enter_argv(host, words), stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, env=os.environ | {"OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def steps(self) -> int:
        return min(len(self.run.lines(rank)) for rank in range(RANKS))

    def said(self) -> str:
        return "".join(
            f"{host}: {(self._place / f'{host}.out').read_text()[-1500:]}" for host in self._started
        )

    def kill(self) -> None:
        for each in self._started.values():
            each.kill()
            each.wait()


def test_a_nic_is_failed_over_and_a_host_replaced(tmp_path: Path, lab: LiveLab) -> None:
    base = start(tmp_path, "alone", WORDS, ranks=RANKS)
    base.must_end_well()
    job = LabRun(lab, tmp_path)
    try:
        eventually(
            lambda: bool(job.run.seen("spare-ready")) and job.steps() > 5,
            f"a spare is ready and the job trains\n{job.said()}", within_s=180,
        )  # fmt: skip
        lab.inject("link-down", "h1/rail0")
        began_ns, before = time.monotonic_ns(), job.steps()
        eventually(
            lambda: job.steps() > before + 20 and time.monotonic_ns() > began_ns + 2 * SILENT_NS,
            "the job trains on for longer than a silent host is waited for", within_s=120,
        )  # fmt: skip
        assert job.run.seen("lost") == [], job.said()
        assert len(job.run.seen("formed")) == 1, "all connections lived on"
        lab.inject("link-down", "h1/rail1")
        eventually(lambda: bool(job.run.seen("assigned")), "the rank is replaced", within_s=90)
        assert job.run.wait(300) == 0, job.said()
        assert differences(base, job.run, RANKS) == []
        (lost,) = job.run.seen("lost")
        assert (lost["rank"], lost["reason"]) == (2, "silent")
        assert all(each["equal"] for each in job.run.seen("digest"))
        assert job.run.seen("digest")[-1]["at_ns"] > job.run.seen("formed")[-1]["at_ns"]
    finally:
        job.kill()
