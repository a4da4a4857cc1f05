"""Locates faults every second, from agents' measurements and traced paths."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from syntony.controller.batches import BatchPiece
from syntony.controller.fabric_changes import FabricChangeService
from syntony.controller.flow_seconds import FlowSeconds
from syntony.controller.fresh_losses import FreshLosses
from syntony.controller.own_rows import OwnRows
from syntony.controller.path_window import PathWindow
from syntony.controller.probed_rows import RowBuffer
from syntony.errors import ConfigError, InputError
from syntony.fabric.book import PathBook, Way, path_ids
from syntony.fabric.extra_probes import suspected
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.graph import Topology
from syntony.fabric.names import GROUP, ComponentKind, link_ends, link_name, pairs_across
from syntony.io.operator_files import load_topology
from syntony.model import S
from syntony.model.findings import Finding, Queue
from syntony.model.names import host_of
from syntony.state import ControlState
from syntony.store import Store
from syntony.wire.fabric import FabricMap, Findings, LearntPath, MapDevice
from syntony.wire.tables import FINDING, HEARD, PROBE

_log = logging.getLogger(__name__)

CATCH_UP_S = 5
"""Seconds evaluated at once after a pause; older ones are skipped."""
PATHS_BACK_NS = 600 * S
"""Window of paths that a new controller reads; agents trace again every minute."""
_SWITCHES = frozenset(
    {
        ComponentKind.LEAF, ComponentKind.SPINE, ComponentKind.AGG, ComponentKind.CORE,
        ComponentKind.SWITCH, ComponentKind.COMPONENT,
    }
)  # fmt: skip
"""A device between two NICs that no topology names is a switch."""
CROSSED_REST = 20
"""Pause before pairs' crossings are computed again, as a multiple of the time that it takes."""
QUEUE_S = 2
"""Interval of searches for queues."""
FORGET_NS = 900 * S
"""The path of a flow that is no longer planned is dropped this long after its last answer: agents
trace every path once a minute."""
FORGET_EVERY_NS = 60 * S


class PairCrossings(NamedTuple):
    """Components that the traced paths of one pair of NICs cross, one direction."""

    switches: int | None
    """Switches of the longest path that is known from end to end; None if there is none."""
    components: frozenset[str]
    """Components of all paths."""


class _AllCrossed(NamedTuple):
    version: int
    """Version of the book."""
    good_until_ns: int
    """CLOCK_MONOTONIC."""
    pairs: dict[str, PairCrossings]


