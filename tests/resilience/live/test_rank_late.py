"""A job in the lab one of whose ranks is slow: one incident of its host, no rank replaced."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "torch",
    reason="needs PyTorch (pip install '.[torch]'): incidents of slow ranks are NOT tested live",
)

from tests.live import SYNTONY, LiveLab, eventually, live, syntony

from syntony.lab.jobs.torch_build import find_torch

pytestmark = [pytest.mark.slow, pytest.mark.lab]
NAME = "resilience-late"
SLOW_RANK = 1
TRAIN = f"""
import time, torch, torch.distributed as d
d.init_process_group('gloo')
torch.manual_seed(d.get_rank())
m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
o = torch.optim.AdamW(m.parameters(), lr=0.1)
for i in range(600):
    time.sleep(0.8 if d.get_rank() == {SLOW_RANK} else 0.3)
    m(torch.randn(3, 4)).square().sum().backward()
    o.step()
    o.zero_grad()
"""


@pytest.fixture
def lab() -> Iterator[LiveLab]:
    with live(NAME, "--hosts", "2", agents=True) as found:
        yield found


def incidents(rule: str) -> list[dict[str, Any]]:
    said = syntony("incidents", "list", "--lab", NAME, "--all", "--json").stdout
    found = json.loads(said)["incidents"] if said.strip() else []
    return [each for each in found if each["rule"] == rule]


def test_the_host_of_a_slow_rank_has_an_incident(tmp_path: Path, lab: LiveLab) -> None:
    program, output = tmp_path / "train.py", tmp_path / "out"
    program.write_text(TRAIN)
    ranks = [find_torch(), "-m", "torch.distributed.run", "--nproc-per-node", "3", str(program)]
    argv = [*SYNTONY, "run", "--job", "late", "--spares", "1", "--", *ranks]
    with output.open("wb") as said, subprocess.Popen(
        lab.enter_argv("h1", argv), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as job:  # fmt: skip
        try:
            eventually(
                lambda: bool(incidents("rank-late")) or job.poll() is not None,
                "an incident of the slow rank's host",
                within_s=240,
            )
            assert job.poll() is None, output.read_text()
            assert f"rank {SLOW_RANK}" in output.read_text()
            assert [each["subject"] for each in incidents("rank-late")] == ["h1"]
            assert incidents("rank-replaced") == []
            assert incidents("rank-not-replaced") == []
        finally:
            job.kill()
