"""Passes stored rows to their readers, each batch once, whether a gateway or the leader stored it.

A batch can be reported twice: by a gateway that stored it and died before it acknowledged it, and
by the next one, which finds it in the store. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from syntony.controller.batches import BatchPiece
from syntony.controller.ingest import BatchOutcome
from syntony.controller.probed_rows import Probed
from syntony.controller.relayed_rows import RelayedBatches
from syntony.wire.messages import MAX_WINDOW
from syntony.wire.tables import PROBE

WINDOW = 2 * MAX_WINDOW
"""Batch numbers of a stream that are remembered; no more are in flight. Older ones count as
known."""
STREAMS = 4
"""Streams remembered per host: the current one, and backlogs delivered before it."""


class _Numbers:
    """Numbers of one stream's batches that have been reported."""

    def __init__(self) -> None:
        self._newest = 0
        self._known = 0
        """Bit n: number `_newest` - n."""

    def add(self, number: int) -> bool:
        """Record a number; returns whether it is new."""
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
    """Passes stored rows to their readers, each batch once.

    One per leader, on its event loop.

    Args:
        readers: called with agents' rows, each batch once.
        evaluate: called with probe rows that gateways relay, each batch once; never with no rows.
    """

    def __init__(
        self,
        readers: Sequence[Callable[[list[BatchPiece]], None]],
        evaluate: Callable[[Probed], None],
    ) -> None:
        self._readers, self._evaluate = readers, evaluate
        self._known: dict[str, OrderedDict[str, _Numbers]] = {}
        self.probed: dict[str, int] = {}
        """Host → newest instant of its stored probe rows, fleet time."""
        self.repeated = 0
        """Batches that were reported again."""

    def take(
        self, outcomes: Iterable[BatchOutcome], pieces: Iterable[BatchPiece]
    ) -> list[BatchOutcome]:
        """Take batches that this controller has stored. Returns the outcomes that are new."""
        return self.take_relayed(RelayedBatches(list(outcomes), list(pieces), []))

    def take_relayed(self, relayed: RelayedBatches) -> list[BatchOutcome]:
        """Take batches that a gateway has stored. Returns the outcomes that are new."""
        new = [self._is_new(each.host, each.stream, each.seq) for each in relayed.outcomes]
        fresh: list[BatchPiece] = []
        if relayed.pieces:
            named = {
                (each.host, each.stream, each.seq)
                for each, is_new in zip(relayed.outcomes, new, strict=True)
                if is_new
            }
            fresh = [each for each in relayed.pieces if (each.host, each.stream, each.seq) in named]
        for read in self._readers:
            read(fresh)
        probes = self._evaluate_new(relayed, new)
        # Only after the readers have them: from here on the second counts as complete.
        for piece in fresh:
            if piece.table is PROBE:
                self._has_probed(piece.host, piece.last_ns)
        for outcome in probes:
            self._has_probed(outcome.host, outcome.newest_ns)
        return [each for each, is_new in zip(relayed.outcomes, new, strict=True) if is_new]

    def _evaluate_new(self, relayed: RelayedBatches, new: Sequence[bool]) -> list[BatchOutcome]:
        """Pass on new probe rows; returns the outcomes of new batches of `probe_1s`."""
        probes: list[BatchOutcome] = []
        for rows, places in relayed.probed:
            fresh = [at for at, place in enumerate(places) if new[place]]
            if fresh:
                self._evaluate(rows.chosen(fresh))
            if rows.table == PROBE.name:
                probes += [relayed.outcomes[places[at]] for at in fresh]
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
