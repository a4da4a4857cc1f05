"""A training job that has no spare left: its state is kept, and it goes on from there, the same."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

pytest.importorskip(
    "torch",
    reason="needs PyTorch (pip install '.[torch]'): checkpoints for want of a spare are NOT tested",
)

from bench.resilience import Run, differences, start, wait_ready
from tests.live import eventually

from syntony.torch.orders import PRESERVED

pytestmark = pytest.mark.slow
FEATURES = "batchnorm,reduce,plateau,accumulate"
WORDS = ["--epochs", "2", "--batches", "20", "--features", FEATURES]
SPLIT = "fsdp2,accumulate,reduce,clip", "hsdp,batchnorm,reduce,plateau"


def kept(tmp_path: Path, phase: str, words: list[str]) -> Path:
    """A run that loses rank 1 in the second epoch; its checkpoint."""
    options = ["--checkpoint", str(tmp_path / "kept")]
    run = start(tmp_path, "job", [*words, "--pause-ms", "200"], options=options)
    assert wait_ready(run, 0, spares=0), said(run)
    eventually(lambda: len(run.lines(1)) > 24, "the second epoch")
    assert run.kill(1, phase, signal.SIGKILL) is not None
    assert run.wait() == PRESERVED, said(run)
    (event,) = run.seen("checkpoint")
    last = said(run).strip().splitlines()[-1]
    assert last.endswith(f"go on with: syntony run --resume {event['path']} -- …")
    return Path(event["path"])


def step_of(place: Path) -> int:
    return int(place.name.partition("-")[2])


def said(run: Run) -> str:
    return run.out.with_suffix(".out").read_text()[-3000:]


@pytest.mark.parametrize(
    ("phase", "features"),
    [("backward", FEATURES), ("after", FEATURES), ("forward", SPLIT[0]), ("after", SPLIT[0]),
     ("backward", SPLIT[1])],
)  # fmt: skip
def test_a_job_goes_on_from_its_checkpoint_as_if_nothing_had_been(
    tmp_path: Path, phase: str, features: str
) -> None:
    words = [*WORDS[:-1], features]
    base = start(tmp_path, "alone", words)
    base.must_end_well()
    place = kept(tmp_path, phase, words)
    again = start(tmp_path, "job", words, spares=1, options=["--resume", str(place)])
    assert again.wait() == 0, said(again)
    assert differences(base, again) == []
    digests = [each for each in again.seen("digest") if each["boundary"] > step_of(place)]
    assert digests
    assert all(each["equal"] for each in digests)


def test_fewer_ranks_go_on_if_told_so_and_a_damaged_file_is_refused(tmp_path: Path) -> None:
    place = kept(tmp_path, "forward", WORDS)
    refused = start(tmp_path, "job", WORDS, ranks=3, options=["--resume", str(place)])
    assert refused.wait() != 0
    assert "the checkpoint has 4 ranks, the job 3 (see --min-ranks)" in said(refused)
    options = ["--resume", str(place), "--min-ranks", "3"]
    fewer = start(tmp_path, "job", WORDS, ranks=3, options=options)
    assert fewer.wait() == 0, said(fewer)
    assert len({fewer.digest(rank) for rank in range(3)}) == 3, "each has its own random numbers"
    digests = [each for each in fewer.seen("digest") if each["boundary"] > step_of(place)]
    assert digests
    assert all(each["equal"] for each in digests)
    data = bytearray((place / "state").read_bytes())
    data[len(data) // 2] ^= 1
    (place / "state").write_bytes(data)
    damaged = start(tmp_path, "job", WORDS, options=["--resume", str(place)])
    assert damaged.wait() == 2
    assert "state is damaged: its SHA-256 is not the manifest's" in said(damaged)
