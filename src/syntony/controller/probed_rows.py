"""Buffers stored probe rows until their second is evaluated.

As long as nothing changes, a host's rows have the same flows in the same order every second. So
names and measured values are kept separately, and the same names are the same object.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.controller.batches import BatchPiece, together
from syntony.model import S
from syntony.wire.tables import HEARD, PROBE

if TYPE_CHECKING:
    import pyarrow as pa

Values = NDArray[Any]
NAMES = {PROBE.name: ("src", "dst", "prober", "sport"), HEARD.name: ("src", "dst")}
"""Columns that name a row's flow."""
VALUES = {
    PROBE.name: ("sent", "lost", "unresolved", "count", "owd_p50_ns", "owd_max_ns", "clk_err_ns"),
    HEARD.name: ("received",),
}
"""Measured columns."""
MAX_BYTES = 768 << 20
"""Maximum kept of each table: ten seconds of a fleet of 131,072 NICs behind gateways. Beyond it the
oldest are dropped."""


class Probed(NamedTuple):
    """Rows of several batches of one table, one after the other; each batch is of one second."""

    table: str
    hosts: list[str]
    """Senders of each batch."""
    seconds: list[int]
    """Second of each batch."""
    names: list[pa.RecordBatch]
    """Names of each batch, `NAMES`, row by row."""
    values: dict[str, Values]
    """`VALUES` of all rows; numbers of any width."""

    @property
    def rows(self) -> int:
        return len(self.values[VALUES[self.table][0]])

    def chosen(self, places: Sequence[int]) -> Probed:
        """Some of its batches, in this order."""
        if list(places) == list(range(len(self.hosts))):
            return self
        rows = _rows_of([batch.num_rows for batch in self.names], places)
        return Probed(
            self.table,
            [self.hosts[place] for place in places],
            [self.seconds[place] for place in places],
            [self.names[place] for place in places],
            {name: column[rows] for name, column in self.values.items()},
        )

    def starts(self) -> list[int]:
        """The first row of each batch, and the number of rows."""
        return [0, *accumulate(each.num_rows for each in self.names)]

    @classmethod
    def together(cls, several: Sequence[Probed]) -> Probed:
        """All of one table, ordered by host and then as received."""
        first = several[0]
        hosts = [host for each in several for host in each.hosts]
        order = sorted(range(len(hosts)), key=hosts.__getitem__)
        if len(several) == 1 and order == list(range(len(hosts))):
            return first
        seconds = [second for each in several for second in each.seconds]
        names = [batch for each in several for batch in each.names]
        rows = _rows_of([batch.num_rows for batch in names], order)
        values = {
            name: np.concatenate([each.values[name] for each in several])[rows]
            for name in first.values
        }
        return cls(
            first.table,
            [hosts[place] for place in order],
            [seconds[place] for place in order],
            [names[place] for place in order],
            values,
        )


def _rows_of(lengths: Sequence[int], places: Sequence[int]) -> NDArray[np.intp]:
    """Row numbers of some of several consecutive batches, batch by batch."""
    every = np.asarray(lengths, np.intp)
    chosen = np.asarray(places, np.intp)
    starts, counts = (np.cumsum(every) - every)[chosen], every[chosen]
    shifts = starts - (np.cumsum(counts) - counts)
    return np.asarray(np.arange(counts.sum(), dtype=np.intp) + np.repeat(shifts, counts))


