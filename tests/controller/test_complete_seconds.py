"""Which seconds are complete in the store."""

from __future__ import annotations

from syntony.controller.complete_seconds import MAX_LATE_NS, MISSED_S
from syntony.controller.complete_seconds import last_complete as settled
from syntony.mesh.stats import HOLD_NS
from syntony.model import MS, S

N = 1_700_000_000
"""A second."""
OVER_NS = (N + 1) * S
LATEST_NS = HOLD_NS + MAX_LATE_NS


def last_complete(probed: dict[str, int], now_ns: int) -> int:
    return settled(probed, now_ns, HOLD_NS)


def test_a_second_settles_with_its_last_host() -> None:
    now_ns = OVER_NS + HOLD_NS + 400 * MS
    assert last_complete({"h0": N * S, "h1": (N - 1) * S}, now_ns) == N - 1
    assert last_complete({"h0": N * S, "h1": N * S + 5}, now_ns) == N


def test_no_second_settles_before_it_can_have_been_told() -> None:
    assert last_complete({"h0": (N + 7) * S}, OVER_NS + HOLD_NS - 1) == N - 1
    assert last_complete({"h0": (N + 7) * S}, OVER_NS + HOLD_NS) == N


def test_a_late_host_is_waited_for_but_not_for_ever() -> None:
    late = {"h0": N * S, "h1": (N - 1) * S}
    assert last_complete(late, OVER_NS + LATEST_NS - 1) == N - 1
    assert last_complete(late, OVER_NS + LATEST_NS) == N


def test_a_host_that_has_long_told_nothing_is_not_waited_for() -> None:
    now_ns = OVER_NS + HOLD_NS + 400 * MS
    assert last_complete({"h0": N * S, "h1": (N - MISSED_S) * S}, now_ns) == N - 2
    assert last_complete({"h0": N * S, "h1": (N - MISSED_S - 1) * S}, now_ns) == N


def test_without_a_word_of_any_host_time_alone_decides() -> None:
    assert last_complete({}, OVER_NS + LATEST_NS) == N
    assert last_complete({}, OVER_NS + LATEST_NS - 1) == N - 1
