"""Rows of one-way delays: what both hosts' reports become, and what is not believed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.traffic.segment_world import T0
from tests.traffic.test_segment_delays import B, flow, report, stamps

from syntony.controller.batches import joined
from syntony.controller.flow_table import FlowTable
from syntony.controller.segments import AWAY_NS, SegmentService
from syntony.model import MS, S
from syntony.traffic.classes import Classes
from syntony.traffic.segment_delays import NO_RECEIVER
from syntony.wire.segments import MAX_FLOWS, MAX_STAMPS, SegmentFlow, SegmentsReport

SENT = [(2 * S + place * MS, place * B) for place in range(1, 6)]
CAME = [(at_ns + place * 1_000, number) for place, (at_ns, number) in enumerate(SENT, 1)]


class Service:
    def __init__(self) -> None:
        self.now_ns: int | None = T0 + 3 * S
        table = FlowTable(None, Classes(()))
        table.nics({"10.0.0.1": "h0/rail0", "10.0.0.2": "h1/rail0"})
        self.service = SegmentService(lambda: self.now_ns, table)

    def rows(self) -> list[dict[str, Any]]:
        piece = self.service.step(T0 + 20 * S)
        return [] if piece is None else list(piece.rows.to_pylist())


def sent() -> SegmentsReport:
    return report(0, 3 * S, flow(sends=True, made=stamps(*SENT)))


def came() -> SegmentsReport:
    return report(0, 3 * S, flow(sends=False, made=stamps(*CAME)))


def test_both_reports_become_the_row_of_a_second() -> None:
    service = Service()
    service.service.take("h0", sent())
    service.service.take("h1", came())
    (row,) = service.rows()
    assert (row["ts_ns"], row["job"], row["src"], row["dst"], row["sport"], row["dport"]) == (
        T0 + 2 * S, "night", "h0/rail0", "h1/rail0", 40_000, 5_000)  # fmt: skip
    assert (row["count"], row["owd_min_ns"], row["owd_p50_ns"], row["owd_max_ns"]) == (
        5, 1_000, 3_000, 5_000)  # fmt: skip
    assert (row["bound_ns"], row["discarded"], row["unmatched"], row["why"]) == (200, 0, 0, "")
    assert row["clk_err_ns"] == pytest.approx(3 * 2**0.5)
    assert service.rows() == []


def test_rows_can_be_joined_with_others_for_the_store() -> None:
    service = Service()
    service.service.take("h0", sent())
    piece = service.service.step(T0 + 20 * S)
    assert piece is not None
    assert joined([piece, piece]).num_rows == 2


def test_what_is_not_measured_has_a_row_that_says_why() -> None:
    service = Service()
    service.service.take("h0", sent())
    (row,) = service.rows()
    assert (row["count"], row["owd_p50_ns"], row["why"]) == (0, 0, NO_RECEIVER)


def changed(**fields: Any) -> SegmentsReport:
    return msgspec.structs.replace(sent(), **fields)


def of_flow(**fields: Any) -> SegmentsReport:
    (one,) = sent().flows
    return changed(flows=(msgspec.structs.replace(one, **fields),))


MADE: SegmentFlow = sent().flows[0]


@pytest.mark.parametrize(
    "bad",
    [
        changed(at_ns=T0 + 3 * S + AWAY_NS + 1),
        changed(from_ns=T0 + 3 * S + 1),
        changed(from_ns=T0 + 3 * S - AWAY_NS),
        changed(bound_ns=-1),
        changed(bound_ns=S + 1),
        changed(sigma_ns=float("nan")),
        changed(flows=(MADE,) * (MAX_FLOWS + 1)),
        of_flow(sent=MADE.sent[:-1]),
        of_flow(received=bytes(12 * (MAX_STAMPS + 1))),
        of_flow(shift=29),
        of_flow(shift=-1),
        of_flow(sampled=-1),
        of_flow(local_port=0),
        of_flow(remote_port=1 << 16),
        of_flow(local="10.0.0.2"),
    ],
)
def test_a_report_that_cannot_be_is_not_used(
    bad: SegmentsReport, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service()
    service.service.take("h0", bad)
    service.service.take("h1", came())
    assert service.rows() == []
    assert "segments ignored host=h0" in caplog.text


def test_nothing_is_taken_while_there_is_no_fleet_time() -> None:
    service = Service()
    service.now_ns = None
    service.service.take("h0", sent())
    assert service.rows() == []
