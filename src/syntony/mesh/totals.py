"""What a host's own NICs have sent, lost and measured since its agent started: for counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.model import MS, US

BOUNDS_NS = (
    *(step * scale for scale in (US, 10 * US, 100 * US, MS) for step in (1, 2, 5)),
    *(step * MS for step in (10, 20, 50, 100)),
)
"""Upper bounds of the delays' classes: from a switch's latency to what is as good as lost."""
_BOUNDS = np.array(BOUNDS_NS)
DIRECTIONS = ("out", "in")


class DirectionCounts(NamedTuple):
    """What each probe says of one direction, shape (n,) each."""

    owd_ns: NDArray[np.int64]
    measured: NDArray[np.bool_]
    sent: NDArray[np.bool_]
    lost: NDArray[np.bool_]
    unresolved: NDArray[np.bool_]
    stalled: NDArray[np.bool_]


class Totals(NamedTuple):
    sent: int
    lost: int
    unresolved: int
    stalled: int
    delays: tuple[int, ...]
    """Delays at or below each of `BOUNDS_NS`, then beyond the last; not cumulative."""
    delay_sum_ns: int


SUMMED_PROBES = 4_096
"""So many are summed up at a time, or as many as there are when somebody asks: of the few hundred
of a second, it is the calls that cost."""


class _Waiting(NamedTuple):
    """Probes not yet summed up."""

    nics: Sequence[str]
    flow: NDArray[np.intp]
    forward: DirectionCounts
    reverse: DirectionCounts


class NicTotals:
    """Grows for the life of the process. Not thread-safe.

    Args:
        at_once: probes summed up at a time.
    """

    def __init__(self, at_once: int = SUMMED_PROBES) -> None:
        self._at_once = at_once
        self._counts: dict[tuple[str, str], NDArray[np.int64]] = {}
        self._waiting: list[_Waiting] = []

    def add(
        self,
        nics: Sequence[str],
        flow: NDArray[np.intp],
        forward: DirectionCounts,
        reverse: DirectionCounts,
    ) -> None:
        """Add probes.

        Args:
            nics: each flow's own NIC.
            flow: each probe's flow, shape (n,).
            forward: what the probes say of the way out.
            reverse: … and of the way back.
        """
        if self._waiting and self._waiting[0].nics != nics:
            self._sum_up()  # another plan
        self._waiting.append(_Waiting(nics, flow, forward, reverse))
        if sum(len(each.flow) for each in self._waiting) >= self._at_once:
            self._sum_up()

    def _sum_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        nics = waiting[0].nics
        names = sorted(set(nics))
        numbers = {name: number for number, name in enumerate(names)}
        flow = np.concatenate([each.flow for each in waiting])
        nic = np.array([numbers[name] for name in nics], dtype=np.intp)[flow]
        said = (
            _joined([each.forward for each in waiting]),
            _joined([each.reverse for each in waiting]),
        )
        for direction, probes in zip(DIRECTIONS, said, strict=True):
            counts = _counted(nic, probes, len(names))
            for name in names:
                key = (name, direction)
                fresh = counts[:, numbers[name]]
                self._counts[key] = self._counts[key] + fresh if key in self._counts else fresh

    def each(self) -> Iterator[tuple[str, str, Totals]]:
        """(NIC, direction, its totals), sorted."""
        self._sum_up()
        for (nic, direction), counts in sorted(self._counts.items()):
            sent, lost, unresolved, stalled, total, *delays = counts.tolist()
            yield nic, direction, Totals(sent, lost, unresolved, stalled, tuple(delays), total)


def _joined(parts: Sequence[DirectionCounts]) -> DirectionCounts:
    return DirectionCounts(*map(np.concatenate, zip(*parts, strict=True)))


def _counted(nic: NDArray[np.intp], said: DirectionCounts, nics: int) -> NDArray[np.int64]:
    """Shape (5 + classes, nics): sent, lost, unresolved, stalled, sum of delays, their classes."""

    def per_nic(mask: NDArray[np.bool_], weights: NDArray[Any] | None = None) -> NDArray[Any]:
        values = None if weights is None else weights[mask]
        return np.bincount(nic[mask], values, minlength=nics)

    width = len(BOUNDS_NS) + 1
    classes = np.searchsorted(_BOUNDS, said.owd_ns[said.measured], side="left")
    delays = np.bincount(nic[said.measured] * width + classes, minlength=nics * width)
    return np.stack(
        [
            per_nic(said.sent),
            per_nic(said.lost),
            per_nic(said.unresolved),
            per_nic(said.stalled),
            per_nic(said.measured, said.owd_ns),
            *delays.reshape(nics, width).T,
        ]
    ).astype(np.int64)
