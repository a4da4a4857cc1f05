"""Training jobs whose ranks are killed: every loss and all weights are the same."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

pytest.importorskip(
    "torch", reason="needs PyTorch (pip install '.[torch]'): replaced ranks are NOT tested"
)

from bench.resilience import RANKS, Run, calm, differences, start, wait_ready
from bench.resilience_job import PHASES
from tests.live import SYNTONY, eventually

from syntony.errors import MissingError
from syntony.lab.jobs.torch_build import find_torch

pytestmark = pytest.mark.slow
WORDS = ["--epochs", "3", "--batches", "40"]
PAUSE = ["--pause-ms", "400"]


@pytest.fixture(autouse=True)
def torch() -> str:
    try:
        return find_torch()
    except MissingError as error:
        pytest.skip(f"{error}: replaced ranks are NOT tested")


def said(run: Run) -> str:
    return run.out.with_suffix(".out").read_text()[-2000:]


def undisturbed(place: Path, *words: str) -> Run:
    run = start(place, "alone", [*WORDS, *words])
    run.must_end_well()
    return run


def strike(run: Run, used: int, rank: int, phase: str, number: int) -> None:
    assert wait_ready(run, used), said(run)
    assert run.kill(rank, phase, number) is not None
    eventually(lambda: len(run.seen("lost")) > used, "the coordinator sees it")


@pytest.mark.parametrize(
    "features",
    [
        "batchnorm,accumulate,amp,reduce,subgroup,checkpoint,clip,plateau,two",
        "plain-sampler",
        "fsdp2,accumulate,reduce,clip,two",
        "hsdp,batchnorm,reduce,subgroup,clip,plateau",
        "nccl,batchnorm,accumulate,amp,reduce,subgroup,clip,plateau,two",
        "nccl,fsdp2,reduce,clip",
    ],
)
def test_nothing_differs_after_three_losses(tmp_path: Path, features: str) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    choice = random.Random(seed)
    base = undisturbed(tmp_path, "--features", features.removeprefix("nccl,"))
    run = start(tmp_path, "faults", [*WORDS, *PAUSE, "--features", features], spares=1)
    run.hold()
    for used, number in enumerate((signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL)):
        phase = choice.choice(PHASES[2:])
        strike(run, used, choice.randrange(RANKS), phase, number)
    run.release()
    assert run.wait() == 0, said(run)
    assert differences(base, run) == []
    assert len(run.seen("assigned")) == 3
    assert all(each["equal"] for each in run.seen("digest"))


def test_a_rank_lost_before_the_first_step_of_an_epoch(tmp_path: Path) -> None:
    base = undisturbed(tmp_path, "--features", "reduce")
    run = start(tmp_path, "faults", [*WORDS, *PAUSE, "--features", "reduce"], spares=1)
    run.hold()
    assert wait_ready(run, 0), said(run)
    epoch = 40
    end = epoch * (1 + len(run.lines(1)) // epoch)
    eventually(lambda: len(run.lines(1)) >= end, "the epoch ends")
    assert run.kill(2, "forward", signal.SIGKILL) is not None
    run.release()
    assert run.wait() == 0, said(run)
    assert differences(base, run) == []
    (lost,) = run.seen("lost")
    assert lost["boundary"] == end, "it was not killed where it should be"


def test_data_loader_workers(tmp_path: Path) -> None:
    base = undisturbed(tmp_path, "--features", "workers")
    run = start(tmp_path, "faults", [*WORDS, *PAUSE, "--features", "workers"], spares=1)
    run.hold()
    strike(run, 0, 1, "backward", signal.SIGKILL)
    run.release()
    assert run.wait() == 0
    assert differences(base, run) == []


@pytest.mark.parametrize("features", ["batchnorm,reduce,plateau", "fsdp2,clip", "hsdp,clip"])
def test_a_drained_rank_leaves_everything_as_it_was(tmp_path: Path, features: str) -> None:
    words = ["--features", features]
    base = undisturbed(tmp_path, *words)
    run = start(tmp_path, "drained", [*WORDS, *PAUSE, *words], spares=1)
    assert wait_ready(run, 0), said(run)
    command = [*SYNTONY, "jobs", "drain", f"drained-{os.getpid()}", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()[:1]) == (0, "{"), done.stderr
    assert run.wait() == 0, said(run)
    assert differences(base, run) == []
    assert [each["reason"] for each in run.seen("lost")] == ["drained"]
    assert all(each["equal"] for each in run.seen("digest"))


OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}  # fmt: skip
"""More ranks than cores, in a container."""


def small(
    tmp_path: Path, source: str, *options: str, ranks: int = 2, mpirun: str = ""
) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "train.py"
    program.write_text(source)
    argv = [find_torch(), "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    argv += ["--master-port", str(random.randrange(20_000, 30_000)), str(program)]
    if mpirun:
        argv = [mpirun, "-n", str(ranks), find_torch(), str(program)]
    events = tmp_path / "events"
    return subprocess.run(
        [*SYNTONY, "run", "--spares", "1", "--events", str(events), *options, "--", *argv],
        capture_output=True, text=True, check=False, timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | OPEN_MPI, stdin=subprocess.DEVNULL,
    )  # fmt: skip


NO_LOOP = "import torch.distributed as d\nd.init_process_group('gloo')\nd.barrier()\n"
SHARDED = NO_LOOP + "def rpc_sync(m): pass\nrpc_sync(None)\n"
FAILS = """
import torch, torch.distributed as d
d.init_process_group('gloo')
torch.manual_seed(3)
m = torch.nn.Linear(2, 2)
o = torch.optim.SGD(m.parameters(), lr=0.1)
for i in range(9):
    m(torch.zeros(1, 2)).sum().backward()
    for p in m.parameters(): d.all_reduce(p.grad)
    o.step()
    assert i < 4, 'as it was written'
