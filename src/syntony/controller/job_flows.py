"""TCP flows of jobs second by second, from agents' reports: rows of `job_flow_1s`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from syntony.controller.batches import BatchPiece
from syntony.controller.flow_table import FlowTable
from syntony.controller.own_rows import OwnRows
from syntony.fabric.book import Way
from syntony.model import S
from syntony.wire.tables import JOB_FLOW
from syntony.wire.traffic import REDRAWN, FlowsReport, FlowView

MAX_FLOWS = 20_000
"""Maximum in one second; further ones are left out."""
MAX_SAMPLES = 4 * MAX_FLOWS
KEEP_S = 60
"""A flow is forgotten this long after its last report."""
DSCPS = 64
LATE_NS = 3 * S
"""A second is stored at most this long after it began; earlier, once all hosts that report flows
have reported later ones."""
_Flow = tuple[str, str, int, int]
"""(host, NIC and remote address, ports)."""
_Key = tuple[int, _Flow]
"""(second, flow)."""


class JobFlowRecorder:
    """Makes rows of `job_flow_1s` from agents' reports on jobs' TCP flows.

    One per controller; used on its event loop only.

    Args:
        fleet_now: fleet time; None while unknown.
        table: NICs and links of flows.
    """

    def __init__(self, fleet_now: Callable[[], int | None], table: FlowTable) -> None:
        self._fleet_now, self._table = fleet_now, table
        self._samples: dict[_Key, list[FlowView]] = {}
        self._before: dict[_Flow, tuple[int, FlowView]] = {}
        """Flow → (second, its last view in it)."""
        self._measured: dict[_Flow, tuple[int, int]] = {}
        """Flow → (second, windows measured since it began), as last reported."""
        self._reported: dict[str, int] = {}
        """Host → the instant of its newest report that had flows, fleet time."""
        self._stored = 0
        """Seconds up to this one are stored."""
        self._own_rows = OwnRows(JOB_FLOW)

    def take(self, host: str, report: FlowsReport) -> None:
        """Take an agent's newest report. A host short of CPU repeats earlier measurements, which do
        not count twice."""
        now_ns, second = self._fleet_now(), report.at_ns // S
        if now_ns is None or abs(report.at_ns - now_ns) > 10 * S:
            return
        flows = (*report.flows, *report.redrawn)
        if flows:
            self._reported[host] = max(report.at_ns, self._reported.get(host, 0))
        if second <= self._stored:
            return
        for view in flows:
            flow = host, f"{view.nic} {view.remote}", view.local_port, view.remote_port
            if flow not in self._measured and len(self._measured) >= MAX_SAMPLES:
                continue
            _, measured = self._measured.get(flow, (0, 0))
            self._measured[flow] = second, view.windows
            if view.windows != measured and len(self._samples) < MAX_SAMPLES:
                self._samples.setdefault((second, flow), []).append(view)

    def step(self, now_ns: int) -> BatchPiece | None:
        """Rows of completed seconds; `now_ns` is fleet time."""
        last = max((now_ns - LATE_NS) // S, self._complete(now_ns))
        if last <= self._stored:
            return None
        due = sorted(key for key in self._samples if key[0] <= last)
        self._stored = last
        rows = [self._row(key, self._samples.pop(key)) for key in due][:MAX_FLOWS]
        for known in (self._before, self._measured):
            for flow in [flow for flow, (second, _) in known.items() if second <= last - KEEP_S]:
                del known[flow]
        return self._own_rows.piece(rows)

    def _complete(self, now_ns: int) -> int:
        """The last second of which all hosts that still report have reported the end."""
        for host in [host for host, at_ns in self._reported.items() if at_ns < now_ns - LATE_NS]:
            del self._reported[host]
        return min(min(self._reported.values(), default=0), now_ns) // S - 1

    def _row(self, key: _Key, looks: list[FlowView]) -> dict[str, object]:
        second, flow = key
        host, _, sport, dport = flow
        view = looks[-1]
        since, before = self._before.get(flow, (second, view))
        self._before[flow] = second, view
        src = f"{host}/{view.nic}"
        dst = self._table.nic(view.remote)
        links = self._table.book.links(Way(src, dst, sport, dport)) if dst is not None else ()
        if view.connection.startswith(REDRAWN):
            links = links[:1] + links[1:][-1:]
        return {
            "ts_ns": second * S,
            "job": view.job,
            "src": src,
            "dst": dst or view.remote,
            "sport": sport,
            "dport": dport,
            "connection": view.connection,
            "tx_bps": statistics.fmean(each.tx_bps for each in looks),
            "rtt_ns": int(statistics.median(each.rtt_ns for each in looks)),
            "retransmits": min(max(0, view.retransmits - before.retransmits), (1 << 32) - 1),
            "hops": " ".join(links),
            "dscp": view.dscp if 0 <= view.dscp < DSCPS else math.nan,
            "window_limited_ns": _limited_ns(before, view, second - since),
        }


def _limited_ns(before: FlowView, view: FlowView, seconds: int) -> float:
    """Time within a second for which a flow waited for the receiver's window; NaN: unknown."""
    waited_ns = view.window_limited_ns - before.window_limited_ns
    if seconds <= 0 or waited_ns < 0 or before.window_limited_ns < 0:
        return math.nan
    return min(waited_ns / seconds, float(S))
