"""Tracks a program's position in its training loops at every boundary, so that a replacement can
reach it.

`loops` makes training loops iterate through `Position.loop`. A replacement runs the program from
its start, skips loops that end before the boundary, and in each enclosing loop goes to the lost
rank's iteration.
"""

from __future__ import annotations

import itertools
import pickle
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from syntony.torch import capture
from syntony.torch.reading import Reading, opened
from syntony.torch.recovery import START

MAX_RECORD_BYTES = 32 << 20


@dataclass
class LoopLevel:
    site: str
    visit: int
    """Number of the visit to this loop within the iteration of the enclosing loop."""
    at: int = 0
    """Iterations begun."""
    reading: Any = None
    """Position in its data (`Reading`; in a record its state); None for a range."""
    span: range | None = None
    """The range that it iterates, if it is one."""
    variables: bytes = b""
    """Variables at the start of the iteration, pickled: classes may be defined only once the
    program has run."""
    visits: dict[str, int] = field(default_factory=dict)
    """Number of loops entered in this iteration, by site."""

    def copy(self) -> LoopLevel:
        return replace(self, visits=dict(self.visits))

    def kept(self, *, worked_on: bool) -> LoopLevel:
        """The form for a record; `worked_on`: it encloses another loop."""
        reading = self.reading and self.reading.state(worked_on=worked_on)
        return replace(self, reading=reading)


