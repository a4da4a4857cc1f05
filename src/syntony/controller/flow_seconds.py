"""Passes seconds of probing as columns from ingest to localisation, without the store in between.

Flows are identified by numbers: of the plan's NICs, of its pairs, and of source ports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.controller.probed_rows import Probed, Values
from syntony.fabric import history
from syntony.fabric.book import Way
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.history import FIELDS, SecondCounts

if TYPE_CHECKING:
    import pyarrow as pa


class RepeatedColumns:
    """Caches values derived from names that a host repeats every second: a check that they are the
    same objects is far cheaper than deriving all of them again. One for each table. Used by one
    thread at a time.

    Args:
        derive: computes the values from rows of names, row by row: (fields, rows).
    """

    def __init__(self, derive: Callable[[pa.Table], Ints]) -> None:
        self._derive = derive
        self.forget()

    def forget(self) -> None:
        """Invalidate the cache: the derivation has changed."""
        self._known: dict[int, tuple[pa.RecordBatch, Ints]] = {}
        """By identity of each batch, which stays valid as long as the batch is in here."""
        self._last: tuple[list[int], Ints] | None = None

    def of(self, batches: Sequence[pa.RecordBatch]) -> Ints:
        """Values for the rows of one second, (fields, rows): the same object as for the previous
        second if it is equal."""
        order = list(map(id, batches))
        if self._last is not None and self._last[0] == order:
            return self._last[1]
        fresh = [each for each in dict(zip(order, batches, strict=True)).values()
                 if id(each) not in self._known]  # fmt: skip
        known = {each: found for each in order if (found := self._known.get(each)) is not None}
        known.update(self._derived(fresh))
        if len(self._known) < 2 * len(known):  # hosts that are absent may be back
            known = self._known | known
        self._known = known
        fields = np.concatenate([known[each][1] for each in order], axis=1)
        self._last = order, fields
        return fields

    def _derived(self, batches: Sequence[pa.RecordBatch]) -> dict[int, tuple[pa.RecordBatch, Ints]]:
        import pyarrow as pa

        if not batches:
            return {}
        fields, start, found = self._derive(pa.Table.from_batches(batches)), 0, {}
        for batch in batches:
            end = start + batch.num_rows
            found[id(batch)] = batch, fields[:, start:end]
            start = end
        return found


Ints = NDArray[np.int64]
Index = NDArray[np.intp]
Floats = NDArray[np.float64]
Ports = Mapping[tuple[str, str], int]
"""(prober, target) → the target's port, of the plan in force."""
_PORT_BITS = 16
_NO_FIELDS = np.zeros((2, 0), np.int64)


class _DirectionRows(NamedTuple):
    rows: Index
    flows: Index
    """The place of the flow of each row."""
    absent: Index
    """Flows without a row."""
    source: Index | None
    """The row of each flow, any for an absent one; None if a flow has several, or there are
    none."""

    @classmethod
    def of(cls, chosen: NDArray[np.bool_], place: Ints, size: int) -> _DirectionRows:
        rows = np.flatnonzero(chosen)
        flows = place[rows]
        times = np.bincount(flows, minlength=size)
        source = None
        if times.max(initial=0) == 1:
            source = np.zeros(size, np.intp)
            source[flows] = rows
        return cls(rows, flows, np.flatnonzero(times == 0), source)

    def sums(self, values: Values, size: int) -> Values:
        """Sums per flow, (size,)."""
        if self.source is None:
            return _summed(self.flows, values[self.rows], size)
        found = values[self.source]
        found[self.absent] = 0
        return found

    def most(self, values: Floats, size: int, least: float) -> Floats:
        """Maximum per flow, (size,); `least` if there is none, or no number."""
        if self.source is None:
            found = np.full(size, least)
            np.fmax.at(found, self.flows, values[self.rows])
            return found
        found = values[self.source]
        found[self.absent] = least
        return found if np.isnan(least) else np.fmax(found, least)


class _Placed(NamedTuple):
    fields: Ints
    """Input of `FlowSeconds._flows_of`."""
    there: _DirectionRows
    back: _DirectionRows
    flows: int
    """Number of flows."""


