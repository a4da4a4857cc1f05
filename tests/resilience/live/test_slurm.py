"""A job that a real Slurm starts loses a rank: `srun` goes on, and the result is the same.

Debian's slurmctld, slurmd and munged, in two hosts of a lab.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip(
    "torch", reason="needs PyTorch (pip install '.[torch]'): jobs under srun are NOT tested"
)

from tests.deploy.slurm import _SBIN, PROGRAMS, Slurm
from tests.live import SYNTONY, live

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="needs root, for slurmd: jobs under srun are NOT tested"
    ),
    pytest.mark.skipif(
        any(shutil.which(program, path=_SBIN) is None for program in PROGRAMS),
        reason="needs slurmctld, slurmd, slurm-client and munge (Debian packages): jobs under "
        "srun are NOT tested",
    ),
]
RANKS = 4
SOURCE = """
import os, pathlib, time, torch, torch.distributed as d
rank = int(os.environ['SLURM_PROCID'])
d.init_process_group('gloo', init_method='tcp://127.0.0.1:1', rank=rank, world_size=4)
torch.manual_seed(rank)
m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
o = torch.optim.AdamW(m.parameters(), lr=0.1)
for i in range(40):
    time.sleep(0.1)
    m(torch.randn(3, 4)).square().sum().backward()
    mark = pathlib.Path(MARK)
    if i == 22 and rank == LOST and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)
    o.step()
    o.zero_grad()
print('sum', rank, m.module.weight.sum().item(), torch.rand(1).item(), flush=True)
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    place = tmp_path_factory.mktemp("slurm")
    (place / "state").mkdir()
    with live("resilience-slurm", "--hosts", "2") as lab:
        cluster = Slurm(lab, place)
        cluster.configure()
        for name in ("prolog", "healthcheck", "task-prolog"):
            cluster.wrapped(name, Path("/bin/true"))
        with cluster.daemons():
            yield cluster


@pytest.mark.parametrize("lost", [1, 3])
def test_a_rank_that_srun_started_is_replaced(slurm: Slurm, tmp_path: Path, lost: int) -> None:
    """On the coordinator's host, and on the other."""
    program, mark = tmp_path / "train.py", tmp_path / "mark"
    program.write_text(SOURCE.replace("MARK", repr(str(mark))).replace("LOST", str(lost)))
    address = slurm.lab.addresses(4)["h0/mgmt0"]
    listen = ["--listen", f"{address}:29600", "--secret", str(tmp_path / "secret")]
    srun = ["srun", "-N2", f"-n{RANKS}", "--ntasks-per-node=2", "--overcommit"]
    argv = [*SYNTONY, "run", "--spares", "1", *listen, "--", *srun, sys.executable, str(program)]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            slurm.argv("h0", *argv), capture_output=True, text=True, check=False, timeout=600,
            env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    disturbed = run()
    assert disturbed.returncode == 0, disturbed.stderr + slurm.log()
    assert f"rank {lost} replaced at step 22" in disturbed.stderr
    undisturbed = run()  # the mark is there
    assert undisturbed.returncode == 0, undisturbed.stderr
    assert "replaced" not in undisturbed.stderr
    sums = [sorted(line for line in each.stdout.splitlines() if line.startswith("sum"))
            for each in (disturbed, undisturbed)]  # fmt: skip
    assert len(sums[0]) == RANKS
    assert sums[0] == sums[1]
