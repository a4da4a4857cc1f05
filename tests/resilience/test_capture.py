"""Objects of libraries and programs are captured with what they share, and found again."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest

torch = pytest.importorskip(
    "torch", reason="needs PyTorch (pip install '.[torch]'): captured objects are NOT tested"
)

from syntony.torch.capture import (  # noqa: E402
    MISSING,
    Instance,
    Restoring,
    capture_all,
)
from syntony.torch.position import restored  # noqa: E402

OURS = frozenset({__name__})


def over_the_wire(value: Any) -> Any:
    return pickle.loads(pickle.dumps(captured(value, OURS)))  # noqa: S301 - our own


def captured(value: Any, modules: frozenset[str]) -> Any:
    return capture_all({"it": value}, modules).get("it", MISSING)


class Progress:
    def __init__(self, count: int = 0) -> None:
        self.count = count


class Results(dict[str, Progress]):
    """A dictionary with attributes."""

    batch = 0


class Strategy:
    def __init__(self) -> None:
        self.owner: Any = None

    def reduce(self) -> int:
        return 7


class Sync:
    """Two references to one method."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.later = functools.partial(function)


class Trainer:
    def __init__(self) -> None:
        self.progress = Progress()
        self.same = self.progress
        self.results = Results()
        self.strategy = Strategy()
        self.strategy.owner = self
        self.file = object()
        self.callbacks: list[Any] = [self.progress, self.file]
        self.names = {id(self): "me"}
        self.sync: Any = None


class Metric(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Has attributes that change, and a function that is made anew when it is unpickled."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(())
        self.layer = torch.nn.Linear(2, 2)
        self.compute = lambda: self.total

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.compute = lambda: self.total


def test_what_is_shared_stays_shared_and_objects_keep_their_identity() -> None:
    before, now = Trainer(), Trainer()
    before.progress.count = 5
    before.results["loss"] = Progress(3)
    before.results.batch = 9
    before.sync = Sync(before.strategy.reduce)
    file, names, results, progress = now.file, now.names, now.results, now.progress
    Restoring().of(over_the_wire(before), now)
    assert now.progress is progress is now.same is now.callbacks[0]
    assert progress.count == 5
    assert now.results is results
    assert (results["loss"].count, results.batch) == (3, 9)
    assert (now.file, now.callbacks[1], now.names) == (file, file, names)
    assert now.strategy.owner is now
    assert now.sync.function is now.sync.later.func, "one object, as before"
    assert now.sync.function.__self__ is now.strategy


def test_a_module_that_was_made_during_training_is_whole() -> None:
    before, now = Trainer(), Trainer()
    before.sync = Metric()
    before.sync.total += 4
    Restoring().of(over_the_wire(before), now)
    assert now.sync.compute().item() == 4
    assert now.sync.training
    assert list(now.sync.parameters()) == []


def test_a_module_that_is_there_keeps_its_parameters() -> None:
    before, now = Metric(), Metric()
    before.total += 2
    before.eval()
    weight = now.layer.weight
    Restoring().of(over_the_wire(before), now)
    assert (now.total.item(), now.training) == (2, False)
    assert now.layer.weight is weight


def test_a_list_with_something_that_cannot_be_captured_stays_where_lengths_differ() -> None:
    before, now = Trainer(), Trainer()
    before.callbacks.append(object())
    callbacks = list(now.callbacks)
    Restoring().of(over_the_wire(before), now)
    assert now.callbacks == callbacks


def test_objects_of_other_modules_are_not_followed() -> None:
    assert captured(Trainer(), frozenset({"elsewhere"})) is MISSING
    found = captured(Trainer(), frozenset({__name__.partition(".")[0]}))
    assert isinstance(found, Instance), "modules within a package are the package's"


@pytest.mark.parametrize(
    ("worlds", "found"),
    [
        ((4, 3), {"steps": 4, "half": 2, "rate": 4.0}),  # `world` stays 3
        ((4, 4), {"world": 4, "steps": 4, "half": 2, "rate": 4.0}),
        ((0, 0), {"world": 4, "steps": 4, "half": 2, "rate": 4.0}),
    ],
)
def test_fewer_ranks_know_how_many_they_are(worlds: tuple[int, int], found: dict[str, Any]) -> None:
    kept = {"world": 4, "steps": 4, "half": 2, "rate": 4.0}
    data = pickle.dumps(capture_all(kept, OURS))
    assert restored(data, {"world": 3, "steps": 0, "half": 1, "rate": 3.0}, worlds) == found
