"""The last five minutes of every flow's counts, second by second, and windows over them. Pure.

Memory is bounded: a minute of seconds, and five minutes in steps of ten seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

WINDOWS_S = (1, 3, 10, 30, 60, 300)
"""All looked at every second: a black hole shows in one, 0.1 % of loss in three hundred."""
FINE_S = 60
STEP_S = 10
DELAY_S = 10
"""Delays are the median of so many seconds, against that of the rest of the minute."""
MIN_DELAY_SECONDS = 5

FLOOR_S = 300
"""A path's floor is its fastest second of the past five to ten minutes: longer than any queue that
drains between steps of a job, shorter than what a changed route may be held against."""
PERSISTENT = 0.2
"""Queueing is what is there in all but a fifth of the seconds."""

SENT, LOST, SENT_BACK, LOST_BACK, UNRESOLVED, HEARD = range(6)
FIELDS = 6


class SecondCounts(NamedTuple):
    """One second of all flows, (flows,) each; a flow that says nothing is all zeros."""

    counts: Ints
    """(`FIELDS`, flows). HEARD is the pair's: requests that its target says it heard."""
    delay_ns: Floats
    """(2, flows): median one-way delay there and back; NaN where none was measured."""
    clk_err_ns: Floats
    """(flows,): 1-sigma of the clocks in these."""


class Window(NamedTuple):
    """Sums over a window."""

    name: str
    seconds: int
    counts: Ints


class Change(NamedTuple):
    """Delay now less delay before, (2, flows); NaN where either is not known."""

    delay_ns: Floats
    sigma_ns: Floats
    """(flows,)."""


class Excess(NamedTuple):
    """Delay above the path's floor that is there in nearly every second, (2, flows); NaN where
    there are too few of them."""

    delay_ns: Floats
    sigma_ns: Floats
    """(flows,)."""


