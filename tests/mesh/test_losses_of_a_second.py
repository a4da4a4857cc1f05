"""Losses of the second under way: which probes count, which targets answered all the time, and how
often an agent reports."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.mesh.fresh_losses import MAX_PAIRS, LossReportPace, fresh_losses, second_of
from syntony.model import MS, S
from syntony.model.probes import ProbeFlag
from syntony.wire.probes import LossReport, PairLosses, ProbeFlow

T0 = 1_700_000_000 * S
AT = T0 + 2 * S
"""The last report of the second that began at `T0`: of its first 900 ms."""
RECORD = np.dtype(
    [("flow_id", "<u4"), ("flags", "<u4")]
    + [(stamp, "<i8") for stamp in ("sent_ns", "t1_ns", "t2_ns", "t3_ns", "t4_ns")]
)
LOST = int(ProbeFlag.LOST_UNKNOWN)


def flows(*targets: str) -> list[tuple[str, ProbeFlow]]:
    return [
        ("h0/rail0", ProbeFlow(flow_id=n, src="rail0", dst=dst, dst_nic_id=1, dst_addr="",
                               dst_port=1, src_port=61_000 + n, interval_ns=S))
        for n, dst in enumerate(targets)
    ]  # fmt: skip


def report(
    probes: list[tuple[int, int, int, int]], *targets: str, at_ns: int = AT
) -> LossReport | None:
    """Of probes: place of the flow, when sent after `T0`, round trip (0: no stamps), flags."""
    records = np.array(
        [
            (flow, flags, 0, *((T0 + sent, 0, 0, T0 + sent + trip) if trip else (0, 0, 0, 0)))
            for flow, sent, trip, flags in probes
        ],
        dtype=RECORD,
    )
    sent_ns = np.array([T0 + each[1] for each in probes], dtype=np.int64)
    flow = np.array([each[0] for each in probes], dtype=np.intp)
    return fresh_losses(records, sent_ns, flow, flows(*targets), at_ns)


def answered(*slots: int, flow: int = 1, trip: int = MS) -> list[tuple[int, int, int, int]]:
    """One answer for each of these fifths of a second."""
    return [(flow, slot * 200 * MS, trip, 0) for slot in slots]


def lost(at_ns: int, flow: int = 0, flags: int = LOST) -> tuple[int, int, int, int]:
    return flow, at_ns, 0, flags


@pytest.mark.parametrize(
    ("at_ns", "counts"),
    [
        (-1, False), (0, False), (200 * MS - 1, False), (200 * MS, True),
        (900 * MS - 1, True), (900 * MS, False),
    ],
)  # fmt: skip
def test_losses_count_from_the_second_slot_to_the_end_of_what_has_settled(
    at_ns: int, counts: bool
) -> None:
    assert (report([lost(at_ns)], "h1/rail0") is not None) == counts


def test_what_was_sent_in_the_last_eleven_hundred_milliseconds_may_be_answered_yet() -> None:
    at_ns = T0 + 1_700 * MS
    assert report([lost(600 * MS)], "h1/rail0", at_ns=at_ns) is None
    assert report([lost(600 * MS - 1)], "h1/rail0", at_ns=at_ns) is not None


def test_a_probe_that_the_host_itself_held_up_is_not_lost() -> None:
    stalled = LOST | int(ProbeFlag.STALL_LOCAL)
    assert report([lost(300 * MS, flags=stalled)], "h1/rail0") is None


def test_pairs_say_what_they_lost_on_how_many_paths_the_worst_first() -> None:
    probes = [lost(300 * MS, 0), lost(400 * MS, 1), lost(500 * MS, 1), lost(600 * MS, 2)]
    found = report(probes, "h1/rail0", "h2/rail0", "h2/rail0")
    assert found is not None
    assert found.at_ns == AT
    assert found.pairs == (
        PairLosses(src="h0/rail0", dst="h2/rail0", lost=3, paths=2),
        PairLosses(src="h0/rail0", dst="h1/rail0", lost=1, paths=1),
    )


def test_of_many_pairs_the_sixteen_that_lost_most_are_reported() -> None:
    targets = [f"h{number}/rail0" for number in range(1, 21)]
    probes = [lost(300 * MS, flow) for flow in range(20) for _ in range(flow + 1)]
    found = report(probes, *targets)
    assert found is not None
    assert [pair.lost for pair in found.pairs] == list(range(20, 4, -1))
    assert MAX_PAIRS == 16


@pytest.mark.parametrize(
    ("answers", "prompt"),
    [
        # Five slots that have begun and one more, in which what was lost last may have waited.
        (answered(0, 1, 2, 3, 4, 5), ("h2",)),
        (answered(0, 1, 2, 3, 4), ()),
        (answered(1, 2, 3, 4, 5), ()),
        (answered(0, 1, 3, 4, 5), ()),
        (answered(5), ()),
        (answered(-1, 0, 1, 2, 3, 4, 5, 6), ("h2",)),
        (answered(0, 1, 2, 4, 5) + answered(3, flow=2), ("h2",)),
        (answered(0, 1, 2, 4, 5) + answered(3, flow=0), ()),
        (answered(0, 1, 2, 4, 5) + answered(3, trip=300 * MS - 1), ("h2",)),
        (answered(0, 1, 2, 4, 5) + answered(3, trip=300 * MS), ()),
        ([*answered(0, 1, 2, 4, 5), (1, 600 * MS, 0, 0)], ()),
        ([*answered(0, 1, 2, 4, 5), (1, 600 * MS, MS, LOST)], ()),
    ],
)
def test_a_target_is_prompt_if_it_answered_in_every_slot(
    answers: list[tuple[int, int, int, int]], prompt: tuple[str, ...]
) -> None:
    """By any of its NICs."""
    found = report([lost(300 * MS), *answers], "h1/rail0", "h2/rail0", "h2/rail1")
    assert found is not None
    assert found.prompt == prompt


def test_early_in_a_second_fewer_slots_count() -> None:
    probes = [lost(300 * MS), *answered(0, 1, 2)]
    found = report(probes, "h1/rail0", "h2/rail0", at_ns=T0 + 1_500 * MS)
    assert found is not None
    assert found.prompt == ("h2",)
    probes = [lost(300 * MS), *answered(0, 1)]
    found = report(probes, "h1/rail0", "h2/rail0", at_ns=T0 + 1_500 * MS)
    assert found is not None
    assert found.prompt == ()


def test_the_second_of_a_report_is_that_of_the_newest_probe_that_has_settled() -> None:
    assert second_of(T0 + 1_100 * MS - 1) == T0 // S - 1
    assert second_of(T0 + 1_100 * MS) == T0 // S


def sent(*seconds: int) -> list[int]:
    """How many of five reports of each of these seconds an agent sends."""
    pace = LossReportPace()
    return [
        sum(
            pace.allows(LossReport(at_ns=T0 + second * S + step * 200 * MS, pairs=(), prompt=()))
            for step in range(6, 11)
        )
        for second in seconds
    ]


def test_losses_are_reported_five_times_a_second_for_three_seconds_then_once() -> None:
    assert sent(0, 1, 2, 3, 4, 5) == [5, 5, 5, 1, 1, 1]


def test_after_a_second_without_losses_they_are_news_again() -> None:
    assert sent(0, 1, 2, 3, 5, 6, 7, 8) == [5, 5, 5, 1, 5, 5, 5, 1]
