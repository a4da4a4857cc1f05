"""Sums of counts over the newest seconds, for windows of several lengths at once. Pure.

Memory is bounded: a minute of seconds, and five minutes in steps of ten seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

WINDOWS_S = (1, 3, 10, 30, 60, 300)
"""All evaluated every second: a black hole shows in one second, 0.1 % of loss in three hundred."""
FINE_S = 60
STEP_S = 10


class WindowSums:
    """Rings of seconds and of steps, of arrays (fields, columns); new columns are appended.

    Args:
        fields: number of fields of each second's array.
    """

    def __init__(self, fields: int) -> None:
        self._nothing = np.zeros((fields, 0), dtype=np.int64)
        self._seconds: deque[Ints] = deque(maxlen=FINE_S)
        self._steps: deque[Ints] = deque(maxlen=max(WINDOWS_S) // STEP_S)
        self._step: Ints = self._nothing
        self._in_step = 0
        self._sums = dict.fromkeys(WINDOWS_S, self._nothing)
        """Sums over the newest seconds, by their number, or over all that there are."""

    def add(self, second: Ints) -> None:
        """Add the next second. It is kept by reference, and changed by `forget`."""
        for seconds, total in self._sums.items():
            grown = self._sums[seconds] = _added(total, second)
            if seconds <= FINE_S and len(self._seconds) >= seconds:
                _subtract(grown, self._seconds[-seconds])
        self._seconds.append(second)
        self._step = _added(self._step, second)
        self._in_step += 1
        if self._in_step == STEP_S:
            if len(self._steps) == self._steps.maxlen:
                _subtract(self._sums[max(WINDOWS_S)], self._steps[0])
            self._steps.append(self._step)
            self._step, self._in_step = self._nothing, 0

    def forget(self, columns: NDArray[np.bool_], keep_s: int) -> None:
        """Discard values of these columns from before the newest `keep_s` seconds, of at most
        `FINE_S`."""
        seconds = list(self._seconds)
        kept_from = max(0, len(seconds) - keep_s)
        for counts in seconds[:kept_from]:
            counts[:, columns[: counts.shape[1]]] = 0
        for part in (self._step, *self._steps):
            part[:, columns[: part.shape[1]]] = 0
        for age, counts in enumerate(reversed(seconds[kept_from:])):
            step = self._step_of(age)
            if step is not None:
                kept = columns[: counts.shape[1]]
                step[:, : len(kept)][:, kept] += counts[:, kept]
        for length in self._sums:
            parts = seconds[-length:] if length <= FINE_S else [*self._steps, self._step]
            self._sums[length] = self._sum(parts)

    def mapped(self, fields: int, linear: Callable[[Ints], Ints]) -> WindowSums:
        """The sums as if `linear` of every second had been added; (`fields`, columns)."""
        made = WindowSums(fields)
        made._seconds.extend(map(linear, self._seconds))
        made._steps.extend(map(linear, self._steps))
        if self._in_step:
            made._step, made._in_step = linear(self._step), self._in_step
        made._sums = {length: linear(total) for length, total in self._sums.items()}
        return made

    def windows(self) -> list[tuple[int, Ints]]:
        """Length and sum of every window that is full, and of the shortest that is not; valid until
        the next second is added."""
        found = []
        held = len(self._steps) * STEP_S + self._in_step
        for seconds, total in self._sums.items():
            if held:
                found.append((seconds, total))
            if held < seconds:
                break
        return found

    def newest(self) -> Ints:
        """The newest second."""
        return self._seconds[-1] if self._seconds else self._nothing

    @property
    def seconds(self) -> Sequence[Ints]:
        """The newest seconds, the oldest first, `FINE_S` at most."""
        return self._seconds

    def _step_of(self, age: int) -> Ints | None:
        """The sum that contains the second this long before the newest one; None: discarded."""
        if age < self._in_step:
            return self._step
        place = 1 + (age - self._in_step) // STEP_S
        return self._steps[-place] if place <= len(self._steps) else None

    def _sum(self, parts: Sequence[Ints]) -> Ints:
        total = self._nothing
        for part in parts:
            total = _added(total, part)
        return total


def _added(total: Ints, counts: Ints) -> Ints:
    """`total` itself if it is wide enough."""
    missing = counts.shape[1] - total.shape[1]
    if missing > 0:
        total = np.pad(total, ((0, 0), (0, missing)))
    total[:, : counts.shape[1]] += counts
    return total


def _subtract(total: Ints, counts: Ints) -> None:
    total[:, : counts.shape[1]] -= counts