class FlowHistory:
    """Rings of seconds and of steps. Flows keep their places; new ones come behind."""

    def __init__(self) -> None:
        self._seconds: deque[SecondCounts] = deque(maxlen=FINE_S)
        self._steps: deque[Ints] = deque(maxlen=max(WINDOWS_S) // STEP_S)
        self._step: Ints = np.zeros((FIELDS, 0), dtype=np.int64)
        self._in_step = 0
        self._floors: list[Floats] = [np.full((2, 0), np.inf), np.full((2, 0), np.inf)]
        """Of the running five minutes, and of those before."""
        self._in_floor = 0

    def add(self, second: SecondCounts) -> None:
        """The next second."""
        self._seconds.append(second)
        self._step = _sum([self._step, second.counts], second.counts.shape[1])
        self._in_step += 1
        self._sink(second.delay_ns)
        if self._in_step == STEP_S:
            self._steps.append(self._step)
            self._step, self._in_step = np.zeros((FIELDS, 0), dtype=np.int64), 0

    def forget(self, flows: NDArray[np.bool_], keep_s: int) -> None:
        """Of these flows, everything that was counted before the newest `keep_s` seconds, of at
        most `FINE_S`. Delays stay."""
        seconds = list(self._seconds)
        for second in seconds[:-keep_s]:
            second.counts[:, flows[: second.counts.shape[1]]] = 0
        for part in (self._step, *self._steps):
            part[:, flows[: part.shape[1]]] = 0
        for age, second in enumerate(reversed(seconds[-keep_s:])):
            step = self._step_of(age)
            if step is not None:
                kept = flows[: second.counts.shape[1]]
                step[:, : len(kept)][:, kept] += second.counts[:, kept]

    def _step_of(self, age: int) -> Ints | None:
        """The sum that the second so many before the newest one went into; None: let go of."""
        if age < self._in_step:
            return self._step
        place = 1 + (age - self._in_step) // STEP_S
        return self._steps[-place] if place <= len(self._steps) else None

    def windows(self, flows: int) -> list[Window]:
        """Every window that there are seconds enough for, and the longest that there are not."""
        found = []
        held = len(self._steps) * STEP_S + self._in_step
        for seconds in WINDOWS_S:
            parts: Sequence[Ints]
            if seconds <= FINE_S:
                parts = [second.counts for second in list(self._seconds)[-seconds:]]
            else:
                parts = [*self._steps, self._step]
            if parts:
                found.append(Window(f"{seconds}s", seconds, _sum(parts, flows)))
            if held < seconds:
                break
        return found

    def newest(self, flows: int) -> Ints:
        """Counts of the newest second, (`FIELDS`, flows)."""
        return _sum([second.counts for second in list(self._seconds)[-1:]], flows)

    def change(self, flows: int) -> Change | None:
        """What the newest `DELAY_S` seconds changed against the rest of the minute."""
        seconds = list(self._seconds)
        now, before = seconds[-DELAY_S:], seconds[:-DELAY_S]
        if len(now) < DELAY_S or len(before) < DELAY_S:
            return None
        delay_ns = _median(now, flows) - _median(before, flows)
        return Change(delay_ns, _worst_error(now, flows))

    def excess(self, flows: int) -> Excess | None:
        """What the newest `DELAY_S` seconds held above the floor, again and again."""
        seconds = list(self._seconds)[-DELAY_S:]
        if len(self._seconds) < 2 * DELAY_S:
            return None
        floor = np.minimum(*(_grown(each, flows, np.inf) for each in self._floors))
        stack = np.stack([_grown(second.delay_ns, flows, np.nan) for second in seconds])
        count = np.isfinite(stack).sum(axis=0)
        place = np.maximum(0, np.floor(PERSISTENT * (count - 1)).astype(np.intp))
        # NaN sorts behind every number.
        low = np.take_along_axis(np.sort(stack, axis=0), place[None], axis=0)[0]
        known = (count >= MIN_DELAY_SECONDS) & np.isfinite(floor)
        delay_ns = np.where(known, low - np.where(known, floor, 0.0), np.nan)
        return Excess(delay_ns, _worst_error(seconds, flows))

    def _sink(self, delay_ns: Floats) -> None:
        if self._in_floor == FLOOR_S:
            self._floors = [np.full((2, 0), np.inf), self._floors[0]]
            self._in_floor = 0
        self._in_floor += 1
        floor = _grown(self._floors[0], delay_ns.shape[1], np.inf)
        self._floors[0] = np.fmin(floor, _grown(delay_ns, floor.shape[1], np.nan))


def _grown(values: Floats, flows: int, fill: float) -> Floats:
    """(2, at least `flows`), what is new filled."""
    missing = flows - values.shape[1]
    if missing <= 0:
        return values
    return np.concatenate((values, np.full((2, missing), fill)), axis=1)


def _worst_error(seconds: Sequence[SecondCounts], flows: int) -> Floats:
    sigma_ns = np.zeros(flows)
    for second in seconds:
        known = len(second.clk_err_ns)
        sigma_ns[:known] = np.maximum(sigma_ns[:known], second.clk_err_ns)
    return sigma_ns


def _sum(parts: Sequence[Ints], flows: int) -> Ints:
    total = np.zeros((FIELDS, flows), dtype=np.int64)
    for part in parts:
        total[:, : part.shape[1]] += part
    return total


def _median(seconds: Sequence[SecondCounts], flows: int) -> Floats:
    """(2, flows); NaN for a flow measured in too few of the seconds."""
    stack = np.full((len(seconds), 2, flows), np.nan)
    for place, second in enumerate(seconds):
        stack[place, :, : second.delay_ns.shape[1]] = second.delay_ns
    measured = np.isfinite(stack).sum(axis=0) >= MIN_DELAY_SECONDS
    stack[:, ~measured] = 0.0
    median = np.nanmedian(stack, axis=0)
    return np.asarray(np.where(measured, median, np.nan))
