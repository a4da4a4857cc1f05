"""Seconds of probing as columns, from ingest to localisation, without the store between.

Rows are kept from when they are stored until their second is evaluated. Flows are distinguished by
numbers: of the plan's NICs, of its pairs, and of source ports.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.controller.batches import BatchPiece
from syntony.controller.repeated_columns import RepeatedColumns
from syntony.fabric import history
from syntony.fabric.book import Way
from syntony.fabric.history import FIELDS, SecondCounts
from syntony.fabric.watch import Watch
from syntony.model import S
from syntony.wire.tables import HEARD, PROBE

if TYPE_CHECKING:
    import pyarrow as pa

Ints = NDArray[np.int64]
Index = NDArray[np.intp]
Floats = NDArray[np.float64]
Ports = Mapping[tuple[str, str], int]
"""(prober, target) to the target's port, of the plan in force."""
COLUMNS = {
    PROBE.name: (
        "ts_ns", "src", "dst", "prober", "sport", "sent", "lost", "unresolved", "count",
        "owd_p50_ns", "owd_max_ns", "clk_err_ns",
    ),
    HEARD.name: ("ts_ns", "src", "dst", "received"),
}  # fmt: skip
MAX_ROWS = 4_000_000
"""Kept of each table: ten seconds of a fleet of 8,000 NICs. Beyond it the oldest are shed."""
_PORT_BITS = 16
_NO_FIELDS = np.zeros((2, 0), np.int64)


class _Kept(NamedTuple):
    """Rows of one batch, and the seconds that they are of, both inclusive."""

    host: str
    first: int
    last: int
    rows: pa.RecordBatch


class RowBuffer:
    """Rows of probing that are not judged yet. Thread-safe."""

    def __init__(self) -> None:
        self.shed = 0
        """Rows that were not waited for."""
        self._lock = threading.Lock()
        self._kept: dict[str, deque[_Kept]] = {name: deque() for name in COLUMNS}
        self._rows = dict.fromkeys(COLUMNS, 0)

    def put(self, pieces: Iterable[BatchPiece]) -> None:
        """Rows that are in the store now, each batch once."""
        with self._lock:
            for piece in pieces:
                if piece.table.name in COLUMNS:
                    # All columns: they are parts of one message, which nothing less lets go of.
                    first, last = piece.first_ns // S, piece.last_ns // S
                    kept = _Kept(piece.host, first, last, piece.rows)
                    self._kept[piece.table.name].append(kept)
                    self._rows[piece.table.name] += piece.rows.num_rows
            for name, waiting in self._kept.items():
                while self._rows[name] > MAX_ROWS:
                    gone = waiting.popleft().rows.num_rows
                    self._rows[name] -= gone
                    self.shed += gone

    def take(self, name: str, first: int, last: int) -> dict[int, pa.Table]:
        """The rows of one table by second, from `first` to `last`, ordered by host and as they
        came; earlier ones are let go of."""
        with self._lock:
            kept, self._kept[name] = self._kept[name], deque()
            self._rows[name] = 0
        by_second: dict[int, list[_Kept]] = {each: [] for each in range(first, last + 1)}
        later = list[_Kept]()
        for each in chain.from_iterable(map(_by_second, kept)):
            if each.first > last:
                later.append(each)
            elif each.first >= first:
                by_second[each.first].append(each)
        with self._lock:
            self._kept[name].extendleft(reversed(later))
            self._rows[name] += sum(each.rows.num_rows for each in later)
        return {second: _table(kept, COLUMNS[name]) for second, kept in by_second.items() if kept}


def _table(kept: list[_Kept], names: tuple[str, ...]) -> pa.Table:
    """These columns of all of them, each batch a chunk. A gateway passes on those columns only."""
    import pyarrow as pa

    ordered = sorted(kept, key=attrgetter("host"))
    alike = (list(some) for _, some in groupby(ordered, lambda each: each.rows.num_columns))
    parts = [pa.Table.from_batches([each.rows for each in some]).select(names) for some in alike]
    return pa.concat_tables(parts)


def _by_second(kept: _Kept) -> Iterator[_Kept]:
    """Most batches are of one second; others are cut up."""
    import pyarrow as pa

    if kept.first == kept.last:
        yield kept
        return
    seconds = kept.rows.column("ts_ns").to_numpy() // S
    for second in np.unique(seconds).tolist():
        rows = kept.rows.filter(pa.array(seconds == second))
        yield _Kept(kept.host, second, second, rows)


