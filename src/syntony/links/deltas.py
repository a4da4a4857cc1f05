"""The increase of a counter between two readings, or why it is unknown."""

from __future__ import annotations

import enum
from typing import NamedTuple

from syntony.links.counters import LinkCounter


class CounterOutcome(enum.StrEnum):
    """How one reading compares with the previous one."""

    FIRST = "first"
    """The first reading: there is nothing to compare with."""
    COUNTED = "counted"
    RESET = "reset"
    """It was reset (boot, driver reload, cleared): the increase is its value since."""
    SATURATED = "saturated"
    """It is at its ceiling: the increase is a lower bound, and the next one unknown."""
    UNKNOWN = "unknown"
    """It could not be read, or is at its ceiling; not zero."""


class Delta(NamedTuple):
    """One counter since its previous reading."""

    increase: int | None
    """None if unknown."""
    reading: CounterOutcome


class CounterDeltas:
    """Remembers the last value of every counter of one port.

    An `epoch` names one life of the counters: boot id and interface index, say. Within one epoch a
    value that went down was cleared by somebody; with another epoch it began at zero.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._epoch = ""

    def take(
        self, epoch: str, values: dict[str, int | None], table: dict[str, LinkCounter]
    ) -> dict[str, Delta]:
        """One delta per value.

        Args:
            epoch: the counters' present life.
            values: counter key → value, None where it could not be read; what is negative or no
                number is the reader's to turn into None.
            table: what is known of the counters, by key.
        """
        anew = bool(self._epoch) and epoch != self._epoch
        self._epoch = epoch
        if anew:
            self._last = dict.fromkeys(self._last, 0)
        return {
            key: self._one(key, value, table[key].ceiling, anew=anew)
            for key, value in values.items()
        }

    def _one(self, key: str, value: int | None, ceiling: int | None, *, anew: bool) -> Delta:
        if value is None:
            return Delta(None, CounterOutcome.UNKNOWN)
        last = self._last.get(key)
        self._last[key] = value
        if last is None:
            return Delta(None, CounterOutcome.FIRST)
        if ceiling is not None and value >= ceiling:
            stuck = last >= ceiling and not anew
            return (
                Delta(None, CounterOutcome.UNKNOWN)
                if stuck
                else Delta(max(value - last, 0), CounterOutcome.SATURATED)
            )
        if value < last:
            return Delta(value, CounterOutcome.RESET)
        return Delta(value - last, CounterOutcome.RESET if anew else CounterOutcome.COUNTED)
