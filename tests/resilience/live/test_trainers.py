"""Programs with a library's training loop lose ranks: every loss and all weights are the same."""

from __future__ import annotations

import importlib.util
import random
import signal
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip(
    "torch", reason="needs PyTorch (pip install '.[torch]'): replaced ranks are NOT tested"
)

from bench.resilience import Run, differences, start, wait_ready
from bench.resilience_job import PHASES
from tests.live import eventually

pytestmark = pytest.mark.slow
RANKS = 3
PROGRAMS = Path(__file__).with_name("programs")
What = tuple[str, list[str], list[str]]
"""A program, what it needs, and its options."""
HUGGING_FACE = "hugging_face.py", ["transformers", "accelerate"], ["--epochs", "2"]
LIGHTNING = "lightning_job.py", ["pytorch_lightning"], ["--epochs", "3"]
LIGHTNING_2 = "lightning_job.py", ["lightning"], ["--epochs", "3", "--package", "lightning"]


def named(what: What) -> str:
    return what[1][0]


class Job:
    """A program, run once undisturbed."""

    def __init__(self, place: Path, what: What, *words: str) -> None:
        name, needs, always = what
        missing = [each for each in needs if importlib.util.find_spec(each) is None]
        if missing:
            pytest.skip(f"needs {', '.join(missing)}: replaced ranks of {name} are NOT tested")
        self._place, self._job = place, PROGRAMS / name
        self._words = ["--batches", "24", *always, *words]
        self._base = self.start("alone", 0)
        self._base.must_end_well()

    def start(self, name: str, spares: int, *words: str) -> Run:
        words_of_all = [*self._words, *words]
        return start(self._place, name, words_of_all, spares=spares, ranks=RANKS, job=self._job)

    def must_be_the_same(self, run: Run, lost: int) -> None:
        assert run.wait() == 0, said(run)
        assert differences(self._base, run, RANKS) == []
        assert len(run.seen("assigned")) == lost, said(run)
        assert not run.seen("unprotected")
        assert all(each["equal"] for each in run.seen("digest"))


def lost_more_than(run: Run, number: int) -> bool:
    return len(run.seen("lost")) > number


def said(run: Run) -> str:
    return run.out.with_suffix(".out").read_text()[-3000:]


@pytest.mark.parametrize(
    "what", [HUGGING_FACE, LIGHTNING, LIGHTNING_2], ids=lambda each: each[1][0]
)
def test_nothing_differs_after_three_losses(tmp_path: Path, what: What) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    choice = random.Random(seed)
    job = Job(tmp_path, what)
    run = job.start("faults", 1, "--pause-ms", "800")
    run.hold()
    for used, number in enumerate((signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL)):
        assert wait_ready(run, used), said(run)
        assert run.kill(choice.randrange(RANKS), choice.choice(PHASES[2:]), number) is not None
        eventually(partial(lost_more_than, run, used), "the coordinator sees it")
    run.release()
    job.must_be_the_same(run, 3)


@pytest.mark.parametrize("what", [HUGGING_FACE, LIGHTNING], ids=named)
def test_two_losses_at_once_with_data_loader_workers(tmp_path: Path, what: What) -> None:
    job = Job(tmp_path, what, "--workers", "1")
    run = job.start("faults", 2, "--workers", "1", "--pause-ms", "800")
    run.hold()
    assert wait_ready(run, 0, spares=2), said(run)
    eventually(lambda: len(run.lines(1)) > 14, "some steps")
    for rank in (0, 2):
        assert run.kill(rank, "backward", signal.SIGKILL) is not None
    run.release()
    job.must_be_the_same(run, 2)
