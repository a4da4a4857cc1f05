"""The last five minutes of every flow's counts and delays, and windows over them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from syntony.fabric.steady import AIM_EVERY_S, STEADY_NS, Steady
from syntony.fabric.sums import FINE_S, WindowSums

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Index = NDArray[np.intp]
T = TypeVar("T", np.int64, np.float64)

DELAY_S = 10
"""The current delay is the median of this many seconds; it is compared with that of the rest of the
minute."""
MIN_DELAY_SECONDS = 5
SOON_S = 2
"""A delay between switches that each of so many seconds shows needs no median."""
BLOCK = 2048
"""Flows whose delays are sorted at a time."""

FLOOR_S = 300
"""A path's floor is its fastest second of the past five to ten minutes: longer than any queue that
drains between steps of a job, and short enough to forget a changed route. The clocks' error of that
second is added: while clocks are found again it is milliseconds, and delays may seem negative."""
PERSISTENT = 0.2
"""Queueing delay must be present in all but a fifth of the seconds."""

SENT, LOST, SENT_BACK, LOST_BACK, UNRESOLVED, HEARD = range(6)
FIELDS = 6


class SecondCounts(NamedTuple):
    """One second of all flows, (flows,) each; a flow without a report is all zeros."""

    counts: Ints
    """(`FIELDS`, flows). HEARD belongs to the pair: requests that its target received."""
    delay_ns: Floats
    """(2, flows): median one-way delay there and back; NaN where none was measured."""
    slowest_ns: Floats
    """(2, flows): of the slowest probe, likewise."""
    clk_err_ns: Floats
    """(flows,): 1-sigma of the clocks in these delays."""


class HistoryWindow(NamedTuple):
    """Sums over a window."""

    name: str
    seconds: int
    counts: Ints


class DelayChange(NamedTuple):
    """Delay now minus delay before, (2, flows); NaN where either is unknown."""

    delay_ns: Floats
    sigma_ns: Floats
    """(flows,)."""


class DelayExcess(NamedTuple):
    """Delay above the path's floor that is present in nearly every second, (2, flows); NaN where
    there are too few seconds."""

    delay_ns: Floats
    sigma_ns: Floats
    """(flows,)."""


class FlowHistory:
    """History of every flow. Flows keep their places; new ones are appended."""

    def __init__(self) -> None:
        self.counts = WindowSums(FIELDS)
        self._delays = np.full((2, 0, FINE_S), np.nan)
        """Delays of each second of a minute; the newest second is at `_delays_at`."""
        self._slowest = self._delays.astype(np.float32)
        self._delays_at = -1
        self._delay_seconds = 0
        self._steady = Steady(FINE_S, DELAY_S)
        self._errors: deque[Floats] = deque(maxlen=DELAY_S)
        self._floors: list[Floats] = [np.full((2, 0), np.inf), np.full((2, 0), np.inf)]
        """Floors of the current five minutes and of the previous five."""
        self._in_floor = 0

    def add(self, second: SecondCounts) -> None:
        """Add the next second. Its counts are kept by reference, and changed by `forget`."""
        self.counts.add(second.counts)
        self._keep_delays(second.delay_ns, second.slowest_ns)
        self._errors.append(second.clk_err_ns)
        self._sink(second.delay_ns + second.clk_err_ns)

    def forget(self, flows: NDArray[np.bool_], keep_s: int) -> None:
        """Discard all counts of these flows from before the newest `keep_s` seconds, of at most
        `FINE_S`. Delays are kept."""
        self.counts.forget(flows, keep_s)

    def windows(self, flows: int) -> list[HistoryWindow]:
        """As `WindowSums.windows`, without those that contain no more than the one before: nothing
        was probed earlier, or it was discarded."""
        found: list[HistoryWindow] = []
        probes = 0
        for seconds, total in self.counts.windows():
            if (sent := int(total[SENT].sum())) > probes or not found:
                found.append(HistoryWindow(f"{seconds}s", seconds, _widened(total, flows, 0)))
                probes = sent
        return found

    def newest(self, flows: int) -> Ints:
        """Counts of the newest second, (`FIELDS`, flows)."""
        return _widened(self.counts.newest(), flows, 0)

    def recent_counts(self, flows: Index) -> Ints:
        """Counts of these flows in each second for which delays are kept, (seconds, `FIELDS`,
        n)."""
        kept = self.counts.seconds
        found = np.zeros((len(kept), FIELDS, len(flows)), dtype=np.int64)
        for second, counts in zip(found, kept, strict=True):
            here = flows < counts.shape[1]
            second[:, here] = counts[:, flows[here]]
        return found

    def recent_waits(self, flows: Index, way: Index) -> tuple[Floats, Floats]:
        """Delay above the floor in each of the same seconds, of the median and of the slowest
        probe, (n, seconds) each; NaN where unknown.

        Args:
            flows: numbers, (n,).
            way: direction of each, 0 there or 1 back.
        """
        places = self._places(self._delay_seconds)
        floor = self._floor()[way, flows]
        floor = np.where(np.isfinite(floor), floor, np.nan)[:, None]
        usual, slowest = (
            delays[way[:, None], flows[:, None], places] - floor
            for delays in (self._delays, self._slowest)
        )
        return usual, slowest

    def change(
        self, flows: int, least_ns: float = 0.0, *, soon: bool = False
    ) -> DelayChange | None:
        """Delay change of the newest `DELAY_S` seconds compared with the rest of the minute.

        Args:
            flows: their number.
            least_ns: a flow of which neither direction changed by more may be left unknown.
            soon: of the fastest of the newest `SOON_S` seconds, compared with the same.
        """
        if self._delay_seconds < 2 * DELAY_S:
            return None
        delay_ns = np.full((2, flows), np.nan)
        few = self._places(SOON_S) if soon else None
        unsteady = self._steady.unsteady(self._delay_seconds, few)
        for part in self._blocks(unsteady if least_ns >= 2 * STEADY_NS else None):
            now = self._newest(part, SOON_S if soon else DELAY_S)
            now = now.min(axis=-1) if soon else _median(now)
            delay_ns[:, part] = now - _median(self._newest(part, self._delay_seconds, DELAY_S))
        return DelayChange(delay_ns, self.worst_error(flows))

    def excess(self, flows: int, least_ns: float = 0.0) -> DelayExcess | None:
        """Delay above the floor that persists through the newest `DELAY_S` seconds.

        Args:
            flows: their number.
            least_ns: a flow of which neither direction has more may be left unknown.
        """
        if self._delay_seconds < 2 * DELAY_S:
            return None
        floor = self._floor()
        high = None
        if least_ns > 0:
            high = self._steady.above(floor, least_ns, int(_persistent(np.array(DELAY_S))))
        delay_ns = np.full((2, flows), np.nan)
        for part in self._blocks(high):
            now = self._newest(part, DELAY_S)
            count = _sorted(now)
            known = (count >= MIN_DELAY_SECONDS) & np.isfinite(floor[:, part])
            low = _at(now, count, _persistent)
            delay_ns[:, part] = np.where(known, low - floor[:, part], np.nan)
        return DelayExcess(delay_ns, self.worst_error(flows))

    def _blocks(self, chosen: NDArray[np.bool_] | None = None) -> list[slice | Index]:
        """All flows or these, in blocks: the seconds of one block fit into the processor's
        cache."""
        width = self._delays.shape[1]
        if chosen is None or 2 * np.count_nonzero(chosen) > width:
            return [slice(start, min(start + BLOCK, width)) for start in range(0, width, BLOCK)]
        some = np.flatnonzero(chosen)
        return [some[start : start + BLOCK] for start in range(0, len(some), BLOCK)]

    def _places(self, seconds: int, without: int = 0) -> Index:
        """Of the newest seconds minus the newest of these."""
        return np.arange(self._delays_at - seconds + 1, self._delays_at - without + 1) % FINE_S

    def _aim(self) -> None:
        """Give some of the unsteady flows a new reference value near their recent delays."""
        if self._delay_seconds < 2 * DELAY_S:
            return
        due = self._steady.unsteady(self._delay_seconds)
        due[np.arange(len(due)) % AIM_EVERY_S != self._delays_at % AIM_EVERY_S] = False
        newest = self._places(DELAY_S)
        for start in range(0, len(some := np.flatnonzero(due)), BLOCK):
            part = some[start : start + BLOCK]
            delays_ns = self._delays[:, part]
            self._steady.aim(part, _median(delays_ns.copy()), delays_ns, newest)

    def _keep_delays(self, delay_ns: Floats, slowest_ns: Floats) -> None:
        missing = delay_ns.shape[1] - self._delays.shape[1]
        if missing > 0:
            more = np.full((2, missing, FINE_S), np.nan)
            self._delays = np.concatenate((self._delays, more), axis=1)
            self._slowest = np.concatenate((self._slowest, more.astype(np.float32)), axis=1)
        self._delays_at = (self._delays_at + 1) % FINE_S
        self._delay_seconds = min(self._delay_seconds + 1, FINE_S)
        for kept, measured in ((self._delays, delay_ns), (self._slowest, slowest_ns)):
            kept[:, : delay_ns.shape[1], self._delays_at] = measured
            kept[:, delay_ns.shape[1] :, self._delays_at] = np.nan
        self._steady.add(self._delays_at, delay_ns)
        self._aim()

    def _newest(self, flows: slice | Index, seconds: int, without: int = 0) -> Floats:
        """A copy of the newest seconds' delays minus the newest of these, (2, flows, seconds)."""
        places = self._places(seconds, without)
        cuts = np.flatnonzero(np.diff(places) != 1) + 1
        parts = [self._delays[:, flows, p[0] : p[-1] + 1] for p in np.split(places, cuts)]
        return np.concatenate(parts, axis=-1)

    def worst_error(self, flows: int) -> Floats:
        """1-sigma of clocks in the newest seconds, ns, (flows,)."""
        sigma_ns = np.zeros(flows)
        for errors in self._errors:
            np.maximum(sigma_ns[: len(errors)], errors, out=sigma_ns[: len(errors)])
        return sigma_ns

    def _floor(self) -> Floats:
        """Every flow's fastest second, (2, flows); infinite where none was measured."""
        width = self._delays.shape[1]
        return np.minimum(*(_widened(each, width, np.inf) for each in self._floors))

    def _sink(self, delay_ns: Floats) -> None:
        if self._in_floor == FLOOR_S:
            self._floors = [np.full((2, 0), np.inf), self._floors[0]]
            self._in_floor = 0
        self._in_floor += 1
        floor = _widened(self._floors[0], delay_ns.shape[1], np.inf)
        self._floors[0] = np.fmin(floor, _widened(delay_ns, floor.shape[1], np.nan))


