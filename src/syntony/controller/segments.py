"""One-way delays of jobs' TCP segments: both ends' reports, matched, as rows of `job_delay_1s`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from syntony.controller.batches import BatchPiece
from syntony.controller.flow_table import FlowTable
from syntony.controller.own_rows import OwnRows
from syntony.errors import WireError
from syntony.model import S
from syntony.model.names import host_of
from syntony.traffic.segment_delays import Delays, SegmentDelays
from syntony.wire.segments import (
    MAX_FLOWS,
    MAX_SHIFT,
    MAX_STAMPS,
    STAMP_BYTES,
    SegmentFlow,
    SegmentsReport,
)
from syntony.wire.tables import JOB_DELAY

_log = logging.getLogger(__name__)

AWAY_NS = 10 * S
"""A report with a larger distance from now is ignored."""
MAX_BOUND_NS = 1 * S


class SegmentService:
    """Computes one-way delays of jobs' TCP segments from both ends' reports.

    One per controller; used on its event loop only.

    Args:
        fleet_now: fleet time; None while unknown.
        table: owners of addresses.
    """

    def __init__(self, fleet_now: Callable[[], int | None], table: FlowTable) -> None:
        self._fleet_now, self._table = fleet_now, table
        self._delays = SegmentDelays()
        self._own_rows = OwnRows(JOB_DELAY)

    def take(self, host: str, report: SegmentsReport) -> None:
        """Take an agent's newest report. An impossible one is ignored."""
        now_ns = self._fleet_now()
        if now_ns is None:
            return
        try:
            check(report, now_ns)
            for flow in report.flows:
                owner = self._table.nic(flow.local)
                if owner is not None and host_of(owner) != host:
                    raise WireError(f"{flow.local} is of {owner}")
        except WireError as error:
            _log.warning("segments ignored host=%s reason=%s", host, error)
            return
        self._delays.take(host, report, now_ns)

    def step(self, now_ns: int) -> BatchPiece | None:
        """Match received reports: rows of completed seconds; `now_ns` is fleet time."""
        return self._own_rows.piece([self._row(each) for each in self._delays.step(now_ns)])

    def _row(self, found: Delays) -> dict[str, object]:
        ordered = sorted(found.delays_ns) or [0]
        return {
            "ts_ns": found.second_ns,
            "job": found.job,
            "src": f"{found.host}/{found.nic}",
            "dst": self._table.nic(found.flow.remote) or found.flow.remote,
            "sport": found.flow.local_port,
            "dport": found.flow.remote_port,
            "count": len(found.delays_ns),
            "owd_min_ns": ordered[0],
            "owd_p50_ns": ordered[len(ordered) // 2],
            "owd_max_ns": ordered[-1],
            "bound_ns": found.bound_ns,
            "clk_err_ns": found.sigma_ns,
            "discarded": found.discarded,
            "unmatched": found.unmatched,
            "why": found.why,
        }


def check(report: SegmentsReport, now_ns: int) -> None:
    """Check that its values are possible.

    Raises:
        WireError: they are not.
    """
    if len(report.flows) > MAX_FLOWS:
        raise WireError(f"{len(report.flows)} flows, over {MAX_FLOWS}")
    if not report.clock:
        if abs(report.at_ns - now_ns) > AWAY_NS or not 0 <= report.at_ns - report.from_ns < AWAY_NS:
            raise WireError(f"from {report.from_ns} to {report.at_ns}: not current")
        if not 0 <= report.bound_ns <= MAX_BOUND_NS or not 0 <= report.sigma_ns <= MAX_BOUND_NS:
            raise WireError(f"bound {report.bound_ns} ns, sigma {report.sigma_ns}")
    for flow in report.flows:
        _check_flow(flow)


def _check_flow(flow: SegmentFlow) -> None:
    for stamps in (flow.sent, flow.received):
        if len(stamps) % STAMP_BYTES or len(stamps) > MAX_STAMPS * STAMP_BYTES:
            raise WireError(f"{len(stamps)} bytes of stamps")
    if not 0 <= flow.shift <= MAX_SHIFT or flow.sampled < 0:
        raise WireError(f"bytes of 2^{flow.shift}, {flow.sampled} sampled")
    if not (0 < flow.local_port < 1 << 16 and 0 < flow.remote_port < 1 << 16):
        raise WireError(f"ports {flow.local_port} and {flow.remote_port}")