class FlowSeconds:
    """Passes seconds to a `FaultLocator`. Used by one thread at a time.

    Args:
        watch: evaluates them.
    """

    def __init__(self, watch: FaultLocator) -> None:
        self._watch = watch
        self._ports: Ports = {}
        self._nics: list[str] = []
        self._nic_values: pa.Array | None = None
        """The same."""
        self._numbering = -1
        self._pair_keys = self._pair_places = np.zeros(0, np.int64)
        """Keys of the plan's pairs, sorted; and their places in the watch, -1 for none yet."""
        self._flow_keys = self._flow_places = np.zeros(0, np.int64)
        self._placed: _Placed | None = None
        """Places of the last second."""
        self._probes = RepeatedColumns(self._flows_of)
        self._received = RepeatedColumns(self._pairs_of)

    def add(
        self,
        probed: Probed | None,
        heard: Probed | None,
        ports: Ports,
        end_ns: int | None = None,
    ) -> None:
        """Add the next second; flows that are not planned are left out.

        Args:
            probed: rows of `probe_1s`, of requests (`prober` is `src`) and replies.
            heard: rows of `heard_1s`.
            ports: of the plan in force; the same object until it changes.
            end_ns: when it ended, fleet time; None: after all known path changes.
        """
        if ports is not self._ports:
            self._number_pairs(ports)
        fields = self._probes.of(probed.names) if probed is not None else _NO_FIELDS
        numbering = self._watch.begin(int(np.count_nonzero(fields[1])))
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
        """For each row: its flow's key, -1 if it is not planned, and whether it is about requests;
        (2, rows)."""
        import pyarrow.compute as pc

        # The prober is one of the two ends: ingest has checked it.
        forward = pc.equal(rows.column("src"), rows.column("prober")).to_numpy()
        src, dst = self._ids(rows, "src"), self._ids(rows, "dst")
        pair, planned = self._pair(np.where(forward, src, dst), np.where(forward, dst, src))
        key = pair << _PORT_BITS | rows.column("sport").to_numpy()
        return np.stack((np.where(planned, key, -1), forward & planned))

    def _pairs_of(self, rows: pa.Table) -> Ints:
        """For each row its pair's number, -1 if it is not planned; (1, rows)."""
        pair, planned = self._pair(self._ids(rows, "src"), self._ids(rows, "dst"))
        return np.where(planned, pair, -1)[None]

    def _pair(self, prober: Ints, target: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Numbers of pairs, and which of them are in the plan."""
        key = np.where((prober < 0) | (target < 0), -1, prober * len(self._nics) + target)
        return _find(self._pair_keys, key)

    def _ids(self, rows: pa.Table, name: str) -> Ints:
        """Numbers of NICs; -1 for one that is not in the plan."""
        import pyarrow.compute as pc

        if not self._nics:
            return np.full(rows.num_rows, -1, np.int64)
        found = pc.index_in(rows.column(name), value_set=self._nic_values)
        return np.asarray(found.fill_null(-1).to_numpy().astype(np.int64))

    def _place(self, fields: Ints) -> _Placed:
        """Places of rows of these flows: nearly always those of the last second."""
        known = self._placed
        if known is None or not _same(known.fields, fields):
            keys, forward = fields[0], fields[1] > 0
            place = self._places(keys, forward)
            flows = self._watch.flows
            there = _DirectionRows.of(forward, place, flows)
            back = _DirectionRows.of(~forward & (place >= 0), place, flows)
            known = self._placed = _Placed(fields, there, back, flows)
        return known

    def _places(self, key: Ints, forward: NDArray[np.bool_]) -> Ints:
        """For each row: its flow's place in the watch; -1: only its replies are reported."""
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

    def _heard(self, rows: Probed | None) -> Ints:
        """Requests received, by the watch's pairs."""
        size = self._watch.pairs
        if rows is None or not len(self._pair_keys):
            return np.zeros(size, np.int64)
        (pair,) = self._received.of(rows.names)
        place = np.where(pair >= 0, self._pair_places[pair], -1)
        known = place >= 0
        return _summed(place[known], rows.values["received"][known], size)


def _counted(rows: Probed | None, placed: _Placed) -> SecondCounts:
    """Combine rows of requests and of replies, flow by flow."""
    flows, there, back = placed.flows, placed.there, placed.back
    counts = np.zeros((FIELDS, flows), np.int64)
    delay_ns, slowest_ns = np.full((2, 2, flows), np.nan)
    if rows is None:
        return SecondCounts(counts, delay_ns, slowest_ns, np.zeros(flows))
    values = rows.values
    sent, lost, measured = values["sent"], values["lost"], values["count"]
    p50_ns, max_ns = (
        np.where(measured > 0, values[name], np.nan) for name in ("owd_p50_ns", "owd_max_ns")
    )
    fields = ((history.SENT, history.LOST), (history.SENT_BACK, history.LOST_BACK))
    for number, (way, (sent_as, lost_as)) in enumerate(zip((there, back), fields, strict=True)):
        counts[sent_as] = way.sums(sent, flows)
        counts[lost_as] = way.sums(lost, flows)
        delay_ns[number] = way.most(p50_ns, flows, np.nan)
        slowest_ns[number] = way.most(max_ns, flows, np.nan)
    counts[history.UNRESOLVED] = there.sums(values["unresolved"], flows)
    # A flow whose requests are not reported is left out.
    counts[:, there.absent] = 0
    delay_ns[:, there.absent] = slowest_ns[:, there.absent] = np.nan
    errors = values["clk_err_ns"].astype(np.float64)
    # An error that is not finite means unknown.
    clk_err_ns = there.most(np.where(np.isfinite(errors), errors, 0.0), flows, 0.0)
    return SecondCounts(counts, delay_ns, slowest_ns, clk_err_ns)


def _same(one: Ints, other: Ints) -> bool:
    return one is other or np.array_equal(one, other)


def _summed(place: Ints, values: Values, size: int) -> Ints:
    # Sums of a second are far below 2**53.
    return np.bincount(place, weights=values, minlength=size).astype(np.int64)


def _find(keys: Ints, wanted: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Indices of keys among sorted keys, and whether each was found."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return place, keys[place] == wanted
