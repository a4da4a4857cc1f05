"""Hands rows that are in the store to those who judge them, each batch once, whoever stored it.

A batch may be heard of twice: from a gateway that stored it and was lost before it acknowledged it,
and from the next one, which finds it in the store. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from syntony.controller.relayed_rows import Told
from syntony.wire.messages import MAX_UNACKED
from syntony.wire.tables import PROBE

if TYPE_CHECKING:
    from syntony.controller.batches import BatchPiece
    from syntony.controller.ingest import Outcome
    from syntony.controller.probed_rows import Probed

WINDOW = 2 * MAX_UNACKED
"""Numbers of a stream that are remembered one by one: no more are under way at once. Older ones
count as known."""
STREAMS = 4
"""Of one host: the current one, and backlogs that were delivered before it."""


class _Numbers:
    """Batches of one stream that have been heard of."""

    def __init__(self) -> None:
        self._newest = 0
        self._known = 0
        """Bit n: number `_newest` - n."""

    def add(self, number: int) -> bool:
        """Whether it is new."""
        ahead = number - self._newest
        if ahead > 0:
            kept = self._known << ahead if ahead < WINDOW else 0
            self._known = kept & ((1 << WINDOW) - 1) | 1
            self._newest = number
            return True
        if -ahead >= WINDOW or self._known >> -ahead & 1:
            return False
        self._known |= 1 << -ahead
        return True


class StoredRows:
    """One per leader, on its event loop.

    Args:
        readers: called with rows of agents, each batch once.
        judge: called with rows of probing that gateways pass on, each batch once, never with none.
    """

    def __init__(
        self,
        readers: Sequence[Callable[[list[BatchPiece]], None]],
        judge: Callable[[Probed], None],
    ) -> None:
        self._readers, self._judge = readers, judge
        self._known: dict[str, OrderedDict[str, _Numbers]] = {}
        self.probed: dict[str, int] = {}
        """Host → newest instant of its rows of probing that is in the store, fleet time."""
        self.repeated = 0
        """Batches that were heard of again."""

    def take(self, outcomes: Iterable[Outcome], pieces: Iterable[BatchPiece]) -> list[Outcome]:
        """Batches that this controller has stored, and their rows. Returns what is new."""
        return self.take_told(Told(list(outcomes), list(pieces), []))

    def take_told(self, told: Told) -> list[Outcome]:
        """Batches that have been stored, and the rows of those that are judged. Returns what is
        new."""
        new = [self._is_new(each.host, each.stream, each.seq) for each in told.outcomes]
        fresh: list[BatchPiece] = []
        if told.pieces:
            named = {
                (each.host, each.stream, each.seq)
                for each, is_new in zip(told.outcomes, new, strict=True)
                if is_new
            }
            fresh = [each for each in told.pieces if (each.host, each.stream, each.seq) in named]
        for read in self._readers:
            read(fresh)
        probes = self._judge_new(told, new)
        # Once they have been handed on: a second counts as whole from here.
        for piece in fresh:
            if piece.table is PROBE:
                self._has_probed(piece.host, piece.last_ns)
        for outcome in probes:
            self._has_probed(outcome.host, outcome.newest_ns)
        return [each for each, is_new in zip(told.outcomes, new, strict=True) if is_new]

    def _judge_new(self, told: Told, new: Sequence[bool]) -> list[Outcome]:
        """Hand on rows of probing that are new; the outcomes of those of probes."""
        probes: list[Outcome] = []
        for rows, places in told.probed:
            fresh = [at for at, place in enumerate(places) if new[place]]
            if fresh:
                self._judge(rows.chosen(fresh))
            if rows.table == PROBE.name:
                probes += [told.outcomes[places[at]] for at in fresh]
        return probes

    def _has_probed(self, host: str, newest_ns: int) -> None:
        if newest_ns > self.probed.get(host, 0):
            self.probed[host] = newest_ns

    def _is_new(self, host: str, stream: str, number: int) -> bool:
        if (streams := self._known.get(host)) is None:
            streams = self._known[host] = OrderedDict()
        numbers = streams.get(stream)
        if numbers is None:
            numbers = streams[stream] = _Numbers()
            if len(streams) > STREAMS:
                streams.popitem(last=False)
        elif len(streams) > 1:
            streams.move_to_end(stream)
        new = numbers.add(number)
        self.repeated += not new
        return new
