"""Finds the rank that has not called the collective in which others wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from syntony.torch.stragglers import S, StepProgress

REPORT_NS = 10 * S
"""An operation in which ranks wait this long is reported."""


class Waiting(NamedTuple):
    """An operation that a rank is in."""

    group: str
    """The same on all members; empty: all ranks."""
    number: int
    """Of the operation in its group."""
    name: str
    for_ns: int

    @property
    def text(self) -> str:
        where = f" of group {self.group}" if self.group else ""
        return f"{self.name} {self.number}{where}"


class RankProgress(NamedTuple):
    """What a rank last reported of itself."""

    waiting: Waiting | None = None
    called: Mapping[str, int] = {}
    """Group → number of operations that the program has called in it."""
    pace: StepProgress = StepProgress()

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> RankProgress:
        """Parse a `heard` message. Raises `TypeError`, `ValueError`, `KeyError`: it is invalid."""
        waiting = message.get("waiting")
        pace = StepProgress(*map(int, message.get("pace", ())))
        called = {str(key): int(count) for key, count in dict(message.get("called", {})).items()}
        if waiting is None:
            return cls(None, called, pace)
        group, number, name, for_ns = waiting
        operation = Waiting(str(group), int(number), str(name)[:40], int(for_ns))
        return cls(operation, called, pace)


NO_PROGRESS = RankProgress()


class Hang(NamedTuple):
    """An operation that does not end, and the ranks at fault."""

    operation: Waiting
    absent: tuple[int, ...]
    """Ranks whose program has not called it."""
    waiting: tuple[int, ...]
    disagree: str = ""
    """If none is absent and ranks are in different operations: the ranks in each."""

    @property
    def text(self) -> str:
        waiting = ", ".join(map(str, self.waiting))
        for_s = self.operation.for_ns // S
        if self.disagree:
            return f"ranks call different operations: {self.disagree}, for {for_s} s"
        if not self.absent:
            return f"ranks {waiting} wait in {self.operation.text} for {for_s} s; all called it"
        absent = ", ".join(map(str, self.absent))
        return (
            f"rank {absent} has not called {self.operation.text}, "
            f"in which rank {waiting} waits for {for_s} s"
        )


def locate(ranks: Mapping[int, RankProgress]) -> Hang | None:
    """The operation with the longest wait, if that is `REPORT_NS` or more.

    Args:
        ranks: all that hold a rank.
    """
    waits = [each.waiting for each in ranks.values() if each.waiting is not None]
    oldest = max(waits, key=lambda each: each.for_ns, default=None)
    if oldest is None or oldest.for_ns < REPORT_NS:
        return None
    same = _in(ranks, oldest.group, oldest.number)
    absent = tuple(
        rank
        for rank, each in sorted(ranks.items())
        if each.called.get(oldest.group, oldest.number + 1) <= oldest.number
    )
    names = {each.name for each in same.values()}
    disagree = _by_name(same) if len(names) > 1 and not absent else ""
    return Hang(oldest, absent, tuple(sorted(same)), disagree)


def _in(ranks: Mapping[int, RankProgress], group: str, number: int) -> dict[int, Waiting]:
    return {
        rank: each.waiting
        for rank, each in ranks.items()
        if each.waiting is not None and each.waiting[:2] == (group, number)
    }


def _by_name(same: Mapping[int, Waiting]) -> str:
    names: Iterable[str] = sorted({each.name for each in same.values()})
    return "; ".join(
        f"{name} {next(iter(same.values())).number} on rank "
        + ", ".join(str(rank) for rank, each in sorted(same.items()) if each.name == name)
        for name in names
    )
