"""Queue pairs of the fleet's jobs: pairs both agents' reports to compute one-way delays."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec
import numpy as np

from syntony.controller.batches import BatchPiece
from syntony.controller.own_rows import OwnRows
from syntony.errors import WireError
from syntony.model import S
from syntony.traffic.queue_pair_delays import (
    FRESH_NS,
    Direction,
    MessageDelay,
    QueuePairDelays,
    summary,
)
from syntony.traffic.queue_pair_page import STAMP_RECORD
from syntony.traffic.queue_pair_stalls import QueuePairStalls, StallsSeen
from syntony.wire.queue_pairs import (
    MAX_BOUND_NS,
    MAX_QUEUE_PAIRS,
    MAX_STAMPS,
    STAMP_BYTES,
    OneWay,
    QueuePairFigures,
    QueuePairs,
    QueuePairsQuery,
    QueuePairsReport,
    QueuePairView,
)
from syntony.wire.tables import QUEUE_PAIR

_log = logging.getLogger(__name__)

PAIR_INTERVAL_NS = 1 * S
"""Interval of matching messages, which is the interval of agents' reports."""


class QueuePairService:
    """Computes one-way delays of jobs' queue pairs from both ends' reports.

    One per controller; used on its event loop only.
    """

    def __init__(self) -> None:
        self._reports: dict[str, QueuePairsReport] = {}
        self._delays = QueuePairDelays()
        self._stalls = QueuePairStalls()
        self.stalls: StallsSeen | None = None
        """From the last `step`; None before the first."""
        self._own_rows = OwnRows(QUEUE_PAIR)

    def take(self, host: str, report: QueuePairsReport, now_ns: int | None) -> None:
        """Take an agent's newest report; `now_ns` is fleet time. An impossible one is ignored."""
        if now_ns is None:
            return
        try:
            check(report, now_ns)
        except WireError as error:
            _log.warning("queue pairs ignored host=%s reason=%s", host, error)
            return
        self._reports[host] = report
        self._delays.take(host, report)

    def forget(self, host: str) -> None:
        """Its agent is no longer attached."""
        self._reports.pop(host, None)

    def step(self, now_ns: int) -> BatchPiece | None:
        """Match received reports, and detect stalls; `now_ns` is fleet time."""
        self.stalls = self._stalls.look(self._reports, now_ns)
        return self._own_rows.piece([self._row(*each) for each in self._delays.step(now_ns)])

    def answer(self, query: QueuePairsQuery, now_ns: int) -> QueuePairs:
        """Current state; `now_ns` is fleet time."""
        reports = {
            host: report
            for host, report in sorted(self._reports.items())
            if query.host in {"", host} and report.at_ns > now_ns - FRESH_NS
        }
        return QueuePairs(
            now_ns=now_ns,
            queue_pairs=tuple(
                self._view(host, each, now_ns)
                for host, report in reports.items()
                for each in report.queue_pairs
                if query.job in {"", each.job}
            ),
            mismatches=self._delays.mismatches,
            left_out={host: report.left_out for host, report in reports.items() if report.left_out},
            malformed={
                host: report.malformed for host, report in reports.items() if report.malformed
            },
            refused={host: report.refused for host, report in reports.items() if report.refused},
        )

    def _view(self, host: str, figures: QueuePairFigures, now_ns: int) -> QueuePairView:
        delay, peer = self._delays.delay(host, figures, now_ns)
        times = np.frombuffer(figures.round_trips, STAMP_RECORD)
        trips = None
        if len(times):
            trips = summary(times["value"].tolist(), int(times["at_ns"].max()), figures.completed)
        return QueuePairView(
            host=host,
            figures=msgspec.structs.replace(
                figures, sent_stamps=b"", received_stamps=b"", round_trips=b""
            ),
            peer_host=peer,
            delay=delay if isinstance(delay, OneWay) else None,
            why=delay if isinstance(delay, str) else "",
            round_trip=trips,
        )

    @staticmethod
    def _row(
        direction: Direction,
        src: tuple[str, QueuePairFigures],
        dst: str,
        samples: list[MessageDelay],
    ) -> dict[str, object]:
        host, figures = src
        newest_ns = max(each.received_ns for each in samples)
        delay = summary([each.delay_ns for each in samples], newest_ns, 0)
        return {
            "ts_ns": newest_ns // S * S,
            "src": host,
            "dst": dst,
            "job": figures.job,
            "device": figures.device,
            "local": direction[0],
            "number": direction[1],
            "remote": direction[2],
            "peer_number": direction[3],
            "count": delay.count,
            "owd_min_ns": delay.min_ns,
            "owd_p50_ns": delay.p50_ns,
            "owd_max_ns": delay.max_ns,
            "sent": figures.sent,
            "bytes_posted": figures.bytes_posted,
            "errors": figures.errors,
        }


def check(report: QueuePairsReport, now_ns: int) -> None:
    """Raises `WireError`: the report has impossible values."""
    if len(report.queue_pairs) > MAX_QUEUE_PAIRS:
        raise WireError(f"{len(report.queue_pairs)} queue pairs in one report")
    if abs(report.at_ns - now_ns) > 60 * S:
        raise WireError(f"queue pairs as of {report.at_ns}, over a minute from now")
    if not 0 <= report.bound_ns <= MAX_BOUND_NS:
        raise WireError(f"clocks off by {report.bound_ns} ns")
    for each in report.queue_pairs:
        for stamps in (each.sent_stamps, each.received_stamps, each.round_trips):
            if len(stamps) % STAMP_BYTES or len(stamps) > MAX_STAMPS * STAMP_BYTES:
                raise WireError(f"{len(stamps)} bytes of stamps")
            _check_instants(np.frombuffer(stamps, STAMP_RECORD)["at_ns"].tolist(), report.at_ns)


def _check_instants(instants: Iterable[int], at_ns: int) -> None:
    if any(not -60 * S < each - at_ns <= S for each in instants):
        raise WireError("stamps that are not of the last minute")
