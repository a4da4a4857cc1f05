"""Every second: what the store has heard of the flows and their paths, and who is to blame."""

from __future__ import annotations

import logging
import math
import secrets
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from syntony.controller.batches import Piece
from syntony.controller.solve import ORIGIN_HOST
from syntony.errors import ConfigError, InputError
from syntony.fabric.book import PathBook, Way
from syntony.fabric.files import parse_topology
from syntony.fabric.graph import Topology
from syntony.fabric.names import ARROW, GROUP
from syntony.fabric.watch import FlowCounts, Watch, path_ids
from syntony.model import MS, S
from syntony.model.findings import Finding
from syntony.store import FlowSecond, Store
from syntony.wire.arrow import arrow_schema
from syntony.wire.messages import Findings, LearntPath
from syntony.wire.tables import FINDING

_log = logging.getLogger(__name__)

SETTLED_NS = 2_200 * MS
"""A second's rows are in the store so long after its end: `syntony.mesh.stats.HOLD_NS`, the agent's
tick and `syntony.controller.ingest.GATHER_NS`. What comes later is in the store, but not here."""
CATCH_UP_S = 5
"""Seconds taken up at once after a pause; older ones are skipped."""
PATHS_BACK_NS = 600 * S
"""How far back a new controller reads paths: agents ask again every minute."""
LATE_NS = 10 * S
"""Paths may arrive so late."""


class LocateLoop:
    """Reads the store, never writes it: `step` returns the rows to be stored.

    `step` may run in a thread of its own; `answer` and `paths` are replaced whole.

    Raises:
        ConfigError: the topology file cannot be used.
    """

    def __init__(self, store: Store, topology: str) -> None:
        self.answer = Findings(ts_ns=0, findings=())
        self._store = store
        self.topology = _read(topology) if topology else None
        self._book = PathBook(self.topology)
        self.seconds: tuple[FlowSecond, ...] = ()
        """What the last step took up."""
        self._watch = Watch(self._book)
        self._next_second: int | None = None
        self._paths_from_ns: int | None = None
        self._stream = secrets.token_hex(16)
        self._seq = 0

    def step(self, fleet_now_ns: int, ports: dict[tuple[str, str], int]) -> Piece | None:
        """Take up the seconds that have settled.

        Args:
            fleet_now_ns: fleet time.
            ports: (prober, target) to the target's port, of the plan in force.

        Raises:
            StoreError: the store failed; the same seconds are taken up next time.
        """
        last = (fleet_now_ns - SETTLED_NS) // S - 1
        first = last if self._next_second is None else self._next_second
        first = max(first, last - CATCH_UP_S + 1)
        if first > last:
            return None
        self._learn(fleet_now_ns)
        self._take_seconds(first, last, ports)
        self._next_second = last + 1
        before = self.answer.findings
        self.answer = Findings(ts_ns=(last + 1) * S, findings=self._watch.findings())
        _tell(before, self.answer.findings)
        return self._rows(self.answer)

    def paths(self) -> tuple[LearntPath, ...]:
        """Every learnt path."""
        ways = self._book.known()
        return tuple(
            LearntPath(
                path_id=path_id,
                src=way.src,
                dst=way.dst,
                sport=way.sport,
                dport=way.dport,
                components=self._book.components(way),
            )
            for path_id, way in sorted(zip(path_ids(ways), ways, strict=True))
        )

    def links(self, way: Way) -> tuple[str, ...]:
        """The links of a probe's way; empty unless all are known. Not while `step` runs."""
        parts = self._book.components(way)
        if any(GROUP in part for part in parts):
            return ()
        return tuple(part for part in parts if ARROW in part)

    def _learn(self, fleet_now_ns: int) -> None:
        first_ns = self._paths_from_ns or fleet_now_ns - PATHS_BACK_NS
        for row in self._store.fabric.learnt_paths(first_ns, fleet_now_ns + LATE_NS):
            self._book.learn(Way(row.src, row.dst, row.sport, row.dport), row.hops.split())
        self._paths_from_ns = fleet_now_ns - LATE_NS

    def _take_seconds(self, first: int, last: int, ports: dict[tuple[str, str], int]) -> None:
        rows = self._store.fabric.flow_seconds(first * S, (last + 1) * S)
        heard = self._store.fabric.heard(first * S, (last + 1) * S)
        self.seconds = rows
        by_second: dict[int, list[FlowSecond]] = defaultdict(list)
        for row in rows:
            by_second[row.second].append(row)
        for second in range(first, last + 1):
            received = {(src, dst): n for (src, dst, when), n in heard.items() if when == second}
            self._watch.add(_flows(by_second[second], ports), received)

    def _rows(self, answer: Findings) -> Piece | None:
        import pyarrow as pa

        if not answer.findings:
            return None
        self._seq += 1
        records = [
            {
                "ts_ns": answer.ts_ns,
                "component": found.component,
                "kind": found.kind,
                "fault": found.fault,
                "loss": found.loss,
                "delay_ns": found.delay_ns,
                "confidence": found.confidence,
                "span": found.window,
                "explains": found.explains,
                "paths": found.paths,
                "alternatives": ", ".join(found.alternatives),
            }
            for found in answer.findings
        ]
        rows = pa.Table.from_pylist(records, schema=arrow_schema(FINDING))
        return Piece(
            FINDING, ORIGIN_HOST, self._stream, self._seq, rows, answer.ts_ns, answer.ts_ns,
            check=False,
        )  # fmt: skip


def _flows(rows: Iterable[FlowSecond], ports: dict[tuple[str, str], int]) -> list[FlowCounts]:
    """Requests and replies of a flow put together; flows no longer planned are left out."""
    halves: dict[tuple[str, str, int], dict[bool, FlowSecond]] = defaultdict(dict)
    for row in rows:
        forward = row.prober == row.src
        peer = row.dst if forward else row.src
        halves[row.prober, peer, row.sport][forward] = row
    found = []
    for (prober, peer, sport), half in halves.items():
        there, back = half.get(True), half.get(False)
        if there is None or (prober, peer) not in ports:
            continue
        found.append(
            FlowCounts(
                way=Way(prober, peer, sport, ports[prober, peer]),
                sent=there.sent,
                lost=there.lost,
                sent_back=0 if back is None else back.sent,
                lost_back=0 if back is None else back.lost,
                unresolved=there.unresolved,
                delay_ns=_delay(there),
                delay_back_ns=_delay(back),
                clk_err_ns=there.clk_err_ns,
            )
        )
    return found


def _delay(row: FlowSecond | None) -> float:
    return float(row.owd_p50_ns) if row is not None and row.measured else math.nan


def _tell(before: tuple[Finding, ...], now: tuple[Finding, ...]) -> None:
    known = {found.component for found in before}
    for found in now:
        if found.component not in known:
            _log.warning(
                "to blame component=%s kind=%s fault=%s loss=%.4f delay_ns=%.0f window=%s",
                found.component, found.kind, found.fault, found.loss, found.delay_ns, found.window,
            )  # fmt: skip
    for component in known - {found.component for found in now}:
        _log.warning("no longer to blame component=%s", component)


def _read(path: str) -> Topology:
    try:
        return parse_topology(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"topology {path}: cannot be read: {error}") from error
    except InputError as error:
        raise ConfigError(f"topology {path}: {error}") from error