"""


WRONG = FAILS.replace(
    "    assert i < 4", "    d.all_gather([torch.zeros(1)] * 3, torch.zeros(1))\n#"
)


def test_a_collective_that_fails_ends_the_program(tmp_path: Path) -> None:
    """As it does without Syntony: nothing goes on with what is in its tensors."""
    done = small(tmp_path, WRONG)
    assert done.returncode != 0
    assert "syntony: allgather failed: " in done.stderr


@pytest.mark.parametrize(
    ("source", "line"),
    [(NO_LOOP, "no training loop"), (SHARDED, "rpc_sync: RPC is not repeated")],
)
def test_what_is_not_protected_is_reported_and_runs(tmp_path: Path, source: str, line: str) -> None:
    done = small(tmp_path, source)
    assert done.returncode == 0, done.stderr
    assert line in done.stderr


def test_an_exception_of_the_program_is_the_programs(tmp_path: Path) -> None:
    done = small(tmp_path, FAILS)
    assert done.returncode != 0
    assert "as it was written" in done.stderr
    events = [json.loads(each) for each in (tmp_path / "events").read_text().splitlines()]
    assert not [each for each in events if each["event"] == "assigned"]


def test_nobody_is_given_up_beside_processes_that_burn_all_cores(tmp_path: Path) -> None:
    found = calm(tmp_path, epochs=1, hogs=2 * (os.cpu_count() or 1))
    assert found["calm_exit_code"] == 0
    assert found["false_takeovers"] == []


HANGS = """
import os, pathlib, time, torch, torch.distributed as d
d.init_process_group('gloo')
torch.manual_seed(3)
m = torch.nn.Linear(2, 2)
o = torch.optim.SGD(m.parameters(), lr=0.1)
for i in range(60):
    time.sleep(0.2)
    m(torch.ones(1, 2)).sum().backward()
    mark = pathlib.Path(MARK)
    if i == 40 and d.get_rank() == 1 and not mark.exists():
        mark.touch()
        while HANG: pass
        time.sleep(13)
    for p in m.parameters(): d.all_reduce(p.grad)
    o.step()
    o.zero_grad()
