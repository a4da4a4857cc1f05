"""Which flows have steady delays: these need not be sorted. Pure.

For every flow, count how many of the newest seconds, and how many of those before, lie within
`STEADY_NS` of a reference value. If more than half of either do, both medians lie there, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

STEADY_NS = 8_000.0
AIM_EVERY_S = 10
"""Interval at which an unsteady flow gets another reference value: that costs as much as sorting
its delays."""


class Steady:
    """Rings of seconds. Flows keep their places; new ones are appended.

    Args:
        seconds: length of a ring.
        newest: number of seconds that count as newest.
    """

    def __init__(self, seconds: int, newest: int) -> None:
        self._newest = newest
        self._near_ns = np.zeros((2, 0))
        self._inside = np.zeros((seconds, 2, 0), dtype=np.bool_)
        self._now = np.zeros((2, 0), dtype=np.int8)
        self._before = np.zeros((2, 0), dtype=np.int8)

    def add(self, place: int, delay_ns: Floats) -> None:
        """Add the next second, (2, flows), at this place of the ring."""
        missing = delay_ns.shape[1] - self._near_ns.shape[1]
        if missing > 0:
            more = ((0, 0), (0, missing))
            self._near_ns = np.pad(self._near_ns, more, constant_values=np.nan)
            self._inside = np.pad(self._inside, ((0, 0), *more))
            self._now, self._before = np.pad(self._now, more), np.pad(self._before, more)
        width = delay_ns.shape[1]
        inside = np.zeros_like(self._inside[place])
        inside[:, :width] = np.abs(delay_ns - self._near_ns[:, :width]) < STEADY_NS
        older = self._inside[(place - self._newest) % len(self._inside)]
        self._now += inside
        self._now -= older
        self._before += older
        self._before -= self._inside[place]
        self._inside[place] = inside

    def unsteady(self, seconds: int, few: Index | None = None) -> Mask:
        """Flows of which one direction may have changed by twice `STEADY_NS` or more, (flows,).

        Args:
            seconds: number of seconds added, at most the length of the ring.
            few: places of seconds all of which are compared, in place of half of the newest.
        """
        before = 2 * self._before > seconds - self._newest
        now = 2 * self._now > self._newest if few is None else self._inside[few].all(axis=0)
        return np.asarray(~(now & before).all(axis=0))

    def above(self, floor_ns: Floats, least_ns: float, lower: int) -> Mask:
        """Flows of which one direction may have more than `lower` of the newest seconds `least_ns`
        or more above the floor, and at most `lower` below that, (flows,)."""
        near = self._near_ns + STEADY_NS - floor_ns < least_ns
        return np.asarray(~((self._now > lower) & near).all(axis=0))

    def aim(self, flows: Index, near_ns: Floats, delays_ns: Floats, newest: Index) -> None:
        """Set the reference values of these flows.

        Args:
            flows: numbers, (n,).
            near_ns: there and back, (2, n); NaN where unknown.
            delays_ns: by places of the ring, (2, n, seconds).
            newest: places of the newest seconds.
        """
        self._near_ns[:, flows] = near_ns
        inside = np.moveaxis(np.abs(delays_ns - near_ns[..., None]) < STEADY_NS, 2, 0)
        self._inside[:, :, flows] = inside
        now = inside[newest].sum(axis=0, dtype=np.int8)
        self._now[:, flows] = now
        self._before[:, flows] = inside.sum(axis=0, dtype=np.int8) - now
