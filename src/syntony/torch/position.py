"""Where a program is in its training loops: noted at every boundary, found again by a replacement.

`loops` has training loops iterate through `Position.loop`. A replacement runs the program from its
start, skips loops that come before, and in each loop on the way goes to where the lost rank was.
"""

from __future__ import annotations

import itertools
import pickle
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from syntony.torch import capture
from syntony.torch.random_state import random_state, set_random_state
from syntony.torch.recovery import START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

MAX_RECORD_BYTES = 32 << 20


@dataclass
class Level:
    """One loop that the program is in."""

    site: str
    visit: int
    """It is the loop's visit of this number within the iteration of the loop around it."""
    at: int = 0
    """Iterations begun."""
    random: Any = None
    """Random state when the loop began."""
    generators: list[Any] = field(default_factory=list)
    """States of the data loader's own generators then."""
    span: range | None = None
    """What it iterates, if that is a range."""
    variables: dict[str, Any] = field(default_factory=dict)
    """As the iteration began."""
    visits: dict[str, int] = field(default_factory=dict)
    """Loops entered in this iteration, by site."""
    workers: dict[int, Any] = field(default_factory=dict)
    """Random states of the data loader's workers."""

    def copy(self) -> Level:
        return Level(**{name: getattr(self, name) for name in self.__dataclass_fields__})


class Position:
    """What the rewritten program calls, under the name `__syntony__`."""

    enumerate: Any
    forever = itertools.count

    def __init__(self, job: Any, local_modules: frozenset[str]) -> None:
        self._job = job
        self._modules = local_modules
        self._top = Level("", 0)
        self._stack: list[Level] = []
        self._target: list[Level] | None = None
        """Where a replacement must go; None once it is there."""
        self._pending: dict[str, dict[str, Any]] = {}
        """Variables to be assigned again, by site."""
        self._globals: dict[str, Any] = {}
        self._outer: set[str] = set()
        """Sites of loops that have others in them: their variables are noted at each iteration."""
        self.opening: Level | None = None
        """The loop whose iterator is about to be made."""
        self.skip = 0
        """How far the data loader that is made next must go at once."""
        self.last_record_bytes = 0
        self.spent_ns = 0
        self.program = ""
        """Which program this is, and which torch: a replacement's must be the same."""
        self.enumerate = _Enumerate

    # --- for the program ---

    def explicit(self, iterable: Any) -> Iterator[Any]:
        """As `loop`, of a program that marks its loop itself."""
        yield from self.loop(iterable, "steps")

    def loop(self, iterable: Any, site: str) -> Iterator[Any]:
        """Iterate, and pass a boundary before each iteration that follows a step."""
        frame = sys._getframe(1)
        if iterable is Position.forever:
            iterable = itertools.count()
        around = self._stack[-1] if self._stack else self._top
        self._outer.add(around.site)
        visit = around.visits[site] = around.visits.get(site, -1) + 1
        level = Level(site, visit, span=iterable if isinstance(iterable, range) else None)
        if self._target is not None:
            found = self._on_the_way(level)
            if found is None:
                return  # over before the lost rank's boundary
            level = found
            iterable = iterable if level.span is None else level.span
        elif level.span is None:
            level.random = random_state()
        self._stack.append(level)
        try:
            yield from self._iterate(iterable, level, frame)
        finally:
            self._stack.pop()

    def _on_the_way(self, level: Level) -> Level | None:
        assert self._target is not None
        depth = len(self._stack)
        if depth >= len(self._target):
            return None
        target = self._target[depth]
        if (target.site, target.visit) != (level.site, level.visit):
            return None
        return target.copy()

    def _iterate(self, iterable: Any, level: Level, frame: FrameType) -> Iterator[Any]:
        iterator = self._opened(iterable, level)
        while True:
            if self._target is not None:
                self._reach(level)
            elif self._job.replica.stepped or self._job.replica.boundary == START:
                self._pass(frame)
            elif level.at == 0 or level.site in self._outer:
                level.variables = self._captured(frame)
            try:
                value = next(iterator)
            except StopIteration:
                return
            level.visits = {}
            yield value
            level.at += 1

    def _opened(self, iterable: Any, level: Level) -> Iterator[Any]:
        """An iterator; of a replacement, at the place where the lost rank was."""
        if self._target is None:
            self.opening = level
            iterator: Iterator[Any] = iter(iterable)
            self.opening = None
            return iterator
        if level.random is not None:
            set_random_state(level.random)
        self.opening, self.skip = level, level.at
        iterator = iter(iterable)
        self.opening = None
        if isinstance(iterator, _Enumerate):
            iterator.at += level.at - self.skip
        for _ in range(self.skip):  # nobody took it: read and forget
            next(iterator, None)
        self.skip = 0
        return iterator

    def has(self, site: str) -> bool:
        return site in self._pending

    def take(self, site: str) -> dict[str, Any]:
        return self._pending.pop(site)

    # --- boundaries ---

    def _pass(self, frame: FrameType) -> None:
        job = self._job
        job.executor.drain()
        begin_ns = time.perf_counter_ns()
        if job.replica.boundary == START:
            job.first_boundary()
        boundary = job.replica.pass_boundary()
        level = self._stack[-1]
        level.variables = self._captured(frame)
        record = job.replica.record() | {
            "stack": self._stack,
            "globals": self._captured_globals(),
            "program": self.program,
            "calls": job.executor.calls,
        }
        data = pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
        self.last_record_bytes = len(data)
        if len(data) > MAX_RECORD_BYTES:
            job.session.unprotect(f"a step's record has {len(data) >> 20} MiB")
            data = b""
        job.session.tell("boundary", data, boundary=boundary)
        self.spent_ns += time.perf_counter_ns() - begin_ns
        job.passed(boundary)

    def _captured(self, frame: FrameType) -> dict[str, Any]:
        found = {
            name: capture.capture(value, self._modules)
            for name, value in frame.f_locals.items()
            if not name.startswith("__")
        }
        return {name: each for name, each in found.items() if each is not capture.MISSING}

    def _captured_globals(self) -> dict[str, Any]:
        found = {}
        for name, value in vars(sys.modules["__main__"]).items():
            if name.startswith("__") or name.isupper():
                continue
            kept = capture.capture(value, frozenset())
            if kept is not capture.MISSING:
                found[name] = kept
        return found

    # --- of a replacement ---

    def aim(self, record: dict[str, Any]) -> None:
        """Go where the record was made."""
        if record["program"] != self.program:
            sys.exit("syntony: the program or torch is another than the lost rank's")
        self._target = record["stack"]
        self._globals = record["globals"]

    def _reach(self, level: Level) -> None:
        """This loop is where it must be; at the last one, the replacement becomes the rank."""
        frame_values = level.variables
        self._pending[level.site] = _Restoring(frame_values)
        assert self._target is not None
        if len(self._stack) < len(self._target):
            return
        self._target = None
        module = vars(sys.modules["__main__"])
        for name, kept in self._globals.items():
            module[name] = capture.restore(kept, module.get(name))
        self._job.become()