class _Way(NamedTuple):
    """Rows of one direction."""

    rows: Index
    flows: Index
    """Of each row, the place of its flow."""
    single: bool
    """No flow is there twice."""

    @classmethod
    def of(cls, chosen: NDArray[np.bool_], place: Ints) -> _Way:
        rows = np.flatnonzero(chosen)
        flows = place[rows]
        return cls(rows, flows, int(np.bincount(flows).max(initial=0)) <= 1)

    def sums(self, values: Ints, size: int) -> Ints:
        """Of each flow, (size,)."""
        if not self.single:
            return _summed(self.flows, values[self.rows], size)
        found = np.zeros(size, np.int64)
        found[self.flows] = values[self.rows]
        return found

    def most(self, values: Floats, size: int, least: float) -> Floats:
        """Of each flow, (size,); `least` where there is none, or none that is a number."""
        found = np.full(size, least)
        if self.single:
            found[self.flows] = np.fmax(values[self.rows], least)
        else:
            np.fmax.at(found, self.flows, values[self.rows])
        return found


class _Placed(NamedTuple):
    """Where the rows of a second belong."""

    fields: Ints
    """Of `FlowSeconds._flows_of`."""
    there: _Way
    back: _Way
    absent: Index
    """Flows of which no requests are reported."""
    flows: int
    """How many there are."""