def _widened(values: NDArray[T], flows: int, fill: float) -> NDArray[T]:
    """The array widened to (n, at least `flows`), with new places filled."""
    missing = flows - values.shape[1]
    if missing <= 0:
        return values
    more = np.full((len(values), missing), fill, dtype=values.dtype)
    return np.concatenate((values, more), axis=1)


def _sorted(delays: Floats) -> Ints:
    """Sort each flow's seconds, (2, flows, seconds), in place. Returns how many of them were
    measured."""
    delays.sort(axis=-1)
    # NaN sorts after every number, and most flows have none.
    count = np.full(delays.shape[:-1], delays.shape[-1])
    some = np.isnan(delays[..., -1])
    count[some] -= np.isnan(delays[some]).sum(axis=-1)
    return count


def _at(delays: Floats, count: Ints, place_of: Callable[[Ints], Ints]) -> Floats:
    """(2, flows) from sorted (2, flows, seconds): the value at that place among `count`."""
    found = delays[..., int(place_of(np.array(delays.shape[-1])))].copy()
    some = count < delays.shape[-1]
    if some.any():
        place = place_of(np.maximum(count[some], 1))
        found[some] = np.take_along_axis(delays[some], place[:, None], axis=-1)[:, 0]
    return found


def _persistent(count: Ints) -> Ints:
    """The place, among this many sorted seconds, of the value that all but `PERSISTENT` of them
    reach."""
    return np.asarray(np.floor(PERSISTENT * (count - 1)).astype(np.intp))


def _median(delays: Floats) -> Floats:
    """(2, flows) of (2, flows, seconds), which is sorted; NaN for a flow measured in too few."""
    count = _sorted(delays)
    median = (_at(delays, count, lambda n: (n - 1) // 2) + _at(delays, count, lambda n: n // 2)) / 2
    return np.where(count >= MIN_DELAY_SECONDS, median, np.nan)