class _Restoring(dict[str, Any]):
    """Captured variables that are restored when they are asked for."""

    def __getitem__(self, name: str) -> Any:
        frame = sys._getframe(1)
        return capture.restore(super().__getitem__(name), frame.f_locals.get(name))


class _Enumerate:
    """`enumerate` whose count can begin in the middle."""

    def __init__(self, iterable: Any, start: int = 0) -> None:
        self._iterable = iterable
        self._iterator: Any = None
        self.at = start

    def __iter__(self) -> _Enumerate:
        self._iterator = iter(self._iterable)
        return self

    def __next__(self) -> tuple[int, Any]:
        if self._iterator is None:
            self._iterator = iter(self._iterable)
        value = next(self._iterator)
        self.at += 1
        return self.at - 1, value


def patch_loader(position: Callable[[], Position]) -> None:
    """Have data loaders begin where they are told to, and their generators' states noted."""
    from torch.utils.data import DataLoader, dataloader

    make = DataLoader.__iter__

    def made(self: Any) -> Any:
        at = position()
        level, skip = at.opening, at.skip
        if level is None:
            return make(self)
        at.opening, at.skip = None, 0
        own = [each for each in (self.generator, getattr(self.sampler, "generator", None)) if each]
        if skip or level.generators:
            for generator, state in zip(own, level.generators, strict=False):
                generator.set_state(state)
        level.generators = [each.get_state() for each in own]
        iterator = make(self)
        if skip:
            _advance(iterator, skip, dataloader)
        return iterator

    DataLoader.__iter__ = made


def _advance(iterator: Any, count: int, dataloader: Any) -> None:
    """Skip batches; those of one process are not even read."""
    single = dataloader._SingleProcessDataLoaderIter
    if isinstance(iterator, single) and iterator._dataset_kind == dataloader._DatasetKind.Map:
        for _ in range(count):
            iterator._next_index()
        iterator._num_yielded += count
        return
    for _ in range(count):
        next(iterator)
