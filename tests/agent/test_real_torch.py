"""What the hook records of a real PyTorch."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.agent.hooked_processes import Gathered, seq_of, start

from syntony.agent.operations import JobTelemetry
from syntony.errors import MissingError
from syntony.lab.jobs.torch_build import find_torch
from syntony.model import MS
from syntony.wire.tables import COLLECTIVE, STEP


@pytest.fixture
def python() -> str:
    """An interpreter with PyTorch."""
    try:
        return find_torch()
    except MissingError as error:
        pytest.skip(f"{error}: its rows of a job are NOT tested")


def collectives(gathered: Gathered, count: int) -> list[dict[str, Any]]:
    """Rows until there are so many of collectives; how ranks met is in others."""
    while True:
        rows = gathered.of(COLLECTIVE, len(gathered.rows.get(COLLECTIVE.name, ())) + 1)
        found = [row for row in rows if not row["comm"].startswith("rendezvous ")]
        if len(found) >= count:
            return found


def test_real_torch_tells_its_collectives(jobs: JobTelemetry, tmp_path: Path, python: str) -> None:
    """gloo with one rank: the functions of a real torch are wrapped, and still work."""
    script = """
import torch, torch.distributed as dist, sys
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
ones = torch.ones(8)
dist.all_reduce(ones)
dist.all_gather([torch.empty(8)], ones)
dist.all_gather_into_tensor(torch.empty(8), ones)
dist.all_reduce(ones, async_op=True).wait()
dist.barrier()
layer = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(torch.ones(3, 1)):
    layer(batch).sum().backward()
    optimizer.step()
assert ones.tolist() == [1.0] * 8
print("ready", flush=True)
sys.stdin.readline()
"""
    with start(tmp_path, "-c", script, python=python, RANK="0", WORLD_SIZE="1") as process:
        gathered = Gathered(jobs)
        rows = sorted(collectives(gathered, 5), key=seq_of)
        steps = gathered.of(STEP, 2)
        process.communicate("\n")
    reported = [(row["op"], row["bytes"]) for row in rows]
    assert reported == [
        ("all_reduce", 32), ("all_gather", 32), ("all_gather", 32), ("all_reduce", 32),
        ("barrier", 0),
    ]  # fmt: skip
    assert all(row["done_ns"] > row["ts_ns"] for row in rows)
    assert [step["step"] for step in steps] == [1, 2]


def test_real_torch_tells_the_backward_passes_of_ddp(
    jobs: JobTelemetry, tmp_path: Path, python: str
) -> None:
    """Two ranks; rank 1 is late by 50 ms in each pass, which its records say."""
    script = """
import os, sys, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=sys.argv[1], rank=rank, world_size=2)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    loss = model(torch.ones(1, 64)).sum()
    time.sleep(0.05 * rank)
    loss.backward()
    optimizer.step()
print("ready", flush=True)
sys.stdin.readline()
"""
    meet = f"file://{tmp_path / 'meet'}"
    words = ("-c", script, meet)
    with (
        start(tmp_path, *words, python=python, RANK="0", WORLD_SIZE="2") as one,
        start(tmp_path, *words, python=python, RANK="1", WORLD_SIZE="2") as two,
    ):
        gathered = Gathered(jobs)
        rows = collectives(gathered, 58)
        for each in (one, two):
            each.communicate("\n")
    begun = {(row["rank"], row["seq"]): row["ts_ns"] for row in rows if row["comm"][:4] == "ddp."}
    assert len(begun) == len(rows)
    assert set(begun) <= {(rank, seq) for rank in (0, 1) for seq in range(1, 30)}
    both = [seq for seq in range(1, 30) if (0, seq) in begun and (1, seq) in begun]
    assert statistics.median(begun[1, seq] - begun[0, seq] for seq in both) > 40 * MS
    assert {row["bytes"] for row in rows} == {3 * (64 * 64 + 64) * 4}
    assert all(row["done_ns"] > row["ts_ns"] for row in rows)


def test_real_torch_tells_the_collectives_of_fsdp(
    jobs: JobTelemetry, tmp_path: Path, python: str
) -> None:
    """Two ranks. Torch 2.13 calls these operations by other names than before."""
    script = """
import os, sys, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo", init_method=sys.argv[1], rank=int(os.environ["RANK"]), world_size=2)
mesh = init_device_mesh("cpu", (2,))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
for _ in range(5):
    model(torch.ones(1, 64)).sum().backward()
print("ready", flush=True)
sys.stdin.readline()
"""
    words = ("-c", script, f"file://{tmp_path / 'meet'}")
    with (
        start(tmp_path, *words, python=python, RANK="0", WORLD_SIZE="2") as first,
        start(tmp_path, *words, python=python, RANK="1", WORLD_SIZE="2") as second,
    ):
        rows = collectives(Gathered(jobs), 2 * 5 * 4)
        for each in (first, second):
            each.communicate("\n")
    zero, one = ({row["seq"]: row["op"] for row in rows if row["rank"] == rank} for rank in (0, 1))
    both = zero.keys() & one.keys()
    assert len(both) >= 5 * 4 - 1, "the newest ones may be of one rank only"
    assert all(zero[seq] == one[seq] for seq in both)
    assert {zero[seq] for seq in both} == {"all_gather", "reduce_scatter"}
