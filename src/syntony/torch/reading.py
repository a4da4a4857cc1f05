"""Iterators over a program's data that a replacement can advance to the lost rank's position."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from syntony.torch.random_state import random_state, set_random_state

LIBRARY_LOADERS = ("accelerate.data_loader", ".utilities.combined_loader")
"""Suffixes of names of modules whose loaders pass on, item by item, what the loaders in them
return."""


@dataclass
class ReadingState:
    """The position of an iterator, and the random states that led to it."""

    calls: int = 0
    """Number of calls of `next`."""
    made: Any = None
    """The random state when the iterator was made."""
    first: Any = None
    """The state before the first call."""
    last: Any = None
    """The state before the last call, in which some loaders read a batch ahead."""
    previous: Any = None
    """The state before the call before that; only for what a loop iterates."""
    ended: bool = False
    """It is exhausted; its random states are dropped."""
    generators: list[list[Any]] = field(default_factory=list)
    """For each data loader that it reads, the states of the loader's own generators."""

    def reopen(self, now: Any) -> Any:
        """Advance a replacement's reading to this position. Raises `ValueError`: it has none, or
        one that cannot be restarted."""
        if not isinstance(now, Reading):
            raise ValueError("an iterator of the lost rank's that the replacement does not have")
        now.reopen(self)
        return now


class _Current:
    """State that data loaders consult when they are asked for an iterator, or for a batch."""

    reading: Reading | None = None
    skims = False
    """Whether batches are counted, not read."""


class Reading:
    """An iterator that knows its position; otherwise it behaves as the one that it wraps."""

    def __init__(
        self, iterable: Any, state: ReadingState | None = None, *, at: int | None = None
    ) -> None:
        """Begin to read, or continue at another process's position.

        Args:
            iterable: the data.
            state: the other process's position.
            at: for a loop, the number of batches that the program has finished: one less than were
                read if it still works on the last.
        """
        self._iterable = iterable
        self._of_loop = at is not None
        self._begin(state, again=state is not None and at is not None and state.calls > at)

    def _begin(self, state: ReadingState | None, *, again: bool = False) -> None:
        self._loaders = 0
        self._repeats: Any = None
        self._state = state or ReadingState(made=random_state())
        if self._state.ended:
            self._iterator: Iterator[Any] = iter(())
            return
        if state is not None:
            set_random_state(state.made)
        with self._opening():
            self._iterator = iter(self._iterable)
        if state is not None and again:
            self._repeats = state.last
            state.calls, state.last = state.calls - 1, state.previous
        if state is not None:
            self._skip(0)

    def __iter__(self) -> Reading:
        return self

    def __next__(self) -> Any:
        try:
            return self._read()
        except StopIteration:
            self._state = ReadingState(ended=True)
            raise

    def _read(self) -> Any:
        state = self._state
        if self._repeats is not None:
            set_random_state(self._repeats)
            self._repeats = None
        now = random_state()
        state.calls += 1
        if self._of_loop:
            state.previous = state.last
        state.last = now
        if state.calls > 1 or state.ended:
            return next(self._iterator)
        state.first = state.made if now == state.made else now
        with self._opening():  # some loaders begin to read only here
            return next(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_iterator"], name)

    def state(self, *, worked_on: bool = False) -> ReadingState:
        """State to be pickled, without random states that are not needed: they are most of a
        record.

        Args:
            worked_on: for a loop that is in the middle of an iteration.
        """
        ahead = _reads_ahead(self._iterable)
        return replace(
            self._state,
            first=None if self._of_loop else self._state.first,  # immediately after its creation
            last=self._state.last if ahead or worked_on else None,
            previous=self._state.previous if ahead and worked_on else None,
        )

    def loader(self, generators: list[Any]) -> None:
        """A data loader begins to be read: restore its generators' states, or record them.

        Args:
            generators: its own, as far as it has any.
        """
        kept = self._state.generators
        if self._loaders < len(kept):
            for generator, state in zip(generators, kept[self._loaders], strict=False):
                generator.set_state(state)
        else:
            kept.append([each.get_state() for each in generators])
        self._loaders += 1

    def reopen(self, state: ReadingState) -> None:
        """Go to another process's position in the same data. Raises `ValueError`: the iterator
        cannot restart, and is too far."""
        if isinstance(self._iterable, types.GeneratorType) and not state.ended:
            done = self._state.calls
            if done > state.calls:
                raise ValueError("a generator that was read further than the lost rank's")
            self._state = replace(state)
            self._skip(done)
            return
        self._begin(replace(state))

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        outside, _Current.reading = _Current.reading, self
        try:
            yield
        finally:
            _Current.reading = outside

    def _skip(self, done: int) -> None:
        """After this many calls set the random state; all but the last call may be only counted."""
        calls = self._state.calls
        for number in range(done + 1, calls + 1):
            if number == 1 and self._state.first is not None:
                set_random_state(self._state.first)
            if number == calls and self._state.last is not None:
                set_random_state(self._state.last)
            _Current.skims = number < calls and gives_batches(self._iterable)
            try:
                with self._opening() if number == 1 else contextlib.nullcontext():
                    next(self._iterator, None)
            finally:
                _Current.skims = False


def gives_batches(iterable: Any) -> bool:
    """Whether it is a data loader: it can be read again, and skip batches."""
    inner = getattr(iterable, "counted", iterable)
    if _reads_ahead(inner):
        return True
    from torch.utils.data import DataLoader

    return isinstance(inner, DataLoader) and type(inner).__iter__ is DataLoader.__iter__


def _reads_ahead(iterable: Any) -> bool:
    inner = getattr(iterable, "counted", iterable)
    return type(inner).__module__.endswith(LIBRARY_LOADERS)


def opened(iterable: Any) -> Any:
    """Replaces `iter` in a program: for data, returns an iterator with a known position."""
    if gives_batches(iterable) or isinstance(iterable, types.GeneratorType):
        return Reading(iterable)
    return iter(iterable)


def patch_loader() -> None:
    """Make data loaders report that they are read, and count batches that are only skipped."""
    from torch.utils.data import DataLoader, dataloader

    make = DataLoader.__iter__
    single = dataloader._SingleProcessDataLoaderIter
    read = single._next_data

    def made(self: Any) -> Any:
        if _Current.reading is not None:
            _Current.reading.loader(_generators(self))
        return make(self)

    def next_data(self: Any) -> Any:
        if not _Current.skims or self._dataset_kind != dataloader._DatasetKind.Map:
            return read(self)
        self._next_index()
        return None

    DataLoader.__iter__ = made
    single._next_data = next_data


def _generators(loader: Any) -> list[Any]:
    """A loader's own generators, and those of nested samplers."""
    found = [loader.generator]
    for name in ("sampler", "batch_sampler"):
        sampler = getattr(loader, name, None)
        while sampler is not None:
            found.append(getattr(sampler, "generator", None))
            sampler = getattr(sampler, "batch_sampler", None) or getattr(sampler, "sampler", None)
    once = {id(each): each for each in found if each is not None}
    return list(once.values())
