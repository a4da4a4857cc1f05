"""Queue pairs' instants on fleet time, and what the controller makes of the reports."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from tests.traffic.test_queue_pair_delays import NOW_NS, receiver, report, sender, stamps

from syntony.agent.queue_pairs import FleetOffset, fleet_offset, on_fleet_time
from syntony.controller.queue_pairs import QueuePairService
from syntony.model import US, ClockState, S, Timeline
from syntony.traffic.queue_pair_page import STAMP_RECORD
from syntony.wire.queue_pairs import MAX_STAMPS, QueuePairsQuery, QueuePairsReport

# --- onto fleet time ---


def test_instants_follow_a_drifting_clock() -> None:
    before, now = FleetOffset(NOW_NS, 500, 0), FleetOffset(NOW_NS + S, 500 + 100 * US, 0)
    reported = on_fleet_time(sender(sent_stamps=stamps(NOW_NS + S // 2, range(1))), before, now)
    (instant,) = np.frombuffer(reported.sent_stamps, STAMP_RECORD)["at_ns"]
    assert instant == NOW_NS + S // 2 + 500 + 50 * US


def test_an_offset_is_as_good_as_the_clock() -> None:
    line = Timeline(
        node="h0", ref_ns=NOW_NS, offset_ns=500.0, drift_ppb=0.0, sigma_ns=25_000.0,
        state=ClockState.SYNCHRONIZED,
    )  # fmt: skip
    found = fleet_offset(line, NOW_NS, 7 * S)
    assert found is not None
    assert (found.at_ns, found.offset_ns) == (7 * S, NOW_NS + 500 - 7 * S)
    assert 100 * US <= found.bound_ns <= 101 * US  # four sigmas
    assert fleet_offset(None, NOW_NS, 0) is None
    for useless in ({"sigma_ns": 0.3 * S}, {"state": ClockState.UNKNOWN}):
        assert fleet_offset(msgspec.structs.replace(line, **useless), NOW_NS, 0) is None


# --- the controller ---


def test_a_report_becomes_rows_and_an_answer() -> None:
    service = QueuePairService()
    trip = stamps(NOW_NS, range(2), length=40_000)
    service.take("h0", report(sender(round_trips=trip)), NOW_NS + S)
    service.take("h1", report(receiver()), NOW_NS + S)
    piece = service.step(NOW_NS + S)
    assert piece is not None
    (row,) = piece.rows.to_pylist()
    assert (row["src"], row["dst"], row["count"], row["owd_p50_ns"]) == ("h0", "h1", 5, 300 * US)
    assert service.step(NOW_NS + S) is None
    one, two = service.answer(QueuePairsQuery(job="night"), NOW_NS + S).queue_pairs
    assert one.delay is not None
    assert one.round_trip is not None
    assert one.round_trip.p50_ns == 40_000
    assert (two.delay, two.why) == (None, "it sent nothing that takes a receive")
    assert one.figures.sent_stamps == b""
    assert not service.answer(QueuePairsQuery(job="day"), NOW_NS + S).queue_pairs
    assert not service.answer(QueuePairsQuery(), NOW_NS + 30 * S).queue_pairs
    service.forget("h0")
    assert len(service.answer(QueuePairsQuery(), NOW_NS + S).queue_pairs) == 1


@pytest.mark.parametrize(
    "bad",
    [
        report(sender(sent_stamps=b"x")),
        report(bound_ns=-1),
        report(bound_ns=S + 1),
        report(sender(sent_stamps=stamps(NOW_NS, range(MAX_STAMPS + 1)))),
        report(sender(sent_stamps=stamps(NOW_NS + 3 * S))),
        report(*[sender()] * 1025),
        report(at_ns=NOW_NS - 100 * S),
    ],
)
def test_a_report_that_no_agent_makes_is_not_used(
    bad: QueuePairsReport, caplog: pytest.LogCaptureFixture
) -> None:
    service = QueuePairService()
    service.take("h0", bad, NOW_NS + S)
    assert "queue pairs ignored host=h0" in caplog.text
    assert not service.answer(QueuePairsQuery(), NOW_NS + S).queue_pairs
