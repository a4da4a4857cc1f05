"""Placement in the controller: takes new rows of the store, returns orders and answers."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping

from syntony.controller.batches import BatchPiece
from syntony.controller.config import PacingConfig, PlacementConfig, PlacementMode
from syntony.controller.fleet_time import FleetTime
from syntony.controller.flow_delays import DelaySecond, ProbeSecond
from syntony.controller.flow_table import FlowEntry, capacities
from syntony.controller.pacing import PacingService
from syntony.controller.path_window import PathWindow
from syntony.controller.placing import Decided, PlacementService
from syntony.errors import UsageError
from syntony.fabric.book import Way
from syntony.fabric.graph import Topology
from syntony.model import S
from syntony.model.findings import Finding
from syntony.model.paths import FourTuple
from syntony.state import ControlState
from syntony.store import Store
from syntony.wire.control import Issuer
from syntony.wire.traffic import (
    FlowsReport,
    LinkLoadView,
    PlacedFlow,
    PlacementCommand,
    Traffic,
    TrafficQuery,
)

_log = logging.getLogger(__name__)
PATHS_BACK_NS = 900 * S
"""Window of paths that a new controller reads; spare ports are traced again every ten minutes."""
REPORTS_NS = 10 * S
"""Reports of flows come twice a second, none of the past: one to two of these after fleet time has
stepped back, flows are moved again."""
DEAD_FAULTS = {"blackhole"}
"""Findings of these kinds mean that the part loses all packets."""


class Placement:
    """Places jobs' flows by the store's newest rows.

    One per controller. `step` runs on a thread, one at a time; the rest on its event loop.

    Args:
        store: learnt paths.
        config: ``[placement]``.
        pacing: ``[pacing]``.
        topology: of the fabric, if there is one.
        state: modes that operators set at run time; they override the configuration.

    Raises:
        StateError: it cannot be read.
    """

    def __init__(
        self,
        store: Store,
        config: PlacementConfig,
        pacing: PacingConfig,
        topology: Topology | None,
        state: ControlState,
    ) -> None:
        self.service = PlacementService(config, topology)
        self.flows = self.service.table
        self.pacing = PacingService(pacing, topology, self.service.table, self.service.classes)
        self._state = state
        self.service.mode = _mode(state, "placement", config.mode)
        self.pacing.mode = _mode(state, "pacing", pacing.mode)
        self._store = store
        self._topology = topology
        self._time, self._stepped_ns = FleetTime(REPORTS_NS), 0
        self.path_window = PathWindow(PATHS_BACK_NS)
        self._learnt: deque[tuple[Way, list[str], int]] = deque()
        """Read, but not used by `step` yet."""
        self._probed_ns: dict[str, int] = {}
        """Host → the newest second of delays taken from it."""

    def take(self, host: str, report: FlowsReport, now_ns: int) -> None:
        """An agent's newest report; `now_ns` is monotonic."""
        self._time.observe(host, report.at_ns, now_ns)
        self.service.take(host, report)

    def now(self, now_ns: int) -> int | None:
        """Fleet time at a monotonic instant: more precise than that of rows, which come seconds
        later."""
        return self._time.now(now_ns)

    def step(
        self,
        now_ns: int,
        nics: Mapping[str, str],
        hosts: Collection[str],
        findings: Iterable[Finding],
    ) -> Decided:
        """Decide; see `PlacementService.step`. `findings`: current ones."""
        while self._learnt:
            self.service.learn(*self._learnt.popleft())
        dead = [each.component for each in findings if each.fault in DEAD_FAULTS]
        if now_ns < self._stepped_ns - S:
            self.service.forget_times()
            self.pacing.forget_times()
        self._stepped_ns = now_ns
        decided = self.service.step(now_ns, nics, hosts, dead)
        paces, rows = self.pacing.step(
            now_ns,
            dict(self.service.reports),
            self.service.delays.queues(now_ns),
            dead,
            deciding=self.service.deciding[0],
        )
        return decided._replace(paces=paces, rows=[*decided.rows, *rows])

    def read(self, now_ns: int, nics: Mapping[str, str]) -> None:
        """Read paths from the store, for the next `step`; on a separate thread, because a busy
        store takes seconds, and rates and delays do not wait for it.

        Raises:
            StoreError: the store failed; the same paths are read next time.
        """
        with self.path_window.next(now_ns) as (first_ns, last_ns):
            rows = self._store.fabric.learnt_paths(first_ns, last_ns, proto="tcp")
        for row in rows:
            dst = nics.get(row.dst, row.dst)
            way = Way(row.src, dst, row.sport, row.dport)
            self._learnt.append((way, row.hops.split(), row.ts_ns))

    def probed(
        self, ports: Mapping[tuple[str, str], int], links: Callable[[Way], tuple[str, ...]]
    ) -> None:
        """Take the newest seconds of probes from agents: jobs' flows between the same NICs over the
        same links wait in the same queues.

        Args:
            ports: (prober, target) → the target's port.
            links: of a probe's path; empty if unknown: then those of its NICs.
        """
        found = []
        for host, report in list(self.service.reports.items()):
            at_ns = report.delays[0].at_ns if report.delays else 0
            if at_ns == self._probed_ns.get(host, 0):
                continue  # reported before
            self._probed_ns[host] = at_ns
            for each in report.delays:
                src = f"{host}/{each.nic}"
                port = ports.get((src, each.dst))
                if port is None:
                    continue
                way = Way(src, each.dst, each.sport, port)
                crossed = links(way) or self.service.table.ends(way)
                if crossed:
                    delay = DelaySecond(each.at_ns, each.p50_ns, each.p99_ns)
                    found.append(ProbeSecond(src, each.dst, crossed, delay, each.least_ns))
        self.service.delays.add(found)

    # --- for operators ---

    def traffic(self, query: TrafficQuery, now_ns: int) -> Traffic:
        """Flows, and the links they cross; `now_ns` is monotonic."""
        rows = [row for row in self.service.rows if query.job in {"", row.view.job}]
        deciding, why = self.service.deciding
        fleet_ns = self.now(now_ns) or 0
        held = {
            (view.process, FourTuple.of(view)): view.pace_bps
            for report in list(self.service.reports.values())
            for view in report.flows
        }
        return Traffic(
            mode=str(self.service.mode),
            deciding=deciding,
            why=why,
            now_ns=fleet_ns,
            flows=tuple(self._placed(row, held) for row in rows),
            links=self._links(rows, fleet_ns),
            pacing=str(self.pacing.mode),
        )

    def command(self, command: PlacementCommand, issuer: Issuer, now_ns: int) -> BatchPiece:
        """Set a mode; waits for the disk, one call at a time.

        Raises:
            UsageError: no such mode, or no such service.
            StateError: it could not be recorded; nothing changed.
        """
        if command.mode not in set(PlacementMode):
            raise UsageError(f"unknown mode {command.mode!r}; use {', '.join(PlacementMode)}")
        services: dict[str, PlacementService | PacingService] = {
            "placement": self.service,
            "pacing": self.pacing,
        }
        if command.what not in services:
            raise UsageError(f"unknown service {command.what!r}; use {', '.join(services)}")
        service = services[command.what]
        self._state.set_mode(
            command.what,
            command.mode,
            service.mode,
            at_ns=now_ns,
            issuer=issuer,
            comment=command.why,
        )
        return service.set_mode(PlacementMode(command.mode), issuer.who, command.why, now_ns)

    def _placed(self, row: FlowEntry, held: Mapping[tuple[int, FourTuple], int]) -> PlacedFlow:
        delay = self.service.delays.worst(row)
        paths = len(row.flow.paths) if row.flow is not None else 0
        return PlacedFlow(
            flow=row.flow_id,
            job=row.view.job,
            src=row.src,
            dst=row.dst,
            sport=row.view.local_port,
            dport=row.view.remote_port,
            path=row.reported,
            tx_bps=row.view.tx_bps,
            rx_bps=row.view.rx_bps,
            paths=paths,
            movable=row.view.movable,
            moving=row.view.moving,
            owd_p50_ns=None if delay is None else delay.p50_ns,
            owd_p99_ns=None if delay is None else delay.p99_ns,
            owd_at_ns=0 if delay is None else delay.at_ns,
            priority=self.service.classes.of(row.view.job)[0].name.lower(),
            tx_pace_bps=held.get((row.view.process, row.four), 0),
            rx_pace_bps=held.get((0, row.four.reverse), 0),
        )

    def _links(self, rows: Iterable[FlowEntry], now_ns: int) -> tuple[LinkLoadView, ...]:
        """The fullest first."""
        loads: Counter[str] = Counter()
        flows: Counter[str] = Counter()
        for row in rows:
            there = Way(row.src, row.dst, row.view.local_port, row.view.remote_port)
            back = Way(row.dst, row.src, row.view.remote_port, row.view.local_port)
            for way, bps in ((there, row.view.tx_bps), (back, row.view.rx_bps)):
                links = self.service.table.ends(way)
                for link in links if bps else ():
                    loads[link] += bps
                    flows[link] += 1
        known, paced = dict(capacities(self._topology, ())), self.pacing.links
        queues = self.service.delays.queues(now_ns)
        return tuple(
            LinkLoadView(
                link=link,
                bps=bps,
                capacity_bps=known.get(link, 0),
                flows=flows[link],
                queue_ns=queues[link].queue_ns if link in queues else None,
                paced_bps=int(paced.get(link, 0)),
            )
            for link, bps in sorted(loads.items(), key=lambda item: (-item[1], item[0]))
        )


def _mode(state: ControlState, what: str, configured: str) -> PlacementMode:
    """The mode that an operator has set, else the configured one."""
    chosen = state.mode(what) or configured
    if chosen != configured:
        _log.warning(
            "%s: %s, as an operator has set; not %s, as [%s] in the configuration says",
            what, chosen, configured, what,
        )  # fmt: skip
    return PlacementMode(chosen)
