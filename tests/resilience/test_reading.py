"""Another process's iterator over data is brought to the same place, with the same batches."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.resilience.apart import apart

torch = pytest.importorskip(
    "torch", reason="needs PyTorch (pip install '.[torch]'): iterators over data are NOT tested"
)
from torch.utils.data import DataLoader, Dataset  # noqa: E402


class Noisy(Dataset):  # type: ignore[misc]
    """Draws at each reading, and counts."""

    def __init__(self) -> None:
        self.read = 0

    def __len__(self) -> int:
        return 24

    def __getitem__(self, at: int) -> float:
        self.read += 1
        return float(at) + float(torch.rand(()).item()) / 4 + random.random() / 4


class Ahead:
    """A loader that reads a batch ahead, and begins to read late, as accelerate's do."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        iterator = iter(self.loader)
        now = next(iterator)
        for following in iterator:
            yield now
            now = following
        yield now


Ahead.__module__ = "accelerate.data_loader"


def loader(kind: str) -> tuple[Any, Noisy]:
    data = Noisy()
    own = torch.Generator().manual_seed(9) if kind == "own" else None
    made = DataLoader(data, 2, shuffle=True, generator=own)
    if kind == "generator":
        return (each for each in made), data
    return Ahead(made) if kind == "ahead" else made, data


def draw() -> None:
    """What a program draws between batches."""
    torch.rand(3)
    random.random()


patched: list[bool] = []


def continued(kind: str, calls: int, looped: bool) -> tuple[list[Any], list[Any], int]:
    """Batches after `calls`: of the process that read them, and of another; what that read."""
    from syntony.torch.random_state import random_state, set_random_state
    from syntony.torch.reading import Reading, opened, patch_loader

    if not patched:
        patched.append(True)
        patch_loader()
    torch.manual_seed(1)
    random.seed(1)
    first, _ = loader(kind)
    draw()
    reading = Reading(first, at=0) if looped else opened(first)
    if not looped:  # a loop reads at once
        draw()
    for _ in range(calls):
        last = next(reading, None)
        draw()
    data = pickle.dumps((reading.state(worked_on=looped), random_state()))
    kept, random_then = pickle.loads(data)  # noqa: S301 - our own
    expected = [each.tolist() for each in reading]
    torch.manual_seed(99)
    second, noisy = loader(kind)
    if looped and calls:
        other = Reading(second, kept, at=calls - 1)
        draw()
        assert torch.equal(next(other), last), "the batch that is worked on"
    else:
        other = opened(second)
        kept.reopen(other)
    read = noisy.read
    set_random_state(random_then)
    return expected, [each.tolist() for each in other], read


def every(looped: bool, kinds: list[str], calls: list[int]) -> list[Any]:
    """In one process, for it takes seconds to start."""
    return [(kind, each, *continued(kind, each, looped)) for kind in kinds for each in calls]


def test_the_rest_is_the_same() -> None:
    kinds = ["plain", "own", "ahead", "generator"]
    for kind, calls, expected, got, read in apart(every, False, kinds, [0, 1, 2, 5, 12, 13]):
        assert got == expected, (kind, calls)
        assert len(got) == max(12 - calls, 0)
        assert read <= 4 or kind == "generator", "what comes before is counted only"


def test_of_a_loop_the_batch_that_is_worked_on_comes_again() -> None:
    kinds = ["plain", "own", "ahead"]
    for kind, calls, expected, got, _ in apart(every, True, kinds, [1, 2, 7, 12]):
        assert got == expected, (kind, calls)


def too_far() -> str:
    from syntony.torch.reading import opened

    one, other = opened(each for each in "abcd"), opened(each for each in "abcd")
    next(one)
    kept = one.state()
    next(other)
    next(other)
    try:
        kept.reopen(other)
    except ValueError as error:
        return str(error)
    return ""


def test_a_generator_cannot_go_back() -> None:
    assert apart(too_far) == "a generator that was read further than the lost rank's"


def test_only_data_is_counted() -> None:
    from syntony.torch.reading import Reading, opened

    assert not isinstance(opened([1, 2]), Reading)
    assert not isinstance(opened({"a": 1}.values()), Reading)
