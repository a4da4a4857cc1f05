"""Moves jobs' flows off congested paths: takes reports, returns orders, and tracks every order to
its result.

`syntony.traffic.mover` chooses the moves, `syntony.traffic.lease` allows them; this module maps
them to source ports, sends orders to agents, handles refusals and writes rows for the log.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from syntony.controller.batches import BatchPiece
from syntony.controller.config import PlacementConfig, PlacementMode
from syntony.controller.flow_delays import PathDelays
from syntony.controller.flow_table import FlowEntry, FlowTable, capacities
from syntony.controller.path_event_rows import PathEventRows
from syntony.fabric.book import Way
from syntony.fabric.graph import Topology
from syntony.model import S
from syntony.traffic.classes import Classes
from syntony.traffic.lease import EXPIRY_NS, ListeningHost, may_decide
from syntony.traffic.measurements import Measurements
from syntony.traffic.mover import Mover
from syntony.traffic.moves import FlowMove, MoveCause, MovePolicy
from syntony.traffic.trials import TrialResult
from syntony.wire.traffic import EXPIRED, FlowsReport, Moves, MoveView, Paces
from syntony.wire.traffic import Move as WireMove

_log = logging.getLogger(__name__)

REMEMBERED = 1_000
"""Moves that can be queried."""
PORT_REST_NS = 120 * S
"""A source port is not reused for this long: twice TIME_WAIT."""
MAX_HELPED = 64
"""Ids repeated to an agent, in case a message was overtaken."""
ENDED = "the flow has ended"
NO_ANSWER = "no answer"
_RESULTS = {
    TrialResult.HELPED: "helped",
    TrialResult.UNKNOWN: "kept",
    TrialResult.NO_GAIN: "no gain",
    TrialResult.WAIT: "kept",
}
_COUNTED = {
    "helped": "helped",
    "kept": "kept",
    "no gain": "no-gain",
    "undone": "undone",
    ENDED: "ended",
}
"""Name under which an ended move is counted. All others were not carried out, some of them because
they were late."""


class Decided(NamedTuple):
    orders: dict[str, Moves]
    """By host."""
    rows: list[BatchPiece]
    paces: Mapping[str, Paces] = {}
    """Rates by host."""


@dataclass(slots=True)
class _Record:
    """One move, from order to verdict."""

    view: MoveView
    host: str
    done: bool = False
    judged: bool = False


@dataclass(slots=True)
class _Step:
    now_ns: int
    rows: dict[str, FlowEntry]
    orders: dict[str, list[WireMove]] = field(default_factory=dict)
    pieces: list[BatchPiece] = field(default_factory=list)
    helped: set[str] = field(default_factory=set)
    """Hosts with new results of moves."""


class PlacementService:
    """Moves jobs' flows off congested paths, and tracks each order to its result.

    One per controller. `take`, `attached`, `detached` and `set_mode` are called on its event
    loop, `step` on a thread, one at a time.

    Args:
        config: ``[placement]``.
        topology: of the fabric; None: links are named by addresses, and capacities are estimated.

    Raises:
        ConfigError: an invalid class of jobs.
    """

    def __init__(self, config: PlacementConfig, topology: Topology | None) -> None:
        self.mode = config.mode
        self._config = config
        self._topology = topology
        self.classes = Classes(config.classes)
        self.table = FlowTable(topology, self.classes)
        self._mover = self._new_mover()
        self.reports: dict[str, FlowsReport] = {}
        """The newest of every host."""
        self._heard: dict[str, ListeningHost] = {}
        self._records: dict[str, _Record] = {}
        """The newest moves, by id, oldest first."""
        self._open: dict[str, _Record] = {}
        """Moves without a verdict, by id."""
        self._helped: dict[str, deque[str]] = {}
        self._rest: dict[tuple[str, str, int], int] = {}
        """(src, dst, source port) → until when it is not used."""
        self._log = PathEventRows()
        self.counts: Counter[str] = Counter()
        """Actions on flows, and their results; see `placement_moves_total`."""
        self._epoch = secrets.token_hex(4)
        self._count = 0
        self.delays = PathDelays()
        self.rows: tuple[FlowEntry, ...] = ()
        self._inputs: tuple[object, ...] = ()
        """What `rows` follow from; they change once a second, and are needed four times."""
        self.deciding = (False, "starting")

    def _new_mover(self) -> Mover:
        policy = self._config.policy or MovePolicy()
        return Mover(
            msgspec.structs.replace(
                policy,
                max_moves=self._config.max_moves,
                max_moves_per_s=self._config.max_moves_per_s,
            )
        )

    def forget_times(self) -> None:
        """Fleet time has stepped back: what is known of its future keeps nothing waiting."""
        self._mover, self.delays = self._new_mover(), PathDelays()
        self._rest, self._heard = {}, {}

    # --- from the event loop ---

    def attached(self, host: str) -> None:
        """A new stream: orders of the host's previous controller may still be in progress."""
        self._heard.pop(host, None)

    def detached(self, host: str) -> None:
        """The host is disconnected; its flows continue."""
        self._heard.pop(host, None)

    def take(self, host: str, report: FlowsReport) -> None:
        """An agent's newest report."""
        self.reports[host] = report
        known = self._heard.get(host)
        since_ns = report.at_ns if known is None else known.since_ns
        self._heard[host] = ListeningHost(since_ns, report.at_ns)

    def set_mode(self, mode: PlacementMode, who: str, why: str, now_ns: int) -> BatchPiece:
        """A command of an operator; returns its row for the log."""
        self.mode = mode
        self._mover = self._new_mover()
        _log.warning("placement mode=%s by=%s", mode, who)
        evidence = " ".join(f"{who}: {why}".split())[:400]
        return self._log.piece(
            now_ns, cause="operator", action=f"placement-{mode}", evidence=evidence
        )

    def learn(self, way: Way, hops: Iterable[str], at_ns: int) -> None:
        """A TCP path from the store, learnt at `at_ns`, fleet time."""
        self.table.learn(way, hops, at_ns)

    def moves(self, job: str, limit: int) -> tuple[MoveView, ...]:
        """The newest ones, oldest first."""
        wanted = [
            record.view for record in list(self._records.values()) if job in {"", record.view.job}
        ]
        return tuple(wanted[-limit:])

    # --- the step ---

    def step(
        self,
        now_ns: int,
        nics: Mapping[str, str],
        hosts: Collection[str],
        dead: Iterable[str],
    ) -> Decided:
        """Examine all flows, and decide.

        Args:
            now_ns: fleet time.
            nics: address → ``host/nic`` of every agent's NIC.
            hosts: all hosts that may obey this or another controller, for use without a topology.
            dead: components that lose all packets.
        """
        reports = dict(self.reports)
        self.table.nics(nics)
        self.table.forget(now_ns)
        inputs = reports, nics, self.table.book.version
        if inputs != self._inputs:
            self._inputs = inputs
            self.rows = self.table.rows(reports)
        turn = _Step(now_ns, {row.flow_id: row for row in self.rows})
        self.deciding = self._may(now_ns, hosts)
        if self.mode is PlacementMode.OFF:
            return Decided({}, [])
        self._mover.update([row.flow for row in self.rows if row.flow is not None])
        self._take_outcomes(turn, reports)
        if self.deciding[0]:
            moves = self._mover.step(self._seen(dead, now_ns), now_ns)
            undone = frozenset(m.flow_id for m in moves if m.cause is MoveCause.UNDO)
            self._verdicts(turn, undone)
            for move in moves:
                self._order(turn, move)
        return self._decided(turn)

    def _may(self, now_ns: int, hosts: Collection[str]) -> tuple[bool, str]:
        electorate: Collection[str] = hosts
        if self._topology is not None:
            names = (d.name.partition("/") for d in self._topology.devices)
            electorate = {host for host, slash, _ in names if slash} or hosts
        return may_decide(dict(self._heard), electorate, now_ns)

    def _seen(self, dead: Iterable[str], now_ns: int) -> Measurements:
        measured = {r.flow_id: r.rate for r in self.rows if r.flow is not None and r.view.windows}
        return Measurements(
            rates=measured,
            delays=self.delays.of(self.rows, now_ns),
            capacities=dict(capacities(self._topology, dead)),
        )

    def _take_outcomes(self, turn: _Step, reports: Mapping[str, FlowsReport]) -> None:
        """Agents' reports of the results of orders."""
        for report in reports.values():
            for outcome in report.outcomes:
                record = self._records.get(outcome.move_id)
                if record is None or record.done:
                    continue
                record.done = True
                if outcome.move_id not in self._open:
                    self._answered_late(turn, record, outcome.result)
                    continue
                ok = outcome.result == "moved"
                flow = record.view.flow
                self._mover.done(flow, turn.now_ns, ok=ok, tried=outcome.tried)
                took_ns = turn.now_ns - record.view.ts_ns
                record.view = msgspec.structs.replace(
                    record.view, result=outcome.result, took_ns=took_ns
                )
                if not ok:
                    self._close(turn, record, outcome.result)

    def _answered_late(self, turn: _Step, record: _Record, result: str) -> None:
        """The result of a move that has ended without it; the log gets it, decisions do not."""
        if record.view.result == NO_ANSWER:
            took_ns = turn.now_ns - record.view.ts_ns
            record.view = msgspec.structs.replace(
                record.view, result=f"{NO_ANSWER} in time, then: {result}", took_ns=took_ns
            )
            turn.pieces.append(self._row(record.view, turn.now_ns, "move-end"))

    def _verdicts(self, turn: _Step, undone: frozenset[str]) -> None:
        """Ended trials; agents keep moves that are not being undone."""
        going = self._mover.on_trial - undone
        for record in list(self._open.values()):
            flow = record.view.flow
            if flow in going:
                continue
            if flow not in turn.rows:
                self._close(turn, record, ENDED)
            elif not record.done:
                self._close(turn, record, NO_ANSWER)
            elif flow in undone:
                self._close(turn, record, "undone")
            else:
                self._close(
                    turn, record, _RESULTS[self._mover.judged.get(flow, TrialResult.UNKNOWN)]
                )
                self._helped.setdefault(record.host, deque(maxlen=MAX_HELPED)).append(
                    record.view.move_id
                )
                turn.helped.add(record.host)

    def _close(self, turn: _Step, record: _Record, result: str) -> None:
        record.view = msgspec.structs.replace(record.view, result=result)
        other = "late" if result.startswith(EXPIRED) else "failed"
        self.counts[_COUNTED.get(result, other)] += 1
        self._open.pop(record.view.move_id, None)
        turn.pieces.append(self._row(record.view, turn.now_ns, "move-end"))

    def _order(self, turn: _Step, move: FlowMove) -> None:
        """Send it to the agent, if that is allowed and a port leads there; otherwise it has
        failed."""
        row = turn.rows[move.flow_id]
        self._count += 1
        view = MoveView(
            move_id=f"{self._epoch}-{self._count}",
            ts_ns=turn.now_ns,
            flow=move.flow_id,
            job=move.job,
            src=row.src,
            dst=row.dst,
            old=move.old,
            new=move.new,
            cause=str(move.cause),
            evidence=move.evidence,
            result="ordered",
            took_ns=0,
        )
        port = self._port(row, move.new, turn.now_ns)
        candidate = row.candidates.get(move.new)
        rail = candidate.rail if candidate is not None else None
        nowhere = port is None and rail is None
        if self.mode is not PlacementMode.ACT:
            view = msgspec.structs.replace(view, result="would move")
        elif nowhere:
            view = msgspec.structs.replace(view, result="no source port known to lead there")
        kinds = {"ordered": "ordered", "would move": "would-move"}
        self.counts[kinds.get(view.result, "no-port")] += 1
        record = _Record(view, row.host)
        self._records[view.move_id] = record
        if len(self._records) > REMEMBERED:
            del self._records[next(iter(self._records))]
        turn.pieces.append(self._row(view, turn.now_ns, "move"))
        if nowhere or self.mode is not PlacementMode.ACT:
            self._mover.done(move.flow_id, turn.now_ns, ok=False)
            return
        self._open[view.move_id] = record
        if port is not None:
            self._rest[row.src, row.dst, port] = turn.now_ns + PORT_REST_NS
        turn.orders.setdefault(row.host, []).append(
            WireMove(
                move_id=view.move_id,
                connection=row.view.connection,
                **row.four._asdict(),
                port=port or 0,
                process=row.view.process,
                instead=rail,
                expires_ns=turn.now_ns + EXPIRY_NS,
                evidence=f"{move.old} → {move.new}: {move.evidence}",
            )
        )

    def _port(self, row: FlowEntry, path_id: str, now_ns: int) -> int | None:
        """An unused port that leads there and was not recently given up."""
        self._rest = {key: until_ns for key, until_ns in self._rest.items() if until_ns > now_ns}
        used = {
            each.view.local_port for each in self.rows if (each.src, each.dst) == (row.src, row.dst)
        }
        candidate = row.candidates.get(path_id)
        ports = candidate.ports if candidate is not None else ()
        return next(
            (p for p in ports if p not in used and (row.src, row.dst, p) not in self._rest), None
        )

    def _row(self, view: MoveView, now_ns: int, action: str) -> BatchPiece:
        return self._log.piece(
            now_ns,
            job=view.job,
            connection=view.move_id,
            cause="contention",
            action=action,
            evidence=f"{view.cause}: {view.evidence}",
            old_path=f"{view.src} > {view.dst} via {view.old}",
            new_path=f"{view.src} > {view.dst} via {view.new}",
            result=view.result,
        )

    def _decided(self, turn: _Step) -> Decided:
        orders = {
            host: Moves(
                moves=tuple(turn.orders.get(host, ())),
                helped=tuple(self._helped.get(host, ())),
            )
            for host in turn.orders.keys() | turn.helped
        }
        return Decided(orders, turn.pieces)
