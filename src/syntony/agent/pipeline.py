"""Converts probe records to rows and edges. No IO: the daemon feeds it and sends its output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from syntony.clock.fit import WindowFitter, fit_window
from syntony.clock.windows import PairKey, PairWindows
from syntony.mesh.fresh_losses import STEP_NS
from syntony.mesh.stats import Columns, FlowInfo, PathSeconds, Records
from syntony.mesh.totals import NicTotals
from syntony.model import Edge, Timeline, Utc
from syntony.model.names import host_of
from syntony.model.probes import ProbeFlag, among
from syntony.wire.probes import LossReport, Plan, Plane, ProbeFlow


class Pipeline:
    """One agent's state between the engine and the uplink. Not thread-safe.

    The host's own clock node has the host's name; nothing can be placed in fleet time before the
    controller has sent that clock's timeline.
    """

    def __init__(self, host: str, fit: WindowFitter = fit_window) -> None:
        self._host = host
        self._names: dict[int, str] = {}
        self._timelines: dict[str, Timeline] = {}
        self.utc: Utc | None = None
        """The offset of UTC from the fleet timeline, as last received; None without anchors."""
        self._seconds = PathSeconds()
        self._verbs = PathSeconds()
        """For probes over verbs."""
        self._windows = PairWindows(fit=fit)
        self._verbs_windows = PairWindows(fit=fit)
        """Windows of devices' clocks; an engine's timestamps contain too little about its
        host's."""
        self._devices = np.zeros((0, 3), dtype=np.uint32)
        """Flow over verbs → whether its own and whether the remote NIC's device stamps: (n, 3)."""
        self._epochs: dict[str, int] = {}
        """Epoch of every clock, as last reported."""
        self._last_received: dict[Plane, dict[tuple[int, int], int]] = {each: {} for each in Plane}
        self._report_from_ns = self._losses_ns = 0

    @property
    def dropped(self) -> int:
        """Records dropped before they became rows."""
        return self._seconds.dropped + self._verbs.dropped

    @property
    def totals(self) -> NicTotals:
        """Totals sent, lost and measured by the host's NICs."""
        return self._seconds.totals

    def plan(self, plan: Plan) -> None:
        """Take a new plan; state of paths that stay is kept."""
        own = {f"{self._host}/{nic}": nic_id for nic, nic_id in plan.nic_ids.items()}
        self._names = plan.nic_names | {nic_id: ref for ref, nic_id in own.items()}
        flows = self._infos(plan.flows, lambda nic: plan.clocks.get(nic, ""))
        verbs = self._infos(plan.verbs, lambda nic: plan.verbs_clocks.get(nic, host_of(nic)))
        self._seconds.plan(flows)
        self._verbs.plan(verbs)
        devices = set(plan.verbs_clocks.values())
        stamped = [
            (info.flow.flow_id, info.src_clock in devices, info.dst_clock in devices)
            for info in verbs
        ]
        self._devices = np.array(sorted(stamped), dtype=np.uint32).reshape(-1, 3)
        self._windows.plan(_pairs(flows))
        self._verbs_windows.plan(
            _pairs(info for info in verbs if {info.src_clock, info.dst_clock} <= devices)
        )

    def _infos(self, flows: Sequence[ProbeFlow], clock_of: Callable[[str], str]) -> list[FlowInfo]:
        return [
            FlowInfo(flow, src, clock_of(src), clock_of(flow.dst))
            for flow in flows
            for src in (f"{self._host}/{flow.src}",)
        ]

    def timelines(
        self, timelines: Sequence[Timeline], utc: Utc | None = None, local_ns: int = 0
    ) -> None:
        """Take the solved timelines of this agent's clocks and its peers', and of UTC.

        Args:
            timelines: of the clocks that this agent measures.
            utc: the offset of UTC.
            local_ns: now, on the host's clock: probes sent before are not used with the new epoch
                of a peer's clock. All records up to now must have been added.
        """
        self._timelines = {line.node: line for line in timelines}
        self.utc = utc
        for line in timelines:
            if host_of(line.node) != self._host and line.epoch:
                self._begin_epoch(line.node, line.epoch, local_ns)

    def fleet_ns(self, local_ns: int) -> int | None:
        """Fleet time of an instant of the host's clock; None before the first timeline."""
        return None if self.timeline is None else self.timeline.to_fleet_ns(local_ns)

    @property
    def timeline(self) -> Timeline | None:
        """Timeline of the host's clock; None before the first one."""
        return self._timelines.get(self._host)

    def report_from(self, local_ns: int) -> None:
        """Probes sent before this instant are used for the clocks only, and do not become rows."""
        self._report_from_ns = local_ns

    def add(self, records: Records) -> None:
        """Add records of finished probes from the engine."""
        if not len(records):
            return
        reported = records["sent_ns"] >= self._report_from_ns
        self._seconds.add(records if reported.all() else records[reported])
        self._windows.add(records)

    def add_verbs(self, records: Records) -> None:
        """Add records of probes over verbs. Stamps of another clock than the plan's are left out: a
        device's clock may change before the plan does."""
        if not len(records):
            return
        records = records[records["sent_ns"] >= self._report_from_ns]
        ids = self._devices[:, 0]
        known = among(records["flow_id"], ids)
        planned = np.zeros((len(records), 3), dtype=np.bool_)
        planned[known] = self._devices[ids.searchsorted(records["flow_id"][known])] != 0
        for column, flag, stamps in (
            (1, ProbeFlag.HW_LOCAL, ("t1_ns", "t4_ns")),
            (2, ProbeFlag.HW_REMOTE, ("t2_ns", "t3_ns")),
        ):
            other = ((records["flags"] & int(flag)) != 0) != planned[:, column]
            for stamp in stamps:
                records[stamp][other] = 0
        self._verbs.add(records)
        self._verbs_windows.add(records)

    def begin_epoch(self, epoch: int, local_ns: int = 0, node: str = "") -> None:
        """A clock of the host jumped or changed its rate: windows start again.

        Args:
            epoch: its new name.
            local_ns: probes sent before this are not used.
            node: which clock; empty: the host's own.
        """
        self._begin_epoch(node or self._host, epoch, local_ns)

    def _begin_epoch(self, node: str, epoch: int, local_ns: int = 0) -> None:
        known = self._epochs.get(node)
        self._epochs[node] = epoch
        if known == epoch:
            return
        for windows in (self._windows, self._verbs_windows):
            if known is not None or windows.reach_before(node, epoch):
                windows.forget(node, local_ns)

    def edges(self, local_ns: int) -> tuple[Edge, ...]:
        """Current edges of the clocks, from the pairs."""
        edges = (*self._windows.edges(local_ns), *self._verbs_windows.edges(local_ns))
        return tuple(map(self.in_epochs, edges))

    def in_epochs(self, edge: Edge) -> Edge:
        """A current edge, with the epochs of its clocks."""
        epochs = self._epochs
        return structs.replace(edge, a_epoch=epochs.get(edge.a, 0), b_epoch=epochs.get(edge.b, 0))

    def probe_rows(self, fleet_now_ns: int) -> Columns | None:
        """`probe_1s` rows of the seconds that are complete."""
        host = self.timeline
        if host is None:
            return None
        return self._seconds.close(self._timelines, host, fleet_now_ns)

    def verbs_rows(self, fleet_now_ns: int) -> Columns | None:
        """`verbs_1s` rows, as `probe_rows`."""
        host = self.timeline
        if host is None:
            return None
        return self._verbs.close(self._timelines, host, fleet_now_ns)

    def recent_rows(self, fleet_now_ns: int) -> Columns | None:
        """Values of the last second as far as known, as `probe_1s` columns."""
        host = self.timeline
        if host is None:
            return None
        return self._seconds.recent(self._timelines, host, fleet_now_ns)

    def losses(self, fleet_now_ns: int) -> LossReport | None:
        """Losses of the second under way, once in each `STEP_NS`; None: nothing new."""
        host, at_ns = self.timeline, fleet_now_ns // STEP_NS * STEP_NS
        if host is None or at_ns == self._losses_ns:
            return None
        self._losses_ns = at_ns
        return self._seconds.losses(host, at_ns)

    def count_from(self, received: NDArray[np.void], over: Plane = Plane.UDP) -> None:
        """Requests count from here on: the engine, or this process, has restarted.

        Args:
            received: as for `received_rows`.
        """
        counts = received[["src_nic_id", "dst_nic_id", "requests"]].tolist()
        self._last_received[over] = {(src, dst): total for src, dst, total in counts}

    def received_rows(
        self, received: NDArray[np.void], second_ns: int, over: Plane = Plane.UDP
    ) -> Columns | None:
        """`heard_1s` rows: requests received since the last call, reported for the second given.

        Args:
            received: the engine's cumulative counts: src_nic_id, dst_nic_id, requests.
            second_ns: start of the second that has just ended, fleet time.
        """
        fresh: list[tuple[str, str, int]] = []
        for src, dst, total in received[["src_nic_id", "dst_nic_id", "requests"]].tolist():
            before = self._last_received[over].get((src, dst), 0)
            self._last_received[over][src, dst] = total
            if total > before and src in self._names and dst in self._names:
                fresh.append((self._names[src], self._names[dst], total - before))
        if not fresh:
            return None
        return {
            "ts_ns": np.full(len(fresh), second_ns, dtype=np.int64),
            "src": [row[0] for row in fresh],
            "dst": [row[1] for row in fresh],
            "received": np.array([row[2] for row in fresh], dtype=np.uint32),
        }


def _pairs(flows: Iterable[FlowInfo]) -> dict[int, PairKey]:
    """Flow → its pair, if the pair has two different clocks."""
    return {
        info.flow.flow_id: PairKey(info.src, info.flow.dst, info.src_clock, info.dst_clock)
        for info in flows
        if info.src_clock and info.dst_clock and info.src_clock != info.dst_clock
    }


def agent_row(host: str, second_ns: int, values: Mapping[str, int]) -> Columns:
    """One `agent_1s` row; `values` contains its counter columns."""
    row: dict[str, Any] = {"ts_ns": np.array([second_ns], dtype=np.int64), "host": [host]}
    row.update({name: np.array([value], dtype=np.uint64) for name, value in values.items()})
    return row
