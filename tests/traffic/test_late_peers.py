"""Whose silence it is: that of one NIC of a peer, or of the peer."""

from __future__ import annotations

import pytest

from syntony.model import MS
from syntony.model.paths import FourTuple
from syntony.traffic.late_peers import BACK_NS, PEER_NS, late_until_ns
from syntony.traffic.pair_timeouts import PairTimeouts
from syntony.traffic.pairs import ConnectionProgress, Pair, PairReplies

NOW_NS = 10_000 * MS
SINCE_NS = NOW_NS - 200 * MS
SILENT: Pair = ("n0", "10.0.0.2")
OTHERS: list[Pair] = [("n1", "10.1.0.2"), ("n0", "10.1.0.2"), ("n2", "10.2.0.2")]


def answered(
    ms: int, *, back_ms: int = 0, gap_ms: int = 0, host: str = "b", silent: bool = False
) -> PairReplies:
    """Last so long ago; after a silence of `gap_ms` that ended `back_ms` ago."""
    return PairReplies(
        NOW_NS - ms * MS, 4, host, silent=silent, rtt_ns=MS, gap_ns=gap_ms * MS,
        steady_ns=NOW_NS - back_ms * MS if gap_ms else 0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("others", "more_ms"),
    [
        ([], None),
        ([answered(1, host="c")], None),
        ([answered(1)], None),
        ([answered(189)], None),
        ([answered(190)], 10),  # it was not awake since, as far as we know
        ([answered(1, silent=True)], 10),
        ([answered(1, back_ms=20, gap_ms=100)], 80),  # as long as it was silent
        ([answered(1, back_ms=20, gap_ms=20)], None),
        ([answered(1, back_ms=20, gap_ms=3_000)], 230),  # at most
        ([answered(1, back_ms=200, gap_ms=3_000)], None),  # the silent NIC was back as well
        ([answered(1, back_ms=199, gap_ms=3_000)], 51),
        ([answered(1, back_ms=20, gap_ms=100), answered(1, back_ms=50, gap_ms=90)], 40),
        ([answered(1, back_ms=20, gap_ms=100), answered(1)], None),  # it was awake all the time
        ([answered(1, back_ms=20, gap_ms=100), answered(1, host="c")], 80),
        ([answered(190), answered(1, back_ms=20, gap_ms=100)], 80),
    ],
)
def test_until_when_a_silence_is_the_peers(others: list[PairReplies], more_ms: int | None) -> None:
    assert (BACK_NS, PEER_NS) == (250 * MS, 10 * MS)
    answers = dict(zip(OTHERS, others, strict=False))
    until_ns = late_until_ns(SILENT, "b", SINCE_NS, answers, NOW_NS)
    if more_ms is None:
        assert until_ns <= NOW_NS
    else:
        assert until_ns == NOW_NS + more_ms * MS


def test_another_address_of_the_silent_nic_is_no_witness() -> None:
    answers = {("n1", SILENT[1]): answered(1, back_ms=1, gap_ms=100)}
    assert late_until_ns(SILENT, "b", SINCE_NS, answers, NOW_NS) <= NOW_NS


@pytest.mark.parametrize(("back_ms", "dead"), [(60, False), (100, True)])
def test_waiting_data_end_no_path_of_a_peer_that_has_just_come_back(
    back_ms: int, *, dead: bool
) -> None:
    silent = answered(200, silent=True)._replace(unresponsive=True)
    answers = {SILENT: silent, OTHERS[0]: answered(1, back_ms=back_ms, gap_ms=100)}
    flow = FourTuple("10.0.0.1", 40_000, "10.0.0.2", 5_000)
    flows = {SILENT: [ConnectionProgress(flow, SINCE_NS, MS, 190 * MS, streams=True)]}
    found = PairTimeouts().dead(answers, flows, 5 * MS, NOW_NS, lambda _pair, _now_ns: 0)
    assert (SILENT in found) is dead