class LocateLoop:
    """Reads the store, never writes it: `step` returns the rows to be stored.

    `step` may run in a separate thread; `answer`, `answering` and `paths` are replaced as a whole.

    Raises:
        ConfigError: the topology file cannot be used.
    """

    def __init__(self, store: Store, topology: str, state: ControlState | None = None) -> None:
        self.answer = Findings(ts_ns=0, findings=())
        self.fresh = FreshLosses()
        """Losses that agents report before they become rows."""
        self.queues: tuple[Queue, ...] | None = None
        """Links at which packets wait; None: not evaluated yet."""
        self.answering: frozenset[str] = frozenset()
        """Hosts with a NIC that answered probes in the newest second."""
        self._answering_nics: frozenset[str] = frozenset()
        self._queued_second = 0
        self._store = store
        self.topology = _read(topology) if topology else None
        self._book = PathBook(self.topology)
        self.changes = FabricChangeService(self._book, state)
        self._learning = threading.Lock()
        """Held while a path is stored, or looked up by another thread."""
        self._watch = FaultLocator(self._book)
        self._seconds = FlowSeconds(self._watch)
        self.rows = RowBuffer()
        """Buffer in which ingest puts stored rows."""
        self._next_second: int | None = None
        self.path_window = PathWindow(PATHS_BACK_NS)
        self._forgot_ns = 0
        self._own_rows = OwnRows(FINDING)
        self._crossed: _AllCrossed | None = None
        self._homes: Mapping[str, str] = {}
        self._homes_of: tuple[int, Mapping[str, str]] = (-1, {})
        """Inputs of `_homes`: the book's version, and what was reported."""

    def due(self, last: int) -> bool:
        return self._next_second is None or self._next_second <= last

    def step(
        self, fleet_now_ns: int, last: int, ports: dict[tuple[str, str], int]
    ) -> list[BatchPiece]:
        """Evaluate the seconds that are complete: components at fault, changes.

        Args:
            fleet_now_ns: fleet time.
            last: the newest complete second (`syntony.controller.complete_seconds`): later rows of
                it are stored but not evaluated.
            ports: (prober, target) → the target's port, of the plan in force.

        Raises:
            StoreError: the store failed; the same seconds are evaluated next time.
        """
        first = last if self._next_second is None else self._next_second
        first = max(first, last - CATCH_UP_S + 1)
        if first > last:
            return []
        self._learn(fleet_now_ns)
        self._forget(fleet_now_ns, ports)
        self._take_seconds(first, last, ports)
        self._next_second = last + 1
        before = self.answer.findings
        findings, at_ns = self._watch.findings(), (last + 1) * S
        if last >= self._queued_second + QUEUE_S:
            self._queued_second = last
            self.queues = self._queues(at_ns)
        lost, window, late = self._watch.unexplained
        self.answer = Findings(
            ts_ns=at_ns,
            findings=findings,
            unexplained=lost,
            unexplained_window=window,
            unexplained_late=max(late, self._watch.unexplained_queued),
        )
        _log_changes(before, self.answer.findings)
        self.changes.take_findings(findings, at_ns)
        nics = self._watch.answering()
        if nics != self._answering_nics:
            self._answering_nics = nics
            self.answering = frozenset(host_of(nic) for nic in nics)
        pieces = (self._rows(self.answer), self.changes.settle(fleet_now_ns))
        return [piece for piece in pieces if piece is not None]

    def look_at_losses(self, fleet_now_ns: int | None) -> None:
        """Update `fresh`. While fleet time is unknown, so is whether its reports are of now."""
        if fleet_now_ns is None:
            self.fresh.losing = None
        else:
            self.fresh.look(fleet_now_ns, self.answer.findings)

    @property
    def ways(self) -> int:
        """Number of learnt paths, each direction of a flow counted separately."""
        return len(self._book)

    def paths(self) -> tuple[LearntPath, ...]:
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
        """The links of a probe's path; empty unless all are known. For any thread."""
        with self._learning:
            return self._book.links(way)

    def crossings(self) -> dict[str, PairCrossings]:
        """``a->b`` of every pair of NICs with a learnt path → components that its paths cross;
        while paths are being learnt, slightly outdated. Takes seconds for a large fleet: not for an
        event loop."""
        version, known = self._book.version, self._crossed
        began_ns = time.monotonic_ns()
        if known is None or (known.version != version and began_ns >= known.good_until_ns):
            pairs = _crossed(self._book)
            ended_ns = time.monotonic_ns()
            until_ns = ended_ns + CROSSED_REST * (ended_ns - began_ns)
            # Another thread may compute the same meanwhile, with the same result.
            known = self._crossed = _AllCrossed(version, until_ns, pairs)
        return known.pairs

    def fabric_map(self) -> FabricMap:
        """Devices and cables: of the topology if there is one, else of learnt paths. Takes seconds
        for a large fleet: not for an event loop."""
        if self.topology is not None:
            kinds = {device.name: device.kind for device in self.topology.devices}
            joined = {tuple(sorted((cable.a, cable.b))) for cable in self.topology.cables}
        else:
            parts = {part for each in self.crossings().values() for part in each.components}
            ends = {tuple(sorted(found)) for part in parts if (found := link_ends(part))}
            joined = {pair for pair in ends if not any(GROUP in name for name in pair)}
            kinds = {name: self._book.kind_of(name) for pair in joined for name in pair}
        return FabricMap(
            configured=self.topology is not None,
            devices=tuple(MapDevice(name=name, kind=kinds[name]) for name in sorted(kinds)),
            cables=tuple((a, b) for a, b in sorted(joined)),
        )

    def first_switches(self) -> dict[str, str]:
        """NIC → the switch at which its probes enter the fabric."""
        return self._book.first_switches()

    def homes(self) -> Mapping[str, str]:
        """NIC → the switch that it is at: as reported, else from its probes, else from the
        topology. Takes milliseconds for a large fleet, after a path has changed."""
        made_of = self._book.version, self.changes.homes
        if made_of != self._homes_of:
            reported, heard = self.changes.homes, self._book.first_switches()
            self._homes = {**self._book.cabled_nics(), **heard, **reported}
            self._homes_of = made_of
        return self._homes

    def cabled_to(self, nic: str) -> str:
        """The switch that the topology cables a NIC to; empty if it lists none."""
        return self._book.cabled_to(nic)

    def _queues(self, now_ns: int) -> tuple[Queue, ...]:
        since = {queue.component: queue.since_ns for queue in self.queues or ()}
        found = self._watch.queues()
        crossing = self.crossings() if found else {}
        pairs = pairs_across(
            {each.component for each in found},
            {pair: crossed.components for pair, crossed in crossing.items()},
        )
        return tuple(
            Queue(
                component=each.component,
                delay_ns=each.delay_ns,
                since_ns=since.get(each.component, now_ns),
                confidence=each.confidence,
                alternatives=each.alternatives,
                suspects=suspected(each),
                bursts=bool(each.overflow),
                pairs=tuple(sorted(pairs[each.component])),
            )
            for each in found
        )

    def _learn(self, fleet_now_ns: int) -> None:
        with self.path_window.next(fleet_now_ns) as (first_ns, last_ns):
            rows = self._store.fabric.learnt_paths(first_ns, last_ns)
        for row in rows:
            with self._learning:
                way, hops = Way(row.src, row.dst, row.sport, row.dport), row.hops.split()
                if row.ts_ns <= self._book.traced_ns(way):
                    continue  # read before: the interval begins with paths that may come late
                if self._book.learn(way, hops, row.ts_ns):
                    self.changes.take(way, fleet_now_ns, row.ts_ns)
                else:
                    self.changes.confirm(way, hops, fleet_now_ns, row.ts_ns)

    def _forget(self, now_ns: int, ports: dict[tuple[str, str], int]) -> None:
        if now_ns - self._forgot_ns < FORGET_EVERY_NS:
            return
        self._forgot_ns = now_ns
        with self._learning:
            gone = self._book.forget(
                now_ns - FORGET_NS,
                lambda way: (way.src, way.dst) in ports or (way.dst, way.src) in ports,
            )
        self.changes.forget(gone, now_ns)

    def _take_seconds(self, first: int, last: int, ports: dict[tuple[str, str], int]) -> None:
        probed = self.rows.take(PROBE.name, first, last)
        heard = self.rows.take(HEARD.name, first, last)
        for second in range(first, last + 1):
            end_ns = (second + 1) * S
            self._seconds.add(probed.get(second), heard.get(second), ports, end_ns)

    def _rows(self, answer: Findings) -> BatchPiece | None:
        return self._own_rows.piece([
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
                "probabilities": ", ".join(f"{each:.4g}" for each in found.probabilities),
                "twins": found.twins,
            }
            for found in answer.findings
        ])  # fmt: skip


def _log_changes(before: tuple[Finding, ...], now: tuple[Finding, ...]) -> None:
    known = {found.component for found in before}
    for found in now:
        if found.component not in known:
            _log.warning(
                "fault found component=%s kind=%s fault=%s loss=%.4f delay_ns=%.0f window=%s",
                found.component, found.kind, found.fault, found.loss, found.delay_ns, found.window,
            )  # fmt: skip
    for component in known - {found.component for found in now}:
        _log.warning("fault over component=%s", component)


def _crossed(book: PathBook) -> dict[str, PairCrossings]:
    found: dict[str, PairCrossings] = {}
    for way in book.known():
        components = book.components(way)
        whole = not any(book.kind_of(name) is ComponentKind.GROUP for name in components)
        switches = sum(book.kind_of(name) in _SWITCHES for name in components) if whole else None
        before = found.get(link_name(way.src, way.dst))
        if before is not None:
            switches = max(switches or 0, before.switches or 0) or None
            components = (*components, *before.components)
        found[link_name(way.src, way.dst)] = PairCrossings(switches, frozenset(components))
    return found


def _read(path: str) -> Topology:
    try:
        return load_topology(path)
    except InputError as error:
        raise ConfigError(f"topology: {error}") from error
