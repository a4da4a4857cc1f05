"""Replays recorded rows of a fleet through the leader's code: findings and pages.

The record is a telemetry store. Seconds of probing are passed to `LocateLoop`, its findings and the
events of links and clocks to `IncidentService`, in fleet time, as fast as the machine can. Nothing
is written to the store, and no receiver is notified.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from syntony.alerts.incidents import IncidentChange
from syntony.controller.batches import BatchPiece
from syntony.controller.config import AlertSettings
from syntony.controller.incident_inputs import EvaluationInputs, LatencyInputs
from syntony.controller.incidents import IncidentService
from syntony.controller.locating import LocateLoop
from syntony.controller.sla import with_flows
from syntony.errors import UsageError
from syntony.model import ClockState, S
from syntony.model.clocks import Timeline
from syntony.model.findings import Finding, QueueFlow
from syntony.state import ControlState
from syntony.store import Store, TracedPathRow
from syntony.wire.arrow import arrow_schema
from syntony.wire.tables import AGENT, CLOCK, HEARD, JOB_FLOW, PROBE, Table

CHUNK_S = 60
"""Interval of rows that is read at once: 13 million rows of a fleet of 10,000 NICs."""
SETTLED_S = 2
"""A leader evaluates a second this long after its end (`controller.complete_seconds`)."""
EVALUATION_S = 2
"""Interval of evaluations without news, as `server.JUDGE_INTERVAL_NS`."""
PATHS_BACK_S = 600
"""As `locating.PATHS_BACK_NS`."""
PROBE_PORT = 61_000
"""Port of pairs whose path was never learnt; it only names their flows."""
USED_S = 120
"""As `traffic.USED_NS`."""


class ReplayedEvent(NamedTuple):
    """An action that a leader with these rules would have taken."""

    at_ns: int
    """Fleet time."""
    what: str
    """A `ChangeKind`, or ``blamed`` and ``cleared`` for findings of localisation."""
    number: int
    """Number of the incident; 0: none."""
    rule: str
    subject: str
    severity: str
    summary: str


class _Paths:
    """The part of a store that `LocateLoop` reads: learnt paths, none before they were learnt."""

    def __init__(self, rows: Iterable[TracedPathRow]) -> None:
        self.rows = sorted(rows, key=lambda row: row.ts_ns)
        self.fabric = self
        self.now_ns = 0

    def learnt_paths(self, first_ns: int, last_ns: int) -> list[TracedPathRow]:
        """As `store.fabric.FabricRows`."""
        begin, end = (
            bisect_left(self.rows, at_ns, key=lambda row: row.ts_ns)
            for at_ns in (first_ns, min(last_ns, self.now_ns))
        )
        return self.rows[begin:end]


class Replay:
    """A replay of one time interval.

    Args:
        store: the record.
        first_ns: where it begins, fleet time …
        last_ns: … and ends.
        rules: TOML file of rules that extend the default ones; empty: none.
        topology: as configured for a controller; empty: none.

    Raises:
        ConfigError: a file cannot be used.
        UsageError: nothing was recorded in that time.
    """

    def __init__(
        self, store: Store, first_ns: int, last_ns: int, *, rules: str = "", topology: str = ""
    ) -> None:
        self._store = store
        self._first, self._last = first_ns // S, last_ns // S
        state = ControlState(None)
        self._paths = _Paths(store.fabric.learnt_paths(first_ns - PATHS_BACK_S * S, last_ns))
        self._locating = LocateLoop(cast("Store", self._paths), topology)
        self._alerts = IncidentService(AlertSettings(rules=rules), state, store)
        self._ports: dict[tuple[str, str], int] = {}
        self._learnt = {(row.src, row.dst): row.dport for row in self._paths.rows}
        self._reported_ns: dict[str, int] = {}
        """Host → when its agent last reported."""
        self._reports: dict[int, set[str]] = {}
        self._lines: dict[str, Timeline] = {}
        self._used: dict[tuple[str, str, str], int] = {}
        self._flows: dict[int, list[QueueFlow]] = {}
        self._blamed: dict[tuple[str, str], Finding] = {}

    def run(self) -> Iterator[tuple[int, list[ReplayedEvent]]]:
        """Second by second: the progress, fleet time, and the events."""
        read_to = self._first
        for second in range(self._first, self._last):
            if second >= read_to:
                read_to = min(self._last, second + CHUNK_S)
                self._read(second, read_to)
            now_ns = self._paths.now_ns = (second + 1) * S
            self._locating.step(now_ns + SETTLED_S * S, second, self._ports)
            events = self._compare(now_ns)
            self._reported_ns |= dict.fromkeys(self._reports.pop(second, ()), now_ns)
            if events or second % EVALUATION_S == 0:
                events += [_event(change) for change in self._evaluate(now_ns)]
            yield now_ns, events

    def _read(self, first: int, last: int) -> None:
        """Read rows of these seconds, for the next steps."""
        window = first * S, last * S
        for table in (PROBE, HEARD):
            rows = self._store.rows(table, *window)
            if table is PROBE:
                self._plan(rows)
            if (piece := _piece(table, rows)) is not None:
                self._locating.rows.put([piece])
        for ts_ns, host in _rows(self._store.rows(AGENT, *window, columns=("ts_ns", "host"))):
            self._reports.setdefault(ts_ns // S, set()).add(host)
        for row in _rows(self._store.rows(CLOCK, *window)):
            line = _timeline(dict(zip([column.name for column in CLOCK.columns], row, strict=True)))
            self._lines[line.node] = line
        names = ("ts_ns", "job", "src", "dst", "tx_bps")
        for ts_ns, job, src, dst, bps in _rows(self._store.rows(JOB_FLOW, *window, columns=names)):
            self._flows.setdefault(ts_ns // S, []).append(
                QueueFlow(job=job, pair=f"{src}->{dst}", rate_bps=int(bps or 0))
            )

    def _plan(self, rows: Mapping[str, list[Any]]) -> None:
        """Pairs that probe each other; the same object while the plan is unchanged."""
        pairs = {
            (src, dst)
            for src, dst, prober in zip(rows["src"], rows["dst"], rows["prober"], strict=True)
            if prober == src
        }
        if pairs - self._ports.keys():
            known = {pair: self._learnt.get(pair, PROBE_PORT) for pair in sorted(pairs)}
            self._ports = self._ports | known

    def _compare(self, now_ns: int) -> list[ReplayedEvent]:
        """Findings of localisation that are new, and those that have ended."""
        found = {(each.component, each.fault): each for each in self._locating.answer.findings}
        before, self._blamed = self._blamed, found
        fresh = [("blamed", each) for key, each in found.items() if key not in before]
        gone = [("cleared", each) for key, each in before.items() if key not in found]
        return [
            ReplayedEvent(
                now_ns, what, 0, each.fault, each.component, "", f"confidence {each.confidence:.2f}"
            )
            for what, each in (*fresh, *gone)
        ]

    def _evaluate(self, now_ns: int) -> list[IncidentChange]:
        locating, second = self._locating, now_ns // S - 1
        flows = self._flows.get(second, [])
        for each in flows:
            src, _, dst = each.pair.partition("->")
            self._used[each.job, src, dst] = second
        self._flows = {at: some for at, some in self._flows.items() if at >= second}
        jobs: dict[str, set[tuple[str, str]]] = {}
        for (job, src, dst), at in self._used.items():
            if second - at < USED_S:
                jobs.setdefault(job, set()).add((src, dst))
        queues = locating.queues
        slas = LatencyInputs(
            None,
            None if queues is None else with_flows(queues, flows),
            {pair: each.components for pair, each in locating.crossings().items()},
            {job: frozenset(pairs) for job, pairs in jobs.items()},
        )
        inputs = EvaluationInputs(
            {host: now_ns - at_ns for host, at_ns in self._reported_ns.items()},
            tuple(self._lines.values()),
            locating.answer.findings,
            slas,
            fabric=locating.changes.status,
            homes=locating.homes(),
            answering=locating.answering,
            pairs=self._ports.keys(),
        )
        return self._alerts.evaluate(now_ns, inputs)


def stretch(store: Store, length_ns: int, end_ns: int) -> tuple[int, int]:
    """First and last instant to replay: the available part of this long before `end_ns`, or before
    the newest row (0).

    Raises:
        UsageError: there are no rows of probing then.
    """
    newest_ns = store.latest_ns() + S
    last_ns = min(end_ns, newest_ns) if end_ns else newest_ns
    oldest_ns = store.first_ns(PROBE, last_ns - length_ns, last_ns)
    if not oldest_ns:
        raise UsageError("the store has no probes of that time; give --end and --for others")
    return oldest_ns, last_ns


def recorded(store: Store, first_ns: int, last_ns: int) -> list[dict[str, Any]]:
    """Incidents that the leader of that time opened in the interval, oldest first."""
    found = store.incidents.since(first_ns)
    within = [each for each in found if first_ns <= each["opened_ns"] < last_ns]
    return sorted(within, key=lambda each: (each["opened_ns"], each["number"]))


def _event(change: IncidentChange) -> ReplayedEvent:
    incident = change.incident
    return ReplayedEvent(
        change.at_ns, change.kind.value, incident.number, incident.rule, incident.subject,
        incident.severity.value, incident.summary,
    )  # fmt: skip


def _rows(columns: Mapping[str, list[Any]]) -> Iterator[tuple[Any, ...]]:
    return zip(*columns.values(), strict=True)


def _piece(table: Table, columns: Mapping[str, list[Any]]) -> BatchPiece | None:
    import pyarrow as pa

    instants = columns["ts_ns"]
    if not instants:
        return None
    rows = pa.RecordBatch.from_pydict(dict(columns), schema=arrow_schema(table))
    return BatchPiece(table, "replay", "replay", 0, rows, instants[0], instants[-1], check=False)


def _timeline(row: Mapping[str, Any]) -> Timeline:
    unknown = float("inf")
    return Timeline(
        node=row["node"],
        ref_ns=row["ref_ns"],
        offset_ns=row["offset_ns"],
        drift_ppb=row["drift_ppb"],
        sigma_ns=row["sigma_ns"],
        drift_sigma_ppb=unknown if row["drift_sigma_ppb"] is None else row["drift_sigma_ppb"],
        state=ClockState(row["state"]),
        reason=row["reason"],
    )
