"""Probe records to per-path, per-second rows on the fleet timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.mesh.fresh_losses import LossReportPace, fresh_losses
from syntony.mesh.totals import DirectionCounts, NicTotals
from syntony.model import ClockState, S, Timeline
from syntony.model.probes import LOST, PROBE_TIMEOUT_NS, STALLED, ProbeFlag, among
from syntony.wire.probes import LossReport, ProbeFlow

Records = NDArray[np.void]
"""Structured array, one probe each: flow_id, flags, sent_ns, t1_ns … t4_ns."""
Columns = dict[str, Sequence[str] | NDArray[Any]]

HOLD_NS = 1_200_000_000
"""A second is closed this long after its end: the engine's timeout, the 50 ms in which it looks for
what is overdue, and what a busy host adds."""
RECENT_NS = 1_000_000_000
"""`PathSeconds.recent` uses probes sent within this time."""


def hold_ns(interval_ns: int) -> int:
    """`HOLD_NS`, and whole seconds more where pairs are so far between that a probe waits longer
    for its last stamp, which comes with the next pair (`follow_ns` in native/probe/flow.c)."""
    beyond_ns = interval_ns + PROBE_TIMEOUT_NS // 2 - PROBE_TIMEOUT_NS
    return HOLD_NS + max(0, -(-beyond_ns // S)) * S


class FlowInfo(NamedTuple):
    """One probed path with the clocks its stamps are in."""

    flow: ProbeFlow
    src: str
    src_clock: str
    dst_clock: str


class PathSeconds:
    """Collects records, and returns the rows of every second that is over.

    Not thread-safe. Fleet time appears as soon as the prober's own timeline is known; until then
    records wait, at most `max_waiting` of them (older ones are dropped and counted).
    """

    def __init__(self, *, max_waiting: int = 400_000) -> None:
        self._flows: Sequence[FlowInfo] = ()
        self._ids = np.zeros(0, dtype=np.uint32)
        self._clocks = _FlowClocks.of(())
        self._sources: Sequence[str] = ()
        """Each flow's own NIC."""
        self._waiting: list[Records] = []
        self._max_waiting = max_waiting
        self._hold_ns, self._pace = HOLD_NS, LossReportPace()
        self.dropped = 0
        """Number of dropped records: of flows no longer planned, or that waited for a clock too
        long."""
        self.totals = NicTotals()
        """Totals since the start, by NIC."""

    def plan(self, flows: Sequence[FlowInfo]) -> None:
        """Set the planned flows; waiting records of flows that stay are kept."""
        self._flows = sorted(flows, key=lambda info: info.flow.flow_id)
        self._hold_ns = hold_ns(max((info.flow.interval_ns for info in flows), default=0))
        self._ids = np.array([info.flow.flow_id for info in self._flows], dtype=np.uint32)
        self._clocks = _FlowClocks.of(self._flows)
        self._sources = tuple(info.src for info in self._flows)
        waiting, self._waiting = self._waiting, []
        for records in waiting:
            self.add(records)

    def add(self, records: Records) -> None:
        """Take new records; those of unknown flows are counted in `dropped`."""
        if not len(records):
            return
        known = among(records["flow_id"], self._ids)
        if not known.all():
            self.dropped += int(np.count_nonzero(~known))
            records = records[known]
        self._waiting.append(records)
        excess = sum(len(part) for part in self._waiting) - self._max_waiting
        if excess > 0:
            joined = np.concatenate(self._waiting)
            self._waiting = [joined[excess:]]
            self.dropped += excess

    def close(
        self, timelines: Mapping[str, Timeline], host: Timeline, fleet_now_ns: int
    ) -> Columns | None:
        """Rows of the seconds that ended at least `hold_ns` before `fleet_now_ns`, or None.

        Args:
            timelines: by clock node; a path whose clocks are missing gets counts but no delays.
            host: of the host's own clock, which decides the second that a probe belongs to.
            fleet_now_ns: fleet time.
        """
        if not self._waiting:
            return None
        records = np.concatenate(self._waiting)
        sent_ns = _Clock.sent(host, records)
        over = sent_ns < (fleet_now_ns - self._hold_ns) // S * S
        self._waiting = [records[~over]]
        if not over.any():
            return None
        past = _Probes.of(records[over], self._ids, self._clocks, timelines)
        forward, reverse = (_direction(past, back=back) for back in (False, True))
        self.totals.add(self._sources, past.flow, forward, reverse)
        return _rows(self._flows, past, sent_ns[over], (forward, reverse))

    def losses(self, host: Timeline, at_ns: int) -> LossReport | None:
        """Losses of the second under way, if they are to be reported (`fresh_losses`); arguments as
        there and for `close`."""
        if not any(_has(part["flags"], LOST).any() for part in self._waiting):
            return None
        records = np.concatenate(self._waiting)
        flow = np.searchsorted(self._ids, records["flow_id"])
        flows = [(info.src, info.flow) for info in self._flows]
        report = fresh_losses(records, _Clock.sent(host, records), flow, flows, at_ns)
        return report if report is not None and self._pace.allows(report) else None

    def recent(
        self, timelines: Mapping[str, Timeline], host: Timeline, fleet_now_ns: int
    ) -> Columns | None:
        """Answered probes of the last `RECENT_NS`, one row per path and direction; or None.

        For callers that cannot wait for `close`. Probes under way are missing, nothing is removed.
        ``ts_ns`` is the start of that time. Arguments as for `close`.
        """
        from_ns = host.to_local_ns(fleet_now_ns - RECENT_NS)
        newest = [part[part["sent_ns"] >= from_ns] for part in self._waiting]
        if not any(len(part) for part in newest):
            return None
        records = np.concatenate(newest)
        probes = _Probes.of(records, self._ids, self._clocks, timelines)
        start_ns = np.full(len(records), fleet_now_ns - RECENT_NS, dtype=np.int64)
        directions = _direction(probes, back=False), _direction(probes, back=True)
        return _rows(self._flows, probes, start_ns, directions)