class Position:
    """The object that the rewritten program calls, under the name `__syntony__`."""

    enumerate: Any
    forever = itertools.count
    iter = staticmethod(opened)

    def __init__(self, job: Any, modules: frozenset[str]) -> None:
        self._job = job
        self._modules = modules
        """Modules whose objects are followed."""
        self._top = LoopLevel("", 0)
        self._stack: list[LoopLevel] = []
        self._target: list[LoopLevel] | None = None
        """Where a replacement must go; None once it is there."""
        self._pending: dict[str, dict[str, Any]] = {}
        """Variables to be assigned again, by site."""
        self._globals = b""
        self._worlds = (0, 0)
        """Number of ranks of the record's job and of this one."""
        self._outer: set[str] = set()
        """Sites of loops that enclose others: their variables are captured at each iteration."""
        self.last_record_bytes = 0
        self.spent_ns = 0
        self.program = ""
        """Identifies the program and torch version: a replacement's must be the same."""
        self.enumerate = _Enumerate

    # --- for the program ---

    def explicit(self, iterable: Any) -> Iterator[Any]:
        """As `loop`, for a program that marks its loop itself."""
        yield from self.loop(iterable, "steps")

    def loop(self, iterable: Any, site: str) -> Iterator[Any]:
        """Iterate, and pass a boundary before each iteration that follows a step."""
        frame = sys._getframe(1)
        if iterable is Position.forever:
            iterable = itertools.count()
        around = self._stack[-1] if self._stack else self._top
        self._outer.add(around.site)
        visit = around.visits[site] = around.visits.get(site, -1) + 1
        level = LoopLevel(site, visit, span=iterable if isinstance(iterable, range) else None)
        if self._target is not None:
            found = self._on_the_way(level)
            if found is None:
                return  # over before the lost rank's boundary
            level = found
            iterable = iterable if level.span is None else level.span
        self._stack.append(level)
        try:
            yield from self._iterate(iterable, level, frame)
        finally:
            self._stack.pop()

    def _on_the_way(self, level: LoopLevel) -> LoopLevel | None:
        assert self._target is not None
        depth = len(self._stack)
        if depth >= len(self._target):
            return None
        target = self._target[depth]
        if (target.site, target.visit) != (level.site, level.visit):
            return None
        return target.copy()

    def _iterate(self, iterable: Any, level: LoopLevel, frame: FrameType) -> Iterator[Any]:
        iterator = self._opened(iterable, level)
        while True:
            if self._target is not None:
                self._reach(level, frame)
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

    def _opened(self, iterable: Any, level: LoopLevel) -> Iterator[Any]:
        """An iterator; for a replacement, at the lost rank's place."""
        if level.span is not None or isinstance(iterable, itertools.count):
            return itertools.islice(iterable, level.at, None)
        if type(iterable).__name__ == "DataLoaderDispatcher":
            self._job.session.unprotect("accelerate reads data on one rank for all")
        level.reading = reading = Reading(iterable, level.reading, at=level.at)
        return reading

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
        job.replica.rebuild_buckets()
        boundary = job.replica.pass_boundary()
        level = self._stack[-1]
        level.variables = self._captured(frame)
        record = job.replica.record() | {
            "stack": [each.kept(worked_on=each is not level) for each in self._stack],
            "globals": self._captured_globals(),
            "program": self.program,
            "calls": job.executor.calls,
        }
        data = pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
        self.last_record_bytes = len(data)
        if len(data) > MAX_RECORD_BYTES:
            job.session.unprotect(f"a step's record has {len(data) >> 20} MiB")
            data = b""
        job.session.send("boundary", data, boundary=boundary)
        self.spent_ns += time.perf_counter_ns() - begin_ns
        job.passed(boundary)

    def _captured(self, frame: FrameType) -> bytes:
        found = capture.capture_all(frame.f_locals, self._modules)
        return pickle.dumps(found, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def _captured_globals() -> bytes:
        module = vars(sys.modules["__main__"])
        found = capture.capture_all(
            {name: each for name, each in module.items() if not name.isupper()}, frozenset()
        )
        return pickle.dumps(found, pickle.HIGHEST_PROTOCOL)

    # --- of a replacement ---

    def aim(self, record: dict[str, Any], worlds: tuple[int, int] = (0, 0)) -> None:
        """Go to the record's position; `worlds`: number of ranks of its job and of this one."""
        if record["program"] != self.program:
            sys.exit("syntony: the program or torch is another than the lost rank's")
        self._target = record["stack"]
        self._globals = record["globals"]
        self._worlds = worlds

    def _reach(self, level: LoopLevel, frame: FrameType) -> None:
        """This loop is on the way to the position; at the innermost, the replacement becomes the
        rank.

        Until then, reading the data up to a position may call collectives, which do nothing while
        the process is not the rank.
        """
        assert self._target is not None
        last = len(self._stack) == len(self._target)
        try:
            here = frame.f_locals
            self._pending[level.site] = restored(level.variables, here, self._worlds)
            if last:
                module = vars(sys.modules["__main__"])
                module.update(restored(self._globals, module, self._worlds))
        except ValueError as error:
            self._job.differs(error)
        if last:
            self._target = None
            self._job.become()


def restored(data: bytes, now: Mapping[str, Any], worlds: tuple[int, int]) -> dict[str, Any]:
    """Restore variables that were captured together; returns name → value.

    Args:
        data: from `Position._captured`.
        now: the same variables after this process's prologue.
        worlds: number of ranks of the job then and now. If they differ, a variable that is the
            number of ranks keeps its current value.
    """
    restoring, (before, after) = capture.Restoring(), worlds
    found = {name: restoring.of(kept, now.get(name)) for name, kept in pickle.loads(data).items()}
    if before == after:
        return found
    sizes = {name for name, value in found.items()
             if type(value) is int and value == before and now.get(name) == after}  # fmt: skip
    return {name: value for name, value in found.items() if name not in sizes}


class _Enumerate:
    """`enumerate` whose count can begin in the middle."""

    def __init__(self, iterable: Any, start: int = 0) -> None:
        self.counted = iterable
        self._iterator: Any = None
        self.at = start

    def __iter__(self) -> _Enumerate:
        self._iterator = iter(self.counted)
        return self

    def __next__(self) -> tuple[int, Any]:
        if self._iterator is None:
            self._iterator = iter(self.counted)
        value = next(self._iterator)
        self.at += 1
        return self.at - 1, value
