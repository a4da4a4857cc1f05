"""Libraries' files are rewritten when they are imported, and those that are not known reported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syntony.torch import libraries
from syntony.torch.loops import LibraryFile, transform

LIGHTNING = """
class Fit:
    def run(self):
        while not self.done:
            try:
                self.advance()
            finally:
                self.count += 1
    def other(self):
        while self.count < 3:
            self.count += 1
"""
TRAINER = """
class Trainer:
    def training_step(self, x): self.accelerator.backward(x)
    def _run_epoch(self, loader):
        iterator = iter(loader)
        for update in range(4):
            batch_samples = [next(iterator)]
            for i, x in enumerate(batch_samples):
                self.training_step(x)
                self.optimizer.step()
    def train(self):
        for epoch in range(2):
            self._run_epoch([1])
"""


class Runtime:
    def __init__(self) -> None:
        self.sites: list[str] = []

    forever = staticmethod(iter)

    def loop(self, iterable: Any, site: str) -> Iterator[Any]:
        self.sites.append(site)
        return iter(range(5)) if iterable is self.forever else iter(iterable)

    def has(self, _site: str) -> bool:
        return False


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Packages of these names in `tmp_path`; why they are not protected."""
    reasons: list[str] = []
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    yield reasons
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(place: Path, name: str, source: str) -> None:
    path = place.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True)
    for each in path.relative_to(place).parents:
        if each.name:
            (place / each / "__init__.py").touch()
    path.write_text(source)


def test_loops_of_a_library_iterate_through_the_runtime(
    tmp_path: Path, imported: list[str]
) -> None:
    if "pytorch_lightning" in sys.modules:
        pytest.skip(
            "Lightning is imported already, so no other can be: loops of libraries are NOT tested"
        )
    written(tmp_path, "pytorch_lightning.loops.fit_loop", LIGHTNING)
    runtime = Runtime()
    libraries.install(runtime, imported.append)
    module = importlib.import_module("pytorch_lightning.loops.fit_loop")
    fit: Any = module.Fit()
    fit.done, fit.count, fit.advance = False, 0, lambda: None
    fit.run()
    assert fit.count == 5, "as often as the runtime says"
    assert runtime.sites == ["fit.run:4"]
    assert imported == []
    fit.other()
    assert runtime.sites == ["fit.run:4"], "no loop of training"


def test_a_file_without_a_known_loop_is_reported(tmp_path: Path, imported: list[str]) -> None:
    if "transformers" in sys.modules:
        pytest.skip(
            "transformers is imported already, so no other can be: files without a loop are NOT "
            "tested"
        )
    written(tmp_path, "transformers.trainer", "value = 3\n")
    libraries.install(Runtime(), imported.append)
    assert importlib.import_module("transformers.trainer").value == 3
    assert imported == ["the training loop of transformers.trainer is not one that is known"]


def test_batches_of_a_step_are_no_loop_of_steps() -> None:
    known = libraries.FILES["transformers.trainer"]
    assert transform(TRAINER, "trainer.py", known).loops == [
        "trainer._run_epoch:6", "trainer.train:12",
    ]  # fmt: skip
    assert len(transform(TRAINER, "trainer.py", LibraryFile()).loops) == 3


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import transformers", ["transformers"]),
        ("from lightning.pytorch import Trainer", ["lightning"]),
        ("def f():\n    import pytorch_lightning.loops as x", ["pytorch_lightning"]),
        ("from transformers.models import a\nimport lightning", ["lightning", "transformers"]),
        ("from .lightning import x\nimport torch", []),
    ],
)
def test_which_libraries_may_have_a_programs_loop(source: str, found: list[str]) -> None:
    assert libraries.trainers(transform(source, "train.py").imports) == found