class FlowSeconds:
    """Hands seconds to a `Watch`. Used by one thread at a time.

    Args:
        watch: what judges them.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._ports: Ports = {}
        self._nics: list[str] = []
        self._nic_values: pa.Array | None = None
        """The same."""
        self._numbering = -1
        self._pair_keys = self._pair_places = np.zeros(0, np.int64)
        """Of the plan's pairs, sorted; and their places in the watch, -1 for none yet."""
        self._flow_keys = self._flow_places = np.zeros(0, np.int64)
        self._placed: _Placed | None = None
        """Of the last second."""
        names = ("src", "dst", "prober", "sport")
        self._probes = RepeatedColumns(names, PROBE.owner, self._flows_of)
        self._received = RepeatedColumns(("src", "dst"), HEARD.owner, self._pairs_of)

    def add(
        self,
        probed: pa.Table | None,
        heard: pa.Table | None,
        ports: Ports,
        end_ns: int | None = None,
    ) -> None:
        """The next second; flows that are not planned are left out.

        Args:
            probed: rows of `probe_1s`, of requests (`prober` is `src`) and replies.
            heard: rows of `heard_1s`.
            ports: of the plan in force; the same object until there is another.
            end_ns: when it ended, fleet time; None: after all that is known of paths.
        """
        if ports is not self._ports:
            self._number_pairs(ports)
        fields = self._probes.of(probed) if probed is not None else _NO_FIELDS
        numbering = self._watch.begin(int(fields[1].sum()))
        if numbering != self._numbering:
            self._numbering = numbering
            self._pair_places = np.full(len(self._pair_keys), -1, np.int64)
            self._flow_keys = self._flow_places = np.zeros(0, np.int64)
            self._placed = None
        second = _counted(probed, self._place(fields))
        self._watch.take(second, self._heard(heard), end_ns)

    def _number_pairs(self, ports: Ports) -> None:
        self._ports = ports
        import pyarrow as pa

        self._nics = sorted({name for pair in ports for name in pair})
        self._nic_values = pa.array(self._nics, pa.string())
        numbers = {name: number for number, name in enumerate(self._nics)}
        pairs = ((numbers[a] * len(numbers) + numbers[b]) for a, b in ports)
        self._pair_keys = np.sort(np.fromiter(pairs, np.int64, len(ports)))
        self._numbering = -1
        self._probes.forget()
        self._received.forget()

    def _flows_of(self, rows: pa.Table) -> Ints:
        """Of each row: its flow's key, -1 if it is not planned, and whether it tells of requests;
        (2, rows)."""
        import pyarrow.compute as pc

        # The prober is one of the two ends: ingest has checked it.
        forward = pc.equal(rows.column("src"), rows.column("prober")).to_numpy()
        src, dst = self._ids(rows, "src"), self._ids(rows, "dst")
        pair, planned = self._pair(np.where(forward, src, dst), np.where(forward, dst, src))
        key = pair << _PORT_BITS | _numbers(rows, "sport")
        return np.stack((np.where(planned, key, -1), forward & planned))

    def _pairs_of(self, rows: pa.Table) -> Ints:
        """Of each row its pair's number, -1 if it is not planned; (1, rows)."""
        pair, planned = self._pair(self._ids(rows, "src"), self._ids(rows, "dst"))
        return np.where(planned, pair, -1)[None]

    def _pair(self, prober: Ints, target: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Numbers of pairs, and which of them are the plan's."""
        key = np.where((prober < 0) | (target < 0), -1, prober * len(self._nics) + target)
        return _find(self._pair_keys, key)

    def _ids(self, rows: pa.Table, name: str) -> Ints:
        """Numbers of NICs; -1 for one that the plan does not know."""
        import pyarrow.compute as pc

        if not self._nics:
            return np.full(rows.num_rows, -1, np.int64)
        found = pc.index_in(rows.column(name), value_set=self._nic_values)
        return np.asarray(found.fill_null(-1).to_numpy().astype(np.int64))

    def _place(self, fields: Ints) -> _Placed:
        """Where rows of these flows belong: nearly always where those of the last second did."""
        known = self._placed
        if known is None or not np.array_equal(known.fields, fields):
            keys, forward = fields[0], fields[1] > 0
            place = self._places(keys, forward)
            there = _Way.of(forward, place)
            back = _Way.of(~forward & (place >= 0), place)
            flows = self._watch.flows
            absent = np.flatnonzero(np.bincount(there.flows, minlength=flows) == 0)
            known = self._placed = _Placed(fields, there, back, absent, flows)
        return known

    def _places(self, key: Ints, forward: NDArray[np.bool_]) -> Ints:
        """Of each row: its flow's place in the watch; -1: only its replies are reported."""
        index, known = _find(self._flow_keys, key)
        fresh = np.unique(key[~known & forward])
        if len(fresh):
            self._number_flows(fresh)
            index, known = _find(self._flow_keys, key)
        found = np.full(len(key), -1, np.int64)
        found[known] = self._flow_places[index[known]]
        return found

    def _number_flows(self, fresh: Ints) -> None:
        names, ports, nics = self._nics, self._ports, len(self._nics)
        places = []
        for key in fresh.tolist():
            pair, sport = key >> _PORT_BITS, key & ((1 << _PORT_BITS) - 1)
            src, dst = divmod(int(self._pair_keys[pair]), nics)
            way = Way(names[src], names[dst], sport, ports[names[src], names[dst]])
            place, self._pair_places[pair] = self._watch.number(way)
            places.append(place)
        keys = np.concatenate((self._flow_keys, fresh))
        order = np.argsort(keys)
        self._flow_keys = keys[order]
        self._flow_places = np.concatenate((self._flow_places, places))[order]

    def _heard(self, rows: pa.Table | None) -> Ints:
        """Requests received, by the watch's pairs."""
        size = self._watch.pairs
        if rows is None or not len(self._pair_keys):
            return np.zeros(size, np.int64)
        (pair,) = self._received.of(rows)
        place = np.where(pair >= 0, self._pair_places[pair], -1)
        known = place >= 0
        return _summed(place[known], _numbers(rows, "received")[known], size)


def _counted(rows: pa.Table | None, placed: _Placed) -> SecondCounts:
    """Rows of requests and of replies put together, flow by flow."""
    flows, there, back = placed.flows, placed.there, placed.back
    counts = np.zeros((FIELDS, flows), np.int64)
    delay_ns, slowest_ns = np.full((2, 2, flows), np.nan)
    if rows is None:
        return SecondCounts(counts, delay_ns, slowest_ns, np.zeros(flows))
    sent, lost, measured = (_numbers(rows, name) for name in ("sent", "lost", "count"))
    p50_ns, max_ns = (
        np.where(measured > 0, rows.column(name).to_numpy(), np.nan)
        for name in ("owd_p50_ns", "owd_max_ns")
    )
    fields = ((history.SENT, history.LOST), (history.SENT_BACK, history.LOST_BACK))
    for number, (way, (sent_as, lost_as)) in enumerate(zip((there, back), fields, strict=True)):
        counts[sent_as] = way.sums(sent, flows)
        counts[lost_as] = way.sums(lost, flows)
        delay_ns[number] = way.most(p50_ns, flows, np.nan)
        slowest_ns[number] = way.most(max_ns, flows, np.nan)
    counts[history.UNRESOLVED] = there.sums(_numbers(rows, "unresolved"), flows)
    counts[:, placed.absent] = 0
    delay_ns[:, placed.absent] = slowest_ns[:, placed.absent] = np.nan
    errors = rows.column("clk_err_ns").to_numpy().astype(np.float64)
    # An error that is not finite: not known.
    clk_err_ns = there.most(np.where(np.isfinite(errors), errors, 0.0), flows, 0.0)
    return SecondCounts(counts, delay_ns, slowest_ns, clk_err_ns)


def _numbers(rows: pa.Table, name: str) -> Ints:
    return np.asarray(rows.column(name).to_numpy().astype(np.int64))


def _summed(place: Ints, values: Ints, size: int) -> Ints:
    # Sums of a second are far below 2**53.
    return np.bincount(place, weights=values, minlength=size).astype(np.int64)


def _find(keys: Ints, wanted: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Places of what is wanted among sorted keys, and whether it is there."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return place, keys[place] == wanted