def of_pieces(table: str, pieces: Sequence[BatchPiece]) -> Probed:
    """Built from batches as they were stored."""
    rows = together(pieces)
    found = Probed(
        table,
        [piece.host for piece in pieces],
        [piece.first_ns // S for piece in pieces],
        [piece.rows.select(NAMES[table]) for piece in pieces],
        {name: rows.column(name).to_numpy() for name in VALUES[table]},
    )
    if any(piece.first_ns // S != piece.last_ns // S for piece in pieces):
        found, _ = by_second(found, rows.column("ts_ns").to_numpy())
    return found


def by_second(probed: Probed, instants: NDArray[np.int64]) -> tuple[Probed, list[int]]:
    """Split batches of several seconds.

    Args:
        probed: rows of which `seconds` may be wrong.
        instants: of all rows, ns.

    Returns:
        The rows, and for each batch the place of the one that it is a part of.
    """
    import pyarrow as pa

    starts, seconds = probed.starts(), instants // S
    parts = list[tuple[int, int, NDArray[np.intp]]]()
    for number in range(len(probed.hosts)):
        own = seconds[starts[number] : starts[number + 1]]
        parts += [
            (number, second, np.flatnonzero(own == second)) for second in np.unique(own).tolist()
        ]
    none = np.zeros(0, np.intp)
    chosen = np.concatenate([none, *(starts[number] + own for number, _, own in parts)])
    cut = Probed(
        probed.table,
        [probed.hosts[number] for number, _, _ in parts],
        [second for _, second, _ in parts],
        [probed.names[number].take(pa.array(own)) for number, _, own in parts],
        {name: column[chosen] for name, column in probed.values.items()},
    )
    return cut, [number for number, _, _ in parts]


def copied(rows: pa.RecordBatch) -> pa.RecordBatch:
    """An independent copy: the rows are part of a message, which would stay in memory as a
    whole."""
    import pyarrow as pa

    if rows.get_total_buffer_size() <= 2 * rows.nbytes:
        return rows  # it is independent already
    return pa.ipc.read_record_batch(rows.serialize(), rows.schema)


class RowBuffer:
    """Rows of probing that are not evaluated yet. Thread-safe; `take` by one thread at a time."""

    def __init__(self) -> None:
        self.shed = 0
        """Rows that were dropped before evaluation."""
        self._lock = threading.Lock()
        self._buffered: dict[str, deque[Probed | BatchPiece]] = {name: deque() for name in NAMES}
        self._bytes = dict.fromkeys(NAMES, 0)
        self._names: dict[str, dict[str, pa.RecordBatch]] = {name: {} for name in NAMES}
        """The last names of each host."""

    def put(self, pieces: Iterable[BatchPiece]) -> None:
        """Add rows that are in the store now, each batch once."""
        with self._lock:
            for piece in pieces:
                if piece.table.name in NAMES:
                    self._keep(piece.table.name, piece)

    def put_probed(self, probed: Probed) -> None:
        """Like `put`, for rows in the form of `Probed`."""
        with self._lock:
            self._keep(probed.table, probed)

    def _keep(self, name: str, rows: Probed | BatchPiece) -> None:
        buffered = self._buffered[name]
        buffered.append(rows)
        self._bytes[name] += _size(rows)
        while self._bytes[name] > MAX_BYTES:
            gone = buffered.popleft()
            self._bytes[name] -= _size(gone)
            self.shed += gone.rows if isinstance(gone, Probed) else gone.rows.num_rows

    def take(self, name: str, first: int, last: int) -> dict[int, Probed]:
        """The rows of one table by second, from `first` to `last`, ordered by host and then as
        received; earlier ones are dropped."""
        with self._lock:
            buffered, self._buffered[name] = self._buffered[name], deque()
            self._bytes[name] = 0
        found: dict[int, list[Probed]] = {}
        later = list[Probed]()
        for each in _as_probed(name, buffered):
            for second in set(each.seconds):
                if first <= second <= last:
                    found.setdefault(second, []).append(_of_seconds(each, second, second))
            if max(each.seconds) > last:
                later.append(_of_seconds(each, last + 1, max(each.seconds)))
        with self._lock:
            self._buffered[name].extendleft(reversed(later))
            self._bytes[name] += sum(map(_size, later))
        return {
            second: self._recognised(Probed.together(found[second])) for second in sorted(found)
        }

    def _recognised(self, probed: Probed) -> Probed:
        """The rows with the name objects of the previous second where they are equal."""
        known = self._names[probed.table]
        for place, (host, batch) in enumerate(zip(probed.hosts, probed.names, strict=True)):
            before = known.get(host)
            if before is batch:
                continue
            if before is None or not before.equals(batch):
                before = known[host] = copied(batch)
            probed.names[place] = before
        return probed


def _size(rows: Probed | BatchPiece) -> int:
    """Approximate bytes: asking Arrow for a batch's size costs more than all other work on it."""
    if isinstance(rows, BatchPiece):
        return int(rows.rows.num_rows * rows.rows.num_columns * 8)
    return sum(column.nbytes for column in rows.values.values())


def _as_probed(name: str, buffered: Iterable[Probed | BatchPiece]) -> Iterator[Probed]:
    """Rows in order of arrival; pieces are concatenated."""
    pieces = list[BatchPiece]()
    for each in buffered:
        if isinstance(each, BatchPiece):
            pieces.append(each)
            continue
        if pieces:
            yield of_pieces(name, pieces)
            pieces = []
        yield each
    if pieces:
        yield of_pieces(name, pieces)


def _of_seconds(probed: Probed, first: int, last: int) -> Probed:
    places = [place for place, each in enumerate(probed.seconds) if first <= each <= last]
    return probed.chosen(places)