print('sum', m.weight.sum().item(), flush=True)
"""


@pytest.mark.parametrize("hangs", [True, False])
def test_a_rank_that_hangs_is_named_and_replaced_only_if_told_so(
    tmp_path: Path, hangs: bool
) -> None:
    source = HANGS.replace("MARK", repr(str(tmp_path / "mark"))).replace("HANG", str(hangs))
    # Of two ranks one is half of all: that may as well be the others.
    done = small(tmp_path, source, *(["--replace-hung", "12"] if hangs else []), ranks=3)
    assert done.returncode == 0, done.stderr
    assert "rank 1 has not called allreduce 80" in done.stderr
    events = [json.loads(each) for each in (tmp_path / "events").read_text().splitlines()]
    lost = [each["reason"] for each in events if each["event"] == "lost"]
    assert lost == (["hung: allreduce 80 not called"] if hangs else [])
    sums = [line for line in done.stdout.splitlines() if line.startswith("sum")]
    assert len(sums) == 3
    assert len(set(sums)) == 1


SLOW = """
import os, pathlib, time, torch, torch.distributed as d
d.init_process_group('gloo')
rank = d.get_rank()
torch.manual_seed(rank)
m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
o = torch.optim.AdamW(m.parameters(), lr=0.1)
mark = pathlib.Path(MARK)
if rank == 1 and not mark.exists():
    mark.write_text(str(os.getpid()))
for i in range(220):
    slow = rank == 1 and mark.read_text() == str(os.getpid())
    time.sleep(0.6 if slow else 0.2)
    m(torch.randn(3, 4)).square().sum().backward()
    o.step()
    o.zero_grad()
print('sum', rank, m.module.weight.sum().item(), flush=True)
"""
"""The process that has rank 1 first is slow, wherever it runs; 0.2 s a step once it is replaced."""


@pytest.mark.parametrize("replaced", [False, True])
def test_a_straggler_is_reported_and_replaced_if_told_so(tmp_path: Path, replaced: bool) -> None:
    source = SLOW.replace("MARK", repr(str(tmp_path / "mark")))
    if not replaced:
        source = source.replace("range(220)", "range(150)")
    done = small(tmp_path, source, *(["--replace-slow", "60"] if replaced else []), ranks=3)
    assert done.returncode == 0, done.stderr
    assert "all others wait for rank 1" in done.stderr
    events = [json.loads(each) for each in (tmp_path / "events").read_text().splitlines()]
    lost = [(each["rank"], each["reason"][:5]) for each in events if each["event"] == "lost"]
    assert lost == ([(1, "slow:")] if replaced else [])
    assert len([each for each in events if each["event"] == "straggler"]) == 1
    assert len({line.split()[-1] for line in done.stdout.splitlines() if "sum" in line}) == 1


READS_RANK = """
import os, pathlib, torch, torch.distributed as d
rank = int(os.environ["VARIABLE_RANK".removeprefix("_")])
d.init_process_group('gloo', init_method="tcp://127.0.0.1:1", rank=rank, world_size=3)
torch.manual_seed(rank)
m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
o = torch.optim.AdamW(m.parameters(), lr=0.1)
for i in range(30):
    m(torch.randn(3, 4)).square().sum().backward()
    mark = pathlib.Path(MARK)
    if i == 12 and rank == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)
    o.step()
    o.zero_grad()
print('sum', rank, m.module.weight.sum().item(), torch.rand(1).item(), flush=True)
"""
MPIRUNS = {"": "", "OMPI_COMM_WORLD": "mpirun.openmpi", "PMI": "mpirun.mpich"}


@pytest.mark.parametrize("variable", list(MPIRUNS))
def test_a_program_that_reads_its_rank_from_its_launcher(tmp_path: Path, variable: str) -> None:
    mpirun = MPIRUNS[variable]
    if mpirun and shutil.which(mpirun) is None:
        pytest.skip(f"no {mpirun}: jobs that it starts are NOT tested")
    mark = tmp_path / "mark"
    source = READS_RANK.replace("VARIABLE", variable).replace("MARK", repr(str(mark)))
    lost = small(tmp_path, source, ranks=3, mpirun=mpirun)
    assert lost.returncode == 0, lost.stderr
    assert "rank 1 replaced at step 12" in lost.stderr
    undisturbed = small(tmp_path, source, ranks=3, mpirun=mpirun)  # the mark is there
    assert undisturbed.returncode == 0, undisturbed.stderr
    results = [sorted(line for line in each.stdout.splitlines() if line.startswith("sum"))
               for each in (lost, undisturbed)]  # fmt: skip
    assert len(results[0]) == 3
    assert results[0] == results[1]