class _FlowClocks(NamedTuple):
    """The clocks at both ends of every flow: flows are many, clocks are few."""

    names: tuple[str, ...]
    ours: NDArray[np.intp]
    """Place in `names` by flow, shape (flows,)."""
    theirs: NDArray[np.intp]

    @classmethod
    def of(cls, flows: Sequence[FlowInfo]) -> _FlowClocks:
        names = sorted({name for info in flows for name in (info.src_clock, info.dst_clock)})
        place = {name: number for number, name in enumerate(names)}
        ours = np.array([place[info.src_clock] for info in flows], dtype=np.intp)
        theirs = np.array([place[info.dst_clock] for info in flows], dtype=np.intp)
        return cls(tuple(names), ours, theirs)


class _Clock(NamedTuple):
    """Timelines, of clocks or of one end of each probe: shape (n,) each."""

    ref_ns: NDArray[np.int64]
    offset_ns: NDArray[np.float64]
    drift: NDArray[np.float64]
    sigma_ns: NDArray[np.float64]
    drift_sigma: NDArray[np.float64]

    @classmethod
    def of(cls, lines: Sequence[Timeline | None]) -> _Clock:
        fields = [
            (line.ref_ns, line.offset_ns, line.drift_ppb, line.sigma_ns, line.drift_sigma_ppb)
            if line is not None
            else (0, 0.0, 0.0, 0.0, 0.0)
            for line in lines
        ]
        ref_ns = np.array([field[0] for field in fields], dtype=np.int64)
        rest = np.array([field[1:] for field in fields], dtype=np.float64).reshape(-1, 4)
        return cls(ref_ns, rest[:, 0], rest[:, 1] * 1e-9, rest[:, 2], rest[:, 3] * 1e-9)

    @classmethod
    def sent(cls, host: Timeline, records: Records) -> NDArray[np.int64]:
        """When probes were sent, fleet time, by the host's own clock."""
        return cls.of([host]).at(np.zeros(1, np.intp)).to_fleet(records["sent_ns"])

    def at(self, places: NDArray[np.intp]) -> _Clock:
        """Those at these places, shape (n,)."""
        return _Clock(
            self.ref_ns[places],
            self.offset_ns[places],
            self.drift[places],
            self.sigma_ns[places],
            self.drift_sigma[places],
        )

    def to_fleet(self, local_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Fleet instants of local ones, int64 ns of shape (n,)."""
        shift = np.rint(self.offset_ns + self.drift * (local_ns - self.ref_ns))
        return np.asarray(local_ns + shift.astype(np.int64), dtype=np.int64)

    def sigma_at(self, local_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """1-sigma of those fleet instants, ns."""
        spread = np.hypot(self.sigma_ns, self.drift_sigma * (local_ns - self.ref_ns))
        return np.asarray(spread, dtype=np.float64)


class _Probes(NamedTuple):
    """Records with their flow and both ends' clocks, shape (n,) each."""

    records: Records
    flow: NDArray[np.intp]
    local: _Clock
    remote: _Clock
    comparable: NDArray[np.bool_]
    """Whether both clocks are on one timeline, so that a one-way delay means something."""

    @classmethod
    def of(
        cls,
        records: Records,
        ids: NDArray[np.uint32],
        clocks: _FlowClocks,
        timelines: Mapping[str, Timeline],
    ) -> _Probes:
        index = np.searchsorted(ids, records["flow_id"])
        lines = [timelines.get(name) for name in clocks.names]
        known = _Clock.of(lines)
        ours, theirs = clocks.ours[index], clocks.theirs[index]
        part = _components(lines)
        comparable = (part[ours] == part[theirs]) & (part[ours] >= 0)
        return cls(records, index, known.at(ours), known.at(theirs), comparable)


def _components(lines: Sequence[Timeline | None]) -> NDArray[np.intp]:
    """The component that each belongs to; -1 where nothing is known. Shape (n,)."""
    numbers: dict[str, int] = {}
    return np.array(
        [
            numbers.setdefault(line.component, len(numbers))
            if line is not None and line.state is not ClockState.UNKNOWN
            else -1
            for line in lines
        ],
        dtype=np.intp,
    )


def _rows(
    flows: Sequence[FlowInfo],
    probes: _Probes,
    sent_ns: NDArray[np.int64],
    directions: tuple[DirectionCounts, DirectionCounts],
) -> Columns:
    keys, group = np.unique(sent_ns // S * len(flows) + probes.flow, return_inverse=True)
    seconds, places = np.divmod(keys, len(flows))
    records = probes.records
    clk_err = np.hypot(
        probes.local.sigma_at(records["t1_ns"]), probes.remote.sigma_at(records["t2_ns"])
    )
    shared = _identity([flows[place] for place in places.tolist()], seconds * S)
    halves = [
        {**naming, **_summary(direction, group, len(keys), clk_err)}
        for naming, direction in zip(shared, directions, strict=True)
    ]
    return {name: _joined([half[name] for half in halves]) for name in halves[0]}


def _direction(probes: _Probes, *, back: bool) -> DirectionCounts:
    """Of requests, or (`back`) of replies."""
    records, flags = probes.records, probes.records["flags"]
    sender, receiver = (probes.remote, probes.local) if back else (probes.local, probes.remote)
    stamps = ("t3_ns", "t4_ns") if back else ("t1_ns", "t2_ns")
    sent_ns, received_ns = (records[name] for name in stamps)
    stalled = _has(flags, LOST) & _has(flags, STALLED)
    requests_lost = _has(flags, ProbeFlag.LOST_FWD)
    return DirectionCounts(
        owd_ns=receiver.to_fleet(received_ns) - sender.to_fleet(sent_ns),
        measured=(sent_ns != 0) & (received_ns != 0) & probes.comparable,
        sent=~stalled & ~requests_lost if back else ~stalled,
        lost=(_has(flags, ProbeFlag.LOST_REV) if back else requests_lost) & ~stalled,
        unresolved=_has(flags, ProbeFlag.LOST_UNKNOWN) & ~stalled,
        stalled=stalled,
    )


def _has(flags: NDArray[Any], bits: ProbeFlag) -> NDArray[np.bool_]:
    return np.asarray((flags & int(bits)) != 0, dtype=np.bool_)


def _identity(infos: Sequence[FlowInfo], ts_ns: NDArray[np.int64]) -> tuple[Columns, Columns]:
    """The naming columns of the forward and of the reverse rows."""
    src = [info.src for info in infos]
    dst = [info.flow.dst for info in infos]
    common: Columns = {
        "ts_ns": ts_ns,
        "prober": src,
        "sport": np.array([info.flow.src_port for info in infos], dtype=np.uint16),
        "flow_label": np.array([info.flow.flow_label for info in infos], dtype=np.uint32),
        "dscp": np.array([info.flow.dscp for info in infos], dtype=np.uint16),
    }
    return {**common, "src": src, "dst": dst}, {**common, "src": dst, "dst": src}


def _summary(
    direction: DirectionCounts, group: NDArray[np.intp], groups: int, clk_err: NDArray[np.float64]
) -> Columns:
    def count(mask: NDArray[np.bool_]) -> NDArray[np.uint32]:
        return np.bincount(group[mask], minlength=groups).astype(np.uint32)

    measured = direction.measured
    errors = np.zeros(groups)
    np.maximum.at(errors, group[measured], clk_err[measured])
    counts: Columns = {
        "sent": count(direction.sent),
        "lost": count(direction.lost),
        "unresolved": count(direction.unresolved),
        "stalled": count(direction.stalled),
        "count": count(measured),
        "clk_err_ns": errors.astype(np.float32),
    }
    return {**counts, **_quantiles(direction.owd_ns[measured], group[measured], groups)}


_QUANTILES = {
    "owd_min_ns": 0.0,
    "owd_p50_ns": 0.5,
    "owd_p90_ns": 0.9,
    "owd_p99_ns": 0.99,
    "owd_max_ns": 1.0,
}


def _quantiles(
    values: NDArray[np.int64], group: NDArray[np.intp], groups: int
) -> dict[str, NDArray[np.int64]]:
    """Per group, the nearest-rank quantiles of its values; 0 for an empty group."""
    order = np.lexsort((values, group))
    ranked = values[order]
    sizes = np.bincount(group, minlength=groups)
    starts = np.cumsum(sizes) - sizes
    filled = sizes > 0
    result = {}
    for name, quantile in _QUANTILES.items():
        column = np.zeros(groups, dtype=np.int64)
        places = starts + np.maximum(np.ceil(quantile * sizes).astype(np.int64) - 1, 0)
        column[filled] = ranked[places[filled]]
        result[name] = column
    return result


def _joined(parts: Sequence[Sequence[str] | NDArray[Any]]) -> Sequence[str] | NDArray[Any]:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate([np.asarray(part) for part in parts])
    return [str(name) for part in parts for name in part]
